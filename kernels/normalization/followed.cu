// What follows a sum that is there already: y = activation(x * scale + bias + residual), of tensors whose channels are dense.
//
// Behind stretches.cu. y may be x: a thread reads a vector before it writes it, and nobody else does either. Scale and bias are of a type
// of their own, `Parameter`.

#include <tapestry/slopes.cuh>

namespace tapestry::followed {

using namespace parameters;

// Of halves the error function may be off by 1.5e-7.
template <Activation kind>
__device__ inline float activated(float value) {
    if constexpr (kind == Activation::gelu && sizeof(Element) == 2) return 0.5f * value * quick_one_plus_error_function(value * 0.70710678f);
    else return activate<kind>(value);
}

}  // namespace tapestry::followed

extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
followed(const tapestry::parameters::Element* x, const tapestry::parameters::Element* residual,
         const tapestry::parameters::Parameter* scale, const tapestry::parameters::Parameter* bias, tapestry::parameters::Element* y,
         const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::parameters;
    using namespace tapestry::stretches;
    follow();
    const Place at(cut);
    float times[vector], added[vector];
#pragma unroll
    for (int e = 0; e < vector; ++e) {
        const int channel = at.channel < cut.channels ? at.channel + e : 0;
        times[e] = parameter(scale, channel, 1.0f), added[e] = parameter(bias, channel, 0.0f);
    }
    const auto give = [&](long long where, const Vector(&found)[1 + with_residual]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            float value = widen(found[0].get(e)) * times[e] + added[e];
            if constexpr (with_residual) value += widen(found[1].get(e));
            values[e] = followed::activated<activation>(value);
        }
        Vector rounded;
        round(rounded, values);
        store<vector>(y + where, rounded);
    };
    if constexpr (with_residual) {
        const Element* const from[2] = {x, residual};
        over_rows<2, shallow, true>(at, cut, from, give);
    } else {
        const Element* const from[1] = {x};
        over_rows<1, deep, true>(at, cut, from, give);
    }
}
