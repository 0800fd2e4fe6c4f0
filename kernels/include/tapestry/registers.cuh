// What registers a thread has, traded between the warpgroups of a block. Needs sm_90a.
#pragma once

namespace tapestry {

// Registers of a thread from here on: what some warpgroups leave others take.
template <int Count>
__device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

// A value that stays in a register: the compiler cannot work it out again, as it does with addresses of shared memory at the cost
// of some forty clocks wherever one is needed.
__device__ __forceinline__ unsigned kept(unsigned value) {
    asm volatile("" : "+r"(value));
    return value;
}

// The first or the second halves of two words, side by side, by one instruction: the compiler takes two for shifts and masks.
__device__ __forceinline__ unsigned first_halves(unsigned low, unsigned high) {
    unsigned both;
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(both) : "r"(low), "r"(high));
    return both;
}
__device__ __forceinline__ unsigned second_halves(unsigned low, unsigned high) {
    unsigned both;
    asm("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(both) : "r"(low), "r"(high));
    return both;
}

}  // namespace tapestry
