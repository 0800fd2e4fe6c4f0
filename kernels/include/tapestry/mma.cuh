// Tensor-core products of one warp and the 8x8 matrix moves that feed them.
//
// A fragments hold 16 positions, B fragments 8 output channels, D four f32 a lane:
// d[0], d[1] at position lane / 4, channels 2 (lane % 4) and the next; d[2], d[3] eight positions further.
#pragma once

#include <tapestry/numeric.cuh>

namespace tapestry {

// d += a [16 x 16] * b [16 x 8], or d = a * b where `fresh`.
template <class Half>
__device__ void mma_k16(float (&d)[4], const unsigned (&a)[4], const unsigned* b, bool fresh);

template <class Half>
__device__ void mma_k8(float (&d)[4], const unsigned* a, const unsigned* b, bool fresh);

#define TAPESTRY_MMA(HALF, TYPE)                                                                                    \
    template <>                                                                                                     \
    __device__ __forceinline__ void mma_k16<HALF>(float (&d)[4], const unsigned (&a)[4], const unsigned* b,         \
                                                  bool fresh) {                                                     \
        const float c0 = fresh ? 0.0f : d[0], c1 = fresh ? 0.0f : d[1];                                             \
        const float c2 = fresh ? 0.0f : d[2], c3 = fresh ? 0.0f : d[3];                                             \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                                         \
                     ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                               \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c0), "f"(c1), "f"(c2), \
                       "f"(c3));                                                                                    \
    }                                                                                                               \
    template <>                                                                                                     \
    __device__ __forceinline__ void mma_k8<HALF>(float (&d)[4], const unsigned* a, const unsigned* b, bool fresh) { \
        const float c0 = fresh ? 0.0f : d[0], c1 = fresh ? 0.0f : d[1];                                             \
        const float c2 = fresh ? 0.0f : d[2], c3 = fresh ? 0.0f : d[3];                                             \
        asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE                                          \
                     ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"                                           \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                               \
                     : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c0), "f"(c1), "f"(c2), "f"(c3));                        \
    }

TAPESTRY_MMA(F16, "f16")
TAPESTRY_MMA(Bf16, "bf16")
#undef TAPESTRY_MMA

// Four 8x8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8 by its shared address.
__device__ __forceinline__ void load_matrices(unsigned (&m)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

// Two matrices; the addresses of lanes 16 to 31 are ignored.
__device__ __forceinline__ void load_matrices(unsigned (&m)[2], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(m[0]), "=r"(m[1])
                 : "r"(address)
                 : "memory");
}

// The same, each matrix transposed: lane l gets elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
__device__ __forceinline__ void load_transposed(unsigned& m0, unsigned& m1, unsigned& m2, unsigned& m3, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                 : "r"(address)
                 : "memory");
}

// The same, or zeros: a whole warp wants it or does not. Without a branch, across which products of warpgroups would wait for each other.
__device__ __forceinline__ void load_transposed_where(bool wanted, unsigned& m0, unsigned& m1, unsigned& m2, unsigned& m3, unsigned address) {
    m0 = m1 = m2 = m3 = 0u;
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n}"
        : "+r"(m0), "+r"(m1), "+r"(m2), "+r"(m3)
        : "r"(address), "r"(unsigned(wanted))
        : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned& m0, unsigned& m1, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(m0), "=r"(m1)
                 : "r"(address)
                 : "memory");
}

// A matrix of which lane l has elements (l / 4, 2 (l % 4)) and the next, transposed.
__device__ __forceinline__ unsigned transposed(unsigned matrix) {
    unsigned turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(matrix));
    return turned;
}

__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(m[0]), "r"(m[1]),
                 "r"(m[2]), "r"(m[3])
                 : "memory");
}

__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&m)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(m[0]), "r"(m[1])
                 : "memory");
}

}  // namespace tapestry
