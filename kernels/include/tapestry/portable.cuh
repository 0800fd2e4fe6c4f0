// What the other headers need of the compiler: one function marker, and the few type traits that are used.
//
// Everything under tapestry/ that is arithmetic compiles with NVRTC, nvcc and a plain host compiler (C++17), and includes
// no header of anyone else, so that NVRTC needs no include path and the tests need no GPU.
#pragma once

#if defined(__CUDACC_RTC__)
#define TAPESTRY_FN __device__ __forceinline__
#elif defined(__CUDACC__)
#define TAPESTRY_FN __host__ __device__ __forceinline__
#else
#define TAPESTRY_FN inline
#endif

// What a kernel does that cannot go on.
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
#define TAPESTRY_STOP() __trap()
#else
#define TAPESTRY_STOP() __builtin_trap()
#endif

namespace tapestry {

// Facts are functions, not variables: the run-time compiler would put every variable template into the binary.
template <class A, class B>
struct Same {
    static TAPESTRY_FN constexpr bool holds() { return false; }
};
template <class A>
struct Same<A, A> {
    static TAPESTRY_FN constexpr bool holds() { return true; }
};
template <class A, class B>
TAPESTRY_FN constexpr bool same() {
    return Same<A, B>::holds();
}

template <bool Condition, class Then, class Else>
struct Choose {
    using type = Then;
};
template <class Then, class Else>
struct Choose<false, Then, Else> {
    using type = Else;
};
template <bool Condition, class Then, class Else>
using choose = typename Choose<Condition, Then, Else>::type;

// `false`, but only once T is known: for static_assert in a branch that must not be instantiated.
template <class... T>
TAPESTRY_FN constexpr bool never() {
    return false;
}

template <class T, class... Ts>
TAPESTRY_FN constexpr bool contains() {
    return (same<T, Ts>() || ...);
}

template <class T>
TAPESTRY_FN constexpr bool is_integer() {
    return contains<T, int, unsigned, long, unsigned long, long long, unsigned long long, short, unsigned short,
                    signed char, unsigned char>();
}

// How often T stands in the list.
template <class T, class... Ts>
TAPESTRY_FN constexpr int occurrences() {
    return (0 + ... + (same<T, Ts>() ? 1 : 0));
}

// No type stands twice in the list.
template <class... Ts>
TAPESTRY_FN constexpr bool distinct() {
    return ((occurrences<Ts, Ts...>() == 1) && ...);
}

// The place of T in the list: how many types stand before it.
template <class T, class... Ts>
TAPESTRY_FN constexpr int position() {
    int found = 0;
    bool seen = false;
    ((seen = seen || same<T, Ts>(), found += seen ? 0 : 1), ...);
    return found;
}

TAPESTRY_FN constexpr int log2_of(int n) {
    int bits = 0;
    while ((1 << bits) < n) ++bits;
    return bits;
}

// Floor division and its remainder by a constant: one shift and one mask for powers of two, also for negative numbers.
template <int N>
TAPESTRY_FN constexpr int floor_divide(int i) {
    static_assert(N > 0, "tapestry: the size of a fold is at least 1");
    if constexpr (N == 1) {
        return i;
    } else if constexpr ((N & (N - 1)) == 0) {
        constexpr int bits = log2_of(N);
        return i >> bits;
    } else {
        return i / N - (i % N < 0 ? 1 : 0);
    }
}

template <int N>
TAPESTRY_FN constexpr int floor_modulo(int i) {
    static_assert(N > 0, "tapestry: the size of a module is at least 1");
    if constexpr ((N & (N - 1)) == 0) {
        return i & (N - 1);
    } else {
        return i % N + (i % N < 0 ? N : 0);
    }
}

}  // namespace tapestry
