// The weight gradient of any grouped convolution, plainly: for tensors whose strides or addresses the copy engine does not take.
//
// One block of threads for 32 output channels, one filter tap and one split of the output rows: x counts channels, y positions. Partials are
// [split][k][r][s][c / groups]; split, position and row order are fixed, so is the result.

#include <tapestry/numeric.cuh>

namespace tapestry::direct_weight_gradient {

using namespace parameters;

constexpr int lanes = 32, positions = 8;

struct Extents {
    int h, w, p, q, n, channels, top, left;
    long long x_image, x_row, x_column, dy_image, dy_row, dy_column;    // strides in elements
};

}  // namespace tapestry::direct_weight_gradient

extern "C" __global__ void __launch_bounds__(tapestry::direct_weight_gradient::lanes * tapestry::direct_weight_gradient::positions)
direct_weight_gradient(const unsigned short* x, const unsigned short* dy, float* partials,
                       const __grid_constant__ tapestry::direct_weight_gradient::Extents at) {
    using namespace tapestry::direct_weight_gradient;
    __shared__ float exchange[positions][lanes];
    const int k = blockIdx.x * lanes + threadIdx.x, r = blockIdx.y / filter_columns, s = blockIdx.y % filter_columns;
    const long long rows = static_cast<long long>(at.n) * at.p;
    const long long first = rows * blockIdx.z / gridDim.z, last = rows * (blockIdx.z + 1) / gridDim.z;
    const int c = k / width * width;
    float sums[width] = {};
    for (long long row = first; row < last; ++row) {
        const long long image = row / at.p;
        const int p = static_cast<int>(row % at.p), y = p * stride_y + r * dilation_y - at.top;
        if (y < 0 || y >= at.h || k >= at.channels) continue;
        const unsigned short* x_row = x + image * at.x_image + y * at.x_row + c;
        const unsigned short* dy_row = dy + image * at.dy_image + p * at.dy_row + k;
        for (int q = threadIdx.y; q < at.q; q += positions) {
            const int column = q * stride_x + s * dilation_x - at.left;
            if (column < 0 || column >= at.w) continue;
            const float gradient = Half::widen(dy_row[q * at.dy_column]);
#pragma unroll
            for (int j = 0; j < width; ++j) sums[j] += gradient * Half::widen(x_row[column * at.x_column + j]);
        }
    }
    float* own = partials + (static_cast<long long>(blockIdx.z) * at.channels + k) * gridDim.y * width + blockIdx.y * width;
#pragma unroll
    for (int j = 0; j < width; ++j) {
        exchange[threadIdx.y][threadIdx.x] = sums[j];
        __syncthreads();
        if (threadIdx.y == 0 && k < at.channels) {
            float sum = sums[j];
            for (int other = 1; other < positions; ++other) sum += exchange[other][threadIdx.x];
            own[j] = sum;
        }
        __syncthreads();
    }
}

// Adds the splits in order.
template <typename Store>
__device__ void fold_splits(const float* partials, int splits, int elements, const Store& store) {
    const int element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= elements) return;
    float sum = 0;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) sum += partials[static_cast<long long>(split) * elements + element];
    store(element, sum);
}

extern "C" __global__ void __launch_bounds__(256) fold_partials(const float* partials, int splits, int elements, float* dw) {
    fold_splits(partials, splits, elements, [=](int at, float value) { dw[at] = value; });
}

extern "C" __global__ void __launch_bounds__(256) fold_rounded(const float* partials, int splits, int elements, unsigned short* dw) {
    fold_splits(partials, splits, elements, [=](int at, float value) { dw[at] = tapestry::narrow<tapestry::parameters::Half>(value); });
}
