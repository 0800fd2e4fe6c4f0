// Weight gradient in two launches: every split leaves its sums as f32 partials, [split][filter part][channel block][fragment][lane], and the
// second launch adds them in a fixed order and writes them as [k, r, s, c / groups].
//
// Stands after weight_gradient.cu in one source. The second launch has one block of threads for 32 quadruples: warp f adds splits f, f + warps,
// f + 2 * warps, ... in that order, then the warps' sums are added in the warps' order. The result depends on the number of splits and
// warps alone, so that it is the same bits on every run.

namespace tapestry::weight_gradient {

constexpr int most_fold_warps = 16;
constexpr int fold_batch = 8;    // loads of a thread that are under way together
constexpr int warp_bytes = 32 * sizeof(float4);

// Adds what the warps of one channel chunk have summed over their shares of the positions, in the warps' order.
__device__ void fold_shares(Consumer& consumer, int warp, unsigned exchange) {
    if constexpr (share > 1) {
        const int part = warp % share;
        const unsigned own = exchange + (warp * fragments * 32 + consumer.lane) * sizeof(float4);
        auto* sums = reinterpret_cast<float4*>(consumer.sums);
        meet(exchanged, consumers * 32);    // the exchange lies in the ring: everybody has read its last stage
        if (part != 0)
#pragma unroll
            for (int i = 0; i < fragments; ++i) store_shared(own + i * warp_bytes, sums[i]);
        meet(exchanged, consumers * 32);
        if (part == 0)
            for (int other = 1; other < share; ++other)
#pragma unroll
                for (int i = 0; i < fragments; ++i) sums[i] = plus(sums[i], load_shared(own + (other * fragments + i) * warp_bytes));
    }
}

__device__ void leave(const Consumer& consumer, int warp, float4* partials) {
    if (warp % share != 0) return;
    const WarpPlace at(warp);
    const BlockAndPart block((blockIdx.y * gridDim.z + blockIdx.z) * gridDim.x + blockIdx.x);
    const auto mine = coord(block, at.get<C8>(), at.get<K8Block>(), Lane(consumer.lane), K8m(0), TapY(0), TapPair(0));
    const auto own = Partials(partials, Partials::L{block + 1})[mine];
#pragma unroll
    for (int block = 0; block < out_blocks; ++block)
#pragma unroll
        for (int r = 0; r < filter_rows; ++r)
#pragma unroll
            for (int pair = 0; pair < tap_pairs; ++pair) {
                const auto& sum = consumer.sums[block][r][pair];
                *own[coord(K8m(block), TapY(r), TapPair(pair))] = float4{sum[0], sum[1], sum[2], sum[3]};
            }
}

struct Apart {
    float4* partials;

    __device__ void begins() const {}
    __device__ void loaded() const {}
    __device__ void ends(Consumer& consumer, int warp, unsigned exchange) const {
        let_next_kernel_start();
        fold_shares(consumer, warp, exchange);
        leave(consumer, warp, partials);
    }
};

template <typename Store>
__device__ void fold(const float4* partials, int splits, int channels, const Store& store) {
    __shared__ float4 sums[most_fold_warps][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const long long stride = static_cast<long long>(gridDim.x) * 32;
    const float4* own = partials + static_cast<long long>(blockIdx.x) * 32 + lane;
    float4 sum{0, 0, 0, 0};
    const PartialPlace place(blockIdx.x * 32 + lane);
    const int block_and_part = place.get<BlockAndPart>().get(), channel_blocks = (channels + channel_block - 1) / channel_block;
    const Quadruple quadruple(place, block_and_part % channel_blocks, block_and_part / channel_blocks);
    wait_for_previous_kernel();
    let_next_kernel_start();    // not sooner: its blocks spread best where those of the first kernel are gone
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

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::threads, tapestry::parameters::residents)
weight_gradient(const __grid_constant__ tapestry::weight_gradient::Stream x_map, const __grid_constant__ tapestry::weight_gradient::Stream dy_map, float4* partials,
                const __grid_constant__ tapestry::weight_gradient::Shape shape) {
    tapestry::weight_gradient::gradient(x_map, dy_map, shape, tapestry::weight_gradient::Apart{partials});
}

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::most_fold_warps * 32)
fold_partials(const float4* partials, int splits, int channels, float* dw) {
    tapestry::weight_gradient::fold(partials, splits, channels, [=](long long at, float value) { dw[at] = value; });
}

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::most_fold_warps * 32)
fold_rounded(const float4* partials, int splits, int channels, unsigned short* dw) {
    using namespace tapestry::weight_gradient;
    fold(partials, splits, channels, [=](long long at, float value) { dw[at] = tapestry::narrow<Half>(value); });
}
