"""What a program means, said in torch point by point: the oracle of derivatives, which torch takes by itself.

Every operation is evaluated at all points of its index box at once, reads gathered by index arrays. It shares nothing
with Tapestry's evaluators or derivatives but the records of a program, and is slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from tapestry.expr import Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read
from tapestry.program import Block, Operation, Program

T = torch.Tensor
Grid = Mapping[str, np.ndarray]
DTYPES = {"bool": torch.bool, "int8": torch.int8, "int32": torch.int32, "int64": torch.int64, "f64": torch.float64}

FLOATS = ("divide", "floor", "ceil", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid")
FUNCTIONS: dict[str, Callable[..., T]] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div, "power": torch.pow,
    "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"), "remainder": torch.remainder,
    "minimum": lambda a, b: torch.where(a < b, a, b), "maximum": lambda a, b: torch.where(a > b, a, b),
    "less": torch.lt, "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge, "equal": torch.eq,
    "not_equal": torch.ne, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_not": torch.logical_not, "where": torch.where, "negative": torch.neg, "abs": torch.abs,
    "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "exp": torch.exp, "log": torch.log,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh,
    "erf": torch.erf, "sigmoid": torch.sigmoid, "within": lambda index, extent: index,
}  # fmt: skip


def outputs(program: Program, inputs: Mapping[str, T]) -> dict[str, T]:
    """Every tensor of the program, from those that come in."""
    found = dict(inputs)
    for tensor in program.of_role("const"):
        found[tensor.name] = torch.tensor(tensor.data, dtype=DTYPES[tensor.dtype]).reshape(tensor.shape)
    for op in program.operations:
        out = program.tensor(op.output)
        value = _value(op, found)
        found[op.output] = value.to(DTYPES[out.dtype]).reshape(out.shape)
    return found


def _value(op: Operation, tensors: Mapping[str, T]) -> T:
    """The result, its axes being the dimensions that are kept (a traced operation writes them in order)."""
    if isinstance(op.body, Block):
        return _attention(op, op.body, tensors)
    shape = tuple(dim.extent for dim in op.dims)
    grid = {dim.name: axis for dim, axis in zip(op.dims, np.indices(shape), strict=True)}
    value = _at(op.body, grid, shape, tensors)
    if op.monoid is None:
        return _as_written(op, value)
    kept = [k for k, dim in enumerate(op.dims) if dim.name not in op.reduce_dims]
    folded = [k for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims]
    rows = value.permute(*kept, *folded).reshape(*(shape[k] for k in kept), -1)
    inside = _holds(op.where, grid, shape).permute(*kept, *folded).reshape(rows.shape)
    return _as_written(op, _fold(op.monoid, rows, inside))


def _as_written(op: Operation, value: T) -> T:
    """Axes in the order in which the operation writes them."""
    kept = [dim.name for dim in op.dims if dim.name not in op.reduce_dims]
    order = [row.terms[0][0] for row in op.write if row.terms]
    return value.permute(*(kept.index(name) for name in order)) if order != kept and len(order) == len(kept) else value


def _fold(monoid: str, rows: T, inside: T) -> T:
    number = rows if rows.dtype.is_floating_point else rows.to(torch.int64)
    count = inside.sum(-1)
    if monoid in ("sum", "prod"):
        filled = torch.where(inside, number, torch.zeros_like(number) if monoid == "sum" else torch.ones_like(number))
        return filled.sum(-1) if monoid == "sum" else filled.prod(-1)
    if monoid in ("any", "all"):
        return (inside & (rows != 0)).any(-1) if monoid == "any" else (~inside | (rows != 0)).all(-1)
    if monoid in ("argmax", "argmin"):
        return _best(rows if monoid == "argmax" else -rows, inside)
    if not rows.dtype.is_floating_point:  # the identity of integers is the dtype's own: guard the rest
        rows = torch.where(inside, rows, rows.amin() if monoid == "max" else rows.amax())
        return rows.amax(-1) if monoid == "max" else rows.amin(-1)
    if monoid in ("max", "min"):
        worst = torch.full_like(rows, -torch.inf if monoid == "max" else torch.inf)
        return (
            torch.where(inside, rows, worst).amax(-1) if monoid == "max" else torch.where(inside, rows, worst).amin(-1)
        )
    if monoid == "logsumexp":
        return torch.logsumexp(torch.where(inside, rows, torch.full_like(rows, -torch.inf)), -1)
    if monoid in ("average", "variance"):
        n = count.clamp(min=1)
        mean = torch.where(inside, rows, torch.zeros_like(rows)).sum(-1) / n
        apart = torch.where(inside, rows - mean[..., None], torch.zeros_like(rows))
        return mean if monoid == "average" else (apart * apart).sum(-1) / n
    raise NotImplementedError(monoid)


def _best(rows: T, inside: T) -> T:
    """The first position of the largest; folds that leave points out are not of these monoids here."""
    assert bool(inside.all())
    return torch.from_numpy(np.argmax(rows.detach().numpy(), -1))


def _attention(op: Operation, block: Block, tensors: Mapping[str, T]) -> T:
    """The state (o, l, m) by its definition; m as the constant that it is to the result."""
    *outer, s, c = op.dims
    width = c.extent - 2
    dims = (*outer, s, c)
    shape = (*(dim.extent for dim in (*outer, s)), width)
    grid = {dim.name: axis for dim, axis in zip(dims, np.indices(shape), strict=True)}
    q, k, v = (_at(read, grid, shape, tensors) for read in block.reads)
    inside = _holds(op.where, grid, shape)[..., 0]
    x = torch.where(inside, block.attrs["scale"] * (q * k).sum(-1), torch.tensor(-torch.inf, dtype=q.dtype))
    m = x.amax(-1, keepdim=True).detach()
    w = torch.exp(x - torch.where(m.isinf(), torch.zeros_like(m), m))
    return torch.cat([(w[..., None] * v).sum(-2), w.sum(-1, keepdim=True), m], -1)


def _at(expr: Expr, grid: Grid, shape: Sequence[int], tensors: Mapping[str, T]) -> T:
    """An expression at every point."""
    if isinstance(expr, Call):
        args = [_at(arg, grid, shape, tensors) for arg in expr.args]
        if expr.function in FLOATS:
            args = [arg if arg.dtype.is_floating_point else arg.double() for arg in args]
        return FUNCTIONS[expr.function](*args)
    if isinstance(expr, Cast):
        return _at(expr.arg, grid, shape, tensors).to(DTYPES[expr.dtype])
    if isinstance(expr, Const):
        return _number(expr.value).expand(tuple(shape))
    if isinstance(expr, IndexValue):
        return torch.from_numpy(np.ascontiguousarray(_index(expr.index, grid, shape)))
    if isinstance(expr, Inside):
        return _holds(expr.bounds, grid, shape)
    return _read(expr, grid, shape, tensors[expr.tensor])


def _number(value: float | int | bool) -> T:
    """A truth value, an integer, or a float of 64 bits."""
    kind = torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int) else torch.float64
    return torch.tensor(value, dtype=kind)


def _read(read: Read, grid: Grid, shape: Sequence[int], tensor: T) -> T:
    inside = _holds(read.guard, grid, shape)
    places = [
        np.clip(_index(row, grid, shape), 0, max(n - 1, 0)) for row, n in zip(read.index, tensor.shape, strict=True)
    ]
    found = tensor[tuple(torch.from_numpy(np.ascontiguousarray(place)) for place in places)].expand(tuple(shape))
    return torch.where(inside, found, _number(read.fill).to(found.dtype)) if read.guard else found


def _index(row: Affine, grid: Grid, shape: Sequence[int]) -> np.ndarray:
    return np.broadcast_to(np.asarray(row.evaluate(grid), dtype=np.int64), tuple(shape))


def _holds(bounds: Sequence[Bound], grid: Grid, shape: Sequence[int]) -> T:
    held = np.ones(tuple(shape), dtype=bool)
    for bound in bounds:
        value = _index(bound.expr, grid, shape)
        held &= (value >= bound.lo) if bound.lo is not None else True
        held &= (value < bound.hi) if bound.hi is not None else True
    return torch.from_numpy(held)
