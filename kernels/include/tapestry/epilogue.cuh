// What happens to a finished f32 sum before it is rounded: scale, bias, residual, activation, in that order.
#pragma once

namespace tapestry {

enum class Activation { none, relu, relu6, silu, gelu, hardswish };

template <Activation kind>
__device__ __forceinline__ float activate(float v) {
    if constexpr (kind == Activation::relu) return fmaxf(v, 0.0f);
    if constexpr (kind == Activation::relu6) return fminf(fmaxf(v, 0.0f), 6.0f);
    // Not v / ...: the slow path of a rounded division is a branch for each element, so that one waits for the other.
    if constexpr (kind == Activation::silu) return __fdividef(v, 1.0f + __expf(-v));
    if constexpr (kind == Activation::gelu) return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
    if constexpr (kind == Activation::hardswish) return v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
    return v;
}

}  // namespace tapestry
