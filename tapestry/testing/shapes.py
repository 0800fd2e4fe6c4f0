"""The kinds of operations that generated programs are made of. Each adds operations to a growing program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod

from ..dtypes import promote
from ..expr import MONOIDS, Affine, Bound, Expr, Read
from ..program import Block, Dim
from .bodies import call, changed, chosen, joined, number
from .growing import DTYPES_OF, EVERY_DTYPE_OF, LETTERS, Growing, index_of
from .operands import Operand, along, broadcast, guarded, padded, some_view

REDUCTIONS = {
    "float": ("sum", "max", "min", "prod"),
    "int": ("sum", "max", "min", "prod"),
    "bool": ("any", "all", "sum"),
}


def result_dtype_of(g: Growing, kind: str) -> str:
    return g.ch.pick((EVERY_DTYPE_OF if g.size.wide else DTYPES_OF)[kind])


def elementwise(g: Growing) -> None:
    """A function of one to three operands, broadcast to the shape of the first."""
    ch, x = g.ch, g.operand()
    operands = [x, *(_fitting(g, x.shape) for _ in range(ch.integer(0, 2)))]
    kind = "float" if any(y.kind == "float" for y in operands) else ch.pick(("int", "bool", "float"))
    names = LETTERS[: len(x.shape)]
    index = index_of(names)
    body = number(ch, x, index, kind)
    for y in operands[1:]:
        other = number(ch, y, index, kind)
        body = chosen(ch, index, x.shape, body, other, kind) if ch.chance(20) else joined(ch, body, other, kind)
    for _ in range(ch.integer(0, 2)):
        body = changed(ch, body, kind)
    g.emit(dict(zip(names, x.shape, strict=True)), body, result_dtype_of(g, kind))


def _fitting(g: Growing, shape: tuple[int, ...]) -> Operand:
    """Something that broadcasts to the shape: an existing tensor if one does, else a new one."""
    able = [x for x in g.readable if _broadcasts(x.shape, shape)]
    if able and g.ch.chance(70):
        return broadcast(g.ch.pick(able[::-1]), shape)
    lead = g.ch.integer(0, len(shape))
    return broadcast(g.fresh(tuple(1 if g.ch.chance(25) else n for n in shape[lead:])), shape)


def _broadcasts(small: Sequence[int], large: Sequence[int]) -> bool:
    pairs = zip_longest(reversed(small), reversed(large), fillvalue=0)
    return len(small) <= len(large) and all(a in (0, 1, b) for a, b in pairs)


def copy(g: Growing) -> None:
    """A view made real."""
    x = some_view(g.ch, g.operand(ranks=(1, 3)))
    names = LETTERS[: len(x.shape)]
    g.emit(dict(zip(names, x.shape, strict=True)), x.at(index_of(names)), x.dtype, bound=x.bound)


def reduction(g: Growing) -> None:
    """A fold over some axes, sometimes over a triangle of them."""
    ch, x = g.ch, g.operand(ranks=(1, 3))
    monoid = ch.pick(REDUCTIONS[x.kind])
    names = LETTERS[: len(x.shape)]
    extents = dict(zip(names, x.shape, strict=True))
    reduce = tuple(ch.subset(names, 1))
    body = number(ch, x, index_of(names), x.kind)
    if monoid == "sum" and x.kind == "float":
        body = call("multiply", body, 1 / prod(extents[name] for name in reduce))
    g.emit(
        extents,
        body,
        folded_dtype(g, x, monoid),
        reduce=reduce,
        monoid=monoid,
        where=_triangle(g, names, reduce, x, monoid),
    )


def folded_dtype(g: Growing, x: Operand, monoid: str) -> str:
    """Truths are counted in integers; all else may narrow, and then integers wrap before they are compared."""
    return "int32" if x.kind == "bool" and monoid == "sum" else result_dtype_of(g, x.kind)


def _triangle(g: Growing, names: str, reduce: tuple[str, ...], x: Operand, monoid: str) -> tuple[Bound, ...]:
    """A condition between a reduced and a kept dimension. Not for max and min of floats: nothing folds to infinity."""
    kept = [name for name in names if name not in reduce]
    if not kept or (x.kind == "float" and monoid in ("max", "min")) or not g.ch.chance(30):
        return ()
    row = Affine.dim(g.ch.pick(reduce)) - Affine.dim(g.ch.pick(kept))
    offset = g.ch.integer(-2, 2)
    return (Bound(row, None, offset) if g.ch.chance(60) else Bound(row, offset, offset + 3),)


def contraction(g: Growing) -> None:
    """A sum of products over shared labels, as in einsum; for integers also max of min, for truths any of and."""
    ch = g.ch
    x = g.operand(ranks=(1, 3))
    extents = dict(zip(LETTERS, x.shape, strict=False))
    mine = list(extents)
    y = _partner(g, x)
    theirs = [_label(g, extents, n) for n in y.shape]
    if prod(extents.values()) > g.size.points:
        return reduction(g)
    kind = "float" if "float" in (x.kind, y.kind) else "int" if "int" in (x.kind, y.kind) else "bool"
    reduce = tuple(ch.subset(list(extents), 1))
    left, right = (number(ch, z, index_of(labels), kind) for z, labels in ((x, mine), (y, theirs)))
    points = prod(extents[name] for name in reduce)
    if kind == "float":
        g.emit(
            extents, call("multiply", left, right), result_dtype_of(g, kind), reduce=reduce, monoid="sum", bound=points
        )
    elif kind == "int":
        inner, monoid = ch.pick((("multiply", "sum"), ("minimum", "max")))
        g.emit(extents, call(inner, left, right), "int64", reduce=reduce, monoid=monoid)
    else:
        g.emit(extents, call("logical_and", left, right), "bool", reduce=reduce, monoid="any")
    return None


def _partner(g: Growing, x: Operand) -> Operand:
    """A second factor that shares extents with the first."""
    if g.ch.chance(40):
        return g.operand(ranks=(1, 3))
    return g.fresh((*g.ch.subset(x.shape), g.ch.integer(1, 6))[:3])


def _label(g: Growing, extents: dict[str, int], extent: int) -> str:
    """A label of that extent: one that exists, mostly, or a new one."""
    able = [name for name, n in extents.items() if n == extent]
    if able and g.ch.chance(80):
        return g.ch.pick(able)
    name = LETTERS[len(extents)]
    extents[name] = extent
    return name


def window(g: Growing) -> None:
    """A sliding window along one or two axes, with stride, dilation and uneven padding: pooling, or weights summed."""
    ch, x = g.ch, g.operand(("float", "int"), ranks=(1, 3))
    names = LETTERS[: len(x.shape)]
    extents = dict(zip(names, x.shape, strict=True))
    index = list(index_of(names))
    sliding: dict[str, int] = {}
    for axis in ch.subset(range(len(names)), 1)[:2]:
        x, index[axis], size = _slid(g, x, axis, names[axis], f"w{axis}")
        extents[names[axis]], sliding[f"w{axis}"] = size
    channels = [name for name in names if f"w{names.index(name)}" not in sliding]
    reduce = (*sliding, *ch.subset(channels)[:1])
    monoid = ch.pick(("sum", "max", "min"))
    body = x.at(tuple(index))
    extents |= sliding
    if monoid == "sum" and ch.chance(70) and prod(extents.values()) <= g.size.points // 3:
        extents["o"] = ch.integer(1, 3)
        weight = g.fresh(tuple(extents[name] for name in ("o", *reduce)), x.dtype)
        body = call("multiply", body, weight.at(index_of(("o", *reduce))))
    if prod(extents.values()) > g.size.points:
        return
    bound = x.bound * prod(extents[name] for name in reduce) if monoid == "sum" else x.bound
    g.emit(
        extents,
        body,
        result_dtype_of(g, x.kind) if monoid == "sum" else x.dtype,
        reduce=reduce,
        monoid=monoid,
        bound=bound,
    )


def _slid(g: Growing, x: Operand, axis: int, name: str, inner: str) -> tuple[Operand, Affine, tuple[int, int]]:
    """The operand padded, the index of window element ``inner`` at output ``name``, and the extents of both."""
    ch = g.ch
    before, after = ch.integer(0, 2), ch.integer(0, 2)
    x = padded(x, axis, before, after, 0.0 if x.kind == "float" else ch.pick((0, -7)))
    size, stride, dilation = ch.integer(1, 4), ch.integer(1, 3), ch.integer(1, 2)
    size = min(size, (x.shape[axis] - 1) // dilation + 1)
    steps = (x.shape[axis] - dilation * (size - 1) - 1) // stride + 1
    return x, stride * Affine.dim(name) + dilation * Affine.dim(inner), (steps, size)


def stencil(g: Growing) -> None:
    """A weighted sum of reads at several offsets of the same tensor, outside of which it counts as a constant."""
    ch, x = g.ch, g.operand(("float", "int"), ranks=(1, 3))
    names = LETTERS[: len(x.shape)]
    count = ch.integer(2, 4)
    fill = 0.5 if x.kind == "float" else 3
    body: Expr | None = None
    for _ in range(count):
        moved = x
        for axis, extent in enumerate(x.shape):
            offset = ch.integer(-2, 2)
            moved = replace(moved, at=_shifted(moved, axis, offset, extent, fill))
        weight = ch.pick((1.0, -0.5)) / (count * x.bound) if x.kind == "float" else ch.integer(-3, 3)
        term = call("multiply", moved.at(index_of(names)), weight)
        body = term if body is None else call("add", body, term)
    assert body is not None
    g.emit(dict(zip(names, x.shape, strict=True)), body, result_dtype_of(g, x.kind))


def _shifted(x: Operand, axis: int, offset: int, extent: int, fill: float) -> Callable[[tuple[Affine, ...]], Expr]:
    moved = along(x, axis, extent, lambda i: i + offset)
    if not offset:
        return moved.at
    return lambda index: guarded(moved.at(index), (Bound(index[axis] + offset, 0, extent),), fill)


def attention(g: Growing) -> None:
    """Attention of grouped heads, causal or not, with or without a batch: a partial-state block and its division."""
    ch = g.ch
    tokens, keys, width = ch.integer(1, g.size.largest), ch.integer(1, g.size.largest), ch.integer(1, 4)
    groups, share = ch.integer(1, 3), ch.integer(1, 2)
    batch = {"b": ch.integer(1, 3)} if ch.chance(30) else {}
    dtype = ch.pick(DTYPES_OF["float"])
    lead = tuple(batch.values())
    q = g.fresh((*lead, tokens, groups * share, width), dtype)
    k, v = (g.fresh((*lead, keys, groups, width), dtype) for _ in range(2))
    t, h, s, c, e = index_of("thsce")
    b = index_of(tuple(batch))
    inside = (Bound(c, 0, width),)
    places = ((q, (*b, t, h, c)), (k, (*b, s, h // share, c)), (v, (*b, s, h // share, c)))
    reads = tuple(guarded(x.at(index), inside, 0) for x, index in places)
    body = Block("attention", tuple(read for read in reads if isinstance(read, Read)), (("scale", 1 / width),))
    where = (Bound(s - t, None, 1 + ch.integer(0, 2)),) if ch.chance(60) else ()
    outer = tuple(Dim(name, n) for name, n in (*batch.items(), ("t", tokens), ("h", groups * share)))
    space = (*outer, Dim("s", keys), Dim("c", width + 2, cut=False))
    parallel = tuple(dim.extent for dim in outer)
    state = g.add(space, (*parallel, width + 2), (*b, t, h, c), body, "f32", ("s",), "online_softmax", where)
    g.readable.remove(state)
    ratio = call("divide", state.at((*b, t, h, e)), state.at((*b, t, h, Affine.of(width))))
    g.add((*outer, Dim("e", width)), (*parallel, width), (*b, t, h, e), ratio, dtype)


def several(g: Growing) -> None:
    """A fold of several results, along a last axis: the least and the largest, the largest few, moments of floats."""
    ch, x = g.ch, g.operand(("float", "int"), ranks=(1, 3))
    names = LETTERS[: len(x.shape)]
    extents = dict(zip(names, x.shape, strict=True))
    reduce = tuple(ch.subset(names, 1))
    points = prod(extents[name] for name in reduce)
    monoid = ch.pick(("minmax", f"top{min(3, points)}", "moments")[: 2 + (x.kind == "float")])
    dtype = promote(x.dtype, "f32") if monoid == "moments" else x.dtype
    count = len(MONOIDS[monoid].components)
    kept = tuple(Dim(name, extents[name]) for name in names if name not in reduce)
    space = (*kept, Dim("r", count, cut=False), *(Dim(name, extents[name]) for name in reduce))
    bound = max(x.bound, points * (2 * x.bound) ** 2) if monoid == "moments" else x.bound
    shape, write = (*(dim.extent for dim in kept), count), index_of((*(dim.name for dim in kept), "r"))
    g.add(space, shape, write, x.at(index_of(names)), dtype, reduce, monoid, bound=bound)


KINDS: tuple[Callable[[Growing], None], ...] = (
    elementwise, reduction, contraction, window, stencil, copy, elementwise, contraction, attention, several,
)  # fmt: skip
