// The weight gradient of any grouped convolution, plainly: for tensors whose strides or addresses the copy engine does not take.
//
// One block of threads for `lanes` output channels, one filter tap and one split of the positions, of which `slots` go side by side. A thread's
// order, the lanes' tree and the warps' order are fixed, so is the result. With one split a block writes the gradient itself, otherwise
// partials, [split][k][r][s][c / groups], which a second launch adds.

#include <tapestry/async.cuh>
#include <tapestry/divisor.cuh>
#include <tapestry/numeric.cuh>

namespace tapestry::direct_weight_gradient {

using namespace parameters;

constexpr int threads = 32 * warps, slots = threads / lanes;

// Positions of a thread whose values are under way together.
constexpr int batch = width > 16 ? 1 : 16 / width < 4 ? 16 / width : 4;

struct Position {
    N n;
    P p;
    Q q;
};

struct Extents {
    int h, w, channels, top, left;
    int split_positions, longer_splits;    // every split has so many output positions, the first so many one more
    Divisor p, q;
    Position step;    // `slots` positions
    long long x_image, x_row, x_column, dy_image, dy_row, dy_column;    // strides in elements

    __device__ Position position(int index) const {
        const int row = q.quotient(index), image = p.quotient(row);
        return {N(image), P(p.remainder(row, image)), Q(q.remainder(index, row))};
    }
    // The one `slots` positions further on.
    __device__ Position next(Position at) const {
        at.q += step.q, at.p += step.p, at.n += step.n;
        if (at.q >= Q(q.value)) at.q -= Q(q.value), at.p += 1;
        if (at.p >= P(p.value)) at.p -= P(p.value), at.n += 1;
        return at;
    }
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

// This thread's part of the sums of its output channel and tap: [c / groups].
__device__ inline void add_up(float (&sums)[width], const unsigned short* x, const unsigned short* dy, const Extents& at, K k) {
    const Block tap(blockIdx.y);
    const Y below = cast<Y>(tap.get<TapY>() * dilation_y) - at.top;
    const X right = cast<X>(tap.get<Tap>() * dilation_x) - at.left;
    const auto inputs = tensor<Y, X, C>(x, at.x_image, at.x_row, at.x_column)[C(k.get() / width_out * width)];
    const auto gradients = tensor<P, Q, K>(dy, at.dy_image, at.dy_row, at.dy_column)[k];
    const int split = blockIdx.z, begin = split * at.split_positions + min(split, at.longer_splits);
    const int last = begin + at.split_positions + (split < at.longer_splits);
    const int first = begin + Thread(threadIdx.x).get<Beside>().get();
    const int turns = k < K(at.channels) ? (last - first + slots - 1) / slots : 0;
    Position here = at.position(first);
    wait_for_previous_kernel();
    for (int start = 0; start < turns; start += batch) {
        unsigned short gradient[batch], seen[batch][width];
        bool inside[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i, here = at.next(here)) {
            const Y y = cast<Y>(here.p * stride_y) + below;
            const X column = cast<X>(here.q * stride_x) + right;
            inside[i] = start + i < turns && y >= Y(0) && y < Y(at.h) && column >= X(0) && column < X(at.w);
            // Outside the first position is read, not branched round: so the loads go out together.
            const Position there = inside[i] ? here : Position{};
            const auto from = inputs[there.n][inside[i] ? y : Y(0)][inside[i] ? column : X(0)];
            gradient[i] = *gradients[there.n][there.p][there.q];
#pragma unroll
            for (int j = 0; j < width; ++j) seen[i][j] = *from[C(j)];
        }
#pragma unroll
        for (int i = 0; i < batch; ++i)
#pragma unroll
            for (int j = 0; j < width; ++j) {
                const float sum = sums[j] + Half::widen(gradient[i]) * Half::widen(seen[i][j]);
                sums[j] = inside[i] ? sum : sums[j];
            }
    }
    let_next_kernel_start();
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
