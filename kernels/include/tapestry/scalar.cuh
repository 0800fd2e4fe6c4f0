// Scalars of the language: how each element type is kept in memory, widened to compute and rounded when it is written.
//
// Computing happens in bool, long long (wrapping), float or double. Compiles for the GPU and, with the same results for
// integers and conversions, for the host, where the tests run generated kernels.
#pragma once

#include <tapestry/portable.cuh>

#if !defined(__CUDACC_RTC__)
#include <cmath>
#include <cstring>
#endif

namespace tapestry {

using Int = long long;
using Natural = unsigned long long;

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};
struct truth {
    unsigned char bits;
};
struct f8e4m3 {
    unsigned char bits;
};
struct f8e5m2 {
    unsigned char bits;
};

template <class To, class From>
TAPESTRY_FN To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "tapestry: the same number of bits");
    return __builtin_bit_cast(To, from);
}

// Infinity and "not a number", of which no literal exists.
TAPESTRY_FN float infinity() { return same_bits<float>(0x7f800000u); }
TAPESTRY_FN float not_a_number() { return same_bits<float>(0x7fc00000u); }

// -- rounding floats ----------------------------------------------------------------------------------------------

// Float by rounding to odd: the last bit says that something was lost. Rounding that to a format at least two bits
// shorter is rounding the double once.
TAPESTRY_FN float to_odd(double value) {
    const float nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || value != value) return nearest;
    const double size = value < 0 ? -value : value, found = nearest < 0 ? -double(nearest) : double(nearest);
    return same_bits<float>((same_bits<unsigned>(nearest) - (found > size ? 1u : 0u)) | 1u);
}

// The leading bits of an integer after rounding away `lost` of them, ties to even.
TAPESTRY_FN unsigned rounded(unsigned value, int lost) {
    if (lost > 31) return 0;
    const unsigned kept = value >> lost, rest = value & ((1u << lost) - 1), tie = 1u << (lost - 1);
    return kept + (rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u);
}

#if defined(__CUDA_ARCH__)
TAPESTRY_FN unsigned short half_bits(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
TAPESTRY_FN unsigned short brain_bits(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
TAPESTRY_FN float half_value(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
TAPESTRY_FN unsigned pack(f16, float low, float high) {
    unsigned packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
TAPESTRY_FN unsigned pack(bf16, float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
#else
inline unsigned short half_bits(float value) {
    const unsigned bits = same_bits<unsigned>(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7fffu);
    const int exponent = static_cast<int>(size >> 23) - 112;  // that of the half, which is biased by 15
    if (exponent >= 31) return static_cast<unsigned short>(sign | 0x7c00u);
    const unsigned fraction = (size & 0x7fffffu) | 0x800000u;
    if (exponent <= 0) return static_cast<unsigned short>(sign | rounded(fraction, 14 - exponent));
    return static_cast<unsigned short>(sign | (rounded(size - (112u << 23), 13)));
}
inline unsigned short brain_bits(float value) {
    const unsigned bits = same_bits<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>(bits >> 16 | 0x40u);
    return static_cast<unsigned short>(rounded(bits, 16));
}
inline float half_value(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
    const unsigned wide = exponent == 31 ? 255u : exponent + 112u;
    return same_bits<float>(sign | wide << 23 | fraction << 13);
}
inline unsigned pack(f16, float low, float high) { return half_bits(low) | unsigned(half_bits(high)) << 16; }
inline unsigned pack(bf16, float low, float high) { return brain_bits(low) | unsigned(brain_bits(high)) << 16; }
#endif

// A float in 8 bits, of which FRACTION are the significand's; codes above `most` are `over`: infinity, or "not a number".
template <int FRACTION, int BIAS>
TAPESTRY_FN unsigned char octet(float value, unsigned most, unsigned over) {
    const unsigned bits = same_bits<unsigned>(value), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<unsigned char>(sign | 0x7fu);
    const int exponent = static_cast<int>(size >> 23) - 127 + BIAS;
    const unsigned fraction = (size & 0x7fffffu) | 0x800000u;
    const unsigned code = exponent <= 0 ? rounded(fraction, 24 - FRACTION - exponent)
                                        : rounded(size - ((127u - BIAS) << 23), 23 - FRACTION);
    return static_cast<unsigned char>(sign | (code > most ? over : code));
}
TAPESTRY_FN float octet_value(f8e4m3 x) {
    const unsigned sign = (x.bits & 0x80u) << 24, exponent = x.bits >> 3 & 15u, fraction = x.bits & 7u;
    if ((x.bits & 0x7fu) == 0x7fu) return not_a_number();
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-9f;
    return same_bits<float>(sign | (exponent + 120u) << 23 | fraction << 20);
}

// -- widening -----------------------------------------------------------------------------------------------------

TAPESTRY_FN bool widen(truth x) { return x.bits != 0; }
TAPESTRY_FN Int widen(signed char x) { return x; }
TAPESTRY_FN Int widen(unsigned char x) { return x; }
TAPESTRY_FN Int widen(short x) { return x; }
TAPESTRY_FN Int widen(unsigned short x) { return x; }
TAPESTRY_FN Int widen(int x) { return x; }
TAPESTRY_FN Int widen(unsigned x) { return x; }
TAPESTRY_FN Int widen(Int x) { return x; }
TAPESTRY_FN float widen(f8e4m3 x) { return octet_value(x); }
TAPESTRY_FN float widen(f8e5m2 x) { return half_value(static_cast<unsigned short>(x.bits << 8)); }
TAPESTRY_FN float widen(f16 x) { return half_value(x.bits); }
TAPESTRY_FN float widen(bf16 x) { return same_bits<float>(static_cast<unsigned>(x.bits) << 16); }
TAPESTRY_FN float widen(float x) { return x; }
TAPESTRY_FN double widen(double x) { return x; }

// -- writing: truth for bool, truncation then wrapping for integers, one rounding for floats ------------------------

// Truncation; what no 64-bit integer holds becomes the least one.
template <class Float>
TAPESTRY_FN Int truncated(Float x) {
    const Float bound = static_cast<Float>(0x1p63);
    return x >= -bound && x < bound ? static_cast<Int>(x) : -0x7fffffffffffffffll - 1;
}

template <class T>
TAPESTRY_FN Int to_integer(T x) {
    if constexpr (same<T, float>() || same<T, double>()) {
        return truncated(x);
    } else {
        return static_cast<Int>(x);
    }
}

template <class T>
TAPESTRY_FN float to_short_float(T x) {
    if constexpr (same<T, float>() || same<T, bool>()) {
        return static_cast<float>(x);
    } else {
        return to_odd(static_cast<double>(x));
    }
}

template <class Stored, class T>
TAPESTRY_FN Stored narrow(T x) {
    if constexpr (same<Stored, truth>()) {
        return {static_cast<unsigned char>(x != T(0) ? 1 : 0)};
    } else if constexpr (same<Stored, f8e4m3>()) {
        return {octet<3, 7>(to_short_float(x), 0x7eu, 0x7fu)};
    } else if constexpr (same<Stored, f8e5m2>()) {
        return {octet<2, 15>(to_short_float(x), 0x7bu, 0x7cu)};
    } else if constexpr (same<Stored, f16>()) {
        return {half_bits(to_short_float(x))};
    } else if constexpr (same<Stored, bf16>()) {
        return {brain_bits(to_short_float(x))};
    } else if constexpr (same<Stored, float>() || same<Stored, double>()) {
        return static_cast<Stored>(x);
    } else {
        return static_cast<Stored>(static_cast<Natural>(to_integer(x)));
    }
}

}  // namespace tapestry
