// Folds and modules: K = 16 * Fold<K, 16> + Module<K, 16>, exactly.
//
//   using K16 = Fold<K, 16>;   using K16m = Module<K, 16>;
//   K16 hi(k);  K16m lo(k);          // explicit, floor division: also right for negative indices
//   unfold(hi, lo) == k;  K(hi) == k - K(lo);
#pragma once

#include <tapestry/dim.cuh>

namespace tapestry {

template <class Tag, int Size>
struct FoldOf {
    using D = Digits<Tag>;
    static_assert(Size > 0, "tapestry: the size of a fold is at least 1");
    static_assert(D::period() == 0 || D::period() % (D::unit() * Size) == 0,
                  "tapestry: the size of a fold of a module divides the module");
    using type = Dim<normal<typename D::base, D::unit() * Size, D::period()>>;
};

template <class Tag, int Size>
struct ModuleOf {
    using D = Digits<Tag>;
    static_assert(Size > 0, "tapestry: the size of a module is at least 1");
    static_assert(D::period() == 0 || D::period() % (D::unit() * Size) == 0,
                  "tapestry: the size of a module of a module divides it");
    using type = Dim<normal<typename D::base, D::unit(), D::unit() * Size>>;
};

// D / Size: the index of a block of Size consecutive indices.
template <class D, int Size>
using Fold = typename FoldOf<typename D::tag, Size>::type;

// D mod Size: the index inside such a block; also the slot of a ring of Size buffers.
template <class D, int Size>
using Module = typename ModuleOf<typename D::tag, Size>::type;

template <int Size, class Tag>
TAPESTRY_FN constexpr auto fold(Dim<Tag> index) {
    return Fold<Dim<Tag>, Size>(index);
}

template <int Size, class Tag>
TAPESTRY_FN constexpr auto modulo(Dim<Tag> index) {
    return Module<Dim<Tag>, Size>(index);
}

// The number of values of a module: Module<K, 16> has 16, a fold or a whole dimension no bound (0).
template <class D>
TAPESTRY_FN constexpr int module_size() {
    using T = Digits<typename D::tag>;
    return T::period() / T::unit();
}

// The next slot of a ring, without a division: 0, 1, ..., Size - 1, 0, ...
template <class Tag>
TAPESTRY_FN constexpr Dim<Tag> next_in_ring(Dim<Tag> slot) {
    static_assert(module_size<Dim<Tag>>() > 0, "tapestry: only a module has a ring");
    return slot.get() + 1 == module_size<Dim<Tag>>() ? Dim<Tag>(0) : slot + 1;
}

// unfold(high, low): two neighbouring parts put together again; the other way round, or with a gap, it does not compile.
template <class High, class Low>
TAPESTRY_FN constexpr auto unfold(Dim<High> high, Dim<Low> low) {
    using H = Digits<High>;
    using L = Digits<Low>;
    static_assert(one_base<High, Low>(), "tapestry: parts of two dimensions do not unfold into one");
    static_assert(!one_base<High, Low>() || H::unit() == L::period(),
                  "tapestry: the parts are not neighbours (high part first, no gap, no overlap)");
    return Dim<normal<typename H::base, L::unit(), H::period()>>(high.get() * (H::unit() / L::unit()) + low.get());
}

template <class High, class Mid, class Low, class... Rest>
TAPESTRY_FN constexpr auto unfold(Dim<High> high, Dim<Mid> mid, Dim<Low> low, Dim<Rest>... rest) {
    return unfold(unfold(high, mid), low, rest...);
}

}  // namespace tapestry
