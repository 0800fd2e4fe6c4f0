// Folds of a row that several threads hold: among the lanes of a warp by exchange, among warps through shared memory.
// Every order is fixed, so that results repeat bit for bit, and every thread of the row gets the same value.
#pragma once

#include <tapestry/functions.cuh>

namespace tapestry {

struct Sum {
    template <class V>
    static TAPESTRY_FN V of(V a, V b) { return add(a, b); }
};
struct Product {
    template <class V>
    static TAPESTRY_FN V of(V a, V b) { return multiply(a, b); }
};
struct Largest {
    template <class V>
    static TAPESTRY_FN V of(V a, V b) { return maximum(a, b); }
};
struct Least {
    template <class V>
    static TAPESTRY_FN V of(V a, V b) { return minimum(a, b); }
};
struct Any {
    static TAPESTRY_FN bool of(bool a, bool b) { return a || b; }
};
struct Every {
    static TAPESTRY_FN bool of(bool a, bool b) { return a && b; }
};

// The value of the lane whose number differs in the bits of `distance`.
#if defined(__CUDA_ARCH__)
template <class V>
TAPESTRY_FN V exchange(V value, int distance) {
    if constexpr (same<V, bool>()) {
        return __shfl_xor_sync(0xffffffffu, int(value), distance) != 0;
    } else {
        return __shfl_xor_sync(0xffffffffu, value, distance);
    }
}
#else
template <class V>
V exchange(V value, int distance);  // whoever runs kernels on the host defines it
#endif

// Among LANES neighbouring lanes, a power of two.
template <int LANES, class Fold, class V>
TAPESTRY_FN V fold_lanes(V value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) value = Fold::of(value, exchange(value, distance));
    return value;
}

// Among all THREADS of a block. `part` has a place for each warp and is used once.
template <int THREADS, class Fold, class V>
TAPESTRY_FN V fold_block(V value, V* part) {
    value = fold_lanes<32, Fold>(value);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    V result = part[0];
#pragma unroll
    for (int warp = 1; warp < THREADS / 32; ++warp) result = Fold::of(result, part[warp]);
    return result;
}

}  // namespace tapestry
