// Compound indices: one linear index of threads or blocks, taken apart into typed ones with compile-time divisors.
//
//   using Thread = Compound<Extent<Warp, 4>, Extent<X, 8>, Extent<C8, 4>>;   // 128 threads; C8 runs fastest
//   Thread thread(threadIdx.x);
//   thread.get<X>();  thread.coord();  tile[thread.coord()];
//   Thread::linear(thread.coord()) == threadIdx.x;
//
// The first (slowest) extent may be a run-time one: it needs no division.
#pragma once

#include <tapestry/layout.cuh>

namespace tapestry {

template <class... Extents>
class Compound {
   public:
    static_assert(sizeof...(Extents) > 0, "tapestry: a compound index has at least one dimension");
    static_assert(distinct<typename Extents::dim...>(), "tapestry: a dimension stands twice in a compound index");
    using Coordinate = Coord<typename Extents::dim...>;

    // Threads or blocks in all, where every extent is known.
    static TAPESTRY_FN constexpr int size() { return packed_product<Extents::extent()...>(); }

    TAPESTRY_FN constexpr explicit Compound(unsigned linear) : linear_(linear) {
        static_assert(inner_known(), "tapestry: only the first extent of a compound index may be a run-time one");
    }

    template <class D>
    TAPESTRY_FN constexpr D get() const {
        constexpr bool here = contains<D, typename Extents::dim...>();
        static_assert(here, "tapestry: the compound index has no such dimension");
        if constexpr (here) {
            constexpr int at = position<D, typename Extents::dim...>();
            constexpr unsigned divisor = unsigned(inner(at));
            constexpr int extent = extent_at(at);
            if constexpr (at == 0) {
                return D(linear_ / divisor);
            } else {
                return D(linear_ / divisor % unsigned(extent));
            }
        } else {
            return D();
        }
    }

    TAPESTRY_FN constexpr Coordinate coord() const { return Coordinate(get<typename Extents::dim>()...); }

    template <class... Ds>
    static TAPESTRY_FN constexpr unsigned linear(Coord<Ds...> at) {
        static_assert((Coord<Ds...>::template has<typename Extents::dim>() && ...),
                      "tapestry: the coordinate lacks a dimension of the compound index");
        unsigned sum = 0;
        ((sum = sum * unsigned(Extents::extent() == run_time ? 1 : Extents::extent()) +
                unsigned(at.template get<typename Extents::dim>().get())),
         ...);
        return sum;
    }

   private:
    static TAPESTRY_FN constexpr int extent_at(int axis) {
        const int all[] = {Extents::extent()...};
        return all[axis];
    }

    // The product of the extents further in than axis `at`.
    static TAPESTRY_FN constexpr int inner(int at) {
        int product = 1;
        for (int axis = int(sizeof...(Extents)) - 1; axis > at; --axis) product *= extent_at(axis);
        return product;
    }

    static TAPESTRY_FN constexpr bool inner_known() {
        bool known = true;
        for (int axis = 1; axis < int(sizeof...(Extents)); ++axis) known = known && extent_at(axis) != run_time;
        return known;
    }

    unsigned linear_;
};

}  // namespace tapestry
