"""Mistakes that the types refuse: each with its nearly identical right twin and the phrase of the error.

Every case is a function body, or `declare` and a body; the dimensions of `PRELUDE` are its own.
"""

from dataclasses import dataclass

PRELUDE = """
using P = Dim<struct P_>; using Q = Dim<struct Q_>; using K = Dim<struct K_>; using X = Dim<struct X_>;
using K8 = Fold<K, 8>; using K8m = Module<K, 8>; using K16 = Fold<K, 16>; using K16m = Module<K, 16>;
using Tile = Packed<Extent<P, 4>, Extent<X, 16>, Extent<K8, 8>>;
using Image = Packed<Extent<P>, Extent<Q>, Extent<K, 64>>;
using Split = Packed<Extent<K16, 4>, Extent<P, 4>, Extent<K16m, 16>>;
using Thread = Compound<Extent<P, 4>, Extent<X, 8>, Extent<K8, 4>>;
inline P p(1); inline Q q(2); inline K k(37); inline X x(3); inline K8 k8(4);
inline float* memory = nullptr;
inline void takes_p(P) {}
"""


@dataclass(frozen=True)
class Mistake:
    wrong: str
    right: str
    phrase: str


ONE = "only indices of one dimension are added or subtracted"
COMPARE = "only indices of one dimension are compared"
NUMBER = "an index is compared with an index"
OTHER = "this index is of another dimension"
PART = "neither part of the dimension contains the other"
LACKS = "the coordinate lacks"
NO_DIM = "the tensor has no such dimension"

INDICES = {
    "add": Mistake("(void)(p + q);", "(void)(p + p);", ONE),
    "subtract": Mistake("(void)(p - q);", "(void)(p - p);", ONE),
    "add a fold": Mistake("(void)(k + k8);", "(void)(k + K(k8));", ONE),
    "add fold and module": Mistake("(void)(K8(k) + K8m(k));", "(void)unfold(K8(k), K8m(k));", ONE),
    "add in place": Mistake("p += q;", "p += P(q.get());", "no match for 'operator+='"),
    "less": Mistake("(void)(p < q);", "(void)(p < p);", COMPARE),
    "at most": Mistake("(void)(p <= q);", "(void)(p <= p);", COMPARE),
    "equal": Mistake("(void)(p == q);", "(void)(p == p);", COMPARE),
    "unequal": Mistake("(void)(p != q);", "(void)(p != p);", COMPARE),
    "greater": Mistake("(void)(p > K(3));", "(void)(p > P(3));", COMPARE),
    "compare with a number": Mistake("(void)(p < 4);", "(void)(p < P(4));", NUMBER),
    "equal to a number": Mistake("(void)(p == 0);", "(void)(p == P(0));", NUMBER),
    "multiply": Mistake("(void)(p * p);", "(void)(p * 2);", "no match for 'operator*'"),
    "divide": Mistake("(void)(k / 8);", "(void)fold<8>(k);", "no match for 'operator/'"),
    "remainder": Mistake("(void)(k % 8);", "(void)modulo<8>(k);", "no match for 'operator%'"),
    "pass": Mistake("takes_p(q);", "takes_p(p);", "could not convert"),
    "pass a number": Mistake("takes_p(3);", "takes_p(P(3));", "could not convert"),
    "pass a fold": Mistake("K16 a = k; (void)a;", "K16 a(k); (void)a;", "conversion from"),
    "assign": Mistake("p = q;", "p = cast<P>(q);", "no match for 'operator='"),
    "to a number": Mistake("int i = p; (void)i;", "int i = p.get(); (void)i;", "cannot convert"),
    "from a float": Mistake("P a(1.5f); (void)a;", "P a(1); (void)a;", "an index is made of an integer"),
    "convert": Mistake("P a(q); (void)a;", "P a = cast<P>(q); (void)a;", OTHER),
    "cast to a number": Mistake("(void)cast<int>(p);", "(void)p.get();", "makes an index of a dimension"),
    "as a subscript": Mistake(
        "int a[4] = {}; (void)a[p];", "int a[4] = {}; (void)a[p.get()];", "no match for 'operator[]'"
    ),
    "range": Mistake("for (P i : range(q)) (void)i;", "for (P i : range(p)) (void)i;", "conversion from"),
    "range of two": Mistake("(void)range(p, q);", "(void)range(p, p + 1);", "no matching function"),
    "unrolled": Mistake(
        "unrolled<Q, 2>([](auto i) { takes_p(i); });",
        "unrolled<P, 2>([](auto i) { takes_p(i); });",
        "could not convert",
    ),
}

FOLDS = {
    "fold to module": Mistake("K8m a{K8(k)}; (void)a;", "K8m a{k}; (void)a;", PART),
    "fold to finer module": Mistake("K16m a{k8}; (void)a;", "Module<K8, 2> a{k8}; (void)a;", PART),
    "fold of another": Mistake("K8 a{p}; (void)a;", "K8 a{k}; (void)a;", OTHER),
    "unfold reversed": Mistake("(void)unfold(K8m(k), K8(k));", "(void)unfold(K8(k), K8m(k));", "not neighbours"),
    "unfold with a gap": Mistake("(void)unfold(K16(k), K8m(k));", "(void)unfold(K16(k), K16m(k));", "not neighbours"),
    "unfold overlapping": Mistake("(void)unfold(K8(k), K16m(k));", "(void)unfold(K8(k), K8m(k));", "not neighbours"),
    "unfold two": Mistake("(void)unfold(Fold<P, 8>(p), K8m(k));", "(void)unfold(K8(k), K8m(k));", "parts of two"),
    "fold of nothing": Mistake("Fold<K, 0> a{k};", "[[maybe_unused]] Fold<K, 1> a{k};", "at least 1"),
    "uneven fold": Mistake(
        "using A = Fold<K16m, 5>; A a(1); (void)a;", "using A = Fold<K16m, 4>; A a(1); (void)a;", "divides the module"
    ),
    "uneven module": Mistake(
        "using A = Module<K16m, 6>; A a(1); (void)a;", "using A = Module<K16m, 8>; A a(1); (void)a;", "divides it"
    ),
    "ring of a fold": Mistake("(void)next_in_ring(k8);", "(void)next_in_ring(K8m(k));", "only a module has a ring"),
}

COORDINATES = {
    "twice": Mistake("(void)coord(p, p);", "(void)coord(p, q);", "stands twice in a coordinate"),
    "get": Mistake("(void)coord(p, q).get<K>();", "(void)coord(p, k).get<K>();", LACKS),
    "get from a part": Mistake("(void)coord(k8).get<K>();", "(void)coord(k8, K8m(k)).get<K>();", LACKS),
    "get from distant parts": Mistake(
        "(void)coord(K16(k), K8m(k)).get<K>();", "(void)coord(K16(k), K16m(k)).get<K>();", LACKS
    ),
    "with": Mistake("(void)coord(p).with(q);", "(void)coord(p).with(p + 1);", LACKS),
    "project": Mistake("(void)coord(p, q).project<P, K>();", "(void)coord(p, q).project<Q, P>();", LACKS),
    "equal": Mistake("(void)(coord(p) == coord(q));", "(void)(coord(p, q) == coord(q, p));", "of the same dimensions"),
    "a number": Mistake("(void)coord(p, 3);", "(void)coord(p, Q(3));", "no matching function"),
}

TENSORS = {
    "subscript": Mistake("(void)Tensor<float, Tile>(memory)[q];", "(void)Tensor<float, Tile>(memory)[p];", NO_DIM),
    "subscript by a number": Mistake(
        "(void)Tensor<float, Tile>(memory)[3];", "(void)Tensor<float, Tile>(memory)[P(3)];", "no match for 'operator[]'"
    ),
    "coordinate": Mistake(
        "(void)Tensor<float, Tile>(memory)[coord(p, k8)];", "(void)Tensor<float, Tile>(memory)[coord(p, k8, x)];", LACKS
    ),
    "element too soon": Mistake(
        "(void)*Tensor<float, Tile>(memory)[p][x];",
        "(void)Tensor<float, Tile>(memory)[p][x][k8].address();",
        "once every axis has been placed",
    ),
    "step": Mistake(
        "auto c = Tensor<float, Tile>(memory)[coord(p, x, k8)]; c += q;",
        "auto c = Tensor<float, Tile>(memory)[coord(p, x, k8)]; c += p;",
        NO_DIM,
    ),
    "step over parts": Mistake(
        "(void)Tensor<float, Split>(memory)[k][p][k];",
        "(void)Tensor<float, Split>(memory)[k][p][K16(1)];",
        "do not carry",
    ),
    "reference to shared": Mistake(
        "(void)*SharedTensor<float, Tile>(0u)[coord(p, x, k8)];",
        "(void)SharedTensor<float, Tile>(0u)[coord(p, x, k8)].address();",
        "behind a shared address there is no reference",
    ),
    "settled step": Mistake(
        "(void)SharedTensor<Octet, Tile, Swizzle<128>>(0u)[coord(p, x, k8)].settle()[x];",
        "(void)SharedTensor<Octet, Tile, Swizzle<128>>(0u)[coord(p, x, k8)].settle()[Fold<X, 8>(x)];",
        "multiples of the swizzle's period",
    ),
    "swizzle": Mistake(
        "(void)Swizzle<96>::apply(0u);", "(void)Swizzle<64>::apply(0u);", "rows of 0 (none), 32, 64 or 128"
    ),
    "other size": Mistake(
        "(void)Tensor<float, Tile>(memory).as<double>();",
        "(void)Tensor<float, Tile>(memory).as<int>();",
        "its own size",
    ),
    "extent missing": Mistake("(void)Image(P(3));", "(void)Image(Q(5), P(3));", "is not given"),
    "extent fixed": Mistake("(void)Image(P(3), Q(5), K(64));", "(void)Image(P(3), Q(5));", "fixed at compile time"),
    "extent of another": Mistake("(void)Tile().extent<Q>();", "(void)Tile().extent<P>();", NO_DIM),
    "dimension twice": Mistake(
        "(void)Packed<Extent<P, 2>, Extent<P, 3>>();",
        "(void)Packed<Extent<P, 2>, Extent<Q, 3>>();",
        "twice in a layout",
    ),
    "long module": Mistake(
        "(void)Packed<Extent<K8m, 9>>();", "(void)Packed<Extent<K8m, 8>>();", "extent of a module is at most its size"
    ),
    "empty extent": Mistake(
        "(void)Packed<Extent<P, 0>>();", "(void)Packed<Extent<P, 1>>();", "an extent is at least 1"
    ),
    "no shared dimension": Mistake(
        "(void)Tile().contains_coord(coord(q));", "(void)Tile().contains_coord(coord(p));", "shares no dimension"
    ),
    "array": Mistake(
        "Array<int, Extent<P, 2>, Extent<Q, 2>> a{}; (void)a(p);",
        "Array<int, Extent<P, 2>, Extent<Q, 2>> a{}; (void)a(q - 1, p);",
        LACKS,
    ),
    "run-time array": Mistake(
        "(void)sizeof(Array<int, Extent<P>>);", "(void)sizeof(Array<int, Extent<P, 2>>);", "has compile-time extents"
    ),
}

THREADS_AND_FRAGMENTS = {
    "compound get": Mistake("(void)Thread(3).get<Q>();", "(void)Thread(3).get<X>();", "compound index has no such"),
    "compound linear": Mistake(
        "(void)Thread::linear(coord(p, x));",
        "(void)Thread::linear(coord(x, k8, p));",
        "a dimension of the compound index",
    ),
    "compound twice": Mistake(
        "using A = Compound<Extent<P, 2>, Extent<P, 2>>; (void)A(1);",
        "using A = Compound<Extent<P, 2>, Extent<Q, 2>>; (void)A(1);",
        "twice in a compound index",
    ),
    "run-time divisor": Mistake(
        "using A = Compound<Extent<P, 2>, Extent<Q>>; (void)A(1);",
        "using A = Compound<Extent<P>, Extent<Q, 2>>; (void)A(1);",
        "only the first extent of a compound index",
    ),
    "compound into a tensor": Mistake(
        "(void)Tensor<float, Split>(memory)[Thread(3).coord()];",
        "(void)Tensor<float, Tile>(memory)[Thread(3).coord()];",
        LACKS,
    ),
    "fragment depth": Mistake(
        "(void)sizeof(FragmentA<P, K, 4>);", "(void)sizeof(FragmentA<P, K, 8>);", "a fragment is 8 or 16 deep"
    ),
    "fragment element": Mistake(
        "(void)FragmentA<P, K, 16>::element(0, 0, 0).get<Q>();",
        "(void)FragmentA<P, K, 16>::element(0, 0, 0).get<P>();",
        LACKS,
    ),
    "contraction": Mistake(
        'static_assert(contracts<FragmentA<P, K, 8>, FragmentB<Q, K, 8>, FragmentC<P, Q>>(), "one product");',
        'static_assert(contracts<FragmentA<P, K, 8>, FragmentB<K, Q, 8>, FragmentC<P, Q>>(), "one product");',
        "one product",
    ),
}

MISTAKES: dict[str, Mistake] = {
    f"{group}: {name}": mistake
    for group, cases in {
        "index": INDICES,
        "fold": FOLDS,
        "coordinate": COORDINATES,
        "tensor": TENSORS,
        "thread": THREADS_AND_FRAGMENTS,
    }.items()
    for name, mistake in cases.items()
}
