// Coordinates: a set of typed indices. The order in which they were named means nothing; the types say all.
//
//   auto c = coord(p, q) + coord(k, P(1));   // Coord<P, Q, K>: shared dimensions add up, others join
//   c.get<K>();  c.get<Fold<K, 8>>();        // a dimension of the set, or a part of one
//   coord(k8, k8m).get<K>();                 // or one whose parts are all there
//   c.get<R>();                              // does not compile: c has no R
#pragma once

#include <tapestry/fold.cuh>

namespace tapestry {

template <class D>
struct Slot {
    D index;
};

// The one of Ds from which D can be read off (void: none). An exact match goes before a part of a larger one.
template <class D, class... Ds>
struct Source {
    using type = void;
};
template <class D, class First, class... Rest>
struct Source<D, First, Rest...> {
    using type = choose<reads_off<typename D::tag, typename First::tag>(), First, typename Source<D, Rest...>::type>;
};
template <class D, class... Ds>
using read_from = choose<contains<D, Ds...>(), D, typename Source<D, Ds...>::type>;

// Neighbouring parts from `unit` up to `period` are all among Ds: what they stand for is the sum of them.
template <class Base, class... Ds>
TAPESTRY_FN constexpr bool parts_reach(int unit, int period) {
    for (unsigned step = 0; step < sizeof...(Ds); ++step) {
        int next = -1;
        ((next = same<typename Digits<typename Ds::tag>::base, Base>() && Digits<typename Ds::tag>::unit() == unit
                     ? Digits<typename Ds::tag>::period()
                     : next),
         ...);
        if (next == period) return true;
        if (next <= 0) return false;
        unit = next;
    }
    return false;
}

template <class... Ds>
class Coord : private Slot<Ds>... {
   public:
    static_assert((IsDim<Ds>::holds() && ...), "tapestry: a coordinate is made of typed indices");
    static_assert(distinct<Ds...>(), "tapestry: a dimension stands twice in a coordinate");

    TAPESTRY_FN constexpr explicit Coord(Ds... indices) : Slot<Ds>{indices}... {}

    // D itself is here.
    template <class D>
    static TAPESTRY_FN constexpr bool holds() {
        return contains<D, Ds...>();
    }

    // D can be had: D itself is here, or an index of which D is a part, or all parts of D.
    template <class D>
    static TAPESTRY_FN constexpr bool has() {
        using T = Digits<typename D::tag>;
        return !same<read_from<D, Ds...>, void>() || parts_reach<typename T::base, Ds...>(T::unit(), T::period());
    }

    template <class D>
    TAPESTRY_FN constexpr D get() const {
        static_assert(has<D>(), "tapestry: the coordinate lacks this dimension");
        if constexpr (!same<read_from<D, Ds...>, void>()) {
            return D(static_cast<const Slot<read_from<D, Ds...>>&>(*this).index);
        } else {
            return (D() + ... + part_of<D, Ds>());
        }
    }

    // The same coordinate with one index replaced.
    template <class Tag>
    TAPESTRY_FN constexpr Coord with(Dim<Tag> index) const {
        static_assert(holds<Dim<Tag>>(), "tapestry: the coordinate lacks this dimension");
        Coord changed = *this;
        static_cast<Slot<Dim<Tag>>&>(changed).index = index;
        return changed;
    }

    // Only these dimensions.
    template <class... Some>
    TAPESTRY_FN constexpr Coord<Some...> project() const {
        return Coord<Some...>(get<Some>()...);
    }

    template <class... Es>
    TAPESTRY_FN constexpr bool operator==(Coord<Es...> other) const {
        static_assert(sizeof...(Es) == sizeof...(Ds) && (contains<Es, Ds...>() && ...),
                      "tapestry: only coordinates of the same dimensions are compared");
        return ((get<Ds>() == other.template get<Ds>()) && ...);
    }
    template <class... Es>
    TAPESTRY_FN constexpr bool operator!=(Coord<Es...> other) const {
        return !(*this == other);
    }

   private:
    // What the index of E contributes to D.
    template <class D, class E>
    TAPESTRY_FN constexpr D part_of() const {
        if constexpr (widens<typename D::tag, typename E::tag>()) {
            return D(static_cast<const Slot<E>&>(*this).index);
        } else {
            return D();
        }
    }
};

template <class... Tags>
TAPESTRY_FN constexpr auto coord(Dim<Tags>... indices) {
    return Coord<Dim<Tags>...>(indices...);
}

// Add one index: to the index of its dimension, or as a new one.
template <class... Ds, class Tag>
TAPESTRY_FN constexpr auto operator+(Coord<Ds...> c, Dim<Tag> index) {
    using D = Dim<Tag>;
    if constexpr (contains<D, Ds...>()) {
        return c.with(c.template get<D>() + index);
    } else {
        return Coord<Ds..., D>(c.template get<Ds>()..., index);
    }
}

template <class... Ds>
TAPESTRY_FN constexpr auto operator+(Coord<Ds...> c, Coord<>) {
    return c;
}

template <class... Ds, class E, class... Es>
TAPESTRY_FN constexpr auto operator+(Coord<Ds...> a, Coord<E, Es...> b) {
    return (a + b.template get<E>()) + b.template project<Es...>();
}

}  // namespace tapestry
