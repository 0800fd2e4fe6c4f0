"""Attention: a block operation that folds keys by the online softmax, so a cut of the keys is found, not programmed.

The state of a query and head is (o_0 ... o_{e-1}, l, m): m = max x, l = sum exp(x - m), o = sum exp(x - m) v, for x =
scale * q·k over the keys seen. Two states combine to m = max(m1, m2), l = l1 exp(m1 - m) + l2 exp(m2 - m), o likewise;
the identity is (0, 0, -inf): Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135, section 3.1.
Scores are never stored.
"""

from __future__ import annotations

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import indices
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite, current
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from ..expr import Affine, Bound, Read
from ..expr.simplify import Ranges, simplify
from ..program import Block, Dim


@door
@composite
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    name: str = "",
) -> Tensor:
    """softmax(scale * q·k) v over the keys. q [(b,) t, h, e], k and v [(b,) s, g, e] -> [(b,) t, h, e].

    Heads may be grouped: g divides h, and head i reads group i // (h / g). With ``causal`` query t sees the keys s <= t
    + ``offset``. ``scale`` None is 1 / sqrt(e). Two operations: the state, in f32 at least, and its division. Raises
    UsageError with the shapes.
    """
    _check(q, k, v)
    state = _state(q, k, v, causal, offset, q.shape[-1] ** -0.5 if scale is None else scale)
    *outer, e = indices(" ".join(unique_names((*q.axes[:-1], "e"))))
    width = q.shape[-1]
    ratio = state[(*outer, e)] / state[(*outer, width)]
    return define("finish", [*outer, e], ratio, dtype=q.dtype, extents={str(e): width})


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


def _state(q: Tensor, k: Tensor, v: Tensor, causal: bool, offset: int, scale: float) -> Tensor:
    *outer, s, c = _names(q)
    t, h = outer[-2:]
    batch = [Affine.dim(name) for name in outer[:-2]]
    heads_per_group, width = q.shape[-2] // k.shape[-2], q.shape[-1]
    group = Affine.dim(h) // heads_per_group if k.shape[-2] > 1 else Affine.of(0)
    key = (*batch, Affine.dim(s), group, Affine.dim(c))
    dims = [*(Dim(name, extent) for name, extent in zip(outer, q.shape[:-1], strict=True)), Dim(s, k.shape[-3])]
    ranges = {dim.name: (0, dim.extent) for dim in dims} | {c: (0, width)}
    inside = Bound(Affine.dim(c), None, width)
    query = (*map(Affine.dim, outer), Affine.dim(c))
    reads = tuple(_whole(x, index, ranges, inside) for x, index in ((q, query), (k, key), (v, key)))
    where = [Bound(Affine.dim(s) - Affine.dim(t), None, 1 + offset)] if causal else []
    attributes = (("scale", scale), ("causal", causal), ("offset", offset), ("groups", k.shape[-2]), ("width", width))
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
