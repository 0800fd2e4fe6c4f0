"""Evaluation of whole and partitioned programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..dtypes import name_of, numpy_dtype
from ..errors import UsageError, close_match
from ..expr import MONOIDS, Call, Expr, IndexValue, Inside, Read, walk
from ..program import Block, Operation, Program, Tensor
from ..space import Box, Region
from .blocks import KERNELS
from .expressions import Reader
from .monoids import accumulator_dtype, combine, identity, prepare, reduce_axes
from .points import SLAB_ELEMENTS, Points, slabs
from .values import Array, round_to

Partition = Mapping[str, Sequence[Region]]


def evaluate(program: Program, inputs: Mapping[str, Array], *, partition: Partition | None = None) -> dict[str, Array]:
    """The program's outputs by name, and for every state its new value under the state's name.

    ``inputs`` holds inputs, params and states by name, in their dtypes and shapes. ``partition`` gives operations (by
    name) the regions of their index space that shards compute: each shard is evaluated and rounded on its own and the
    partial results are folded in order. Equal regions are one share computed redundantly. Operations that it does not
    name stay whole.

    UsageError for missing or unknown names, a wrong shape or dtype, or shards that overlap or leave points out.
    """
    values = evaluate_all(program, inputs, partition=partition)
    return {name: values[name] for name in program.outputs} | {state: values[new] for state, new in program.states}


def evaluate_all(
    program: Program, inputs: Mapping[str, Array], *, partition: Partition | None = None
) -> dict[str, Array]:
    """Every tensor of the program by name; see `evaluate`."""
    shards = _checked_partition(program, partition or {})
    values = _checked_inputs(program, inputs)
    values |= {tensor.name: _constant(tensor) for tensor in program.of_role("const")}
    dtypes = {tensor.name: tensor.dtype for tensor in program.tensors}
    with np.errstate(all="ignore"):
        for op in program.operations:
            reader = Reader(op.where, values, dtypes, op.name + (f" ({op.source})" if op.source else ""))
            values[op.output] = _run(op, program.tensor(op.output), shards[op.name], reader)
    return values


def _constant(tensor: Tensor) -> Array:
    return np.array(tensor.data or (), dtype=numpy_dtype(tensor.dtype)).reshape(tensor.shape)


def _run(op: Operation, output: Tensor, shards: Sequence[Region], reader: Reader) -> Array:
    """One operation: its shards one after another, their parts folded, one rounding at the end."""
    total = _fresh(op, output)
    for region in shards:
        part = total if op.monoid is None else _fresh(op, output)
        for grid in region.grids:
            for points in slabs([dim.name for dim in op.dims], grid, _arrays(op), SLAB_ELEMENTS):
                _accumulate(op, output, points, reader, part)
        if op.monoid is not None:
            stored = round_to(part, output.dtype).astype(part.dtype)
            total = combine(op.monoid, total, stored)
    return round_to(total, output.dtype)


def _arrays(op: Operation) -> list[frozenset[str]]:
    """The dimensions of the arrays that evaluating some points builds: all, or the operands' of a contraction."""
    factors = _factors(op)
    if factors is None:
        return [frozenset(op.extents)]
    return [*(_dims(factor) for factor in factors), frozenset(op.parallel_dims)]


def _factors(op: Operation) -> tuple[Expr, Expr] | None:
    """x and y where the operation is a plain sum of x * y."""
    if op.monoid == "sum" and not op.where and isinstance(op.body, Call) and op.body.function == "multiply":
        return op.body.args[0], op.body.args[1]
    return None


def _dims(expr: Expr) -> frozenset[str]:
    """The dimensions an expression varies along."""
    found: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Read):
            found.update(*(row.dims for row in node.index), *(bound.expr.dims for bound in node.guard))
        elif isinstance(node, IndexValue):
            found |= node.index.dims
        elif isinstance(node, Inside):
            found.update(*(bound.expr.dims for bound in node.bounds))
    return frozenset(found)


def _fresh(op: Operation, output: Tensor) -> Array:
    if op.monoid is None:
        return np.zeros(output.shape, dtype=accumulator_dtype(None, output.dtype))
    return identity(op.monoid, output.dtype, output.shape)


def _accumulate(op: Operation, output: Tensor, points: Points, reader: Reader, into: Array) -> None:
    """Evaluate one slab and fold it into the elements it writes."""
    parallel = tuple(k for k, dim in enumerate(op.dims) if dim.name not in op.reduce_dims)
    written = Points(tuple(points.names[k] for k in parallel), tuple(points.axes[k] for k in parallel))
    part = _part(op, output, points, reader)
    at = tuple(np.broadcast_to(written.value(row), written.shape) for row in op.write)
    if op.where and not (op.monoid and MONOIDS[op.monoid].state_axis):
        # Points outside of the domain write nothing; what they would write may not even exist.
        mask = np.broadcast_to(points.inside(op.where), points.shape)
        kept = mask.any(axis=tuple(k for k in range(len(op.dims)) if k not in parallel))
        at, part = tuple(row[kept] for row in at), part[kept]
    into[at] = part if op.monoid is None else combine(op.monoid, into[at], part)


def _part(op: Operation, output: Tensor, points: Points, reader: Reader) -> Array:
    """The fold of one slab over its reduction dimensions, in the accumulator's type, over its parallel dimensions."""
    if isinstance(op.body, Block):
        return KERNELS[op.body.kernel](op, reader, points)
    if op.monoid is None:
        values = reader.value(op.body, points)
        return np.broadcast_to(prepare(None, output.dtype, values), points.shape)
    axes = tuple(k for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims)
    if factors := _factors(op):
        x, y = (prepare("sum", output.dtype, reader.value(factor, points)) for factor in factors)
        return _contract(x, y, points.shape, axes)
    values = prepare(op.monoid, output.dtype, reader.value(op.body, points))
    neutral = identity(op.monoid, output.dtype, ())
    if op.where:
        values = np.where(points.inside(op.where), values, neutral)
    return reduce_axes(op.monoid, np.broadcast_to(values, points.shape), axes, neutral)


def _contract(x: Array, y: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The sum over ``axes`` of x * y, both broadcastable to ``shape``, without building the product."""
    labels = [[k for k in range(len(shape)) if a.shape[k] == shape[k] != 1] for a in (x, y)]
    thin = [a.reshape([a.shape[k] for k in own]) for a, own in zip((x, y), labels, strict=True)]
    kept = [k for k in range(len(shape)) if k not in axes]
    present = [k for k in kept if k in labels[0] or k in labels[1]]
    found = np.einsum(thin[0], labels[0], thin[1], labels[1], present, optimize=True)
    repeats = [shape[k] for k in axes if k not in labels[0] and k not in labels[1]]
    found = found.reshape([shape[k] if k in present else 1 for k in kept]) * int(np.prod(repeats, dtype=np.int64))
    return np.broadcast_to(found, [shape[k] for k in kept])


def _checked_inputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    wanted = {tensor.name: tensor for tensor in program.of_role("input", "param", "state")}
    for name in inputs:
        if name not in wanted:
            raise UsageError(f"{program.name} has no input {name!r}", hint=close_match(name, list(wanted)))
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise UsageError(
            f"{program.name} lacks the values of {', '.join(map(repr, missing))}",
            sides={"takes": ", ".join(wanted), "given": ", ".join(inputs) or "nothing"},
        )
    return {name: _checked_array(tensor, inputs[name]) for name, tensor in wanted.items()}


def _checked_array(tensor: Tensor, value: Array) -> Array:
    array = np.asarray(value)
    if array.dtype != numpy_dtype(tensor.dtype):
        raise UsageError(
            f"{tensor.name} has the wrong dtype",
            sides={"declared": tensor.dtype, "given": _dtype_name(array)},
            hint=f"convert it: {tensor.name}.astype({numpy_dtype(tensor.dtype)})",
        )
    if array.shape != tensor.shape:
        axes = f" ({' '.join(tensor.axes)})" if tensor.axes else ""
        sides = {"declared": f"{tensor.shape}{axes}", "given": str(array.shape)}
        raise UsageError(f"{tensor.name} has the wrong shape", sides=sides)
    return array


def _dtype_name(array: Array) -> str:
    try:
        return name_of(array.dtype)
    except KeyError:
        return str(array.dtype)


def _checked_partition(program: Program, partition: Partition) -> dict[str, list[Region]]:
    for name in partition:
        if name not in program.op_by_name:
            hint = close_match(name, list(program.op_by_name))
            raise UsageError(f"the partition names {name!r}, which {program.name} does not compute", hint=hint)
    whole = {op.name: Box.of_shape([dim.extent for dim in op.dims]).region() for op in program.operations}
    return {name: _shards(name, domain, partition.get(name, [domain])) for name, domain in whole.items()}


def _shards(name: str, domain: Region, regions: Sequence[Region]) -> list[Region]:
    """The distinct shards, each point of the domain in exactly one."""
    distinct = list(dict.fromkeys(region for region in regions if region))
    left = domain
    for region in distinct:
        if not region <= left:
            witness = (region - left).witness()
            raise UsageError("a shard overlaps another or leaves the index space", where=name, witness=str(witness))
        left = left - region
    if left:
        raise UsageError("no shard computes some of the points", where=name, witness=str(left.witness()))
    return distinct
