// Products of a thin matrix, of a few rows, and a wide one, which is read once.
//
//     out[m, n] = sum[k] thin[m, k] wide[k, n] (+ added[m, n])         all added up in f32
#pragma once

#include <tapestry/cluster.cuh>
#include <tapestry/functions.cuh>
#include <tapestry/elements.cuh>
#include <tapestry/order.cuh>
#include <tapestry/rows.cuh>

namespace tapestry {

// Where thin, wide and out lie: elements from row to row and from column to column; of the wide one, from line to line.
struct ThinSteps {
    Int thin_row, thin_column, line, out_row, out_column;
};

template <class S>
TAPESTRY_FN void put_sum(S* out, const S* added, Int at, float sum) {
    store_one(out + at, narrow<S>(added ? sum + float(widen(load_one(added + at))) : sum));
}

// What the blocks of a cluster that share the lines of a tile leave with the first of them.
template <int SIZE, int BLOCKS>
struct Shares {
    float sums[BLOCKS - 1][SIZE];
    Natural arrived;
};
template <int SIZE>
struct Shares<SIZE, 1> {};

// The columns of a line lie together. A block has ACROSS vectors of a line; BLOCKS of them, a cluster, share the lines,
// and so do the threads of each, which ask for AHEAD at a time. `part` holds a sum of every warp for each of the tile's
// elements of out. EARLY: wide is written by no kernel ahead, so that its first lines are asked for while that one runs.
template <int ROWS, int ACROSS, int THREADS, int AHEAD, int BLOCKS, bool EARLY, class T, class S>
TAPESTRY_FN void thin_across(const T* thin, const T* wide, const S* added, S* out, ThinSteps steps, int folded, int columns,
                             int tile, float* part, Shares<ROWS * ACROSS * (16 / int(sizeof(T))), BLOCKS>* shares) {
    constexpr int VECTOR = 16 / int(sizeof(T)), LINES = THREADS / ACROSS, WIDTH = ACROSS * VECTOR, WARPS = THREADS / 32;
    const int rank = int(blockIdx.x) % BLOCKS;
    if constexpr (BLOCKS > 1) {
        if (rank == 0 && threadIdx.x == 0) init_remote(&shares->arrived, (BLOCKS - 1) * ROWS * WIDTH * sizeof(float));
        cluster_arrive();
    }
    const int x = int(threadIdx.x) % ACROSS, first = tile * WIDTH + x * VECTOR;
    float sums[ROWS][VECTOR] = {};
    if constexpr (!EARLY) follow();
    bool waited = !EARLY;
    for (int line = int(threadIdx.x) / ACROSS + rank * LINES; first < columns && line < folded; line += LINES * AHEAD * BLOCKS) {
        Raw<T, VECTOR> ahead[AHEAD] = {};
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int k = line + u * LINES * BLOCKS;
            if (k < folded) load<VECTOR, true>(ahead[u], wide + (k * steps.line + first));
        }
        if (!waited) follow();
        waited = true;
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int k = line + u * LINES * BLOCKS;
            if (k >= folded) break;
#pragma unroll
            for (int m = 0; m < ROWS; ++m) {
                const float factor = float(widen(load_one(thin + (m * steps.thin_row + k * steps.thin_column))));
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) sums[m][e] += factor * float(widen(ahead[u].get(e)));
            }
        }
    }
    if (!waited) follow();
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            float sum = sums[m][e];
#pragma unroll
            for (int distance = ACROSS; distance < 32; distance *= 2) sum += exchange(sum, distance);
            if (lane < ACROSS) part[(warp * ROWS + m) * WIDTH + x * VECTOR + e] = sum;
        }
    }
    __syncthreads();
    if constexpr (BLOCKS > 1) {
        cluster_wait();
        if (rank == 0) wait_remote(&shares->arrived, 0u);
    }
    for (int k = int(threadIdx.x); k < ROWS * WIDTH; k += THREADS) {
        const int m = k / WIDTH, n = tile * WIDTH + k % WIDTH;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += part[w * ROWS * WIDTH + k];
        if constexpr (BLOCKS > 1) {
            if (rank > 0) {
                put_remote(&shares->sums[rank - 1][k], &shares->arrived, 0u, sum);
                continue;
            }
#pragma unroll
            for (int b = 0; b < BLOCKS - 1; ++b) sum += shares->sums[b][k];
        }
        if (n < columns) put_sum(out, added, m * steps.out_row + n * steps.out_column, sum);
    }
}

// What is folded of a line lies together. LANES neighbouring threads have LINES lines, each of which is a column of out.
template <int ROWS, int LANES, int LINES, class T, class S>
TAPESTRY_FN void thin_along(const T* thin, const T* wide, const S* added, S* out, ThinSteps steps, int folded, int columns,
                            int first) {
    constexpr int VECTOR = 16 / int(sizeof(T));
    const int x = int(threadIdx.x) % LANES;
    float sums[ROWS][LINES] = {};
    for (int k = x * VECTOR; k < folded; k += LANES * VECTOR) {
        Raw<T, VECTOR> lines[LINES] = {};
#pragma unroll
        for (int r = 0; r < LINES; ++r) {
            if (first + r < columns) load<VECTOR, true>(lines[r], wide + ((first + r) * steps.line + k));
        }
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
            const T* const row = thin + m * steps.thin_row;
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) {
                const float factor = float(widen(load_one(row + (k + e) * steps.thin_column)));
#pragma unroll
                for (int r = 0; r < LINES; ++r) sums[m][r] += factor * float(widen(lines[r].get(e)));
            }
        }
    }
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
        for (int r = 0; r < LINES; ++r) {
            float sum = sums[m][r];
#pragma unroll
            for (int distance = LANES / 2; distance > 0; distance /= 2) sum += exchange(sum, distance);
            if (x == (m * LINES + r) % LANES && first + r < columns) {
                put_sum(out, added, m * steps.out_row + (first + r) * steps.out_column, sum);
            }
        }
    }
}

// The same of many lines, however long, and however the thin matrix lies: a warp has LINES lines, and DEPTH elements of
// every row of the thin matrix at a time stand in `factors`, for all warps of a block. The next vectors of the lines are
// asked for before these are multiplied.
template <int ROWS, int LINES, int DEPTH, int THREADS, class T, class S>
TAPESTRY_FN void thin_lines(const T* thin, const T* wide, const S* added, S* out, ThinSteps steps, int folded, int columns,
                            int first, float (*factors)[DEPTH + 4]) {
    constexpr int VECTOR = 16 / int(sizeof(T)), STEP = 32 * VECTOR;
    const int x = int(threadIdx.x) % 32;
    float sums[ROWS][LINES] = {};
    Raw<T, VECTOR> next[LINES] = {};
    const auto ask = [&](int k) {
#pragma unroll
        for (int r = 0; r < LINES; ++r) {
            if (first + r < columns && k < folded) load<VECTOR, true>(next[r], wide + ((first + r) * steps.line + k));
        }
    };
    ask(x * VECTOR);
    for (int begin = 0; begin < folded; begin += DEPTH) {
        const int depth = folded - begin < DEPTH ? folded - begin : DEPTH;
        __syncthreads();
        for (int i = int(threadIdx.x); i < ROWS * depth; i += THREADS) {
            const int m = steps.thin_column == 1 ? i / depth : i % ROWS, k = steps.thin_column == 1 ? i % depth : i / ROWS;
            factors[m][k] = float(widen(load_one(thin + (m * steps.thin_row + (begin + k) * steps.thin_column))));
        }
        __syncthreads();
        for (int k = x * VECTOR; k < depth; k += STEP) {
            float lines[LINES][VECTOR];
#pragma unroll
            for (int r = 0; r < LINES; ++r) {
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) lines[r][e] = float(widen(next[r].get(e)));
            }
            ask(begin + k + STEP);
#pragma unroll
            for (int m = 0; m < ROWS; ++m) {
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) {
                    const float factor = factors[m][k + e];
#pragma unroll
                    for (int r = 0; r < LINES; ++r) sums[m][r] += factor * lines[r][e];
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
        for (int r = 0; r < LINES; ++r) {
            float sum = sums[m][r];
#pragma unroll
            for (int distance = 16; distance > 0; distance /= 2) sum += exchange(sum, distance);
            if (x == (m * LINES + r) % 32 && first + r < columns) {
                put_sum(out, added, m * steps.out_row + (first + r) * steps.out_column, sum);
            }
        }
    }
}

}  // namespace tapestry
