// The scalar functions of the language on its compute types: NumPy's meaning, integers wrapping.
//
// `quick_` functions are for results that are stored in 16 bits: a few units in the last place of a float, which such a
// result does not show, at a fraction of the instructions.
#pragma once

#include <tapestry/order.cuh>
#include <tapestry/scalar.cuh>

namespace tapestry {

// -- integers -------------------------------------------------------------------------------------------------------

TAPESTRY_FN Int add(Int a, Int b) { return Int(Natural(a) + Natural(b)); }
TAPESTRY_FN Int subtract(Int a, Int b) { return Int(Natural(a) - Natural(b)); }
TAPESTRY_FN Int multiply(Int a, Int b) { return Int(Natural(a) * Natural(b)); }
TAPESTRY_FN Int negative(Int a) { return Int(0ull - Natural(a)); }
TAPESTRY_FN Int absolute(Int a) { return a < 0 ? negative(a) : a; }
TAPESTRY_FN Int sign(Int a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }
TAPESTRY_FN Int minimum(Int a, Int b) { return b < a ? b : a; }
TAPESTRY_FN Int maximum(Int a, Int b) { return b > a ? b : a; }

// Into integers in memory, by many threads: in whatever order, the same bits.
#if defined(__CUDA_ARCH__)
TAPESTRY_FN void add_into(int* at, Int x) { atomicAdd(at, static_cast<int>(x)); }
TAPESTRY_FN void add_into(unsigned* at, Int x) { atomicAdd(at, static_cast<unsigned>(x)); }
TAPESTRY_FN void add_into(Int* at, Int x) { atomicAdd(reinterpret_cast<Natural*>(at), static_cast<Natural>(x)); }
TAPESTRY_FN void least_into(int* at, int x) { atomicMin(at, x); }
#else
template <class T>
void add_into(T* at, Int x) { *at = static_cast<T>(Natural(*at) + Natural(x)); }
inline void least_into(int* at, int x) { *at = x < *at ? x : *at; }
#endif

// By zero: 0, as in NumPy. The least integer by -1 wraps.
TAPESTRY_FN Int floor_divide(Int a, Int b) {
    if (b == 0) return 0;
    if (b == -1) return negative(a);
    const Int quotient = a / b;
    return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
TAPESTRY_FN Int remainder(Int a, Int b) {
    if (b == 0 || b == -1) return 0;
    const Int rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Of the dividend's sign; by zero: 0, as in NumPy.
TAPESTRY_FN Int rest(Int a, Int b) { return b == 0 || b == -1 ? 0 : a % b; }

// Shifts by less than 0 or more than 63 leave no bit of a but its sign, as in NumPy.
TAPESTRY_FN Int left_shift(Int a, Int by) { return Natural(by) < 64 ? Int(Natural(a) << by) : 0; }
TAPESTRY_FN Int right_shift(Int a, Int by) { return a >> (Natural(by) < 64 ? by : 63); }

// An index of the data: one outside of its axis stops the kernel, as a failed assertion does. A kernel of a plan hides
// this function by one of its own, which reports the index.
TAPESTRY_FN Int within(Int index, Int extent) {
    if (index < 0 || index >= extent) TAPESTRY_STOP();
    return index;
}

// Integers in the order of the numbers: the bits of a float without its sign, negative where it is; NaN above all.
TAPESTRY_FN Int ordered(Int a) { return a; }
TAPESTRY_FN Int ordered(float a) {
    if (a != a) return 0x7fc00000;
    const Int size = same_bits<unsigned>(a) & 0x7fffffffu;
    return a < 0.0f ? -size : size;
}
TAPESTRY_FN Int ordered(double a) {
    if (a != a) return 0x7ff8000000000000ll;
    const Int size = same_bits<Int>(a) & 0x7fffffffffffffffll;
    return a < 0.0 ? -size : size;
}

// The exponent is not negative.
TAPESTRY_FN Int power(Int base, Int exponent) {
    Natural result = 1, factor = Natural(base);
    for (Natural left = Natural(exponent); left && exponent > 0; left >>= 1) {
        if (left & 1) result *= factor;
        factor *= factor;
    }
    return Int(result);
}

// -- floats -------------------------------------------------------------------------------------------------------

template <class F>
TAPESTRY_FN F add(F a, F b) { return a + b; }
template <class F>
TAPESTRY_FN F subtract(F a, F b) { return a - b; }
template <class F>
TAPESTRY_FN F multiply(F a, F b) { return a * b; }
template <class F>
TAPESTRY_FN F divide(F a, F b) { return a / b; }
template <class F>
TAPESTRY_FN F negative(F a) { return -a; }
template <class F>
TAPESTRY_FN F sign(F a) { return a > F(0) ? F(1) : a < F(0) ? F(-1) : a == F(0) ? F(0) : a; }

TAPESTRY_FN float absolute(float a) { return fabsf(a); }
TAPESTRY_FN double absolute(double a) { return fabs(a); }
TAPESTRY_FN float floored(float a) { return floorf(a); }
TAPESTRY_FN double floored(double a) { return floor(a); }
TAPESTRY_FN float ceiled(float a) { return ceilf(a); }
TAPESTRY_FN double ceiled(double a) { return ceil(a); }
TAPESTRY_FN float rounded_to_even(float a) { return rintf(a); }
TAPESTRY_FN double rounded_to_even(double a) { return rint(a); }
TAPESTRY_FN float truncated_to_zero(float a) { return truncf(a); }
TAPESTRY_FN double truncated_to_zero(double a) { return trunc(a); }
TAPESTRY_FN float rest(float a, float b) { return fmodf(a, b); }
TAPESTRY_FN double rest(double a, double b) { return fmod(a, b); }
TAPESTRY_FN float signed_as(float a, float b) { return copysignf(a, b); }
TAPESTRY_FN double signed_as(double a, double b) { return copysign(a, b); }

// NaN wins, as in NumPy.
template <class F>
TAPESTRY_FN F minimum(F a, F b) { return a != a || a < b ? a : b; }
template <class F>
TAPESTRY_FN F maximum(F a, F b) { return a != a || a > b ? a : b; }
#if defined(__CUDA_ARCH__)
TAPESTRY_FN float minimum(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
TAPESTRY_FN float maximum(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#endif

// The remainder has the divisor's sign; quotient and remainder belong together as closely as rounding lets them.
template <class F>
TAPESTRY_FN F remainder(F a, F b) {
    const F left = rest(a, b);
    if (b == F(0)) return left;
    if (left == F(0)) return signed_as(F(0), b);
    return (left < F(0)) != (b < F(0)) ? left + b : left;
}
template <class F>
TAPESTRY_FN F floor_divide(F a, F b) {
    if (b == F(0)) return a / b;
    const F left = rest(a, b);
    F quotient = (a - left) / b;
    if (left != F(0) && (left < F(0)) != (b < F(0))) quotient -= F(1);
    if (quotient == F(0)) return signed_as(F(0), a / b);
    const F whole = floored(quotient);
    return quotient - whole > F(0.5) ? whole + F(1) : whole;
}

TAPESTRY_FN float power(float a, float b) { return powf(a, b); }
TAPESTRY_FN double power(double a, double b) { return pow(a, b); }
TAPESTRY_FN float exponential(float a) { return expf(a); }
TAPESTRY_FN double exponential(double a) { return exp(a); }
TAPESTRY_FN float logarithm(float a) { return logf(a); }
TAPESTRY_FN double logarithm(double a) { return log(a); }
TAPESTRY_FN float square_root(float a) { return sqrtf(a); }
TAPESTRY_FN double square_root(double a) { return sqrt(a); }
TAPESTRY_FN float sine(float a) { return sinf(a); }
TAPESTRY_FN double sine(double a) { return sin(a); }
TAPESTRY_FN float cosine(float a) { return cosf(a); }
TAPESTRY_FN double cosine(double a) { return cos(a); }
TAPESTRY_FN float hyperbolic_tangent(float a) { return tanhf(a); }
TAPESTRY_FN double hyperbolic_tangent(double a) { return tanh(a); }
TAPESTRY_FN float error_function(float a) { return erff(a); }
TAPESTRY_FN double error_function(double a) { return erf(a); }
TAPESTRY_FN float exponential_2(float a) { return exp2f(a); }
TAPESTRY_FN double exponential_2(double a) { return exp2(a); }
TAPESTRY_FN float exponential_minus_1(float a) { return expm1f(a); }
TAPESTRY_FN double exponential_minus_1(double a) { return expm1(a); }
TAPESTRY_FN float logarithm_2(float a) { return log2f(a); }
TAPESTRY_FN double logarithm_2(double a) { return log2(a); }
TAPESTRY_FN float logarithm_10(float a) { return log10f(a); }
TAPESTRY_FN double logarithm_10(double a) { return log10(a); }
TAPESTRY_FN float logarithm_of_1_plus(float a) { return log1pf(a); }
TAPESTRY_FN double logarithm_of_1_plus(double a) { return log1p(a); }
TAPESTRY_FN float cube_root(float a) { return cbrtf(a); }
TAPESTRY_FN double cube_root(double a) { return cbrt(a); }
TAPESTRY_FN float tangent(float a) { return tanf(a); }
TAPESTRY_FN double tangent(double a) { return tan(a); }
TAPESTRY_FN float arc_sine(float a) { return asinf(a); }
TAPESTRY_FN double arc_sine(double a) { return asin(a); }
TAPESTRY_FN float arc_cosine(float a) { return acosf(a); }
TAPESTRY_FN double arc_cosine(double a) { return acos(a); }
TAPESTRY_FN float arc_tangent(float a) { return atanf(a); }
TAPESTRY_FN double arc_tangent(double a) { return atan(a); }
TAPESTRY_FN float hyperbolic_sine(float a) { return sinhf(a); }
TAPESTRY_FN double hyperbolic_sine(double a) { return sinh(a); }
TAPESTRY_FN float hyperbolic_cosine(float a) { return coshf(a); }
TAPESTRY_FN double hyperbolic_cosine(double a) { return cosh(a); }
TAPESTRY_FN float area_sine(float a) { return asinhf(a); }
TAPESTRY_FN double area_sine(double a) { return asinh(a); }
TAPESTRY_FN float area_cosine(float a) { return acoshf(a); }
TAPESTRY_FN double area_cosine(double a) { return acosh(a); }
TAPESTRY_FN float area_tangent(float a) { return atanhf(a); }
TAPESTRY_FN double area_tangent(double a) { return atanh(a); }
TAPESTRY_FN float complementary_error_function(float a) { return erfcf(a); }
TAPESTRY_FN double complementary_error_function(double a) { return erfc(a); }
TAPESTRY_FN float arc_tangent(float a, float b) { return atan2f(a, b); }
TAPESTRY_FN double arc_tangent(double a, double b) { return atan2(a, b); }
TAPESTRY_FN double reciprocal_root(double a) { return 1.0 / sqrt(a); }
#if defined(__CUDACC_RTC__)
TAPESTRY_FN float reciprocal_root(float a) { return rsqrtf(a); }
#else
TAPESTRY_FN float reciprocal_root(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
#endif
template <class F>
TAPESTRY_FN F sigmoid(F a) { return F(1) / (F(1) + exponential(-a)); }

// -- random numbers: integers and single roundings only, so that every device gets the same bits -----------------------

// Philox4x32 in ten rounds, the seed as key and (position, stream) as counter: Salmon et al., SC 2011, section 3.3.
TAPESTRY_FN Int philox(Int seed, Int stream, Int position) {
    unsigned a = unsigned(position), b = unsigned(Natural(position) >> 32), key = unsigned(seed);
    unsigned c = unsigned(stream), d = unsigned(Natural(stream) >> 32), other = unsigned(Natural(seed) >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const Natural first = Natural(0xD2511F53u) * a, second = Natural(0xCD9E8D57u) * c;
        a = unsigned(second >> 32) ^ b ^ key;
        b = unsigned(second);
        c = unsigned(first >> 32) ^ d ^ other;
        d = unsigned(first);
        key += 0x9E3779B9u;
        other += 0xBB67AE85u;
    }
    return Int(Natural(b) << 32 | a);
}

// a * b + c in two roundings, whatever the compiler may contract.
#if defined(__CUDA_ARCH__)
TAPESTRY_FN float rounded_product(float a, float b) { return __fmul_rn(a, b); }
TAPESTRY_FN double rounded_product(double a, double b) { return __dmul_rn(a, b); }
#else
template <class F>
inline F rounded_product(F a, F b) { return a * b; }
#endif
template <class F>
TAPESTRY_FN F plus_product(F a, F b, F c) { return rounded_product(a, b) + c; }

TAPESTRY_FN float halves(float a, int* exponent) { return frexpf(a, exponent); }
TAPESTRY_FN double halves(double a, int* exponent) { return frexp(a, exponent); }

// log p = exponent log 2 + 2 artanh s by its series in s * s.
template <class F>
TAPESTRY_FN F stepwise_logarithm(F p) {
    int exponent;
    F m = halves(p, &exponent);
    if (m < F(0.70710678)) {
        m *= F(2);
        --exponent;
    }
    const F s = (m - F(1)) / (m + F(1)), q = rounded_product(s, s);
    F series = plus_product(q, F(2.0 / 11), F(2.0 / 9));
    series = plus_product(series, q, F(2.0 / 7));
    series = plus_product(series, q, F(2.0 / 5));
    series = plus_product(series, q, F(2.0 / 3));
    series = plus_product(series, q, F(2));
    return plus_product(F(exponent), F(0.6931471805599453), rounded_product(s, series));
}

// The quantile of a standard normal variable for 0 < p <= 1/2: Wichura, algorithm AS 241 (PPND7).
template <class F>
TAPESTRY_FN F normal_quantile(F p) {
    const F middle = p - F(0.5);
    if (absolute(middle) <= F(0.425)) {
        const F r = F(0.180625) - rounded_product(middle, middle);
        F above = plus_product(r, F(59.109374720), F(159.29113202)), below = plus_product(r, F(67.187563600), F(78.757757664));
        above = plus_product(plus_product(above, r, F(50.434271938)), r, F(3.3871327179));
        below = plus_product(plus_product(below, r, F(17.895169469)), r, F(1));
        return rounded_product(middle, above / below);
    }
    const F root = square_root(-stepwise_logarithm(p));
    const bool far = root > F(5);
    const F r = root - (far ? F(5) : F(1.6));
    F above = far ? plus_product(r, F(0.017337203997), F(0.42868294337)) : plus_product(r, F(0.17023821103), F(1.3067284816));
    above = plus_product(plus_product(above, r, far ? F(3.0812263860) : F(2.7568153900)), r, far ? F(6.6579051150) : F(1.4234372777));
    F below = far ? plus_product(r, F(0.012258202635), F(0.24197894225)) : plus_product(r, F(0.12021132975), F(0.73700164250));
    below = plus_product(below, r, F(1));
    return -(above / below);
}

// -- quick functions ------------------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__)
TAPESTRY_FN float power_of_two(float a) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
TAPESTRY_FN float quick_reciprocal(float a) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
TAPESTRY_FN float quick_divide(float a, float b) {
    float r;
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#else
inline float power_of_two(float a) { return std::exp2(a); }
inline float quick_reciprocal(float a) { return 1.0f / a; }
inline float quick_divide(float a, float b) { return a / b; }
#endif

constexpr float LOG2_E = 1.44269504f;

TAPESTRY_FN float quick_exponential(float a) { return power_of_two(a * LOG2_E); }
TAPESTRY_FN float quick_sigmoid(float a) { return quick_reciprocal(1.0f + power_of_two(a * -LOG2_E)); }

// 1 - 2 / (1 + exp 2a) cancels near 0; there, the beginning of the Taylor series (its next term is below 6e-8 a).
TAPESTRY_FN float quick_hyperbolic_tangent(float a) {
    const float far = 1.0f - 2.0f * quick_reciprocal(1.0f + power_of_two(a * (2.0f * LOG2_E)));
    const float square = a * a;
    const float near = a + a * square * (square * (2.0f / 15.0f) - 1.0f / 3.0f);
    return absolute(a) < 0.1f ? near : far;
}

// 1 + erf(a) without cancelling for negative a: Abramowitz and Stegun, formula 7.1.26, off by at most 1.5e-7.
TAPESTRY_FN float quick_one_plus_error_function(float a) {
    const float t = quick_reciprocal(1.0f + 0.3275911f * absolute(a));
    const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = p * power_of_two(a * a * -LOG2_E);
    return a < 0.0f ? tail : 2.0f - tail;
}

}  // namespace tapestry
