// Two products of the same rows and a function of both sums, bf16 added up in f32. Needs sm_90a.
//
//     out[m, n] = Pair::of(sum[k] x[m, k] first[k, n], sum[k] x[m, k] second[k, n])
//
// A cluster of two blocks computes 256 rows of 128 columns; a block 128 rows, by two warpgroups that multiply and one that
// fetches. The columns of both weights lie side by side in shared memory, so that one product gives both sums of a column
// to the same thread, and neither is written. Each block fetches its own rows, and one of the weights for both.
#pragma once

#include <tapestry/warpgroup.cuh>

namespace tapestry::paired {

constexpr int ROWS = 128, COLUMNS = 128, FOLDED = 64, LINE = 128;  // of a block; a line is of 64 elements, 128 bytes
constexpr int STAGES = 4, MULTIPLIERS = 2, BLOCKS = 2, TALL = 8;   // tiles of a column that come before the next column
constexpr unsigned X_BYTES = ROWS * LINE, W_BYTES = 2 * COLUMNS * LINE, HALF = W_BYTES / 2, BOX = FOLDED * LINE;
constexpr unsigned OUT_BYTES = MULTIPLIERS * 64 * COLUMNS * 2;
constexpr unsigned STAGE = X_BYTES + W_BYTES, BARRIERS = STAGES * STAGE + OUT_BYTES;
constexpr unsigned WARPS = 4;

struct Tile {
    int row, column;
};

__device__ __forceinline__ Tile tile_at(int number, int tall, int wide) {
    const int group = number / (TALL * wide), first = group * TALL, within = number % (TALL * wide);
    const int size = min(TALL, tall - first);
    return {(first + within % size) * ROWS * BLOCKS, within / size * COLUMNS};
}

__device__ __forceinline__ unsigned pair(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ void store_pair(unsigned to, unsigned both) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(both) : "memory");
}

// 64 rows of results to shared memory, in two boxes of 64 columns, swizzled as the copy engine takes them.
template <class Pair>
__device__ __forceinline__ void put(const float (&sums)[128], unsigned to) {
    const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 % WARPS * 16 + lane / 4;
#pragma unroll
    for (int octet = 0; octet < COLUMNS / 8; ++octet) {
        const unsigned box = to + octet / 8 * BOX + lane % 4 * 4, place = (octet % 8 ^ row % 8) * 16;
        const float *low = sums + 4 * octet, *high = sums + 4 * octet + 64;
        store_pair(box + row * LINE + place, pair(Pair::of(low[0], high[0]), Pair::of(low[1], high[1])));
        store_pair(box + (row + 8) * LINE + place, pair(Pair::of(low[2], high[2]), Pair::of(low[3], high[3])));
    }
}

template <bool Across>
__device__ __forceinline__ void fetch(const TensorMap& x, const TensorMap& first, const TensorMap& second, int tall, int wide,
                                      int folded, unsigned base, unsigned rank) {
    Ring<STAGES> ring;
    const TensorMap& mine = rank == 0 ? first : second;
    for (int number = blockIdx.x / BLOCKS; number < tall * wide; number += gridDim.x / BLOCKS) {
        const Tile tile = tile_at(number, tall, wide);
        for (int k = 0; k < folded; k += FOLDED) {
            const Barrier full{base + BARRIERS + ring.slot * 8}, empty{full.address + STAGES * 8};
            const unsigned to = base + ring.slot * STAGE, half = to + X_BYTES + rank * HALF;
            empty.wait(ring.parity ^ 1u);
            full.arrive_expecting(STAGE);
            load_lines(to, x, k, tile.row + int(rank) * ROWS, full);
            if constexpr (Across) {
                load_lines_to(half, mine, tile.column, k, full, 3);
                load_lines_to(half + BOX, mine, tile.column + 64, k, full, 3);
            } else {
                load_lines_to(half, mine, k, tile.column, full, 3);
            }
            ring.advance();
        }
    }
}

// What was read of a stage, by all warps of both blocks, may be overwritten: each lane 0 and 1 tells one block.
__device__ __forceinline__ void release(unsigned base, unsigned slot) {
    const unsigned lane = threadIdx.x % 32;
    if (lane < BLOCKS) arrive_in_block(Barrier{base + BARRIERS + (STAGES + slot) * 8}, lane);
}

template <bool Across, class Pair>
__device__ __forceinline__ void compute(const TensorMap& out, int tall, int wide, int folded, unsigned base, unsigned rank,
                                        unsigned group) {
    Ring<STAGES> ring;
    float sums[128];
    const unsigned staged = base + STAGES * STAGE + group * 64 * COLUMNS * 2;
    const bool leads = threadIdx.x % 128 == 0;
    for (int number = blockIdx.x / BLOCKS; number < tall * wide; number += gridDim.x / BLOCKS) {
        unsigned before = 0;
        for (int k = 0; k < folded; k += FOLDED) {
            const unsigned at = base + ring.slot * STAGE;
            Barrier{base + BARRIERS + ring.slot * 8}.wait(ring.parity);
            const unsigned long long x = operand(at + group * 64 * LINE, 16, 8 * LINE);
            const unsigned long long w = operand(at + X_BYTES, Across ? BOX : 16, 8 * LINE);
            pin(sums);
            begin_products();
#pragma unroll
            for (int part = 0; part < FOLDED / 16; ++part) {
                multiply_bf16<Across>(sums, x + part * 2, w + part * (Across ? 16 * LINE / 16 : 2), k | part);
            }
            commit_products();
            pin(sums);
            wait_products<1>();
            if (k) release(base, before);
            before = ring.slot;
            ring.advance();
        }
        wait_products<0>();
        pin(sums);
        release(base, before);
        if (leads) wait_stores_read<0>();
        meet(1 + int(group), 128);
        put<Pair>(sums, staged);
        fence_for_copy_engine();
        meet(1 + int(group), 128);
        if (leads) {
            const Tile tile = tile_at(number, tall, wide);
            const int row = tile.row + int(rank) * ROWS + int(group) * 64;
            store_lines(out, tile.column, row, staged);
            store_lines(out, tile.column + 64, row, staged + BOX);
            commit_stores();
        }
    }
    if (leads) wait_stores_read<0>();
}

// By blocks of 384 threads in clusters of two. Across: the columns of the weights lie together, not what is folded.
template <bool Across, class Pair>
__device__ __forceinline__ void multiply(const TensorMap& x, const TensorMap& first, const TensorMap& second,
                                         const TensorMap& out, int tall, int wide, int folded) {
    extern __shared__ unsigned char memory[];
    const unsigned base = (shared_address(memory) + 1023u) & ~1023u, rank = blockIdx.x % BLOCKS, group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (unsigned slot = 0; slot < STAGES; ++slot) {
            Barrier{base + BARRIERS + slot * 8}.init(1);
            Barrier{base + BARRIERS + (STAGES + slot) * 8}.init(BLOCKS * MULTIPLIERS * WARPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    pass_cluster();
    wait_for_cluster();
    if (group == MULTIPLIERS) {
        leave_registers<40>();
        if (threadIdx.x == MULTIPLIERS * 128) fetch<Across>(x, first, second, tall, wide, folded, base, rank);
    } else {
        take_registers<232>();
        compute<Across, Pair>(out, tall, wide, folded, base, rank, group);
    }
    pass_cluster();  // nobody leaves while the other block still writes to it, or tells it what was read
    wait_for_cluster();
}

}  // namespace tapestry::paired
