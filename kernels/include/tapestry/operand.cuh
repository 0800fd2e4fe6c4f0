// The description of a right operand in shared memory, of a warpgroup's products (wgmma.cuh).
#pragma once

namespace tapestry {

// How the right operand lies in shared memory, behind an address: as the instruction wants it described.
//
// `plain`: octets of depth, 16 bytes, one column of the product after the other; `leading` bytes to the next octet of
// depth, `stride` to the next eight columns. `turned`: columns side by side in lines of 32, 64 or 128 bytes, in the copy
// engine's swizzle of that size, one place of the depth a line; `leading` bytes to the columns of the next line, `stride` to
// the next eight places.
enum class Lies { plain, turned };

constexpr unsigned OPERAND_BYTES = (1u << 18) - 1;    // of an address: above them is, in a cluster, which block's it is

template <Lies lies, int line = 0>
__device__ __forceinline__ unsigned long long right_operand(unsigned address, unsigned leading, unsigned stride) {
    constexpr unsigned long long swizzle = lies == Lies::plain ? 0 : line == 128 ? 1 : line == 64 ? 2 : 3;
    return swizzle << 62 | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)(leading >> 4) << 16 |
           (address & OPERAND_BYTES) >> 4;
}

// The same operand so many bytes further on.
__device__ __forceinline__ unsigned long long further(unsigned long long operand, unsigned bytes) {
    return operand + (bytes >> 4);
}

}  // namespace tapestry
