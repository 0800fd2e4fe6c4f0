// The two half-precision formats on the host, rounded to nearest even as the GPU does.
#pragma once

#include <bit>
#include <cstdint>

namespace tapestry {

struct F16 {
    static unsigned pack(float low, float high) { return bits(low) | bits(high) << 16; }
    static float widen(unsigned short bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
    static unsigned bits(float value) { return std::bit_cast<unsigned short>(static_cast<_Float16>(value)); }
};

struct Bf16 {
    static unsigned pack(float low, float high) { return bits(low) | bits(high) << 16; }
    static float widen(unsigned short bits) { return std::bit_cast<float>(unsigned(bits) << 16); }
    static unsigned bits(float value) {
        const auto whole = std::bit_cast<unsigned>(value);
        return value != value ? 0x7fffu : (whole + 0x7fffu + (whole >> 16 & 1u)) >> 16;
    }
};

template <class Half>
unsigned short narrow(float value) {
    return static_cast<unsigned short>(Half::pack(value, 0.0f) & 0xffffu);
}

template <class Half>
float low_half(unsigned packed) {
    return Half::widen(static_cast<unsigned short>(packed & 0xffffu));
}

template <class Half>
float high_half(unsigned packed) {
    return Half::widen(static_cast<unsigned short>(packed >> 16));
}

}  // namespace tapestry
