// Gelu of tensors whose channels are dense, and its gradient with what a bias in front of it is owed: the gradient's sum over rows.
//
// Behind stretches.cu. Results are of halves: the error function is off by 1.5e-7. Every order is fixed: the same bits on every run.

#include <tapestry/slopes.cuh>

extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
gelu(const tapestry::parameters::Element* x, tapestry::parameters::Element* y, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::parameters;
    using namespace tapestry::stretches;
    follow();
    const Place at(cut);
    const Element* const from[1] = {x};
    over_rows<1, deep, false>(at, cut, from, [&](long long where, const Vector(&found)[1]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float value = widen(found[0].get(e));
            values[e] = 0.5f * value * quick_one_plus_error_function(value * 0.70710678f);
        }
        Vector rounded;
        round(rounded, values);
        store<vector>(y + where, rounded);
    });
}

// The gradient of x, and its sum over the rows of each block, as it was before it was rounded, [block][channels].
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
gelu_gradient(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy, tapestry::parameters::Element* dx,
              float* partials, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::parameters;
    using namespace tapestry::stretches;
    follow();
    const Place at(cut);
    Sum own[vector] = {};
    const Element* const from[2] = {x, dy};
    over_rows<2, shallow, false>(at, cut, from, [&](long long where, const Vector(&found)[2]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            values[e] = widen(found[1].get(e)) * slope<Activation::gelu>(widen(found[0].get(e)));
            own[e].fold({values[e]});
        }
        Vector rounded;
        round(rounded, values);
        store<vector>(dx + where, rounded);
    });
    leave_sum(own, at, cut, partials);
}

extern "C" __global__ void __launch_bounds__(1024)
gelu_fold(const float* partials, float* sums, const __grid_constant__ tapestry::stretches::Cut cut) {
    tapestry::follow();
    tapestry::stretches::fold_sums(partials, sums, cut);
}
