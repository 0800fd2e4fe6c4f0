"""Attention differentiated: by operations that store no scores, or by ones that do, which differentiate again.

    x[t, h, s] = scale * sum over c of q[t, h, c] k[s, g, c]        w = exp(x - m), from the m of the state
    o[t, h, c] = sum over s of w v[s, g, c]                         l[t, h] = sum over s of w

m counts as a constant: the result y = o / l is the same for every m. With p = w / l and the slope dy of the result,

    dx = p (sum over c of dy v - sum over c of dy y)
    dq = scale * sum over s of dx k      dk = scale * sum over t, h of dx q      dv = sum over t, h of p dy

which need y, l and m and no score (Dao et al., arXiv:2205.14135, appendix B.2): `attention_slopes_q`, `..._k`, `..._v`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..dsl.tensor import unique_names
from ..dsl.trace import Trace
from ..expr import Affine, Bound, Call, Const, Expr, Floor, Inside, Read, Table, substitute
from ..expr.derivatives import call
from ..expr.simplify import Simplifier
from ..program import Block, Dim, Operation
from ..space.projection import everywhere
from .scalar import times

LEAST = -3.0e38  # about the least number of f32


# -- the slopes of the state ---------------------------------------------------------------------------------------


def pieces(trace: Trace, op: Operation) -> list[Operation]:
    """Scores and weights, computed again, and the two parts of the state that they make up."""
    assert isinstance(op.body, Block)
    q, k, v = (replace(read, guard=()) for read in op.body.reads)
    *outer, s, c = op.dims
    width = c.extent - 2
    inner = Dim(c.name, width)
    places = tuple(Affine.dim(dim.name) for dim in (*outer, s))
    scores = trace.compute("scores", [*outer, s, inner], call("multiply", q, k), reduce_dims=[c.name], monoid="sum",
                           dtype=trace.dtypes[op.output], anonymous=True)  # fmt: skip
    largest = Read(op.output, (*places[:-1], Affine.of(width + 1)))
    weight = _weight(op, outer, Read(scores.key, places), largest)
    weights = trace.compute("weights", [*outer, s], weight, dtype=trace.dtypes[op.output], anonymous=True)
    drafts = {draft.operation.output: draft.operation for draft in trace.ops[-2:]}
    read = Read(weights.key, places)
    share = replace(op, monoid="sum", dims=(*outer, s, inner), body=call("multiply", read, v))
    total = replace(op, monoid="sum", dims=(*outer, s), body=read, write=(*places[:-1], Affine.of(width)))
    return [drafts[scores.key], drafts[weights.key], share, total]


def _weight(op: Operation, outer: Sequence[Dim], scores: Read, largest: Read) -> Expr:
    """exp(x - m) where the key is seen, else 0."""
    assert isinstance(op.body, Block)
    score = times(Const(op.body.attrs["scale"]), scores)
    weight = call("exp", call("subtract", score, largest))
    if not everywhere(op.extents, [dim.name for dim in outer], op.where):  # m is -inf where no key is seen
        weight = call("exp", call("subtract", score, call("maximum", largest, Const(LEAST))))
    return call("where", Inside(op.where), weight, Const(0.0)) if op.where else weight


# -- the slopes of the result --------------------------------------------------------------------------------------


class Attended(NamedTuple):
    """Attention in full: the operation that makes the state, and the one that divides it.

    ``share``: the heads of queries that read one head of keys, which follow one another; 0: all do.
    """

    state: Operation
    finish: Operation
    share: int


def attended(state: Operation, finish: Operation) -> Attended | None:
    """Two operations as attention; None where they are not, or lie in a way that `slopes` does not know."""
    if not isinstance(state.body, Block) or state.body.kernel != "attention" or len(state.parallel_dims) not in (3, 4):
        return None
    *outer, s, c = state.dims
    at = tuple(Affine.dim(dim.name) for dim in outer)
    mine = tuple(Affine.dim(dim.name) for dim in finish.dims)
    names = dict(zip((dim.name for dim in finish.dims), (*at, Affine.dim(c.name)), strict=True))
    body = substitute(finish.body, names) if len(mine) == len(at) + 1 and not isinstance(finish.body, Block) else None
    total = Read(state.output, (*at, Affine.of(c.extent - 2)))
    if not isinstance(body, Call) or body.function != "divide" or finish.where or finish.write != mine:
        return None
    held = call("where", call("greater", total, Const(0.0)), total, Const(1.0))
    if body.args[0] != Read(state.output, (*at, Affine.dim(c.name))) or body.args[1] not in (total, held):
        return None
    if finish.monoid is not None or finish.dims[-1].extent != c.extent - 2 or state.write != (*at, Affine.dim(c.name)):
        return None
    share = _share(state, [dim.name for dim in outer], s.name)
    return None if share is None else Attended(state, finish, share)


def _share(state: Operation, outer: list[str], s: str) -> int | None:
    """How many heads of queries read one head of keys; None where keys depend on the query, or lie otherwise."""
    assert isinstance(state.body, Block)
    query, *keys = (frozenset[str]().union(*(row.dims for row in read.index)) for read in state.body.reads)
    t, h = outer[-2:]
    if s in query or any(t in dims for dims in keys):
        return None
    shares = {_divisor(read, h) for read in state.body.reads[1:]}
    found = shares.pop()
    return None if shares or found is None or (found and state.extents[h] % found) else found


def _divisor(read: Read, h: str) -> int | None:
    """1 where a read goes along a dimension, r where along its r-th part; 0 where it does not; None: otherwise."""
    terms = [term for row in read.index for term, _ in row.terms]
    if any(isinstance(term, Table) and h in term.inner.dims for term in terms):
        return None
    parts = {term.divisor for term in terms if isinstance(term, Floor) and h in term.inner.dims}
    mixed = any(isinstance(term, Floor) and h in term.inner.dims and term.inner != Affine.dim(h) for term in terms)
    found = parts | ({1} if h in terms else set())
    return None if mixed or len(found) > 1 else next(iter(found), 0)


def slopes(trace: Trace, found: Attended, arrived: str) -> Iterator[tuple[Operation, Read, Read]]:
    """For q, k and v: the points at which it is read, what is handed on at each, and the read.

    ``arrived`` is the tensor that holds the slope of the result.
    """
    state, finish, _ = found
    assert isinstance(state.body, Block)
    q, k, v = (replace(read, guard=()) for read in state.body.reads)
    *outer, s, c = state.dims
    width, dtype = c.extent - 2, trace.dtypes[q.tensor]
    inner, rows = Dim(c.name, width, cut=False), tuple(Affine.dim(dim.name) for dim in outer)
    sides: tuple[Expr, ...] = (
        q, k, v,
        *(Read(key, (*rows, Affine.dim(c.name))) for key in (finish.output, arrived)),
        *(Read(state.output, (*rows, Affine.of(place))) for place in (width, width + 1)),
    )  # fmt: skip
    attributes = (("scale", state.body.attrs["scale"]),)

    def made(side: str, dims: Sequence[Dim], folded: int, where: Sequence[Bound]) -> Read:
        body = Block(f"attention_slopes_{side}", tuple(read for read in sides if isinstance(read, Read)), attributes)
        reduce = [dim.name for dim in dims[len(dims) - folded :]]
        slope = trace.compute(
            f"slopes_{side}", [*dims, inner], body, reduce_dims=reduce, monoid="sum", where=where, dtype=dtype,
            anonymous=True,
        )  # fmt: skip
        kept = tuple(Affine.dim(dim.name) for dim in dims[: len(dims) - folded])
        return Read(slope.key, (*kept, Affine.dim(c.name)))

    yield _points(state, [*outer, inner]), made("q", [*outer, s], 1, state.where), q
    dims, names = _by_keys(found)
    simpler = Simplifier({dim.name: (0, dim.extent) for dim in dims} | {c.name: (0, width)}, names)
    sides, where = tuple(map(simpler.expr, sides)), simpler.bounds(state.where) or ()
    for side, read in zip("kv", sides[1:3], strict=True):
        assert isinstance(read, Read)
        yield _points(state, [*dims[:-2], inner]), made(side, dims, 2, where), read


def _points(op: Operation, dims: list[Dim]) -> Operation:
    return replace(op, dims=tuple(dims), reduce_dims=(), monoid=None, where=())


def _by_keys(found: Attended) -> tuple[list[Dim], Mapping[str, Affine]]:
    """Dimensions (batch), key, its head | query, head of queries that reads it; and what the old ones are by them."""
    *batch, t, h = found.state.dims[:-2]
    s, c = found.state.dims[-2:]
    share = found.share or h.extent
    g, i = (name for name in unique_names((*(d.name for d in (*batch, t, h, s, c)), "g", "i"))[-2:])
    dims = [*batch, s, Dim(g, h.extent // share), t, Dim(i, share)]
    return dims, {h.name: share * Affine.dim(g) + Affine.dim(i)}


# -- their own slopes ----------------------------------------------------------------------------------------------


def pieces_of_slopes_q(trace: Trace, op: Operation) -> list[Operation]:
    """Scores, weights and their slopes, computed again, and the sum over the keys."""
    made, _, slope = _again(trace, op)
    _, k, *_ = _plain(op)
    return [*made, replace(op, body=times(Const(_scale(op)), times(slope, k)))]


def pieces_of_slopes_k(trace: Trace, op: Operation) -> list[Operation]:
    """The same, and the sum over the queries."""
    made, _, slope = _again(trace, op)
    q, *_ = _plain(op)
    return [*made, replace(op, body=times(Const(_scale(op)), times(slope, q)))]


def pieces_of_slopes_v(trace: Trace, op: Operation) -> list[Operation]:
    """The same of the weights."""
    made, weight, _ = _again(trace, op)
    _, _, _, _, dy, *_ = _plain(op)
    return [*made, replace(op, body=times(weight, dy))]


def _plain(op: Operation) -> tuple[Read, ...]:
    assert isinstance(op.body, Block)
    return tuple(replace(read, guard=()) for read in op.body.reads)


def _scale(op: Operation) -> float:
    assert isinstance(op.body, Block)
    return float(op.body.attrs["scale"])


def _again(trace: Trace, op: Operation) -> tuple[list[Operation], Read, Read]:
    """The operations of scores, weights and slopes of scores over all dimensions but one; the last two as they are
    read."""
    q, k, v, y, dy, total, largest = _plain(op)
    (*dims, last), before = op.dims, len(trace.ops)
    inner = replace(last, cut=True)
    dtype = trace.dtypes[total.tensor]
    own = frozenset[str]().union(*(row.dims for row in dy.index))
    outer = [dim for dim in dims if dim.name in own]

    def made(name: str, over: Sequence[Dim], value: Expr, *, folded: bool) -> Read:
        tensor = trace.compute(
            name, [*over, *([inner] if folded else [])], value, reduce_dims=[inner.name] if folded else [],
            monoid="sum" if folded else None, dtype=dtype, anonymous=True,
        )  # fmt: skip
        return Read(tensor.key, tuple(Affine.dim(dim.name) for dim in over))

    scores = made("scores", dims, call("multiply", q, k), folded=True)
    share = call("divide", _weight(op, outer, scores, largest), _some(op, outer, total))
    weights = made("weights", dims, share, folded=False)
    towards = made("d_weights", dims, call("multiply", dy, v), folded=True)
    mean = made("d_mean", outer, call("multiply", dy, y), folded=True)
    slope = made("d_scores", dims, times(weights, call("subtract", towards, mean)), folded=False)
    return [draft.operation for draft in trace.ops[before:]], weights, slope


def _some(op: Operation, outer: Sequence[Dim], total: Read) -> Expr:
    """The sum of the weights, or 1 where no key is seen."""
    if everywhere(op.extents, [dim.name for dim in outer], op.where):
        return total
    return call("where", call("greater", total, Const(0.0)), total, Const(1.0))
