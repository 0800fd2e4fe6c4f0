// Where the elements of a tensor lie: a list of axes, each a dimension with its extent and stride.
//
//   using Tile = Packed<Extent<Y, 3>, Extent<X, 10>, Extent<C8, 8>>;          // strides 80, 8, 1: the last axis is innermost
//   using Image = Packed<Extent<N>, Extent<Y>, Extent<X>, Extent<C, 64>>;     // some extents at run time
//   Image image{X(w), N(n), Y(h)};                                            // typed, so in any order; braces, as with
//                                                                             // () C++ reads a function declaration
//   using Strided = Layout<Axis<Y, 3, 640>, Axis<X, 10, 64>>;                 // explicit strides, in elements
//
// Extents and strides known at compile time take no room; those that are not take one number each.
#pragma once

#include <tapestry/coord.cuh>

namespace tapestry {

// Stands for an extent or a stride that is known at run time only.
enum : int { run_time = -2147483647 - 1 };
// Stands for an extent nobody asks for: the tensor's user keeps inside by other means.
enum : int { unbounded = 2147483647 };

template <class D, int Size = run_time>
struct Extent {
    using dim = D;
    static TAPESTRY_FN constexpr int extent() { return Size; }
    static_assert(IsDim<D>::holds(), "tapestry: an extent is of a dimension");
    static_assert(Size == run_time || Size > 0, "tapestry: an extent is at least 1");
    static_assert(Size == run_time || module_size<D>() == 0 || Size <= module_size<D>(),
                  "tapestry: the extent of a module is at most its size");
};

template <class D, int Size = run_time, int Step = run_time>
struct Axis : Extent<D, Size> {
    static TAPESTRY_FN constexpr int stride() { return Step; }
};

// A stride given at run time, in elements: Image image{N(n), Y(h), X(w), Stride<Y>{pitch}}.
template <class D>
struct Stride {
    using dim = D;
    long long value;
};

template <class A, bool RunTime = A::extent() == run_time>
struct ExtentField {
    TAPESTRY_FN constexpr explicit ExtentField(int) {}
    TAPESTRY_FN constexpr int extent() const { return A::extent(); }
};
template <class A>
struct ExtentField<A, true> {
    TAPESTRY_FN constexpr explicit ExtentField(int extent) : extent_(extent) {}
    TAPESTRY_FN constexpr int extent() const { return extent_; }
    int extent_;
};

template <class A, bool RunTime = A::stride() == run_time>
struct StrideField {
    TAPESTRY_FN constexpr explicit StrideField(long long) {}
    TAPESTRY_FN constexpr int stride() const { return A::stride(); }
};
template <class A>
struct StrideField<A, true> {
    TAPESTRY_FN constexpr explicit StrideField(long long stride) : stride_(stride) {}
    TAPESTRY_FN constexpr long long stride() const { return stride_; }
    long long stride_;
};

// What an argument of a layout says of D: its extent, its stride, or nothing.
template <class D, class Given>
TAPESTRY_FN constexpr int extent_from(Given given, int otherwise) {
    if constexpr (same<D, Given>()) {
        return given.get();
    } else {
        return otherwise;
    }
}
template <class D, class Given>
TAPESTRY_FN constexpr long long stride_from(Given given, long long otherwise) {
    if constexpr (same<Stride<D>, Given>()) {
        return given.value;
    } else {
        return otherwise;
    }
}

template <class... Axes>
class Layout : private ExtentField<Axes>..., private StrideField<Axes>... {
   public:
    static_assert(distinct<typename Axes::dim...>(), "tapestry: a dimension stands twice in a layout");

    static TAPESTRY_FN constexpr bool known_extents() { return ((Axes::extent() != run_time) && ...); }
    static TAPESTRY_FN constexpr bool known_strides() { return ((Axes::stride() != run_time) && ...); }
    using Offset = choose<((Axes::stride() != run_time) && ...), int, long long>;

    // Extents of the axes that have none at compile time, as indices of their dimensions, and strides, in any order.
    // A stride that is neither known nor given is the packed one.
    template <class... Given>
    TAPESTRY_FN constexpr explicit Layout(Given... given)
        : ExtentField<Axes>(choose_extent<Axes>(given...))..., StrideField<Axes>(choose_stride<Axes>(given...))... {}

    template <class D>
    static TAPESTRY_FN constexpr bool has() {
        return contains<D, typename Axes::dim...>();
    }

    template <class D>
    TAPESTRY_FN constexpr D extent() const {
        static_assert(has<D>(), "tapestry: the tensor has no such dimension");
        int found = 0;
        ((found = same<D, typename Axes::dim>() ? ExtentField<Axes>::extent() : found), ...);
        return D(found);
    }

    template <class D>
    TAPESTRY_FN constexpr Offset stride() const {
        static_assert(has<D>(), "tapestry: the tensor has no such dimension");
        Offset found = 0;
        ((found = same<D, typename Axes::dim>() ? StrideField<Axes>::stride() : found), ...);
        return found;
    }

    // The number of elements, and one more than the offset of the last one.
    TAPESTRY_FN constexpr Offset size() const { return (Offset(1) * ... * Offset(ExtentField<Axes>::extent())); }
    TAPESTRY_FN constexpr Offset span() const {
        return (Offset(1) + ... + (Offset(ExtentField<Axes>::extent() - 1) * StrideField<Axes>::stride()));
    }

    // The offset of an element; the coordinate has all dimensions of the layout, and may have others.
    template <class... Ds>
    TAPESTRY_FN constexpr Offset offset(Coord<Ds...> at) const {
        static_assert((Coord<Ds...>::template has<typename Axes::dim>() && ...),
                      "tapestry: the coordinate lacks a dimension of the tensor");
        return (Offset(0) + ... +
                (Offset(at.template get<typename Axes::dim>().get()) * StrideField<Axes>::stride()));
    }

    // Every index of the coordinate that is of this layout lies within its extent.
    template <class... Ds>
    TAPESTRY_FN constexpr bool contains_coord(Coord<Ds...> at) const {
        static_assert((Coord<Ds...>::template has<typename Axes::dim>() || ...),
                      "tapestry: the coordinate shares no dimension with the tensor");
        return (axis_contains<Axes>(at) && ...);
    }

   private:
    template <class A, class... Ds>
    TAPESTRY_FN constexpr bool axis_contains(Coord<Ds...> at) const {
        if constexpr (Coord<Ds...>::template has<typename A::dim>()) {
            return unsigned(at.template get<typename A::dim>().get()) < unsigned(ExtentField<A>::extent());
        } else {
            return true;
        }
    }

    template <class A, class... Given>
    static TAPESTRY_FN constexpr int choose_extent(Given... given) {
        static_assert(A::extent() != run_time || contains<typename A::dim, Given...>(),
                      "tapestry: the extent of a run-time dimension of the layout is not given");
        static_assert(A::extent() == run_time || !contains<typename A::dim, Given...>(),
                      "tapestry: the extent of this dimension is fixed at compile time");
        int found = 0;
        ((found = extent_from<typename A::dim>(given, found)), ...);
        return found;
    }

    template <class A, class... Given>
    TAPESTRY_FN constexpr long long choose_stride(Given... given) const {
        bool inner = false;
        long long stride = 1;
        ((stride *= inner ? ExtentField<Axes>::extent() : 1, inner = inner || same<A, Axes>()), ...);
        ((stride = stride_from<typename A::dim>(given, stride)), ...);
        return stride;
    }
};

template <int... Extents>
TAPESTRY_FN constexpr int packed_product() {
    return ((Extents == run_time) || ...) ? int(run_time) : (1 * ... * Extents);
}

// Packed<Extent...>: the layout without gaps; a stride is known if all extents further in are.
template <class Done, class... Extents>
struct Pack {
    using type = Done;
};
template <class... Done, class E, class... Inner>
struct Pack<Layout<Done...>, E, Inner...> {
    using type =
        typename Pack<Layout<Done..., Axis<typename E::dim, E::extent(), packed_product<Inner::extent()...>()>>, Inner...>::type;
};
template <class... Extents>
using Packed = typename Pack<Layout<>, Extents...>::type;

}  // namespace tapestry
