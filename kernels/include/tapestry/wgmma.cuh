// Products of four neighbouring warps at once (a warpgroup), asynchronous: the left operand in registers, 16 positions of each
// warp, the right one in shared memory. Needs sm_90a.
//
// A warp's part of the left operand and of the sums is that of mma.m16n8k16 (mma.cuh): sums 4 j to 4 j + 3 are octet j.
#pragma once

#include <tapestry/numeric.cuh>
#include <tapestry/operand.cuh>

namespace tapestry {

// Before products: what registers hold is there.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes a group of products.
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `Pending` of the newest groups are not done.
template <int Pending>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Nothing that uses these registers passes this place.
template <int Count>
__device__ __forceinline__ void pin(float (&sums)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// d += a * b, or d = a * b where `fresh`: 64 positions, `Count` / 4 octets of columns, 16 places deep. The instances are
// generated beside the kernel (`TAPESTRY_PRODUCT`).
template <class Half, Lies lies, int Count>
__device__ void multiply_group(float (&d)[Count], const unsigned (&a)[4], unsigned long long b, bool fresh);

}  // namespace tapestry

#define TAPESTRY_PRODUCT(HALF, LIES, COUNT, ...)                                                                       \
    template <>                                                                                                        \
    __device__ __forceinline__ void tapestry::multiply_group<HALF, LIES, COUNT>(                                       \
        float (&d)[COUNT], const unsigned (&a)[4], unsigned long long b, bool fresh) {                                 \
        asm volatile(__VA_ARGS__);                                                                                     \
    }
