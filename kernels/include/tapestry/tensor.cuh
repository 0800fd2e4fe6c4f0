// Tensors, and cursors into them.
//
//   Tensor<float, Image> x(pointer, image);          // Image as in layout.cuh
//   *x[n][y][x_][c] = 1.0f;                          // one typed index after another, in any order
//   *x[coord(n, y, x_, c)];                          // or a coordinate, which may have dimensions x lacks
//   auto row = x[coord(n, y, x_, c)];  row += Y(1);  // a cursor steps along the axes
//   SharedTensor<half, Tile, Swizzle<128>> tile(address);   // 32-bit shared addresses; tile[c].address()
//
// A tensor is a cursor at the origin of which no axis has been placed yet. An element can be reached once every axis has
// been; after that, an index is a step. With compile-time extents and strides a cursor is one pointer.
#pragma once

#include <tapestry/layout.cuh>
#include <tapestry/swizzle.cuh>

namespace tapestry {

// Sixteen bytes, moved in one access: eight 16-bit numbers, or four 32-bit ones.
struct alignas(16) Octet {
    unsigned short value[8];
};
struct alignas(16) Quad {
    float value[4];
};

// Elements behind a pointer (global or generic addresses).
struct Pointed {
    template <class T>
    using handle = T*;

    template <class T, class Offset>
    static TAPESTRY_FN constexpr T* advance(T* at, Offset elements) {
        return at + elements;
    }
    template <class T, class Swizzled>
    static TAPESTRY_FN constexpr T* swizzle(T* at) {
        if constexpr (Swizzled::trivial()) {
            return at;
        } else {
            return reinterpret_cast<T*>(Swizzled::apply(reinterpret_cast<unsigned long long>(at)));
        }
    }
    template <class U, class T>
    static TAPESTRY_FN constexpr U* as(T* at) {
        return reinterpret_cast<U*>(at);
    }
};

// Elements behind a 32-bit address of shared memory, as ldmatrix, stmatrix and the copy engine take it.
struct InShared {
    template <class T>
    using handle = unsigned;

    template <class T, class Offset>
    static TAPESTRY_FN constexpr unsigned advance(unsigned at, Offset elements) {
        return at + unsigned(elements) * unsigned(sizeof(T));
    }
    template <class T, class Swizzled>
    static TAPESTRY_FN constexpr unsigned swizzle(unsigned at) {
        return Swizzled::apply(at);
    }
    template <class U, class T>
    static TAPESTRY_FN constexpr unsigned as(unsigned at) {
        return at;
    }
};

template <class T, class L, class Memory = Pointed, class Swizzled = NoSwizzle, unsigned Placed = 0>
class Cursor;

template <class T, class... Axes, class Memory, class Swizzled, unsigned Placed>
class Cursor<T, Layout<Axes...>, Memory, Swizzled, Placed> : private Layout<Axes...> {
   public:
    using L = Layout<Axes...>;
    using Offset = typename L::Offset;
    using Handle = typename Memory::template handle<T>;
    using L::contains_coord;
    using L::extent;
    using L::size;
    using L::span;
    using L::stride;


    TAPESTRY_FN constexpr Cursor() : L(), at_() {}   // for arrays of places that are filled in later
    TAPESTRY_FN constexpr explicit Cursor(Handle origin, L layout = L()) : L(layout), at_(origin) {}

    // Place or step along the axis of one index. It may also be an index that two axes are parts of (K for [K16][K16m]),
    // or a coarser part of an axis (Fold<X, 8> for [X]), which is a step of eight.
    template <class Tag>
    TAPESTRY_FN constexpr auto operator[](Dim<Tag> index) const {
        using D = Dim<Tag>;
        static_assert((relevant<Axes, D>() || ...), "tapestry: the tensor has no such dimension");
        static_assert(((!splits<Axes, D>() || !(Placed & bit<Axes>())) && ...),
                      "tapestry: steps along the parts of a dimension do not carry; step along one axis");
        static_assert((steps_evenly<Axes, D>() && ...),
                      "tapestry: a settled cursor steps by multiples of the swizzle's period only");
        constexpr unsigned placed = Placed | (0u | ... | (exact_or_split<Axes, D>() ? bit<Axes>() : 0u));
        return moved<placed>((Offset(0) + ... + term<Axes>(index)));
    }

    // Place all axes: the coordinate has every dimension that is not placed yet, and may have others.
    template <class... Ds>
    TAPESTRY_FN constexpr auto operator[](Coord<Ds...> at) const {
        static_assert(((Coord<Ds...>::template has<typename Axes::dim>() || (Placed & bit<Axes>())) && ...),
                      "tapestry: the coordinate lacks a dimension of the tensor");
        return place(at);
    }

    // Place those axes that the coordinate has.
    template <class... Ds>
    TAPESTRY_FN constexpr auto place(Coord<Ds...> at) const {
        static_assert(Swizzled::step() == 1 || !(Coord<Ds...>::template has<typename Axes::dim>() || ...),
                      "tapestry: a settled cursor steps by one index at a time");
        constexpr unsigned placed =
            Placed | (0u | ... | (Coord<Ds...>::template has<typename Axes::dim>() ? bit<Axes>() : 0u));
        return moved<placed>((Offset(0) + ... + coord_term<Axes>(at)));
    }

    template <class Tag>
    TAPESTRY_FN constexpr Cursor& operator+=(Dim<Tag> index) {
        at_ = (*this)[index].linear();
        return *this;
    }
    template <class Tag>
    TAPESTRY_FN constexpr Cursor& operator-=(Dim<Tag> index) {
        return *this += -index;
    }

    // The swizzled address: a pointer, or a 32-bit shared address.
    TAPESTRY_FN constexpr Handle address() const {
        static_assert(Placed == (1u << sizeof...(Axes)) - 1u, "tapestry: an element is reached once every axis has been placed");
        return swizzled();
    }

    TAPESTRY_FN constexpr T& operator*() const {
        static_assert(!same<Memory, InShared>(), "tapestry: behind a shared address there is no reference; take address()");
        return *address();
    }
    TAPESTRY_FN constexpr T* operator->() const { return &**this; }

    // The place without its swizzle; also of a cursor with axes still to place.
    TAPESTRY_FN constexpr Handle linear() const { return at_; }

    // The swizzle applied once and for all: from here on only steps that keep it are possible, and they cost nothing but
    // an immediate offset.
    TAPESTRY_FN constexpr auto settle() const {
        return Cursor<T, L, Memory, Settled<Swizzled::period()>, Placed>(swizzled(), *this);
    }

    // The same place of a tile that begins at `origin` (a multiple of the swizzle's period, as all tiles do) in place of
    // address 0: places are worked out once, and used for every buffer of a ring.
    TAPESTRY_FN constexpr Cursor in_tile(unsigned origin) const {
        static_assert(same<Memory, InShared>(), "tapestry: only shared tiles are moved by their address");
        return Cursor(at_ + origin, *this);
    }

    // The same place as elements of another type of the same size.
    template <class U>
    TAPESTRY_FN constexpr auto as() const {
        static_assert(sizeof(U) == sizeof(T), "tapestry: a tensor is read as elements of its own size");
        return Cursor<U, L, Memory, Swizzled, Placed>(Memory::template as<U, T>(at_), *this);
    }

    // Bytes from the first to past the last element; for compile-time layouts a constant.
    TAPESTRY_FN constexpr Offset bytes() const { return span() * Offset(sizeof(T)); }

   private:
    template <class A>
    static TAPESTRY_FN constexpr unsigned bit() {
        return 1u << position<A, Axes...>();
    }

    // How an index of D acts on axis A: as itself, split (A is a part of D), or as a coarser part of A.
    template <class A, class D>
    static TAPESTRY_FN constexpr bool exact() {
        return same<typename A::dim, D>();
    }
    template <class A, class D>
    static TAPESTRY_FN constexpr bool splits() {
        return !L::template has<D>() && reads_off<typename A::dim::tag, typename D::tag>();
    }
    template <class A, class D>
    static TAPESTRY_FN constexpr bool coarser() {
        return !L::template has<D>() && !splits<A, D>() && widens<typename A::dim::tag, typename D::tag>();
    }
    template <class A, class D>
    static TAPESTRY_FN constexpr bool exact_or_split() {
        return exact<A, D>() || splits<A, D>();
    }
    template <class A, class D>
    static TAPESTRY_FN constexpr bool relevant() {
        return exact_or_split<A, D>() || coarser<A, D>();
    }

    // Elements between two neighbouring indices of D along A, where that is known and even.
    template <class A, class D>
    static TAPESTRY_FN constexpr bool steps_evenly() {
        if constexpr (Swizzled::step() == 1 || !relevant<A, D>()) {
            return true;
        } else if constexpr (splits<A, D>() || A::stride() == run_time) {
            return false;
        } else {
            constexpr int axis_indices = Digits<typename D::tag>::unit() / Digits<typename A::dim::tag>::unit();
            return 1LL * A::stride() * axis_indices * int(sizeof(T)) % Swizzled::step() == 0;
        }
    }

    template <class A, class Tag>
    TAPESTRY_FN constexpr Offset term(Dim<Tag> index) const {
        if constexpr (relevant<A, Dim<Tag>>()) {
            using D = typename A::dim;
            return Offset(D(index).get()) * Offset(L::template stride<D>());
        } else {
            return 0;
        }
    }

    template <class A, class... Ds>
    TAPESTRY_FN constexpr Offset coord_term(Coord<Ds...> at) const {
        using D = typename A::dim;
        if constexpr (Coord<Ds...>::template has<D>()) {
            return Offset(at.template get<D>().get()) * Offset(L::template stride<D>());
        } else {
            return 0;
        }
    }

    template <unsigned NowPlaced>
    TAPESTRY_FN constexpr auto moved(Offset elements) const {
        return Cursor<T, L, Memory, Swizzled, NowPlaced>(Memory::template advance<T>(at_, elements), *this);
    }

    TAPESTRY_FN constexpr Handle swizzled() const { return Memory::template swizzle<T, Swizzled>(at_); }

    Handle at_;
};

template <class T, class L, class Swizzled = NoSwizzle>
using Tensor = Cursor<T, L, Pointed, Swizzled, 0>;

template <class T, class L, class Swizzled = NoSwizzle>
using SharedTensor = Cursor<T, L, InShared, Swizzled, 0>;

// A small tensor that owns its elements: registers, if every index is a constant once loops are unrolled.
template <class T, class... Extents>
struct Array {
    using L = Packed<Extents...>;
    static_assert(L::known_extents(), "tapestry: an array has compile-time extents");

    template <class... Tags>
    TAPESTRY_FN constexpr T& operator()(Dim<Tags>... indices) {
        return elements[L().offset(coord(indices...))];
    }
    template <class... Tags>
    TAPESTRY_FN constexpr const T& operator()(Dim<Tags>... indices) const {
        return elements[L().offset(coord(indices...))];
    }
    template <class... Ds>
    TAPESTRY_FN constexpr T& operator[](Coord<Ds...> at) {
        return elements[L().offset(at)];
    }
    template <class... Ds>
    TAPESTRY_FN constexpr const T& operator[](Coord<Ds...> at) const {
        return elements[L().offset(at)];
    }

    T elements[(1 * ... * Extents::extent())];
};

}  // namespace tapestry
