// Swizzled shared memory: the places of 16-byte chunks are permuted so that eight consecutive rows of a tile lie in
// different banks. The bulk tensor copies of Hopper write and read the same permutations.
//
//   Swizzle<128>: rows of 128 bytes; address bits 4..6 ^= bits 7..9     repeats every 1,024 bytes
//   Swizzle<64>:  rows of 64 bytes;  address bits 4..5 ^= bits 7..8     repeats every 512 bytes
//   Swizzle<32>:  rows of 32 bytes;  address bit 4     ^= bit 7         repeats every 256 bytes
//   Swizzle<0>:   none
//
// They speak of address bits, so the buffer is aligned to `period` bytes. Source: PTX ISA, "Tensor swizzling modes".
#pragma once

#include <tapestry/portable.cuh>

namespace tapestry {

template <int RowBytes>
struct Swizzle {
    static_assert(RowBytes == 0 || RowBytes == 32 || RowBytes == 64 || RowBytes == 128,
                  "tapestry: a swizzle is for rows of 0 (none), 32, 64 or 128 bytes");
    // After so many bytes the permutation repeats; a step by a multiple of it leaves the permuted bits alone.
    static TAPESTRY_FN constexpr int period() { return RowBytes == 0 ? 1 : RowBytes * 8; }
    // A cursor may step by multiples of this; see Settled.
    static TAPESTRY_FN constexpr int step() { return 1; }
    static TAPESTRY_FN constexpr bool trivial() { return RowBytes == 0; }

    template <class Address>
    static TAPESTRY_FN constexpr Address apply(Address address) {
        constexpr Address bits = RowBytes == 0 ? 0 : RowBytes - 16;
        return address ^ ((address >> 3) & bits);
    }
};
using NoSwizzle = Swizzle<0>;

// An address whose swizzle has been applied already: only steps that do not change the permuted bits remain.
template <int Period>
struct Settled {
    static TAPESTRY_FN constexpr int period() { return Period; }
    static TAPESTRY_FN constexpr int step() { return Period; }
    static TAPESTRY_FN constexpr bool trivial() { return true; }

    template <class Address>
    static TAPESTRY_FN constexpr Address apply(Address address) {
        return address;
    }
};

}  // namespace tapestry
