// The two half-precision formats: packed pairs to and from f32, by PTX alone.
#pragma once

namespace tapestry {

struct F16 {
    static __device__ unsigned pack(float low, float high) {
        unsigned packed;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
        return packed;
    }
    static __device__ float widen(unsigned short bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
};

struct Bf16 {
    static __device__ unsigned pack(float low, float high) {
        unsigned packed;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
        return packed;
    }
    static __device__ float widen(unsigned short bits) { return __uint_as_float(unsigned(bits) << 16); }
};

template <class Half>
__device__ unsigned short narrow(float value) {
    return static_cast<unsigned short>(Half::pack(value, 0.0f) & 0xffffu);
}

template <class Half>
__device__ float low_half(unsigned packed) {
    return Half::widen(static_cast<unsigned short>(packed & 0xffffu));
}

template <class Half>
__device__ float high_half(unsigned packed) {
    return Half::widen(static_cast<unsigned short>(packed >> 16));
}

}  // namespace tapestry
