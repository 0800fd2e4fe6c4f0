// Products of a thin matrix, of a few rows, and a wide one, which is read once.
//
//     out[m, n] = sum[k] thin[m, k] wide[k, n] (+ added[m, n])         all added up in f32
#pragma once

#include <tapestry/functions.cuh>
#include <tapestry/elements.cuh>
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

// The columns of a line lie together. A block has ACROSS vectors of a line; its threads share the lines, AHEAD of which each
// asks for at a time. `part` holds a sum of every warp for each of the block's elements of out.
template <int ROWS, int ACROSS, int THREADS, int AHEAD, class T, class S>
TAPESTRY_FN void thin_across(const T* thin, const T* wide, const S* added, S* out, ThinSteps steps, int folded, int columns,
                             int tile, float* part) {
    constexpr int VECTOR = 16 / int(sizeof(T)), LINES = THREADS / ACROSS, WIDTH = ACROSS * VECTOR, WARPS = THREADS / 32;
    const int x = int(threadIdx.x) % ACROSS, first = tile * WIDTH + x * VECTOR;
    float sums[ROWS][VECTOR] = {};
    for (int line = int(threadIdx.x) / ACROSS; first < columns && line < folded; line += LINES * AHEAD) {
        Raw<T, VECTOR> ahead[AHEAD] = {};
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int k = line + u * LINES;
            if (k < folded) load<VECTOR, true>(ahead[u], wide + (k * steps.line + first));
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int k = line + u * LINES;
            if (k >= folded) break;
#pragma unroll
            for (int m = 0; m < ROWS; ++m) {
                const float factor = float(widen(load_one(thin + (m * steps.thin_row + k * steps.thin_column))));
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) sums[m][e] += factor * float(widen(ahead[u].get(e)));
            }
        }
    }
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
    for (int k = int(threadIdx.x); k < ROWS * WIDTH; k += THREADS) {
        const int m = k / WIDTH, n = tile * WIDTH + k % WIDTH;
        if (n >= columns) continue;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += part[w * ROWS * WIDTH + k];
        put_sum(out, added, m * steps.out_row + n * steps.out_column, sum);
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

}  // namespace tapestry
