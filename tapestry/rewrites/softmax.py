"""Softmax between two products of matrices as attention, which goes over the keys once and stores no scores.

The state of a query folds keys by the online softmax: m the largest score, l the sum of exp(score - m), o the sum of
exp(score - m) v. States of parts of the keys are combined, so the keys may be cut: Milakov and Gimelshein,
arXiv:1805.02867.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import tapestry as tp

from ..dtypes import DTYPES, promote
from ..expr import Affine, Bound, Call, Const, Expr, Inside, Read, depends_on, substitute
from ..expr.derivatives import call
from ..expr.simplify import Simplifier
from ..program import Block, Dim, Operation, Program, Tensor
from .drafts import fresh
from .folds import Folded, is_sum
from .forms import kept, known_operation
from .inlining import Exact, Inlinable
from .rule import Change, rule


def _three_steps(*, t: int = 3, s: int = 4, e: int = 2, dtype: str = "f32") -> tp.Tensor:
    q, k, v = (
        tp.input(name, dtype, (n, e), axes=(axis, "e"))
        for name, n, axis in (("q", t, "t"), ("k", s, "s"), ("v", s, "s"))
    )
    scores = (q @ tp.transpose(k)).named("scores")
    scaled = (scores * 0.5).named("scaled")
    return (tp.softmax(scaled, 1) @ v).named("y")


@dataclass(frozen=True)
class _Softmax:
    """What a product with weights of a softmax consists of, over the dimensions of the product and ``inner``.

    ops      the operations between the two products, the first product included
    query    the two factors of the scores; ``value`` the other factor of the last product
    where    the points of which the scores count
    """

    ops: tuple[Operation, ...]
    query: Read
    key: Read
    value: Read
    inner: Dim
    scale: float
    where: tuple[Bound, ...]


@rule(example=_three_steps, algebraic=True)
def streaming_softmax(program: Program, op: Operation) -> Iterator[Change]:
    """Attend to keys one after another, instead of computing all scores first, then their softmax, then its product.

    before:
        scores[t, s] = sum[e] q[t, e] * k[s, e]
        scaled[t, s] = scores[t, s] * 0.5
        softmax.max[t] = max[s] scaled[t, s]
        softmax.sum[t] = sum[s] exp(scaled[t, s] - softmax.max[t])
        softmax.divide[t, s] = exp(scaled[t, s] - softmax.max[t]) / softmax.sum[t]
        y[t, e] = sum[s] softmax.divide[t, s] * v[s, e]
    after:
        y.state[t, e_1] = online_softmax[s] attention((q[t, e_1] if e_1 < 2 else 0), (k[s, e_1] if e_1 < 2 else 0),
            (v[s, e_1] if e_1 < 2 else 0), scale=0.5, width=2)
        y[t, e] = y.state[t, e] / y.state[t, 2]
    legal: nothing else reads what lies between; queries, keys and values are floats of one dtype and width
    """
    found = _softmax(program, op)
    if found is None:
        return
    (key,) = op.reduce_dims
    asked = depends_on(found.query) | depends_on(found.key)
    kept_dims = [dim for dim in op.dims if dim.name != key]
    made = [dim for dim in kept_dims if dim.name in depends_on(found.value) - asked]
    if len(made) == 1 and made[0].extent == found.inner.extent and _fits(found, key, made[0]):
        outer = [dim for dim in kept_dims if dim is not made[0]]
        yield _attention(program, op, found, outer, made[0])


def _fits(found: _Softmax, key: str, made: Dim) -> bool:
    """Whether the reads are those of attention: queries know no keys, and only values what is made of them."""
    inner = found.inner.name
    queries, keys, values = (depends_on(read) for read in (found.query, found.key, found.value))
    masked = {name for bound in found.where for name in bound.expr.dims}
    wide = inner in queries and inner in keys and inner not in values
    return wide and key not in queries and key in keys and key in values and made.name not in masked


def _attention(program: Program, op: Operation, found: _Softmax, outer: Sequence[Dim], made: Dim) -> Change:
    """The state of attention in f32 at least, and the division that ends it."""
    (key,) = op.reduce_dims
    width = made.extent
    c = Affine.dim(found.inner.name)
    inside = Bound(c, None, width)
    value = substitute(found.value, {made.name: c})
    assert isinstance(value, Read)
    reads = tuple(replace(read, guard=(inside,), fill=0) for read in (found.query, found.key, value))
    place = tuple(Affine.dim(dim.name) for dim in outer)
    name = fresh(f"{op.name}.state", program.op_by_name.keys() | program.by_name.keys())
    dtype = promote(program.tensor(found.query.tensor).dtype, "f32")
    tensor = Tensor(name, dtype, (*(dim.extent for dim in outer), width + 2))
    state = replace(
        op,
        name=name,
        dims=(*outer, op.dim(key), Dim(found.inner.name, width + 2, cut=False)),
        output=name,
        write=(*place, c),
        body=Block("attention", reads, (("scale", found.scale), ("width", width))),
        monoid="online_softmax",
        where=found.where,
    )
    at, total = Read(name, (*place, Affine.dim(made.name))), Read(name, (*place, Affine.of(width)))
    dims = tuple(dim for dim in op.dims if dim.name != key)
    last = replace(op, dims=dims, body=call("divide", at, total), reduce_dims=(), monoid=None)
    return Change((*(one.name for one in found.ops), op.name), (state, last), (tensor,))


def _softmax(program: Program, op: Operation) -> _Softmax | None:
    """The softmax whose weights are the first or the second factor of a product."""
    if op.factors is None or not is_sum(op) or op.where or len(op.reduce_dims) != 1:
        return None
    for weights, value in (op.factors, op.factors[::-1]):
        if isinstance(weights, Read) and isinstance(value, Read) and not weights.guard and not value.guard:
            found = _of_weights(_Values(program, op), weights, value)
            if found is not None:
                return found
    return None


class _Values:
    """What the tensors that an operation reads are made of, said over its dimensions."""

    def __init__(self, program: Program, op: Operation) -> None:
        self.program, self.op = program, op
        self.ranges = {dim.name: (0, dim.extent) for dim in op.dims}

    def maker(self, read: Expr, readers: int) -> Operation | None:
        """The operation behind an unguarded read of a value that so many operations read, and nothing else does."""
        if not isinstance(read, Read) or read.guard or read.tensor not in self.program.producer:
            return None
        maker = self.program.producer[read.tensor]
        alone = len(self.program.consumers[read.tensor]) == readers and not kept(self.program, read.tensor)
        return maker if alone and known_operation(maker) else None

    def element(self, read: Expr, readers: int = 1) -> tuple[Operation, Expr] | None:
        """The operation that computes what is read, point by point, and its body at that point."""
        maker = self.maker(read, readers)
        found = None if maker is None else Inlinable.of(self.program, maker)
        if maker is None or found is None or not isinstance(read, Read):
            return None
        place = dict(zip(found.axes, read.index, strict=True))
        values = {name: value.substitute(place) for name, value in found.values.items()}
        return maker, self.simple(substitute(found.body, values), {})

    def fold(self, read: Expr, readers: int) -> tuple[Operation, Dim, Expr] | None:
        """The operation that folds what is read along one dimension at all points, that dimension, its body."""
        maker = self.maker(read, readers)
        found = None if maker is None else Folded.of(self.program, maker)
        if maker is None or found is None or not isinstance(read, Read) or len(maker.reduce_dims) != 1:
            return None
        dims, body, where = found.at(read, self.op.extents)
        return None if where else (maker, dims[0], self.simple(body, {dims[0].name: (0, dims[0].extent)}))

    def simple(self, body: Expr, more: dict[str, tuple[int, int]]) -> Expr:
        dtypes = {name: tensor.dtype for name, tensor in self.program.by_name.items()}
        return Exact(self.ranges | more, dtypes).expr(body)


def _of_weights(values: _Values, weights: Read, value: Read) -> _Softmax | None:
    """weights = exp(x - max x) / sum exp(x - max x), the scores x being a scaled product, some of which count."""
    divided = values.element(weights)
    match divided:
        case (divide, Call("divide", (Call("exp", (Call("subtract", (Read() as score, largest)),)) as term, total))):
            pass
        case _:
            return None
    most, added = values.fold(largest, 2), values.fold(total, 1)
    (key,) = values.op.reduce_dims
    if most is None or added is None or (most[0].monoid, added[0].monoid) != ("max", "sum"):
        return None
    for (_, dim, body), along in ((most, score), (added, term)):
        ranges = values.ranges | {dim.name: (0, dim.extent)}
        here = substitute(along, {key: Affine.dim(dim.name)})
        if dim.extent != values.op.extents[key] or Simplifier(ranges).expr(body) != Simplifier(ranges).expr(here):
            return None
    return _of_scores(values, (most[0], added[0], divide), score, value)


def _of_scores(values: _Values, ops: tuple[Operation, ...], score: Read, value: Read) -> _Softmax | None:
    """Scores, through what scales and masks them, to their product."""
    scale, readers = 1.0, 3
    where: tuple[Bound, ...] = ()
    before: list[Operation] = []
    while True:
        product = values.fold(score, readers)
        if product is not None:
            break
        stage = values.element(score, readers)
        found = None if stage is None else _stage(stage[1])
        if stage is None or found is None:
            return None
        score, factor, bounds = found
        if bounds and scale <= 0:  # what a mask leaves out would become the largest score
            return None
        before.insert(0, stage[0])
        scale, where, readers = scale * factor, (*where, *bounds), 1
    maker, inner, body = product
    factors = replace(maker, body=body).factors if is_sum(maker) else None
    (key,) = values.op.reduce_dims
    if factors is None or not all(isinstance(factor, Read) and not factor.guard for factor in factors):
        return None
    query, keys = factors if key not in depends_on(factors[0]) else factors[::-1]
    assert isinstance(query, Read)
    assert isinstance(keys, Read)
    dtypes = {values.program.tensor(read.tensor).dtype for read in (query, keys, value)}
    if len(dtypes) != 1 or DTYPES[dtypes.pop()].kind != "float":
        return None
    return _Softmax((maker, *before, *ops), query, keys, value, inner, scale, where)


def _stage(body: Expr) -> tuple[Read, float, tuple[Bound, ...]] | None:
    """What scales scores by a number, or takes those outside of a condition on indices out."""
    match body:
        case Call("multiply", (Read() as score, Const(factor))) | Call("multiply", (Const(factor), Read() as score)):
            return score, float(factor), ()
        case Call("divide", (Read() as score, Const(factor))) if factor:
            return score, 1 / float(factor), ()
        case Call("where", (Inside(bounds), Read() as score, Const(left_out))) if left_out == -inf:
            return score, 1.0, bounds
    return None
