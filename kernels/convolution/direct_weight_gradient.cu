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

// A channels-last tensor with strides of its own; where one is inside is asked of `Extents`.
template <class Row, class Column, class Channel>
__device__ inline auto tensor(const unsigned short* at, long long image, long long row, long long column) {
    using Strided = Layout<Axis<N, unbounded>, Axis<Row, unbounded>, Axis<Column, unbounded>, Axis<Channel, unbounded, 1>>;
    return Tensor<const unsigned short, Strided>(at, Strided{Stride<N>{image}, Stride<Row>{row}, Stride<Column>{column}});
}

using Partials = Packed<Extent<Split>, Extent<K>, Extent<TapY, all_rows>, Extent<Tap, filter_columns>, Extent<InGroup, width>>;
using Block = Compound<Extent<TapY, all_rows>, Extent<Tap, filter_columns>>;

}  // namespace tapestry::direct_weight_gradient

extern "C" __global__ void __launch_bounds__(tapestry::direct_weight_gradient::lanes * tapestry::direct_weight_gradient::positions)
direct_weight_gradient(const unsigned short* x, const unsigned short* dy, float* partials,
                       const __grid_constant__ tapestry::direct_weight_gradient::Extents at) {
    using namespace tapestry;
    using namespace tapestry::direct_weight_gradient;
    __shared__ float exchange[positions][lanes];
    const K k(blockIdx.x * lanes + threadIdx.x);
    const C group(k.get() / width * width);
    const Block block(blockIdx.y);
    const TapY r = block.get<TapY>();
    const Tap s = block.get<Tap>();
    const auto inputs = tensor<Y, X, C>(x, at.x_image, at.x_row, at.x_column);
    const auto gradients = tensor<P, Q, K>(dy, at.dy_image, at.dy_row, at.dy_column);
    const long long rows = static_cast<long long>(at.n) * at.p;
    const long long first = rows * blockIdx.z / gridDim.z, last = rows * (blockIdx.z + 1) / gridDim.z;
    float sums[width] = {};
    for (long long row = first; row < last; ++row) {
        const N n(row / at.p);
        const P p(row % at.p);
        const Y y = cast<Y>(p * stride_y) + cast<Y>(r * dilation_y) - at.top;
        if (y < Y(0) || y >= Y(at.h) || k >= K(at.channels)) continue;
        const auto x_row = inputs[n][y][group];
        const auto dy_row = gradients[n][p][k];
        for (Q q(threadIdx.y); q < Q(at.q); q += positions) {
            const X column = cast<X>(q * stride_x) + cast<X>(s * dilation_x) - at.left;
            if (column < X(0) || column >= X(at.w)) continue;
            const float gradient = Half::widen(*dy_row[q]);
#pragma unroll
            for (int j = 0; j < width; ++j) sums[j] += gradient * Half::widen(*x_row[column][C(j)]);
        }
    }
    const auto own = Tensor<float, Partials>(partials, Partials{Split(gridDim.z), K(at.channels)})[Split(blockIdx.z)][k][r][s];
#pragma unroll
    for (int j = 0; j < width; ++j) {
        exchange[threadIdx.y][threadIdx.x] = sums[j];
        __syncthreads();
        if (threadIdx.y == 0 && k < K(at.channels)) {
            float sum = sums[j];
            for (int other = 1; other < positions; ++other) sum += exchange[other][threadIdx.x];
            *own[InGroup(j)] = sum;
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
