// Adds the partial weight gradients of all splits in a fixed order and writes them as [k, r, s, c / groups].
//
// Stands after weight_gradient.cu in one source. One block of threads for 32 quadruples: warp f adds splits f, f + warps, f + 2 * warps, ... in that order, then the warps' sums are added in the
// warps' order. The result depends on the number of splits and warps alone, so that it is the same bits on every run.

namespace tapestry::weight_gradient {

constexpr int most_fold_warps = 16;
constexpr int fold_batch = 8;    // loads of a thread that are under way together

// The gradient as the caller has it.
using Filter = Packed<Extent<K>, Extent<TapY, all_rows>, Extent<Tap, filter_columns>, Extent<InGroup, width>>;

// What one 128-bit value of the partials holds: sums of two taps (s, s + 1) times two output channels (k, k + 1) of one input channel.
struct Quadruple {
    TapY r;
    Tap s;
    C c;
    K k;

    __device__ Quadruple(unsigned index, int channel_blocks) {
        const PartialPlace at(index);
        const WarpOctets octets(at.get<C8>(), at.get<K8Block>());
        const auto own = Sums::element(at.get<Lane>().get(), 0);
        const int block = at.get<BlockAndPart>().get() % channel_blocks, part = at.get<BlockAndPart>().get() / channel_blocks;
        r = at.get<TapY>() + part * filter_rows;
        s = Tap(at.get<TapPair>());
        c = C(octets.x) + cast<C>(Module<TapC, 8>(own.get<TapC>())) + block * channel_block;
        k = K(octets.dy) + K(K8(at.get<K8m>())) + own.get<K>() + block * channel_block;
    }

    // Below eight channels a group the 8 x 8 products hold neighbouring groups' cross terms too: those are dropped.
    template <typename Store>
    __device__ void write(const float4& sum, int channels, const Store& store) const {
        const float values[4] = {sum.x, sum.y, sum.z, sum.w};
        const Filter filter{K(channels)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const auto further = Sums::element(0, i);    // sums of a lane differ by tap and output channel
            const auto at = coord(k + further.get<K>(), r, s + cast<Tap>(Fold<TapC, 8>(further.get<TapC>())), InGroup(c));
            const bool one_group = fold<width>(c).get() == fold<width>(at.get<K>()).get();
            if (c < C(channels) && one_group && filter.contains_coord(at)) store(filter.offset(at), values[i]);
        }
    }
};

__device__ inline float4 plus(const float4& a, const float4& b) { return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <typename Store>
__device__ void fold(const float4* partials, int splits, int channels, const Store& store) {
    __shared__ float4 sums[most_fold_warps][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const long long stride = static_cast<long long>(gridDim.x) * 32;
    const float4* own = partials + static_cast<long long>(blockIdx.x) * 32 + lane;
    float4 sum{0, 0, 0, 0};
    const Quadruple quadruple(blockIdx.x * 32 + lane, (channels + channel_block - 1) / channel_block);
    wait_for_previous_kernel();
    for (int start = warp; start < splits; start += fold_batch * warps) {
        float4 batch[fold_batch];
#pragma unroll
        for (int i = 0; i < fold_batch; ++i) {
            const int split = min(start + i * warps, splits - 1);    // read again rather than branch: the loads go out together
            batch[i] = load_in_order(own + split * stride);
        }
#pragma unroll
        for (int i = 0; i < fold_batch; ++i)
            if (start + i * warps < splits) sum = plus(sum, batch[i]);
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp != 0) return;
    for (int other = 1; other < warps; ++other) sum = plus(sum, sums[other][lane]);
    quadruple.write(sum, channels, store);
}

}  // namespace tapestry::weight_gradient

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::most_fold_warps * 32)
fold_partials(const float4* partials, int splits, int channels, float* dw) {
    tapestry::weight_gradient::fold(partials, splits, channels, [=](long long at, float value) { dw[at] = value; });
}

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::most_fold_warps * 32)
fold_rounded(const float4* partials, int splits, int channels, unsigned short* dw) {
    using namespace tapestry::weight_gradient;
    fold(partials, splits, channels, [=](long long at, float value) { dw[at] = tapestry::narrow<Half>(value); });
}
