// What windows of channels-last images have: the largest and where it is, or the mean; and their gradients.
//
// Forward a thread has a vector of channels of one window. Backward it has that of a cell: as many rows and columns of the image as
// windows step. It reads every window that reaches into its cell once, and adds in a fixed order. In front stands what
// `tapestry::parameters` are: Element, vector, and numbers of a window.

#include <tapestry/elements.cuh>
#include <tapestry/order.cuh>

namespace tapestry::windows {

using namespace parameters;

struct Extents {
    int height, width, windows_down, windows_right, channels;
    int divisor, padded;    // of a mean: what a sum is divided by (0: by how many were summed), and whether padding counts
};

using Vector = Raw<Element, vector>;
using Taps = Raw<unsigned char, vector>;    // of a window's largest: row * columns + column, within the window

// Windows that reach into a cell, from its own one: the first and the last, by rows or columns.
constexpr int first_of(int size, int step, int before) { return -((size - 1 - before) / step); }
constexpr int last_of(int step, int before) { return (step - 1 + before) / step; }

// What a thread has: one of a row of `count` places, and the first channel of its vector. Blocks go along the row, rows are blocks too.
struct Stand {
    int row, place, channel;

    __device__ Stand(int count, int channels, bool& there) {
        const int vectors = channels / vector, number = int(blockIdx.y * blockDim.x + threadIdx.x);
        row = int(blockIdx.x), place = number / vectors, channel = (number - place * vectors) * vector;
        there = place < count;
    }
};

// The same of a cell: its image, and its row of cells there.
struct Cell : Stand {
    int image, cell;

    __device__ Cell(const Extents& of, bool& there) : Stand((of.width + right - 1) / right, of.channels, there) {
        const int count = (of.height + down - 1) / down;
        image = row / count, cell = row - image * count;
    }
};

__device__ inline long long index(int row, int place, int count, int channels, int channel) {
    return ((long long)(row) * count + place) * channels + channel;
}

// Calls `use` with the tap, row * columns + column, and the vector of every place of a window that is in the image, in order. Windows
// begin at (top, left) of the image.
template <class Use>
__device__ inline void over_window(const Element* x, const Extents& of, const Stand& at, int image, int top, int left, const Use& use) {
    Vector found[rows][columns];    // all under way together
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int s = 0; s < columns; ++s) {
            const int i = top + r, j = left + s;
            if (unsigned(i) < unsigned(of.height) && unsigned(j) < unsigned(of.width))
                load<vector, false>(found[r][s], x + index(image * of.height + i, j, of.width, of.channels, at.channel));
        }
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int s = 0; s < columns; ++s) {
            const int i = top + r, j = left + s;
            if (unsigned(i) < unsigned(of.height) && unsigned(j) < unsigned(of.width)) use(r * columns + s, found[r][s]);
        }
}

// Calls `use` for every window that reaches into a thread's cell, in order: with its number, its row and column among windows, and where
// the cell begins in it.
template <class Use>
__device__ inline void over_windows(const Extents& of, const Cell& at, const Use& use) {
    constexpr int first_row = first_of(rows, down, above), last_row = last_of(down, above);
    constexpr int first_column = first_of(columns, right, before), last_column = last_of(right, before);
#pragma unroll
    for (int p = first_row; p <= last_row; ++p)
#pragma unroll
        for (int q = first_column; q <= last_column; ++q) {
            const int i = at.cell + p, j = at.place + q;
            if (unsigned(i) >= unsigned(of.windows_down) || unsigned(j) >= unsigned(of.windows_right)) continue;
            use(index(at.image * of.windows_down + i, j, of.windows_right, of.channels, at.channel), i, j, above - p * down, before - q * right);
        }
}

// Rounded, to the places of a cell that are in the image.
__device__ inline void put_cell(Element* dx, const float (&sums)[down][right][vector], const Extents& of, const Cell& at) {
#pragma unroll
    for (int a = 0; a < down; ++a)
#pragma unroll
        for (int b = 0; b < right; ++b) {
            const int i = at.cell * down + a, j = at.place * right + b;
            if (i >= of.height || j >= of.width) continue;
            Vector made;
            round(made, sums[a][b]);
            store<vector>(dx + index(at.image * of.height + i, j, of.width, of.channels, at.channel), made);
        }
}

// Places of a window along one side, from `start` on: those in the image, or with padding too, which ends where the image's does.
__device__ inline int extent_of(int start, int size, int image, int padding, bool padded) {
    return padded ? min(start + size, image + padding) - start : min(start + size, image) - max(start, 0);
}

// What the sum of a window is divided by.
__device__ inline float divisor_of(const Extents& of, int top, int left) {
    if (of.divisor) return float(of.divisor);
    return float(extent_of(top, rows, of.height, above, of.padded) * extent_of(left, columns, of.width, before, of.padded));
}

}  // namespace tapestry::windows

// y, and of each value the tap it came from, where `taps` is something. As torch does: the first of several, and what is no number.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
maximum(const tapestry::parameters::Element* x, tapestry::parameters::Element* y, unsigned char* taps,
        const __grid_constant__ tapestry::windows::Extents of) {
    using namespace tapestry;
    using namespace tapestry::windows;
    follow();
    bool there;
    const Stand at(of.windows_right, of.channels, there);
    if (!there) return;
    const int image = at.row / of.windows_down, top = (at.row - image * of.windows_down) * down - above, left = at.place * right - before;
    float best[vector];
    int where[vector];
#pragma unroll
    for (int e = 0; e < vector; ++e)
        best[e] = -infinity(), where[e] = max(0, -top) * columns + max(0, -left);    // the first that is in the image
    over_window(x, of, at, image, top, left, [&](int tap, const Vector& found) {
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float value = widen(found.get(e));
            if (value > best[e] || value != value) best[e] = value, where[e] = tap;
        }
    });
    const long long to = index(at.row, at.place, of.windows_right, of.channels, at.channel);
    Vector made;
    round(made, best);
    store<vector>(y + to, made);
    if (!taps) return;
    Taps told;
#pragma unroll
    for (int e = 0; e < vector; ++e) told.set(e, (unsigned char)(where[e]));
    store<vector>(taps + to, told);
}

// The gradient of x.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
maximum_gradient(const tapestry::parameters::Element* dy, const unsigned char* taps, tapestry::parameters::Element* dx,
                 const __grid_constant__ tapestry::windows::Extents of) {
    using namespace tapestry;
    using namespace tapestry::windows;
    follow();
    bool there;
    const Cell at(of, there);
    if (!there) return;
    float sums[down][right][vector] = {};
    over_windows(of, at, [&](long long from, int, int, int first, int second) {
        Vector slope;
        Taps told;
        load<vector, false>(slope, dy + from);
        load<vector, false>(told, taps + from);
#pragma unroll
        for (int a = 0; a < down; ++a)
#pragma unroll
            for (int b = 0; b < right; ++b) {
                const int r = first + a, s = second + b;
                if (r < 0 || r >= rows || s < 0 || s >= columns) continue;
#pragma unroll
                for (int e = 0; e < vector; ++e)
                    if (told.get(e) == (unsigned char)(r * columns + s)) sums[a][b][e] += widen(slope.get(e));
            }
    });
    put_cell(dx, sums, of, at);
}

// The mean of each window.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
average(const tapestry::parameters::Element* x, tapestry::parameters::Element* y, const __grid_constant__ tapestry::windows::Extents of) {
    using namespace tapestry;
    using namespace tapestry::windows;
    follow();
    bool there;
    const Stand at(of.windows_right, of.channels, there);
    if (!there) return;
    const int image = at.row / of.windows_down, top = (at.row - image * of.windows_down) * down - above, left = at.place * right - before;
    float sums[vector] = {};
    over_window(x, of, at, image, top, left, [&](int, const Vector& found) {
#pragma unroll
        for (int e = 0; e < vector; ++e) sums[e] += widen(found.get(e));
    });
    const float divisor = divisor_of(of, top, left);
#pragma unroll
    for (int e = 0; e < vector; ++e) sums[e] /= divisor;
    Vector made;
    round(made, sums);
    store<vector>(y + index(at.row, at.place, of.windows_right, of.channels, at.channel), made);
}

// The gradient of x.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
average_gradient(const tapestry::parameters::Element* dy, tapestry::parameters::Element* dx,
                 const __grid_constant__ tapestry::windows::Extents of) {
    using namespace tapestry;
    using namespace tapestry::windows;
    follow();
    bool there;
    const Cell at(of, there);
    if (!there) return;
    float sums[down][right][vector] = {};
    over_windows(of, at, [&](long long from, int i, int j, int first, int second) {
        Vector slope;
        load<vector, false>(slope, dy + from);
        const float divisor = divisor_of(of, i * down - above, j * right - before);
        float shares[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) shares[e] = widen(slope.get(e)) / divisor;
#pragma unroll
        for (int a = 0; a < down; ++a)
#pragma unroll
            for (int b = 0; b < right; ++b) {
                const int r = first + a, s = second + b;
                if (r < 0 || r >= rows || s < 0 || s >= columns) continue;
#pragma unroll
                for (int e = 0; e < vector; ++e) sums[a][b][e] += shares[e];
            }
    });
    put_cell(dx, sums, of, at);
}
