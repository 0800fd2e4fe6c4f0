// The weight gradient of any grouped convolution, plainly: for tensors whose strides or addresses the copy engine does not take.
//
// One block of threads for `lanes` output channels, one filter tap and one split of the positions, of which `slots` go side by side. A thread's
// order, the lanes' tree and the warps' order are fixed, so is the result. With one split a block writes the gradient itself, otherwise
// partials, [split][k][r][s][c / groups], which a second launch adds.

#include <tapestry/numeric.cuh>

namespace tapestry::direct_weight_gradient {

using namespace parameters;

constexpr int threads = 32 * warps, slots = threads / lanes;

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

using Thread = Compound<Extent<Beside, slots>, Extent<KLane, lanes>>;
using Block = Compound<Extent<TapY, all_rows>, Extent<Tap, filter_columns>>;
using Sum = Compound<Extent<KLane, lanes>, Extent<InGroup, width>>;
using Exchange = Packed<Extent<Warp, warps>, Extent<InGroup, width>, Extent<KLane, lanes>>;
using Filter = Packed<Extent<K>, Extent<TapY, all_rows>, Extent<Tap, filter_columns>, Extent<InGroup, width>>;
using Partials = Packed<Extent<Split>, Extent<K>, Extent<TapY, all_rows>, Extent<Tap, filter_columns>, Extent<InGroup, width>>;

// An output position, and the one `slots` positions further on without a division.
struct Position {
    N n;
    P p;
    Q q;

    __device__ Position(int index, const Extents& at) : n(index / at.q / at.p), p(index / at.q % at.p), q(index % at.q) {}
    __device__ void advance(const Position& by, const Extents& at) {
        q += by.q;
        p += by.p;
        n += by.n;
        if (q >= Q(at.q)) q -= Q(at.q), p += 1;
        if (p >= P(at.p)) p -= P(at.p), n += 1;
    }
};

// This thread's part of the sums of its output channel and tap: [c / groups].
__device__ inline void add_up(float (&sums)[width], const unsigned short* x, const unsigned short* dy, const Extents& at, K k) {
    const Block tap(blockIdx.y);
    const Y below = cast<Y>(tap.get<TapY>() * dilation_y) - at.top;
    const X right = cast<X>(tap.get<Tap>() * dilation_x) - at.left;
    const auto inputs = tensor<Y, X, C>(x, at.x_image, at.x_row, at.x_column)[C(k.get() / width * width)];
    const auto gradients = tensor<P, Q, K>(dy, at.dy_image, at.dy_row, at.dy_column)[k];
    const long long all = static_cast<long long>(at.n) * at.p * at.q;
    const int first = static_cast<int>(all * blockIdx.z / gridDim.z) + Thread(threadIdx.x).get<Beside>().get();
    const int last = static_cast<int>(all * (blockIdx.z + 1) / gridDim.z);
    const int turns = k < K(at.channels) ? (last - first + slots - 1) / slots : 0;
    const Position step(slots, at);
    Position here(first, at);
#pragma unroll 4
    for (int turn = 0; turn < turns; ++turn, here.advance(step, at)) {
        const Y y = cast<Y>(here.p * stride_y) + below;
        const X column = cast<X>(here.q * stride_x) + right;
        if (y >= Y(0) && y < Y(at.h) && column >= X(0) && column < X(at.w)) {
            const float gradient = Half::widen(*gradients[here.n][here.p][here.q]);
            const auto seen = inputs[here.n][y][column];
#pragma unroll
            for (int j = 0; j < width; ++j) sums[j] += gradient * Half::widen(*seen[C(j)]);
        }
    }
}

// Calls `store` with every sum of the block, by output channel and place in the group.
template <typename Store>
__device__ void gradient(const unsigned short* x, const unsigned short* dy, const Extents& at, const Store& store) {
    __shared__ float exchange[warps * width * lanes];
    const KBlock block(blockIdx.x);
    const Thread thread(threadIdx.x);
    float sums[width] = {};
    add_up(sums, x, dy, at, unfold(block, thread.get<KLane>()));
    const auto own = Tensor<float, Exchange>(exchange)[Warp(threadIdx.x / 32)][thread.get<KLane>()];
#pragma unroll
    for (int j = 0; j < width; ++j) {
#pragma unroll
        for (int distance = lanes; distance < 32; distance *= 2) sums[j] += __shfl_xor_sync(~0u, sums[j], distance);
        if (threadIdx.x % 32 < lanes) *own[InGroup(j)] = sums[j];
    }
    __syncthreads();
    for (int index = threadIdx.x; index < Sum::size(); index += threads) {
        const Sum wanted(index);
        const auto given = Tensor<float, Exchange>(exchange)[wanted.get<KLane>()][wanted.get<InGroup>()];
        float sum = 0;
        for (int warp = 0; warp < warps; ++warp) sum += *given[Warp(warp)];
        const K k = unfold(block, wanted.get<KLane>());
        if (k < K(at.channels)) store(coord(k, wanted.get<InGroup>()) + Block(blockIdx.y).coord(), sum);
    }
}

}  // namespace tapestry::direct_weight_gradient

extern "C" __global__ void __launch_bounds__(tapestry::direct_weight_gradient::threads)
direct_weight_gradient(const unsigned short* x, const unsigned short* dy, float* partials,
                       const __grid_constant__ tapestry::direct_weight_gradient::Extents at) {
    using namespace tapestry::direct_weight_gradient;
    const Partials layout{Split(gridDim.z), K(at.channels)};
    gradient(x, dy, at, [=](auto where, float sum) { partials[layout.offset(where + coord(Split(blockIdx.z)))] = sum; });
}

extern "C" __global__ void __launch_bounds__(tapestry::direct_weight_gradient::threads)
direct_weight_gradient_partial(const unsigned short* x, const unsigned short* dy, float* dw,
                               const __grid_constant__ tapestry::direct_weight_gradient::Extents at) {
    using namespace tapestry::direct_weight_gradient;
    const Filter layout{K(at.channels)};
    gradient(x, dy, at, [=](auto where, float sum) { dw[layout.offset(where)] = sum; });
}

extern "C" __global__ void __launch_bounds__(tapestry::direct_weight_gradient::threads)
direct_weight_gradient_rounded(const unsigned short* x, const unsigned short* dy, unsigned short* dw,
                               const __grid_constant__ tapestry::direct_weight_gradient::Extents at) {
    using namespace tapestry::direct_weight_gradient;
    const Filter layout{K(at.channels)};
    gradient(x, dy, at, [=](auto where, float sum) { dw[layout.offset(where)] = tapestry::narrow<Half>(sum); });
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
