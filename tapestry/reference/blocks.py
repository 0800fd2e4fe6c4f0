"""Block kernels in their textbook form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..blocks import BLOCKS
from ..errors import UsageError
from ..expr import depends_on
from ..program import Block, Operation
from .expressions import Reader
from .points import Points
from .rounding import UNIT
from .values import Array


def attention_state(op: Operation, reader: Reader, points: Points, share: float) -> Array:
    """Softmax statistics of scores over the points' keys: states [parallel dims ..., c], c = (o_0 ... o_{e-1}, l, m).

    x = scale * q . k where the key is visible, else -inf; m = max x, l = sum exp(x - m), o = sum exp(x - m) v.
    Reads are q, k, v over (parallel dims ..., key, c), zero for c >= e. Other executions may be off by a share of q
    and v, and by a rounding of p to the dtype of v.
    """
    assert isinstance(op.body, Block)
    key, width = op.dims[-2].name, op.dims[-1].extent - 2
    if op.reduce_dims != (key,) or points.shape[-1] != width + 2:
        raise UsageError("attention reduces its last dimension but one and keeps the last whole", where=op.name)
    q, k, v = (reader.read(read, points)[..., :width].astype(np.float64) for read in op.body.reads)
    q, v = reader.rounding.terms(q, share), reader.rounding.terms(v, share)
    scores = op.body.attrs["scale"] * np.einsum("...c,...c->...", q, k)
    visible = points.inside(op.where)[..., 0]
    x = np.where(visible, scores, -np.inf)
    x = np.broadcast_to(x, points.shape[:-1])
    m = x.max(axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(x - np.where(np.isfinite(m), m, 0.0))
    p = reader.rounding.terms(p, UNIT[reader.dtypes[op.body.reads[2].tensor]])
    o = np.einsum("...s,...sc->...c", p, np.broadcast_to(v, (*points.shape[:-1], width)))
    return np.concatenate([o, p.sum(axis=-1, keepdims=True), m], axis=-1)


def attention_slopes(op: Operation, reader: Reader, points: Points, share: float) -> Array:
    """What the points' queries and keys add to the slopes of queries, keys or values, over (parallel dims ...).

    p = exp(scale * q . k - largest) / total where the key is visible, else 0; dx = p (slope . v - slope . result). The
    slope of q is the sum of scale dx k, that of k the sum of scale dx q, that of v the sum of p slope. Other executions
    may be off by a share of each operand and of dx, and by roundings of p and dx to the dtype of v.
    """
    assert isinstance(op.body, Block)
    scale, unit = op.body.attrs["scale"], UNIT[reader.dtypes[op.body.reads[2].tensor]]
    sides = [np.broadcast_to(reader.read(read, points).astype(np.float64), points.shape) for read in op.body.reads]
    q, k, v, result, slope = (reader.rounding.terms(value, share) for value in sides[:5])
    total, largest = (value[..., 0] for value in sides[5:])
    seen = np.broadcast_to(points.inside(op.where)[..., 0], points.shape[:-1]) & (total > 0)
    x = scale * np.einsum("...c,...c->...", q, k) - np.where(seen, largest, 0.0)
    p = reader.rounding.terms(np.exp(np.where(seen, x, -np.inf)) / np.where(seen, total, 1.0), unit)
    arrived = np.einsum("...c,...c->...", slope, v) - np.einsum("...c,...c->...", slope, result)
    dx = reader.rounding.terms(scale * p * arrived, unit)
    weight, other = {"q": (dx, k), "k": (dx, q), "v": (p, slope)}[op.body.kernel[-1]]
    found: Array = (weight[..., None] * other).sum(axis=tuple(points.names.index(name) for name in op.reduce_dims))
    return found


def declared(op: Operation, reader: Reader, points: Points, share: float) -> Array:
    """The blocks of a kernel that is declared in one place, over (parallel dims ...), in float64.

    Other executions may be off by a share of each operand.
    """
    assert isinstance(op.body, Block)
    bodies = BLOCKS[op.body.kernel].bodies
    assert bodies is not None
    made = [dim.name for dim in op.dims[len(op.dims) - BLOCKS[op.body.kernel].uncut :]]
    kept = [name for name in op.parallel_dims if name not in made]
    operands = []
    for read in op.body.reads:
        value = reader.read(read, points)
        if value.dtype.kind == "f":
            value = reader.rounding.terms(value.astype(np.float64), share)
        own = depends_on(read)
        value = np.broadcast_to(
            value, [n if name in own else 1 for name, n in zip(points.names, points.shape, strict=True)]
        )
        gone = tuple(k for k, name in enumerate(points.names) if name not in kept and name not in own)
        operands.append(value.squeeze(gone))
    found = np.asarray((bodies.reference or bodies.numpy)(*operands, **op.body.attrs))
    shape = dict(zip(points.names, points.shape, strict=True))
    return np.broadcast_to(found, [shape[name] for name in op.parallel_dims])


def block_value(op: Operation, reader: Reader, points: Points, share: float) -> Array:
    """What a block operation makes of some of its points, over its parallel dimensions."""
    assert isinstance(op.body, Block)
    return KERNELS.get(op.body.kernel, declared)(op, reader, points, share)


KERNELS: dict[str, Callable[[Operation, Reader, Points, float], Array]] = {
    "attention": attention_state,
    **{f"attention_slopes_{side}": attention_slopes for side in "qkv"},
}
