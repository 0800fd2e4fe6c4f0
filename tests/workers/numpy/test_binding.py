"""The NumPy device, kernel by kernel, against computations that share nothing with it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import ndimage, special

from tapestry.dtypes import name_of
from tapestry.expr import Affine, Bound, Cast, Const, Expr, IndexValue, Inside, Read
from tapestry.program import Block, Dim, Operation, Program, Tensor
from tapestry.space import Box, Region, parse_region
from tapestry.workers.device import Evaluation, Stored
from tapestry.workers.faults import Place
from tapestry.workers.numpy.binding import bind_compute
from tapestry.workers.numpy.scratch import Scratch

from ..sheets import call, dim, read

RNG = np.random.default_rng(7)
BF16 = ml_dtypes.bfloat16


def stored(array: Any, region: str | None = None) -> Stored:
    """A whole array, or the part of it that a region's storage holds."""
    grid = (Box.of_shape(array.shape).region() if region is None else parse_region(region)).storage()
    assert grid is not None
    picked = array[np.ix_(*(list(axis) for axis in grid.axes))] if array.ndim else array
    return Stored(np.ascontiguousarray(picked), grid)


def execute(
    op: Operation,
    out: tuple[tuple[int, ...], Any],
    points: Region | str | None = None,
    held: dict[str, str] | None = None,
    **arrays: Any,
) -> np.ndarray[Any, Any]:
    """The output after one task; elements that it does not write are 0xA5 bytes."""
    shape, dtype = out
    result = np.empty(shape, dtype)
    result.reshape(-1).view(np.uint8)[...] = 0xA5
    tensors = [Tensor(name, name_of(array.dtype), array.shape) for name, array in arrays.items()]
    program = Program("one", (*tensors, Tensor(op.output, name_of(np.dtype(dtype)), shape)), (op,), (op.output,))
    where = Box.of_shape([d.extent for d in op.dims]).region() if points is None else points
    region = parse_region(where) if isinstance(where, str) else where
    operands = {name: stored(array, (held or {}).get(name)) for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        stored_out = Stored(result, Box.of_shape(shape).grid())
        bind_compute(
            Evaluation(program, op, region, operands, stored_out, "compute", Place(0, 0, op.name, op.output)), Scratch()
        )()
    return stored_out.array


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


def fold(name: str, extents: dict[str, int], kept: str, body: Expr, folded: str, monoid: str = "sum") -> Operation:
    dims = tuple(Dim(n, e) for n, e in extents.items())
    return Operation(name, dims, "out", tuple(dim(n) for n in kept.split()), body, tuple(folded.split()), monoid)


def product(a: Expr, b: Expr) -> Expr:
    return call("multiply", a, b)


# -- sums of products --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ik kj ij", "ki kj ij", "ik jk ij", "ki jk ji", "ik kj ji"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BF16, np.float16])
def test_matrix_products(order: str, dtype: Any) -> None:
    size = {"i": 40, "j": 50, "k": 60}
    left, right, out = order.split()
    a, b = normal(*(size[n] for n in left), dtype=dtype), normal(*(size[n] for n in right), dtype=dtype)
    op = fold("mm", size, " ".join(out), product(read("a", *left), read("b", *right)), "k")
    got = execute(op, (tuple(size[n] for n in out), dtype), a=a, b=b)
    want = np.einsum(f"{left},{right}->{out}", a.astype(np.float64), b.astype(np.float64))
    rounding = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), want, atol=60 * 1e-6 + rounding * np.abs(want).max())


def test_batched_product_with_grouped_heads_and_two_axes_at_once() -> None:
    """out[b, t, h, e] = sum[s] p[b, h, t, s] v[b, s, h // 2, e]."""
    p, v = normal(2, 6, 20, 30), normal(2, 30, 3, 16)
    size = {"b": 2, "t": 20, "h": 6, "e": 16, "s": 30}
    body = product(read("p", "b", "h", "t", "s"), read("v", "b", "s", dim("h") // 2, "e"))
    got = execute(fold("mix", size, "b t h e", body, "s"), ((2, 20, 6, 16), np.float32), p=p, v=v)
    want = np.einsum("bhts,bshe->bthe", p, np.repeat(v, 2, axis=2))
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_packed_operands_in_blocks() -> None:
    """More than one block of rows, columns and folded elements."""
    from tapestry.workers.numpy import contraction

    a, b = normal(70, 90, dtype=BF16), normal(90, 50, dtype=BF16)
    size = {"i": 70, "j": 50, "k": 90}
    op = fold("mm", size, "i j", product(read("a", "i", "k"), read("b", "k", "j")), "k")
    want = execute(op, ((70, 50), np.float32), a=a, b=b)
    before = contraction.PACK
    try:
        for limit in (64, 1000):
            contraction.PACK = limit
            got = execute(op, ((70, 50), np.float32), a=a, b=b)
            np.testing.assert_allclose(got, want, atol=1e-4)
            narrow = execute(op, ((70, 50), BF16), a=a, b=b)
            np.testing.assert_allclose(narrow.astype(np.float32), want, rtol=2**-8, atol=1e-4)
    finally:
        contraction.PACK = before


@pytest.mark.parametrize("largest", [100, 2**30, 2**40])
def test_integer_products_are_exact_or_wrap(largest: int) -> None:
    a, b = RNG.integers(-largest, largest, (20, 30)), RNG.integers(-largest, largest, (30, 10))
    op = fold("mm", {"i": 20, "j": 10, "k": 30}, "i j", product(read("a", "i", "k"), read("b", "k", "j")), "k")
    np.testing.assert_array_equal(execute(op, ((20, 10), np.int64), a=a, b=b), np.matmul(a, b))
    np.testing.assert_array_equal(execute(op, ((20, 10), np.int8), a=a, b=b), np.matmul(a, b).astype(np.int8))


@pytest.mark.parametrize("points", ["0:8,0:9,0:12", "0:8|2:3,0:9,0:4|8:12", "0:8,0:9,0:12:3", "3:8:2,0:9,1:12"])
def test_partial_products_of_any_shard(points: str) -> None:
    if points.startswith("0:8|"):
        points = "0:2|5:8,0:9,0:4|8:12"
    a, b = normal(8, 12), normal(12, 9)
    op = fold("mm", {"i": 8, "j": 9, "k": 12}, "i j", product(read("a", "i", "k"), read("b", "k", "j")), "k")
    (grid,) = parse_region(points).grids
    i, _, k = (list(axis) for axis in grid.axes)
    want = np.empty((8, 9), np.float32)
    want.reshape(-1).view(np.uint8)[...] = 0xA5
    want[i] = a[np.ix_(i, k)] @ b[k]
    np.testing.assert_allclose(execute(op, ((8, 9), np.float32), points, a=a, b=b), want, atol=1e-5)


# -- convolutions and windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "dilation", "pad"), [(1, 1, 0), (1, 1, 1), (2, 1, 3), (2, 2, 2), (3, 1, 0)])
@pytest.mark.parametrize("channels", [1, 5])
def test_convolutions(stride: int, dilation: int, pad: int, channels: int) -> None:
    x, w = normal(2, channels, 17, 14), normal(6, channels, 3, 3)
    oy, ox = ((n + 2 * pad - 2 * dilation - 1) // stride + 1 for n in (17, 14))
    size = {"n": 2, "k": 6, "p": oy, "q": ox, "c": channels, "r": 3, "s": 3}
    y, z = stride * dim("p") + dilation * dim("r") - pad, stride * dim("q") + dilation * dim("s") - pad
    guard = (Bound(y, 0, 17), Bound(z, 0, 14)) if pad else ()
    taps = Read("x", (dim("n"), dim("c"), y, z), guard, 0.0)
    op = fold("conv", size, "n k p q", product(taps, read("w", "k", "c", "r", "s")), "c r s")
    got = execute(op, ((2, 6, oy, ox), np.float32), x=x, w=w)
    import torch

    want = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), None, stride, pad, dilation)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-4)


def test_depthwise_convolution_with_a_wide_window() -> None:
    x, w = normal(3, 20, 20), normal(3, 7, 7)
    y, z = dim("p") + dim("r") - 3, dim("q") + dim("s") - 3
    taps = Read("x", (dim("c"), y, z), (Bound(y, 0, 20), Bound(z, 0, 20)), 0.0)
    size = {"c": 3, "p": 20, "q": 20, "r": 7, "s": 7}
    op = fold("deep", size, "c p q", product(taps, read("w", "c", "r", "s")), "r s")
    got = execute(op, ((3, 20, 20), np.float32), x=x, w=w)
    want = [ndimage.correlate(x[c], w[c], mode="constant") for c in range(3)]
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_max_pooling_of_a_padded_image_by_shards() -> None:
    x = normal(11, 13)
    y, z = 2 * dim("p") + dim("r") - 1, 2 * dim("q") + dim("s") - 1
    taps = Read("x", (y, z), (Bound(y, 0, 11), Bound(z, 0, 13)), float("-inf"))
    op = fold("pool", {"p": 6, "q": 7, "r": 3, "s": 3}, "p q", taps, "r s", "max")
    want = ndimage.maximum_filter(x, 3, mode="constant", cval=-np.inf)[::2, ::2]
    np.testing.assert_array_equal(execute(op, ((6, 7), np.float32), x=x), want)
    upper = execute(op, ((6, 7), np.float32), "0:3,0:7,0:3,0:3", held={"x": "0:6,0:13"}, x=x)
    np.testing.assert_array_equal(upper[:3], want[:3])


def test_stencil_written_tap_by_tap() -> None:
    x = normal(300, 500)
    taps = []
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            y, z = dim("y") + dy, dim("x") + dx
            taps.append(product(Read("a", (y, z), (Bound(y, 0, 300), Bound(z, 0, 500)), 0.0), Const(dy + 2 * dx + 4.0)))
    body: Expr = taps[0]
    for tap in taps[1:]:
        body = call("add", body, tap)
    op = Operation("stencil", (Dim("y", 300), Dim("x", 500)), "out", (dim("y"), dim("x")), body)
    weights = np.array([[dy + 2 * dx + 4.0 for dx in (-1, 0, 1)] for dy in (-1, 0, 1)])
    got = execute(op, ((300, 500), np.float32), a=x)
    np.testing.assert_allclose(got, ndimage.correlate(x, weights, mode="constant"), atol=1e-4)


# -- other folds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min"])
def test_folds_over_any_axis(axis: int, monoid: str) -> None:
    x = normal(40, 50, 60)
    kept = [n for k, n in enumerate("abc") if k != axis]
    op = fold("fold", {"a": 40, "b": 50, "c": 60}, " ".join(kept), read("x", "a", "b", "c"), "abc"[axis], monoid)
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    want = getattr(np, monoid)(x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(execute(op, (shape, np.float32), x=x), want, rtol=1e-4, atol=1e-4)


def test_folds_of_everything_and_of_nothing() -> None:
    x = normal(300, 1000)
    whole = fold("all", {"i": 300, "j": 1000}, "", call("multiply", read("x", "i", "j"), read("x", "i", "j")), "i j")
    np.testing.assert_allclose(execute(whole, ((), np.float32), x=x), (x.astype(np.float64) ** 2).sum(), rtol=1e-5)
    late = (Bound(dim("j") - dim("i"), 6, None),)
    none = Operation("none", (Dim("i", 4), Dim("j", 9)), "out", (dim("i"),), read("y", "j"), ("j",), "max", late)
    y = np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(execute(none, ((4,), np.int32), y=y), [8, 8, 8, np.iinfo(np.int32).min])


@pytest.mark.parametrize("order", [1, -1])
def test_triangular_sums(order: int) -> None:
    x = normal(70, 70)
    where = (Bound((dim("j") - dim("i")) * order, None, 1),)
    op = Operation("tri", (Dim("i", 70), Dim("j", 70)), "out", (dim("i"),), read("x", "i", "j"), ("j",), "sum", where)
    want = (np.tril(x) if order == 1 else np.triu(x)).sum(axis=1)
    np.testing.assert_allclose(execute(op, ((70,), np.float32), x=x), want, atol=1e-4)


def test_truths() -> None:
    x = RNG.integers(0, 3, (5, 6), dtype=np.int8)
    any_two = fold("any", {"i": 5, "j": 6}, "i", call("equal", read("x", "i", "j"), Const(2)), "j", "any")
    np.testing.assert_array_equal(execute(any_two, ((5,), np.bool_), x=x), (x == 2).any(axis=1))
    count = fold("count", {"i": 5, "j": 6}, "i", call("equal", read("x", "i", "j"), Const(2)), "j", "sum")
    np.testing.assert_array_equal(execute(count, ((5,), np.int32), x=x), (x == 2).sum(axis=1))


# -- element by element ------------------------------------------------------------------------------------------


def elementwise(body: Expr, *extents: int) -> Operation:
    names = "ijk"[: len(extents)]
    return Operation("map", tuple(map(Dim, names, extents)), "out", tuple(map(dim, names)), body)


@pytest.mark.parametrize(
    ("function", "numpy_function"),
    [
        ("exp", np.exp),
        ("log", lambda x: np.log(np.abs(x))),
        ("sqrt", lambda x: np.sqrt(np.abs(x))),
        ("rsqrt", lambda x: 1 / np.sqrt(np.abs(x))),
        ("tanh", np.tanh),
        ("erf", special.erf),
        ("sigmoid", special.expit),
        ("floor", np.floor),
    ],
)
def test_functions(function: str, numpy_function: Any) -> None:
    x = normal(33, 65)
    inner: Expr = read("x", "i", "j")
    if function in ("log", "sqrt", "rsqrt"):
        inner = call("abs", inner)
    got = execute(elementwise(call(function, inner), 33, 65), ((33, 65), np.float32), x=x)
    np.testing.assert_allclose(got, numpy_function(x.astype(np.float64)), rtol=1e-5, atol=1e-6)


def test_broadcast_transpose_reverse_and_reshape() -> None:
    x, y = normal(6, 4), normal(4)
    body = call("add", read("x", 5 - dim("j"), "i"), read("y", "i"))
    np.testing.assert_array_equal(
        execute(elementwise(body, 4, 6), ((4, 6), np.float32), x=x, y=y), x[::-1].T + y[:, None]
    )
    flat = 3 * dim("i") + dim("j")
    reshape = elementwise(read("x", flat // 4, flat % 4), 8, 3)
    np.testing.assert_array_equal(execute(reshape, ((8, 3), np.float32), x=x), x.reshape(8, 3))
    long = normal(40 * 128)
    split = elementwise(read("z", 128 * dim("i") + dim("j")), 40, 128)
    np.testing.assert_array_equal(execute(split, ((40, 128), np.float32), z=long), long.reshape(40, 128))
    back = elementwise(read("z", dim("i") // 128, dim("i") % 128), 40 * 128)
    np.testing.assert_array_equal(
        execute(back, ((40 * 128,), np.float32), "100:5000", z=long.reshape(40, 128))[100:5000], long[100:5000]
    )


def test_writes_that_are_reversed_strided_or_floored() -> None:
    x = normal(12)
    op = Operation("w", (Dim("i", 12),), "out", (11 - dim("i"),), read("x", "i"))
    np.testing.assert_array_equal(execute(op, ((12,), np.float32), x=x), x[::-1])
    floored = Operation("w", (Dim("i", 12),), "out", (dim("i") // 5, dim("i") % 5), read("x", "i"))
    np.testing.assert_array_equal(execute(floored, ((3, 5), np.float32), x=x).reshape(-1)[:12], x)
    dims, body = (Dim("i", 12), Dim("k", 30)), product(read("x", "i"), read("v", "k"))
    summed = Operation("w", dims, "out", (dim("i") // 5, dim("i") % 5), body, ("k",), "max")
    v = normal(30)
    np.testing.assert_array_equal(
        execute(summed, ((3, 5), np.float32), x=x, v=v).reshape(-1)[:12], (x[:, None] * v).max(axis=1)
    )


def test_storage_in_several_intervals() -> None:
    """An affine read whose elements lie in two intervals of the storage is looked up."""
    x = normal(20)
    body = read("x", 4 * dim("i"))
    got = execute(elementwise(body, 5), ((5,), np.float32), held={"x": "0:1|4:5|8:9|12:13|16:17"}, x=x)
    np.testing.assert_array_equal(got, x[::4])
    mirrored = Read("x", (dim("i") - 2,), (Bound(dim("i") - 2, 0, 20),), 1.5)
    got = execute(elementwise(mirrored, 8), ((8,), np.float32), "0:4|6:8", held={"x": "0:2|4:6"}, x=x)
    np.testing.assert_array_equal(got[[0, 1, 2, 3, 6, 7]], [1.5, 1.5, *x[[0, 1, 4, 5]]])


def test_index_values_conditions_casts_and_wrapping() -> None:
    x = RNG.integers(-100, 100, (9, 7)).astype(np.int8)
    parity = call("equal", call("remainder", IndexValue(dim("i") + dim("j")), Const(2)), Const(0))
    body = call("where", parity, call("multiply", read("x", "i", "j"), Const(3)), IndexValue(dim("i") // 2))
    i, j = np.indices((9, 7))
    want = np.where((i + j) % 2 == 0, x.astype(np.int64) * 3, i // 2).astype(np.int8)
    np.testing.assert_array_equal(execute(elementwise(body, 9, 7), ((9, 7), np.int8), x=x), want)
    inside = call("where", Inside((Bound(dim("i") - dim("j"), 0, 3),)), Const(1.0), read("y", "i"))
    y = normal(9)
    want = np.where((i - j >= 0) & (i - j < 3), 1, y[:, None])
    np.testing.assert_array_equal(execute(elementwise(inside, 9, 7), ((9, 7), np.float32), y=y), want)
    rounded = Cast("int8", call("multiply", read("y", "i"), Const(300.0)))
    want = (y * np.float32(300)).astype(np.int64).astype(np.int8)
    np.testing.assert_array_equal(execute(elementwise(rounded, 9), ((9,), np.int64), y=y), want)
    narrow = call("subtract", read("y", "i"), Cast("bf16", read("y", "i")))
    np.testing.assert_array_equal(
        execute(elementwise(narrow, 9), ((9,), np.float32), y=y), y - y.astype(BF16).astype(np.float32)
    )


def test_shared_subexpressions_keep_their_values() -> None:
    x = normal(50, 40)
    e = call("exp", read("x", "i", "j"))
    body = call("subtract", call("multiply", e, call("add", e, Const(1.0))), call("multiply", e, call("negative", e)))
    got = execute(elementwise(body, 50, 40), ((50, 40), np.float32), x=x)
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(got, wide * (wide + 1) + wide * wide, rtol=1e-5)


def test_a_constant_of_another_type_is_another_constant() -> None:
    """4 times 2**62 wraps to 0 in integers; 4.0 times it does not."""
    n = np.full(3, 1 << 62)
    whole, real = call("multiply", read("n", "i"), Const(4)), call("multiply", read("n", "i"), Const(4.0))
    got = execute(elementwise(call("add", whole, real), 3), ((3,), np.float64), n=n)
    np.testing.assert_array_equal(got, np.full(3, 2.0**64))


# -- attention ---------------------------------------------------------------------------------------------------


def attention(t: int, h: int, s: int, e: int, groups: int, offset: int | None) -> Operation:
    c = Affine.dim("c")
    g = dim("h") // groups
    guard = (Bound(c, None, e),)
    q = Read("q", (dim("t"), dim("h"), c), guard)
    k, v = (Read(name, (dim("s"), g, c), guard) for name in "kv")
    where = () if offset is None else (Bound(dim("s") - dim("t"), None, 1 + offset),)
    dims = (Dim("t", t), Dim("h", h), Dim("s", s), Dim("c", e + 2, cut=False))
    block = Block("attention", (q, k, v), (("scale", 0.3),))
    return Operation("state", dims, "out", (dim("t"), dim("h"), c), block, ("s",), "online_softmax", where)


def softmax_attention(q: Any, k: Any, v: Any, offset: int | None) -> Any:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = 0.3 * np.einsum("the,she->hts", q, k)
    if offset is not None:
        t, s = np.indices(scores.shape[1:])
        scores = np.where(s - t < 1 + offset, scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hts,she->the", p / p.sum(axis=-1, keepdims=True), v)


@pytest.mark.parametrize("offset", [None, 0, 300])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_attention_states_and_their_parts(offset: int | None, dtype: Any) -> None:
    """One shard, a zigzag of queries, and two halves of the keys folded, all against plain softmax."""
    from tapestry.workers.numpy.attention import fold_states

    t, h, s, e = 290, 4, 600, 8
    q, k, v = normal(t, h, e, dtype=dtype), normal(s, 2, e, dtype=dtype), normal(s, 2, e, dtype=dtype)
    op = attention(t, h, s, e, 2, offset)
    want = softmax_attention(q, np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1), offset)
    whole = execute(op, ((t, h, e + 2), np.float32), q=q, k=k, v=v)
    np.testing.assert_allclose(whole[..., :e] / whole[..., e : e + 1], want, atol=1e-4)
    zigzag = execute(op, ((t, h, e + 2), np.float32), f"0:70|220:290,0:4,0:600,0:{e + 2}", q=q, k=k, v=v)
    np.testing.assert_allclose(zigzag[:70], whole[:70], atol=1e-4)
    np.testing.assert_allclose(zigzag[220:], whole[220:], atol=1e-4)
    halves = [
        execute(op, ((t, h, e + 2), np.float32), f"0:290,0:4,{span},0:{e + 2}", q=q, k=k, v=v)
        for span in ("0:350", "350:600")
    ]
    fold_states(halves[0], halves[1])
    np.testing.assert_allclose(halves[0][..., :e] / halves[0][..., e : e + 1], want, atol=1e-4)


def test_attention_touches_only_keys_that_a_query_sees() -> None:
    t, e = 12, 4
    q, k, v = normal(t, 1, e), normal(t, 1, e), normal(t, 1, e)
    op = attention(t, 1, t, e, 1, 0)
    whole = execute(op, ((t, 1, e + 2), np.float32), q=q, k=k, v=v)
    held = {"k": f"0:5,0:1,0:{e}", "v": f"0:5,0:1,0:{e}"}
    first = execute(op, ((t, 1, e + 2), np.float32), f"0:5,0:1,0:12,0:{e + 2}", held=held, q=q, k=k, v=v)
    np.testing.assert_allclose(first[:5], whole[:5], rtol=1e-6)


# -- binding once, running often ---------------------------------------------------------------------------------


def test_a_bound_task_can_run_again_on_new_values() -> None:
    x, out = normal(20, 30), np.zeros(20, np.float32)
    op = fold("sum", {"i": 20, "j": 30}, "i", call("exp", read("x", "i", "j")), "j")
    program = Program("one", (Tensor("x", "f32", (20, 30)), Tensor("out", "f32", (20,))), (op,), ("out",))
    region = Box.of_shape((20, 30)).region()
    given, result = Stored(x, Box.of_shape((20, 30)).grid()), Stored(out, Box.of_shape((20,)).grid())
    task = bind_compute(
        Evaluation(program, op, region, {"x": given}, result, "compute", Place(0, 0, op.name, op.output)), Scratch()
    )
    for _ in range(2):
        task()
        np.testing.assert_allclose(out, np.exp(x.astype(np.float64)).sum(axis=1), rtol=1e-5)
        x *= 0.5
