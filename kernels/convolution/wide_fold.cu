// The second launch of a weight gradient of wide groups whose stretches left their sums AS_LANES have them: a block of threads adds what one
// warp of every stretch has left of a fragment, in order, and puts the sums where they belong. Behind wide_weight_gradient.cu.

namespace {

template <class To>
__device__ void fold_fragment(const float4* left, int stretches, int quadruples, const Work& work, To* dw) {
    const int warp = blockIdx.x % COMPUTE_WARPS, fragment = blockIdx.x / COMPUTE_WARPS % FRAGMENTS;
    const Share share(work, blockIdx.x / COMPUTE_WARPS / FRAGMENTS, 0);
    const Role role(warp);
    if (share.group + role.group >= work.groups || !role.part(fragment / WRITTEN, 0).there) return;
    fold(left, stretches, quadruples, [&](int at, const float4& sum) {
        const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int half = 0; half < 2; ++half)
            role.template put_octets<1>(work, share, at % WARP, fragment / WRITTEN, half, fragment % WRITTEN, sums, [](int) { return true; }, dw);
    });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    wide_fold_partial(const float4* left, int stretches, int quadruples, float* dw, const __grid_constant__ Work work) {
    fold_fragment(left, stretches, quadruples, work, dw);
}

extern "C" __global__ void __launch_bounds__(MOST_FOLD_WARPS * WARP)
    wide_fold_rounded(const float4* left, int stretches, int quadruples, unsigned short* dw, const __grid_constant__ Work work) {
    fold_fragment(left, stretches, quadruples, work, dw);
}
