"""Attention: a block operation that folds keys by the online softmax, so a cut of the keys is found, not programmed.

The state of a query and head is (o_0 ... o_{e-1}, l, m): m = max x, l = sum exp(x - m), o = sum exp(x - m) v, for x =
scale * q·k over the keys seen. Two states combine to m = max(m1, m2), l = l1 exp(m1 - m) + l2 exp(m2 - m), o likewise;
the identity is (0, 0, -inf): Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135, section 3.1.
Scores are never stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.element import Element
from ..dsl.guard import conditions
from ..dsl.index import Index, as_integer, indices
from ..dsl.table import check_tables
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite, current
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from ..expr import Affine, Bound, Read
from ..expr.simplify import Ranges, simplify
from ..program import Block, Dim
from ..space.projection import everywhere
from .elementwise import where as choose


@door
@composite
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    offset: int = 0,
    window: int | None = None,
    where: Callable[..., Tensor] | None = None,
    scale: float | None = None,
    name: str = "",
) -> Tensor:
    """softmax(scale * q·k) v over the keys. q [(b,) t, h, e], k and v [(b,) s, g, e] -> [(b,) t, h, e].

    Heads may be grouped: g divides h, and head i reads group i // (h / g). With ``causal`` query t sees the keys s <= t
    + ``offset``, with ``window`` those less than so many away from t + ``offset``. ``where`` is a function of the
    indices (b,) t and s that gives a condition on them: ``where=lambda b, t, s: s < lengths[b]``. What a query does not
    see is neither computed nor moved; a query that sees no key gets 0. ``scale`` None is 1 / sqrt(e). Two operations:
    the state, in f32 at least, and its division. Raises UsageError with the shapes.
    """
    _check(q, k, v)
    seen = _seen(q, k, causal, offset, window, where)
    state = _state(
        q, k, v, seen, (("causal", causal), ("offset", offset)), q.shape[-1] ** -0.5 if scale is None else scale
    )
    *outer, e = indices(" ".join(unique_names((*q.axes[:-1], "e"))))
    width = q.shape[-1]
    total = state[(*outer, width)]
    extents = dict(zip(_names(q)[:-1], (*q.shape[:-1], k.shape[-3]), strict=True))
    if seen and not everywhere(extents, _names(q)[:-2], seen):
        total = choose(total > 0, total, 1.0)
    return define("finish", [*outer, e], state[(*outer, e)] / total, dtype=q.dtype, extents={str(e): width})


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    sides = {"q": repr(q), "k": repr(k), "v": repr(v)}
    if q.ndim not in (3, 4) or k.ndim != q.ndim or k.shape != v.shape or len({q.dtype, k.dtype, v.dtype}) != 1:
        raise UsageError("attention takes q [(b,) t, h, e] and k, v [(b,) s, g, e] of one dtype", sides=sides)
    if DTYPES[q.dtype].kind != "float":
        raise UsageError("attention takes floats", sides=sides)
    if not k.shape[-2] or not q.shape[-1]:
        raise UsageError("attention needs a key head and a width of at least 1", sides=sides)
    if q.shape[-1] != k.shape[-1] or q.shape[-2] % k.shape[-2] or q.shape[:-3] != k.shape[:-3]:
        hint = "equal batch and head width; the number of query heads is a multiple of that of key heads"
        raise UsageError("the shapes of queries and keys contradict", sides=sides, hint=hint)


def _names(q: Tensor) -> list[str]:
    """Names of the dimensions (b), t, h of the queries, then of the keys and of the state."""
    return list(unique_names((*q.axes[:-1], "s", "c")))


def _seen(
    q: Tensor, k: Tensor, causal: bool, offset: int, window: int | None, where: Callable[..., Tensor] | None
) -> tuple[Bound, ...]:
    """The conditions under which a query sees a key."""
    *outer, s, _ = _names(q)
    batch, t = outer[:-2], outer[-2]
    if window is not None and (as_integer(window) is None or window < 1):
        raise UsageError(f"window={window!r} is no number of keys", hint="the own key alone is window=1")
    before = None if window is None else 1 + offset - window
    after = 1 + offset if causal else None if window is None else window + offset
    found = () if causal is False and window is None else (Bound(Affine.dim(s) - Affine.dim(t), before, after),)
    if where is None:
        return found
    extents = zip((*batch, t, s), (*q.shape[:-3], q.shape[-3], k.shape[-3]), strict=True)
    chosen = where(*(Index(Affine.dim(name), {name: extent}) for name, extent in extents))
    own = conditions(chosen.expr) if isinstance(chosen, Element) else None
    if own is None:
        hint = "compare index expressions, join with & and |: where=lambda t, s: (s <= t) | (s < 4)"
        raise UsageError("where= of attention gives no condition on its indices", hint=hint)
    return (*found, *own)


def _state(
    q: Tensor, k: Tensor, v: Tensor, where: tuple[Bound, ...], declared: tuple[tuple[str, object], ...], scale: float
) -> Tensor:
    *outer, s, c = _names(q)
    h = outer[-1]
    batch = [Affine.dim(name) for name in outer[:-2]]
    heads_per_group, width = q.shape[-2] // k.shape[-2], q.shape[-1]
    group = Affine.dim(h) // heads_per_group if k.shape[-2] > 1 else Affine.of(0)
    key = (*batch, Affine.dim(s), group, Affine.dim(c))
    dims = [*(Dim(name, extent) for name, extent in zip(outer, q.shape[:-1], strict=True)), Dim(s, k.shape[-3])]
    ranges = {dim.name: (0, dim.extent) for dim in dims} | {c: (0, width)}
    inside = Bound(Affine.dim(c), None, width)
    query = (*map(Affine.dim, outer), Affine.dim(c))
    reads = tuple(_whole(x, index, ranges, inside) for x, index in ((q, query), (k, key), (v, key)))
    check_tables("attention", (bound.expr for bound in where), ranges)
    attributes = (("scale", scale), *declared, ("groups", k.shape[-2]), ("width", width))
    return current("attention").compute(
        "state",
        [*dims, Dim(c, width + 2, cut=False)],
        Block("attention", reads, attributes),
        reduce_dims=[s],
        monoid="online_softmax",
        where=where,
        dtype=promote(q.dtype, "f32"),
    )


def _whole(x: Tensor, index: tuple[Affine, ...], ranges: Ranges, inside: Bound) -> Read:
    """The operand as a read that is 0 beyond the head's width; views that are more than a change of axes are copied."""
    own = {axis: (0, extent) for axis, extent in zip(x.axes, x.shape, strict=True)}
    found = simplify(x.at(tuple(map(Affine.dim, own))), own)
    if not (isinstance(found, Read) and not found.guard and all(i.is_affine for i in found.index)):
        x = x.trace.materialise(x)
    read = simplify(x.at(index), ranges)
    assert isinstance(read, Read)
    return Read(read.tensor, read.index, (inside,), 0)
