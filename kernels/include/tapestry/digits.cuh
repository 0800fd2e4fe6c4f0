// Parts of a dimension: what folding and taking remainders make of it, in one normal form.
//
// An index k is a number; `Part<K, Unit, Period>` is the digit (k mod Period) / Unit of it, with Period 0 for "no bound".
//   Fold<K, 16>             = Part<K, 16, 0>     k / 16
//   Module<K, 16>           = Part<K, 1, 16>     k mod 16
//   Module<Fold<K, 8>, 4>   = Part<K, 8, 32>     k / 8 mod 4
//   Fold<Fold<K, 8>, 4>     = Part<K, 32, 0>     the same type as Fold<K, 32>
// Two parts are one type exactly if they are the same digit, so that it does not matter which way one came to it.
#pragma once

#include <tapestry/portable.cuh>

namespace tapestry {

template <class Base, int Unit, int Period>
struct Part;

template <class Tag>
struct Digits {
    using base = Tag;
    static TAPESTRY_FN constexpr int unit() { return 1; }
    static TAPESTRY_FN constexpr int period() { return 0; }
};
template <class Base, int Unit, int Period>
struct Digits<Part<Base, Unit, Period>> {
    using base = Base;
    static TAPESTRY_FN constexpr int unit() { return Unit; }
    static TAPESTRY_FN constexpr int period() { return Period; }
};

template <class Base, int Unit, int Period>
struct Normal {
    static_assert(Period == 0 || Period % Unit == 0, "tapestry: the period of a part is a multiple of its unit");
    using type = Part<Base, Unit, Period>;
};
template <class Base>
struct Normal<Base, 1, 0> {
    using type = Base;
};
template <class Base, int Unit, int Period>
using normal = typename Normal<Base, Unit, Period>::type;

template <class A, class B>
TAPESTRY_FN constexpr bool one_base() {
    return same<typename Digits<A>::base, typename Digits<B>::base>();
}

// Every digit of To is a digit of From: it can be read off.
template <class To, class From>
TAPESTRY_FN constexpr bool reads_off() {
    using T = Digits<To>;
    using F = Digits<From>;
    return one_base<To, From>() && T::unit() % F::unit() == 0 &&
           (F::period() == 0 ||
            (T::period() != 0 && T::period() <= F::period() && F::period() % T::period() == 0));
}

// Every digit of From is a digit of To: the digits in between become zero.
template <class To, class From>
TAPESTRY_FN constexpr bool widens() {
    return reads_off<From, To>();
}

// The value of `To` that a value of `From` stands for; exact, or it does not compile.
template <class To, class From>
TAPESTRY_FN constexpr int convert_digits(int value) {
    using T = Digits<To>;
    using F = Digits<From>;
    static_assert(one_base<To, From>(), "tapestry: this index is of another dimension; if that is meant, say cast<To>(index)");
    static_assert(!one_base<To, From>() || reads_off<To, From>() || widens<To, From>(),
                  "tapestry: neither part of the dimension contains the other; unfold first");
    if constexpr (!one_base<To, From>()) {
        return 0;
    } else if constexpr (reads_off<To, From>()) {
        if constexpr (T::period() == F::period()) {
            return floor_divide<T::unit() / F::unit()>(value);
        } else {
            return floor_divide<T::unit() / F::unit()>(floor_modulo<T::period() / F::unit()>(value));
        }
    } else {
        return value * (F::unit() / T::unit());
    }
}

}  // namespace tapestry
