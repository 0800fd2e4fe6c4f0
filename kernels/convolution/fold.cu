// Adds the partial weight gradients of all splits in a fixed order and writes them as [k, r, s, c / groups].
//
// Stands after weight_gradient.cu in one source. One block of threads for 32 quadruples: warp f adds splits f, f + warps, f + 2 * warps, ... in that order, then the warps' sums are added in the
// warps' order. The result depends on the number of splits and warps alone, so that it is the same bits on every run.

namespace tapestry::weight_gradient {

constexpr int most_fold_warps = 16;
constexpr int fold_batch = 8;    // loads of a thread that are under way together

// What one 128-bit value of the partials holds: sums of two taps (s, s + 1) times two output channels (k, k + 1) of one input channel.
struct Quadruple {
    int r, s, c, k;

    __device__ Quadruple(int fragment, int lane, int channel_blocks) {
        const int pair = fragment % tap_pairs, row = fragment / tap_pairs % filter_rows, rest = fragment / (tap_pairs * filter_rows);
        const int warp = rest / out_blocks % (chunks * warps_a_chunk), block_and_part = rest / out_blocks / (chunks * warps_a_chunk);
        const int block = block_and_part % channel_blocks, part = block_and_part / channel_blocks;
        const int chunk = warp / warps_a_chunk;
        const int out_chunk = chunk / group_chunks * group_chunks + warp % warps_a_chunk * out_blocks + rest % out_blocks;
        r = part * filter_rows + row;
        s = 2 * pair;
        c = block * channel_block + chunk * unit + lane / 4;
        k = block * channel_block + out_chunk * unit + lane % 4 * 2;
    }

    // Below eight channels a group the 8 x 8 products hold neighbouring groups' cross terms too: those are dropped.
    template <typename Store>
    __device__ void write(const float4& sum, int channels, const Store& store) const {
        const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int out = k + i % 2, tap = s + i / 2;
            if (c < channels && out < channels && c / width == out / width && r < all_rows && tap < filter_columns)
                store((static_cast<long long>(out * all_rows + r) * filter_columns + tap) * width + c % width, values[i]);
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
    const Quadruple quadruple(blockIdx.x, lane, (channels + channel_block - 1) / channel_block);
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
