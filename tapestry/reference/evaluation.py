"""Evaluation of whole and partitioned programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..dtypes import DTYPES, name_of, numpy_dtype
from ..errors import UsageError, close_match
from ..expr import MONOIDS, Call, Expr, IndexValue, Inside, Read, walk
from ..program import Block, Operation, Program, Tensor
from ..records import over_records, records_at
from ..result_type import compute_type, result_dtype
from ..space import Box, Region
from .blocks import block_value
from .chosen import counts_few, fold_chosen
from .expressions import Reader
from .monoids import Fold, State
from .points import SLAB_ELEMENTS, Points, slabs
from .rounding import UNIT, Rounding, share_of_result, share_of_terms
from .values import Array, round_to

LISTED = 1 << 62  # points and indices, and sums of two of them, are integers of 64 bits

Partition = Mapping[str, Sequence[Region]]
_OWN = Rounding()


def evaluate(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    partition: Partition | None = None,
    rounding: Rounding = _OWN,
) -> dict[str, Array]:
    """The program's outputs by name, and for every state its new value under the state's name.

    ``inputs`` holds inputs, params and states by name, in their dtypes and shapes. ``partition`` gives operations (by
    name) the regions of their index space that shards compute: each shard is evaluated and rounded on its own and the
    partial results are folded in order. Equal regions are one share computed redundantly. Operations that it does not
    name stay whole. ``rounding`` may move what executions may round otherwise (see `reference.rounding`).

    UsageError for missing or unknown names, a wrong shape or dtype, or shards that overlap or leave points out.
    """
    values = evaluate_all(program, inputs, partition=partition, rounding=rounding)
    return {name: values[name] for name in program.outputs} | {state: values[new] for state, new in program.states}


def evaluate_all(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    partition: Partition | None = None,
    rounding: Rounding = _OWN,
) -> dict[str, Array]:
    """Every tensor of the program by name; see `evaluate`."""
    for op in program.operations:
        _demand_words(op)
    shards = _checked_partition(program, partition or {})
    values = _checked_inputs(program, inputs)
    values |= {tensor.name: _constant(tensor) for tensor in program.of_role("const")}
    dtypes = {tensor.name: tensor.dtype for tensor in program.tensors}
    with np.errstate(all="ignore"):
        for op in program.operations:
            place = op.name + (f" ({op.source})" if op.source else "")
            reader = Reader(op.where, values, dtypes, place, rounding)
            values[op.output] = _run(op, program.tensor(op.output), shards[op.name], reader)
    return values


def _demand_words(op: Operation) -> None:
    """UsageError for an index space that 64 bits do not hold: its points and the indices at them are listed as such."""
    ranges = {name: (0, max(1, extent)) for name, extent in op.extents.items()}
    nodes = [] if isinstance(op.body, Block) else list(walk(op.body))
    exprs = [*op.write, *(row for read in op.reads for row in read.index)]
    exprs += [node.index for node in nodes if isinstance(node, IndexValue)]
    limits = [*op.where, *(bound for read in op.reads for bound in read.guard)]
    limits += [bound for node in nodes if isinstance(node, Inside) for bound in node.bounds]
    far = [prod(op.extents.values())]
    for expr in (*exprs, *(bound.expr for bound in limits)):
        far += [abs(end) for part in (expr, *(atom.inner for atom in expr.compound)) for end in part.bounds(ranges)]
    if max(far) >= LISTED:
        place = f"{op.name} ({op.source})" if op.source else op.name
        sides = {"points or indices": f"up to {max(far)}", "evaluated": f"below {LISTED}"}
        raise UsageError("the index space is too large for the reference to list", where=place, sides=sides)


def _constant(tensor: Tensor) -> Array:
    return np.array(tensor.data or (), dtype=numpy_dtype(tensor.dtype)).reshape(tensor.shape)


def _run(op: Operation, output: Tensor, shards: Sequence[Region], reader: Reader) -> Array:
    """One operation: its shards one after another, their parts folded, one rounding at the end."""
    share = share_of_result(op, output.dtype)
    if op.monoid is None:
        found = np.zeros(output.shape, numpy_dtype(output.dtype))
        for region in shards:
            for points in _slabs(op, region):
                if isinstance(op.body, Block):
                    made = block_value(op, reader, points, UNIT[DTYPES[output.dtype].compute])
                else:
                    made = reader.value(op.body, points).array
                at, value = _written(op, points, made)
                found[at] = round_to(reader.rounding.stored(value, share), output.dtype)
        return found
    value_dtype, shape = _value_dtype(op, output, reader), output.shape
    fold = Fold(op.monoid, value_dtype, output.dtype, share_of_terms(op, value_dtype, output.dtype))
    if op.record_dim is not None:
        shards, shape = [records_at(op, region) for region in shards], shape[:-1]
    op = over_records(op)
    parts = [_part(op, shape, fold, region, reader) for region in shards]
    total = parts[0] if len(parts) == 1 else fold.identity(shape)
    for part in parts if len(parts) > 1 else ():
        total = fold.combine(total, fold.partial(part))
    if not fold.whole:
        total = tuple(reader.rounding.terms(array, fold.share) for array in total)
    return round_to(reader.rounding.stored(fold.finish(total), share), output.dtype)


def _part(op: Operation, shape: tuple[int, ...], fold: Fold, region: Region, reader: Reader) -> State:
    """The fold of one shard, over all records: the identity where it has no points."""
    total = fold.identity(shape)
    few = [grid for grid in region.grids if counts_few(op, fold, grid)]
    for grid in few:
        fold_chosen(op, fold, grid, total, reader)
    for points in _slabs(op, Region.of(*(grid for grid in region.grids if grid not in few)) if few else region):
        found = _slab(op, fold, points, reader)
        at, *state = _written(op, points, *found)
        for array, value in zip(total, fold.combine(tuple(array[at] for array in total), tuple(state)), strict=True):
            array[at] = value
    return total


def _slabs(op: Operation, region: Region) -> Iterator[Points]:
    for grid in region.grids:
        yield from slabs([dim.name for dim in op.dims], grid, _arrays(op), SLAB_ELEMENTS)


def _value_dtype(op: Operation, output: Tensor, reader: Reader) -> str:
    return output.dtype if isinstance(op.body, Block) else result_dtype(op.body, reader.dtypes)


def _arrays(op: Operation) -> list[frozenset[str]]:
    """The dimensions of the arrays that evaluating some points builds: all, or the operands' of a contraction."""
    if isinstance(op.body, Block) and op.monoid is None:
        # The kernel gets what it folds, and makes what it gives, whole.
        return [frozenset(dim.name for dim in op.dims if dim.cut)]
    factors = _factors(op)
    if factors is None:
        return [frozenset(op.extents)]
    return [*(_dims(factor) for factor in factors), frozenset(op.parallel_dims)]


def _factors(op: Operation) -> tuple[Expr, Expr] | None:
    """x and y where the operation is a plain sum of x * y."""
    adds = op.monoid is not None and MONOIDS[op.monoid].matrix
    if adds and not op.where and isinstance(op.body, Call) and op.body.function == "multiply":
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


def _written(op: Operation, points: Points, *values: Array) -> tuple[Any, ...]:
    """Where the points of a slab write, and what: values over the parallel dimensions, or over all for a map."""
    parallel = tuple(k for k, dim in enumerate(op.dims) if dim.name not in op.reduce_dims)
    written = Points(tuple(points.names[k] for k in parallel), tuple(points.axes[k] for k in parallel))
    at = tuple(np.broadcast_to(written.value(row), written.shape) for row in op.write)
    found = tuple(np.broadcast_to(value, written.shape) for value in values)
    if parallel and op.where and not isinstance(op.body, Block):
        # Points outside of the domain write nothing; what they would write may not even exist.
        mask = np.broadcast_to(points.inside(op.where), points.shape)
        kept = mask.any(axis=tuple(k for k in range(len(op.dims)) if k not in parallel))
        at, found = tuple(row[kept] for row in at), tuple(value[kept] for value in found)
    return at, *found


def _slab(op: Operation, fold: Fold, points: Points, reader: Reader) -> State:
    """The fold of one slab over its reduction dimensions, over its parallel dimensions."""
    if isinstance(op.body, Block):
        return (block_value(op, reader, points, fold.share),)
    axes = tuple(k for k, dim in enumerate(op.dims) if dim.name in op.reduce_dims)
    if factors := _factors(op):
        values = [reader.value(factor, points) for factor in factors]
        wide = numpy_dtype(compute_type("multiply", [(value.dtype, value.weak) for value in values]))
        held = fold.identity(())[0].dtype
        x, y = (value.array.astype(wide).astype(held) for value in values)
        x = reader.rounding.terms(x, fold.share)
        return (_contract(x, y, points.shape, axes),)
    order = [points.names.index(name) for name in op.reduce_dims]
    extents = [op.extents[name] for name in op.reduce_dims]
    position = np.zeros((1,) * len(points.names), np.int64)
    for k, extent in zip(order, extents, strict=True):
        position = position * extent + points.index[points.names[k]]
    pair = fold.monoid.pairs and isinstance(op.body, Call)
    values = [
        reader.value(expr, points) for expr in (op.body.args if pair and isinstance(op.body, Call) else [op.body])
    ]
    values = [value._replace(array=reader.rounding.terms(value.array, fold.share)) for value in values]
    state = fold.lift(values[0], position, values[-1])
    if op.where:
        inside = points.inside(op.where)
        state = tuple(np.where(inside, s, neutral) for s, neutral in zip(state, fold.identity(()), strict=True))
    return fold.reduce(tuple(np.broadcast_to(array, points.shape) for array in state), axes)


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
