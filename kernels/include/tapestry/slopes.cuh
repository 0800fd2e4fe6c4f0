// Derivatives of the activations of epilogue.cuh, where torch takes them to be at corners: 0 at the ends of relu and relu6.
#pragma once

#include <tapestry/epilogue.cuh>
#include <tapestry/functions.cuh>

namespace tapestry {

template <Activation kind>
TAPESTRY_FN float slope(float v) {
    if constexpr (kind == Activation::relu) return v > 0.0f ? 1.0f : 0.0f;
    if constexpr (kind == Activation::relu6) return v > 0.0f && v < 6.0f ? 1.0f : 0.0f;
    if constexpr (kind == Activation::silu) {
        const float gate = quick_sigmoid(v);
        return gate * (1.0f + v * (1.0f - gate));
    }
    if constexpr (kind == Activation::gelu) {
        constexpr float density = 0.3989422804f;    // of the normal distribution at 0
        return 0.5f * quick_one_plus_error_function(v * 0.70710678f) + v * density * quick_exponential(-0.5f * v * v);
    }
    if constexpr (kind == Activation::hardswish) return v <= -3.0f ? 0.0f : v < 3.0f ? v * (1.0f / 3.0f) + 0.5f : 1.0f;
    return 1.0f;
}

// The same from what the activation made of v, for those of which that is enough.
template <Activation kind>
TAPESTRY_FN constexpr bool told_by_result() {
    return kind == Activation::relu || kind == Activation::relu6;
}

}  // namespace tapestry
