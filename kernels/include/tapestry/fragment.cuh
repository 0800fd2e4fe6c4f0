// Tensor-core fragments: which lane holds which element of a product C[M, N] += A[M, K] * B[K, N], in typed indices.
//
//   using A = FragmentA<X, Tap8, 16>;     // 16 x 16 (m16n8k16): M is X, K is Tap8, both whatever dimension one likes
//   using B = FragmentB<Tap8, K8, 16>;    // 16 x 8
//   using C = FragmentC<X, K8>;           // 16 x 8, f32
//   A::element(lane, r, h)                // Coord<X, Tap8> of half h (0: low) of register r
//   A::row(lane)                          // Coord<X, Fold<Tap8, 8>>: the 16-byte row this lane names to ldmatrix
//
// f16 and bf16 lie alike. Source of the layouts: PTX ISA, "Matrix fragments for mma.m16n8k16 / mma.m16n8k8 with
// floating point type" and "ldmatrix".
#pragma once

#include <tapestry/coord.cuh>

namespace tapestry {

// A lane's row and pair inside the 8 x 8 matrices that fragments are made of.
TAPESTRY_FN constexpr int fragment_row(unsigned lane) { return int(lane >> 2); }
TAPESTRY_FN constexpr int fragment_pair(unsigned lane) { return int(lane & 3) * 2; }

template <int KSize>
TAPESTRY_FN constexpr bool fragment_depth() {
    return KSize == 8 || KSize == 16;
}

// A, 16 x KSize, two 16-bit elements a register.
template <class M, class K, int KSize>
struct FragmentA {
    static_assert(fragment_depth<KSize>(), "tapestry: a fragment is 8 or 16 deep");
    static TAPESTRY_FN constexpr int registers() { return KSize / 4; }
    using Element = Coord<M, K>;
    using Row = Coord<M, Fold<K, 8>>;
    using Column = Coord<K, Fold<M, 8>>;

    static TAPESTRY_FN constexpr Element element(unsigned lane, int r, int half) {
        return Element(M(fragment_row(lane) + 8 * (r & 1)), K(fragment_pair(lane) + half + 8 * (r >> 1)));
    }
    // ldmatrix, elements along K side by side in memory. (Lanes past 8 * registers are not asked by x2; they repeat.)
    static TAPESTRY_FN constexpr Row row(unsigned lane) {
        return Row(M(int(lane & 15)), Fold<K, 8>(KSize == 8 ? 0 : int(lane >> 4) & 1));
    }
    // ldmatrix.trans, elements along M side by side in memory.
    static TAPESTRY_FN constexpr Column column(unsigned lane) {
        return Column(K(int(lane & 7) + (KSize == 8 ? 0 : 8 * (int(lane >> 4) & 1))), Fold<M, 8>(int(lane >> 3) & 1));
    }

    unsigned reg[KSize / 4];
};

// B, KSize x 8, two 16-bit elements a register.
template <class K, class N, int KSize>
struct FragmentB {
    static_assert(fragment_depth<KSize>(), "tapestry: a fragment is 8 or 16 deep");
    static TAPESTRY_FN constexpr int registers() { return KSize / 8; }
    using Element = Coord<K, N>;
    using Row = Coord<N, Fold<K, 8>>;
    using Column = Coord<K, Fold<N, 8>>;

    static TAPESTRY_FN constexpr Element element(unsigned lane, int r, int half) {
        return Element(K(fragment_pair(lane) + half + 8 * r), N(fragment_row(lane)));
    }
    // ldmatrix, elements along K side by side in memory.
    static TAPESTRY_FN constexpr Row row(unsigned lane) {
        return Row(N(int(lane & 7)), Fold<K, 8>(KSize == 8 ? 0 : int(lane >> 3) & 1));
    }
    // ldmatrix.trans, elements along N side by side in memory.
    static TAPESTRY_FN constexpr Column column(unsigned lane) {
        return Column(K(int(lane & (KSize - 1))), Fold<N, 8>(0));
    }

    unsigned reg[KSize / 8];
};

// C and D, 16 x 8, one f32 a register.
template <class M, class N>
struct FragmentC {
    static TAPESTRY_FN constexpr int registers() { return 4; }
    using Element = Coord<M, N>;
    using Row = Coord<M, Fold<N, 8>>;

    static TAPESTRY_FN constexpr Element element(unsigned lane, int r) {
        return Element(M(fragment_row(lane) + 8 * (r >> 1)), N(fragment_pair(lane) + (r & 1)));
    }
    // stmatrix of the fragment rounded to 16 bits (two matrices, rows 0..7 and 8..15): the row this lane names.
    static TAPESTRY_FN constexpr Row row(unsigned lane) { return Row(M(int(lane & 15)), Fold<N, 8>(0)); }

    float reg[4];
};

// The operands belong together: A[M, K] B[K, N] -> C[M, N]. For the wrapper of the instruction to assert.
template <class A, class B, class C>
struct Contracts {
    static TAPESTRY_FN constexpr bool holds() { return false; }
};
template <class M, class N, class K, int KSize>
struct Contracts<FragmentA<M, K, KSize>, FragmentB<K, N, KSize>, FragmentC<M, N>> {
    static TAPESTRY_FN constexpr bool holds() { return true; }
};
template <class A, class B, class C>
TAPESTRY_FN constexpr bool contracts() {
    return Contracts<A, B, C>::holds();
}

}  // namespace tapestry
