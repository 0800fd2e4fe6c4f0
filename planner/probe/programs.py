"""The programs that are run to measure a machine.

Each has an operation for every kernel class, dtype and size, all in one step: what is measured is interleaved, and what
disturbs a moment disturbs little. Along ``r`` every operation is cut, an index a rank, so that all are at work at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from math import isqrt

import tapestry as tp
from tapestry import Tensor, anyfloat

from ...program import Pin, Program
from .sizes import PLACES, SIDE, WINDOW, Grid, Sizes

AXIS = "mesh0"
GROUPED = 4  # heads of queries that share keys, where shapes are measured


@tp.op
def multiplied(a: anyfloat[Tensor, "r m k"], b: anyfloat[Tensor, "r k n"]) -> anyfloat[Tensor, "r m n"]:
    """A matrix product a rank."""
    r, m, n, k = tp.indices("r m n k")
    return tp.sum[k](a[r, m, k] * b[r, k, n])


@tp.op
def added(a: anyfloat[Tensor, "r s"], b: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """One operation an element: what is measured is memory."""
    r, s = tp.indices("r s")
    return a[r, s] + b[r, s]


@tp.op
def chained(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """Several operations an element, cheap and dear ones."""
    r, s = tp.indices("r s")
    x = a[r, s]
    return tp.exp(x * 0.5 - 1.0) * (x + 2.0) + tp.maximum(x, 0.25) * x


@tp.op
def summed(a: anyfloat[Tensor, "r m s"]) -> anyfloat[Tensor, "r m"]:
    """Rows added up."""
    r, m, s = tp.indices("r m s")
    return tp.sum[s](a[r, m, s])


@tp.op
def largest(a: anyfloat[Tensor, "r m s"]) -> anyfloat[Tensor, "r m"]:
    """The largest of each row."""
    r, m, s = tp.indices("r m s")
    return tp.max[s](a[r, m, s])


@tp.op
def window(x: anyfloat[Tensor, "r y x c"], w: anyfloat[Tensor, "p q c d"]) -> anyfloat[Tensor, "r v u d"]:
    """A convolution of channels-last images."""
    r, v, u, d, p, q, c = tp.indices("r v u d p q c")
    return tp.sum[p, q, c](x[r, v + p, u + q, c] * w[p, q, c, d])


@tp.op
def layer(x: anyfloat[Tensor, "r n y x c"], w: anyfloat[Tensor, "p q c d"]) -> anyfloat[Tensor, "r n v u d"]:
    """The same of many images."""
    r, n, v, u, d, p, q, c = tp.indices("r n v u d p q c")
    return tp.sum[p, q, c](x[r, n, v + p, u + q, c] * w[p, q, c, d])


@tp.op
def smoothed(a: anyfloat[Tensor, "r y x"]) -> anyfloat[Tensor, "r y x"]:
    """Each element and those around it added up: what is measured is reading."""
    r, y, x = tp.indices("r y x")
    total = a[r, y, x]
    for dy, dx in product((-1, 0, 1), repeat=2):
        total = total + a.get[r, y + dy, x + dx] if dy or dx else total
    return total


@cache
def polynomial(degree: int) -> Callable[[Tensor], Tensor]:
    """An operation of two functions a degree on every element: arithmetic is what takes the time."""

    @tp.op
    def evaluated(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
        """Horner's rule."""
        r, s = tp.indices("r s")
        return _horner(a[r, s], degree)

    return evaluated


@cache
def summed_polynomial(degree: int) -> Callable[[Tensor], Tensor]:
    """Rows of such values added up."""

    @tp.op
    def evaluated_sum(a: anyfloat[Tensor, "r m s"]) -> anyfloat[Tensor, "r m"]:
        """Horner's rule within a sum."""
        r, m, s = tp.indices("r m s")
        return tp.sum[s](_horner(a[r, m, s], degree))

    return evaluated_sum


def _horner(x: Tensor, degree: int) -> Tensor:
    value = x * 0.5
    for k in range(degree):
        value = value * x + 1.0 / (k + 2)
    return value


def work(ranks: int, sizes: Sizes) -> Program:
    """Compute of all classes; operations are named ``class.dtype...``. What they compute is for nobody: of all results
    one is an output.
    """

    @tp.program
    def probed() -> Tensor:
        first, *_ = _work(ranks, sizes)
        return first

    return probed.bind()


def _work(ranks: int, sizes: Sizes) -> Iterator[Tensor]:
    for dtype in sizes.dtypes:
        with tp.name(dtype):
            yield from _dense(ranks, sizes, dtype)
            yield from _elements(ranks, sizes, dtype)
    yield from _attention(ranks, sizes)
    if sizes.coarse is not None:
        yield from _work(ranks, sizes.coarse)


def _attention(ranks: int, sizes: Sizes) -> Iterator[Tensor]:
    heads = sizes.heads
    for queries in sizes.queries:
        with tp.name(f"q{queries}"):
            axes = {"t": queries, "r": ranks * heads.count, "e": heads.width}
            q, k = (_given(name, heads.dtype, **axes) for name in "qk")
            yield tp.attention(q, k, k, causal=heads.causal, name="attention")


def attention_shapes(ranks: int, sizes: Sizes) -> Program:
    """Attention of every shape that is measured, its state and the division that follows; one result is an output."""

    @tp.program
    def attended() -> Tensor:
        first, *_ = _seen(ranks, sizes)
        return first

    return attended.bind()


def _seen(ranks: int, sizes: Sizes) -> Iterator[Tensor]:
    heads = sizes.heads
    for t, s, e in product(*sizes.seen.axes) if sizes.seen is not None else ():
        with tp.name(f"q{t}k{s}e{e}"):
            q = _given("q", heads.dtype, t=t, r=ranks * heads.count, e=e)
            keys = s + t // 2 if s >= t // 2 else s
            k = _given("k", heads.dtype, s=keys, r=ranks * max(1, heads.count // GROUPED), e=e)
            yield tp.attention(q, k, k, causal=keys > s, offset=max(0, keys - t), name="attention")


def slopes_shapes(ranks: int, sizes: Sizes) -> Program:
    """The slopes of queries of attention of every shape that is measured, and what they are made of."""

    @tp.program
    def made() -> tuple[Tensor, ...]:
        return tuple(_sloped(ranks, sizes))

    return tp.rewrites.apply(made.bind(), "dead_values").program


def _sloped(ranks: int, sizes: Sizes) -> Iterator[Tensor]:
    heads = sizes.heads
    for t, s, e in product(*sizes.seen.axes) if sizes.seen is not None else ():
        name, keys = f"q{t}k{s}e{e}", s + t // 2 if s >= t // 2 else s

        @tp.program
        def summed(name: str = name, t: int = t, s: int = s, e: int = e, keys: int = keys) -> Tensor:
            with tp.name(name):
                q, weights = (_given(x, heads.dtype, t=t, r=ranks * heads.count, e=e) for x in ("q", "weights"))
                k = _given("k", heads.dtype, s=keys, r=ranks * max(1, heads.count // GROUPED), e=e)
                y = tp.attention(q, k, k, causal=keys > s, offset=max(0, keys - t), name="attention")
                return tp.sum(y.astype("f32") * weights.astype("f32"))

        _, slope = tp.value_and_grad(summed, wrt=(f"{name}.q",))()
        yield slope


def _dense(ranks: int, sizes: Sizes, dtype: str) -> Iterator[Tensor]:
    known: dict[tuple[int, int], Tensor] = {}

    def shared(shape: tuple[int, int], axes: str) -> Tensor:
        """One operand for all products that have one of this shape."""
        if shape not in known:
            known[shape] = _given(
                f"a{shape[0]}x{shape[1]}", dtype, r=ranks, **dict(zip(axes.split(), shape, strict=True))
            )
        return known[shape]

    for m, k, n in sizes.products_of(dtype):
        with tp.name(f"m{m}k{k}n{n}"):
            yield multiplied(shared((m, k), "m k"), shared((k, n), "k n"))
    for side, channels in sizes.images:
        with tp.name(f"y{side}c{channels}"):
            image = _given("x", dtype, r=ranks, y=side, x=side, c=channels)
            yield window(image, _given("w", dtype, p=WINDOW, q=WINDOW, c=channels, d=channels))
    for grid in sizes.layers.get(dtype, ()):
        yield from _layers(ranks, grid, dtype)


def _layers(ranks: int, grid: Grid, dtype: str) -> Iterator[Tensor]:
    side = isqrt(grid.window)
    for rows, d, folded in product(*grid.axes):
        c, read = folded // grid.window, SIDE + side - 1
        with tp.name(f"n{rows // PLACES}c{c}d{d}p{side}"):
            images = _given("x", dtype, r=ranks, n=rows // PLACES, y=read, x=read, c=c)
            yield layer(images, _given("w", dtype, p=side, q=side, c=c, d=d))


def _elements(ranks: int, sizes: Sizes, dtype: str) -> Iterator[Tensor]:
    for side in sizes.windows:
        with tp.name(f"w{side}"):
            yield smoothed(_given("image", dtype, r=ranks, y=side, x=side))
    for count in sizes.elements:
        with tp.name(f"s{count}"):
            a, b = (_given(name, dtype, r=ranks, s=count) for name in "ab")
            yield added(a, b)
            yield chained(a)
            rows = _given("rows", dtype, r=ranks, m=max(1, count // sizes.row), s=sizes.row)
            yield summed(rows)
            yield largest(rows)
            if sizes.degree:
                yield polynomial(sizes.degree)(a)
                yield summed_polynomial(sizes.degree)(rows)


def moves(ranks: int, sizes: Sizes) -> tuple[Program, Sequence[Pin]]:
    """Transfers: what is written cut along ``r`` is wanted cut otherwise, whole, by neighbours, or folded. One result
    is an output.
    """
    pins: list[Pin] = []

    @tp.program
    def moved() -> Tensor:
        first, *_ = [value for nbytes in sizes.moved for value in _moved(ranks, nbytes // 4, pins)]
        return first

    return moved.bind(), pins


@tp.op
def made(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """Writes what is to be moved."""
    r, s = tp.indices("r s")
    return a[r, s] + a[r, s]


@tp.op
def read(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """Reads what was moved."""
    r, s = tp.indices("r s")
    return a[r, s] + a[r, s]


@tp.op
def around(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """Reads the row before, its own, and the row after."""
    r, s = tp.indices("r s")
    return a.get[r - 1, s] + a[r, s] + a.get[r + 1, s]


@tp.op
def onward(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "r s"]:
    """Reads its own row and the one after."""
    r, s = tp.indices("r s")
    return a[r, s] + a.get[r + 1, s]


@tp.op
def folded(a: anyfloat[Tensor, "r s"]) -> anyfloat[Tensor, "s"]:
    """A share of the sum a rank."""
    r, s = tp.indices("r s")
    return tp.sum[r](a[r, s])


@tp.op
def line(a: anyfloat[Tensor, "s"]) -> anyfloat[Tensor, "s"]:
    """Reads a folded sum."""
    s = tp.indices("s")
    return a[s] + a[s]


def _moved(ranks: int, count: int, pins: list[Pin]) -> Iterator[Tensor]:
    """Transfers by which a rank receives about so many elements; the pins that make them are added."""
    share = max(ranks, count // max(1, ranks - 1))
    every, one = (_given(f"{name}{count}", "f32", r=rows, s=share) for name, rows in (("a", ranks), ("one", 1)))
    for name, given, writes, reads, dim in (
        ("gather", every, made, read, None),
        ("turn", every, made, read, "s"),
        ("shift", every, made, around, "r"),
        ("next", every, made, onward, "r"),
        ("all", every, folded, line, None),
        ("scatter", every, folded, line, "s"),
        ("broadcast", one, made, read, None),
        ("deal", one, made, read, "s"),
    ):
        with tp.name(f"{name}{count}"):
            yield reads(writes(given))
        pins.append(Pin("op", f"{name}{count}.{writes.__name__}", ((AXIS, "r"),)))
        pins.append(Pin("op", f"{name}{count}.{reads.__name__}", ((AXIS, dim),)))


def _given(name: str, dtype: str, **axes: int) -> Tensor:
    return tp.param(name, dtype, tuple(axes.values()), axes=tuple(axes))
