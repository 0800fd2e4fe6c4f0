// The weight gradient of a depthwise convolution in one launch: the splits of a block's channels are a cluster of thread blocks, which add
// their sums through each other's shared memory, in the order of ranks. One split is a cluster of itself.
//
// Stands after depthwise_weight_gradient.cu in one source. Rank k adds the k-th part of the sums: all ranks store theirs of it into its
// exchange, [rank][quadruple]. blockIdx.y is the rank.

namespace {

constexpr int OWN = (QUADRUPLES + RANKS - 1) / RANKS;    // quadruples that a rank adds
static_assert(RANKS == 1 || EXCHANGE_BYTES == 16 * RANKS * OWN);

template <class Store>
struct Together {
    Store store;

    // A block can be stored to when it has begun.
    __device__ void begins() const {
        if constexpr (RANKS > 1) join_cluster();
    }
    __device__ void ends(unsigned shared, int channel, int quadruples) const {
        const int first = channel * TAPS / 4;
        if constexpr (RANKS == 1) {
            wait_for_previous_kernel();
            for (int at = static_cast<int>(threadIdx.x); at < quadruples; at += COMPUTE_THREADS) store(first + at, sum_of_shares(shared, at));
        } else {
            const unsigned exchange = shared + EXCHANGE_BASE;
            const int rank = static_cast<int>(blockIdx.y), own = rank * OWN;
            wait_for_cluster();
            for (int at = static_cast<int>(threadIdx.x); at < QUADRUPLES; at += COMPUTE_THREADS)
                store_shared(in_block(exchange + 16 * (rank * OWN + at % OWN), at / OWN), sum_of_shares(shared, at));
            pass_cluster();
            wait_for_cluster();
            wait_for_previous_kernel();
            for (int at = static_cast<int>(threadIdx.x); at < min(OWN, quadruples - own); at += COMPUTE_THREADS) {
                float4 sum = load_shared(exchange + 16 * at);
#pragma unroll
                for (int other = 1; other < RANKS; ++other) sum = plus(sum, load_shared(exchange + 16 * (other * OWN + at)));
                store(first + own + at, sum);
            }
        }
    }
};

template <class Store>
Together(Store) -> Together<Store>;

}  // namespace

extern "C" __global__ void __launch_bounds__(LAUNCHED, 1)
depthwise_weight_gradient_partial(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap x_rest,
                                  const __grid_constant__ TensorMap dy, const __grid_constant__ TensorMap dy_rest, float4* dw,
                                  const __grid_constant__ Pass pass) {
    gradient(Maps{x, x_rest, dy, dy_rest}, pass, Together{[=](int at, const float4& sum) { dw[at] = sum; }});
}

extern "C" __global__ void __launch_bounds__(LAUNCHED, 1)
depthwise_weight_gradient_rounded(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap x_rest,
                                  const __grid_constant__ TensorMap dy, const __grid_constant__ TensorMap dy_rest, uint2* dw,
                                  const __grid_constant__ Pass pass) {
    gradient(Maps{x, x_rest, dy, dy_rest}, pass, Together{[=](int at, const float4& sum) {
                 dw[at] = uint2{Half::pack(sum.x, sum.y), Half::pack(sum.z, sum.w)};
             }});
}
