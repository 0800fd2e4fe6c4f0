// The second launch of a weight gradient whose splits left partial sums in f32, [split][element]: it adds them in order, four elements
// a lane. Behind a kernel's own text, which names `WARP` and `spec::Half`.

namespace {

constexpr int MOST_FOLD_WARPS = 16, FOLD_BATCH = 8;

// Four elements a lane; warp f adds splits f, f + warps, ... in that order, then the warps' sums are added in theirs.
template <class Store>
__device__ void fold(const float4* partials, int splits, int quadruples, const Store& store) {
    __shared__ float4 sums[MOST_FOLD_WARPS][WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    const int own = blockIdx.x * WARP + lane, from = min(own, quadruples - 1);
    wait_for_previous_kernel();
    let_next_kernel_start();
    float4 sum{0, 0, 0, 0};
    for (int start = warp; start < splits; start += FOLD_BATCH * warps) {
        float4 batch[FOLD_BATCH];
#pragma unroll
        for (int i = 0; i < FOLD_BATCH; ++i)
            batch[i] = load_in_order(partials + (long long)min(start + i * warps, splits - 1) * quadruples + from);
#pragma unroll
        for (int i = 0; i < FOLD_BATCH; ++i)
            if (start + i * warps < splits) sum = plus(sum, batch[i]);
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || own >= quadruples) return;
    for (int other = 1; other < warps; ++other) sum = plus(sum, sums[other][lane]);
    store(own, sum);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    fold_quadruples_partial(const float4* partials, int splits, int quadruples, float4* dw) {
    fold(partials, splits, quadruples, [=](int at, const float4& sum) { dw[at] = sum; });
}

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    fold_quadruples_rounded(const float4* partials, int splits, int quadruples, uint2* dw) {
    fold(partials, splits, quadruples,
         [=](int at, const float4& sum) { dw[at] = uint2{spec::Half::pack(sum.x, sum.y), spec::Half::pack(sum.z, sum.w)}; });
}
