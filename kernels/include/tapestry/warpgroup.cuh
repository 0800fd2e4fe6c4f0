// Matrix products of a warpgroup on the tensor cores, both operands in shared memory (wgmma.cuh: the left one in registers).
// Needs sm_90a.
#pragma once

#include <tapestry/async.cuh>
#include <tapestry/registers.cuh>
#include <tapestry/wgmma.cuh>

namespace tapestry {

// Where an operand lies, swizzled by 128 bytes, addresses and steps in 16 bytes. Folded elements next to each other: lines of
// 64 of them, `step` is that of eight lines, and `leap` says nothing. Otherwise: lines of 64 of the others, eight folded
// ones `step` apart, and the next 64 of the others `leap` further.
__device__ __forceinline__ unsigned long long operand(unsigned address, unsigned leap, unsigned step) {
    return (unsigned long long)((address & 0x3FFFFu) >> 4) | (unsigned long long)(leap >> 4) << 16 |
           (unsigned long long)(step >> 4) << 32 | 1ull << 62;
}

#define TAPESTRY_EIGHT(k) "+f"(d[k]), "+f"(d[k + 1]), "+f"(d[k + 2]), "+f"(d[k + 3]), "+f"(d[k + 4]), "+f"(d[k + 5]), "+f"(d[k + 6]), "+f"(d[k + 7])

// d [64, 256] = a [64, 16] b [16, 256], added to what d was where `more`. Across: b's lines are of the 256, not of the 16.
template <bool Across>
__device__ __forceinline__ void multiply_bf16(float (&d)[128], unsigned long long a, unsigned long long b, int more) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, %131;\n}"
        : TAPESTRY_EIGHT(0), TAPESTRY_EIGHT(8), TAPESTRY_EIGHT(16), TAPESTRY_EIGHT(24), TAPESTRY_EIGHT(32),
          TAPESTRY_EIGHT(40), TAPESTRY_EIGHT(48), TAPESTRY_EIGHT(56), TAPESTRY_EIGHT(64), TAPESTRY_EIGHT(72),
          TAPESTRY_EIGHT(80), TAPESTRY_EIGHT(88), TAPESTRY_EIGHT(96), TAPESTRY_EIGHT(104), TAPESTRY_EIGHT(112),
          TAPESTRY_EIGHT(120)
        : "l"(a), "l"(b), "r"(more), "n"(int(Across)));
}

#undef TAPESTRY_EIGHT

// Boxes of two-dimensional maps: to the same place of every block of the cluster that `blocks` has a bit for, whose own
// barriers count the bytes; or from shared memory, what lies beyond the tensor being dropped.
__device__ __forceinline__ void load_lines(unsigned to, const TensorMap& map, int inner, int outer, Barrier on) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2,%3}], [%4];" ::"r"(to),
        "l"(&map), "r"(inner), "r"(outer), "r"(on.address)
        : "memory");
}
__device__ __forceinline__ void load_lines_to(unsigned to, const TensorMap& map, int inner, int outer, Barrier on,
                                              unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2,%3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(inner), "r"(outer), "r"(on.address), "h"(blocks)
        : "memory");
}
__device__ __forceinline__ void store_lines(const TensorMap& map, int inner, int outer, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1,%2}], [%3];" ::"l"(&map), "r"(inner),
                 "r"(outer), "r"(from)
                 : "memory");
}

// Arrives at the barrier that another block of the cluster has at the same place.
__device__ __forceinline__ void arrive_in_block(Barrier mine, unsigned rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_block(mine.address, rank)) : "memory");
}

}  // namespace tapestry
