// The weight gradient of a depthwise convolution whose splits leave their sums in f32, [split][channel][R][S]: a second launch adds them.
//
// Stands after depthwise_weight_gradient.cu in one source.

namespace {

struct Apart {
    float4* partials;
    int channels;

    __device__ void begins() const {}
    __device__ void ends(unsigned shared, int channel, int quadruples) const {
        wait_for_previous_kernel();
        float4* to = partials + (static_cast<long long>(blockIdx.y) * channels + channel) * TAPS / 4;
        for (int at = static_cast<int>(threadIdx.x); at < quadruples; at += COMPUTE_THREADS) to[at] = sum_of_shares(shared, at);
    }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(LAUNCHED, 1)
depthwise_weight_gradient(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap x_rest,
                          const __grid_constant__ TensorMap dy, const __grid_constant__ TensorMap dy_rest, float4* partials,
                          const __grid_constant__ Pass pass) {
    gradient(Maps{x, x_rest, dy, dy_rest}, pass, Apart{partials, pass.channels});
}
