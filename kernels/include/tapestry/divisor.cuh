// Division by a number that the launch knows and the compiler does not: a multiplication and a shift.
//
// A run-time division is some thirty dependent instructions, and what a block does before its first load is time that nobody
// gets back. The factor and the shift are those of Granlund and Montgomery (Division by Invariant Integers using
// Multiplication, 1994), computed by kernels/convolution/divisor.py; right for dividends from 0 to 2^31 - 1.
#pragma once

#include <tapestry/portable.cuh>

namespace tapestry {

struct Divisor {
    int value;
    unsigned factor, shift;

    TAPESTRY_FN int quotient(int dividend) const {
        const unsigned n = static_cast<unsigned>(dividend);
        const unsigned high = static_cast<unsigned>(static_cast<unsigned long long>(n) * factor >> 32);
        return static_cast<int>((high + n) >> shift);
    }
    TAPESTRY_FN int remainder(int dividend, int quotient) const { return dividend - quotient * value; }
};

}  // namespace tapestry
