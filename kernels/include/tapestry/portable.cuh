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

namespace tapestry {

template <class A, class B>
inline constexpr bool same = false;
template <class A>
inline constexpr bool same<A, A> = true;

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
inline constexpr bool never = false;

template <class T>
inline constexpr bool is_integer = same<T, int> || same<T, unsigned> || same<T, long> || same<T, unsigned long> ||
                                   same<T, long long> || same<T, unsigned long long> || same<T, short> ||
                                   same<T, unsigned short> || same<T, signed char> || same<T, unsigned char>;

template <class T, class... Ts>
inline constexpr bool contains = (same<T, Ts> || ...);

// No type stands twice in the list.
template <class... Ts>
inline constexpr bool distinct = true;
template <class T, class... Ts>
inline constexpr bool distinct<T, Ts...> = !contains<T, Ts...> && distinct<Ts...>;

// How often T stands in the list before its first occurrence: its position.
template <class T, class... Ts>
TAPESTRY_FN constexpr int position() {
    int found = 0;
    bool seen = false;
    ((seen = seen || same<T, Ts>, found += seen ? 0 : 1), ...);
    return found;
}

template <int N>
struct Log2 {
    static constexpr int value = 1 + Log2<N / 2>::value;
};
template <>
struct Log2<1> {
    static constexpr int value = 0;
};

// Floor division and its remainder by a constant: one shift and one mask for powers of two, also for negative numbers.
template <int N>
TAPESTRY_FN constexpr int floor_divide(int i) {
    static_assert(N > 0, "tapestry: the size of a fold is at least 1");
    if constexpr (N == 1) {
        return i;
    } else if constexpr ((N & (N - 1)) == 0) {
        return i >> Log2<N>::value;
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
