// The second launch of a weight gradient whose splits left partial sums in f32, [split][element]: it adds them in order.
// Behind a kernel's own text, which includes async.cuh and numeric.cuh and names `tapestry::parameters::Half`.

// Adds the splits in order.
template <typename Store>
__device__ void fold_splits(const float* partials, int splits, int elements, const Store& store) {
    const int element = blockIdx.x * blockDim.x + threadIdx.x;
    tapestry::wait_for_previous_kernel();
    tapestry::let_next_kernel_start();
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
