// The second launch of a weight gradient of wide groups whose stretches left their sums APART: a block of threads adds what one
// warp of every stretch has left of a fragment, in order, and puts the sums where they belong. Behind wide_weight_gradient.cu.

namespace {

template <class To>
__device__ void fold_fragment(const float4* apart, int stretches, int quadruples, const Work& work, To* dw) {
    const int warp = blockIdx.x % COMPUTE_WARPS, fragment = blockIdx.x / COMPUTE_WARPS % FRAGMENTS;
    const Share share(work, blockIdx.x / COMPUTE_WARPS / FRAGMENTS, 0);
    const Role role(warp);
    if (share.group + role.group >= work.groups || !role.wanted(share, fragment)) return;
    fold(apart, stretches, quadruples, [&](int at, const float4& sum) {
        const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
        role.put_fragment(work, share, at % WARP, fragment, sums, dw);
    });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    wide_fold_partial(const float4* apart, int stretches, int quadruples, float* dw, const __grid_constant__ Work work) {
    fold_fragment(apart, stretches, quadruples, work, dw);
}

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    wide_fold_rounded(const float4* apart, int stretches, int quadruples, unsigned short* dw, const __grid_constant__ Work work) {
    fold_fragment(apart, stretches, quadruples, work, dw);
}
