"""The ways people shard by hand, as pins: data parallel, Megatron, sequence and context parallel, FSDP.

Each is entered in the planner's own terms and priced by the same simulator, so that a comparison is one of decisions
alone. The rules look at structure (which dimensions are batch, token, head or hidden), not at names of layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...program import Operation, Pin, PinKind, Program

AXIS = "mesh0"


@dataclass(frozen=True)
class Rival:
    """A named set of pins over a mesh of one axis."""

    name: str
    pins: tuple[Pin, ...]


def rivals(program: Program) -> Iterator[Rival]:
    """Every hand-made sharding that the program's structure admits."""
    leading = carried(program, _leading_axis(program))
    weights = "replicated"
    yield Rival("data parallel", (*_along(program, leading, "block"), *_params(program, weights)))
    yield Rival("FSDP", (*_along(program, leading, "block"), *_params(program, "cut")))
    if any(op.where for op in program.operations):
        yield Rival("context parallel, contiguous", (*_along(program, leading, "block"), *_params(program, weights)))
        yield Rival("context parallel, zigzag", (*_along(program, leading, "zigzag"), *_params(program, weights)))
        yield Rival("FSDP, zigzag", (*_along(program, leading, "zigzag"), *_params(program, "cut")))
    inner = hidden(program, leading)
    if inner:
        yield Rival("Megatron", tuple(_megatron(program, inner, {})))
        yield Rival("Megatron with sequence parallelism", tuple(_megatron(program, inner, leading)))


def _leading_axis(program: Program) -> tuple[str, str]:
    first = program.of_role("input")[0]
    return (f"tensor {first.name}", "0")


def carried(program: Program, start: tuple[str, str]) -> dict[str, str]:
    """Operation -> its dimension that an axis of a tensor is carried to, through plain rows, in program order.

    A dimension is carried from an operand to the result; a reduction ends it; keys of attention are not carried.
    """
    axes: dict[str, int] = {start[0].removeprefix("tensor "): int(start[1])}
    found: dict[str, str] = {}
    for op in program.operations:
        for read in op.reads:
            if op.name in found or read.tensor not in axes:
                continue
            row = read.index[axes[read.tensor]]
            name = next((n for n in op.parallel_dims if row.coefficient(n) and op.dim(n).cut), None)
            if name is not None:
                found[op.name] = name
        if op.name in found:
            axes[op.output] = next(k for k, row in enumerate(op.write) if row.coefficient(found[op.name]))
    return found


def hidden(program: Program, leading: dict[str, str]) -> dict[str, str]:
    """Operation -> the dimension Megatron cuts: the new output dimension of a product with a weight, carried on to the
    product that folds it."""
    params = {t.name for t in program.of_role("param")}
    made: dict[str, int] = {}
    found: dict[str, str] = {}
    for op in program.operations:
        source = next((read for read in op.reads if read.tensor in made), None)
        if source is not None:
            dim = _row_dim(op, source.index[made[source.tensor]].dims)
            if dim is None:
                continue
            found[op.name] = dim
            axis = _written_axis(op, dim)
            if axis is not None:
                made[op.output] = axis
        elif _is_product(op) and any(name in params for name in op.operands):
            new = _new_dim(op, params, leading.get(op.name))
            if new is not None and _folds_later(program, op, new):
                found[op.name] = new
                axis = _written_axis(op, new)
                assert axis is not None
                made[op.output] = axis
    return found


def _row_dim(op: Operation, names: frozenset[str]) -> str | None:
    return next((d.name for d in op.dims if d.name in names and d.cut), None)


def _is_product(op: Operation) -> bool:
    return op.factors is not None and len(op.operands) == 2


def _new_dim(op: Operation, params: set[str], leading: str | None) -> str | None:
    """The first output dimension that only the weight has."""
    seen = {n for read in op.reads if read.tensor not in params for row in read.index for n in row.dims}
    return next((d for d in op.parallel_dims if d not in seen and d != leading and op.extents[d] > 1), None)


def _written_axis(op: Operation, dim: str) -> int | None:
    return next((k for k, row in enumerate(op.write) if row.coefficient(dim)), None)


def _folds_later(program: Program, op: Operation, dim: str) -> bool:
    """Whether some later product with a weight folds the dimension: only then does cutting it pair up."""
    axis = _written_axis(op, dim)
    reached = {op.output: axis}
    for later in program.operations[program.operations.index(op) + 1 :]:
        for read in later.reads:
            known = reached.get(read.tensor)
            if known is None:
                continue
            name = _row_dim(later, read.index[known].dims)
            if name is None:
                continue
            if name in later.reduce_dims:
                return _is_product(later)
            reached.setdefault(later.output, _written_axis(later, name))
    return False


def _along(program: Program, dims: dict[str, str], kind: PinKind) -> Iterator[Pin]:
    for op in program.operations:
        yield Pin("op", op.name, ((AXIS, dims.get(op.name)),), kind if op.name in dims else "block")
    for tensor in program.of_role("input"):
        yield Pin("tensor", tensor.name, ((AXIS, tensor.axes[0]),), kind)


def _params(program: Program, where: str) -> Iterator[Pin]:
    """Weights whole on every rank, or cut along their longest axis."""
    for tensor in program.of_role("param"):
        longest = max(range(len(tensor.shape)), key=lambda k: tensor.shape[k], default=None)
        axis = None if where == "replicated" or longest is None else tensor.axes[longest]
        yield Pin("tensor", tensor.name, ((AXIS, axis),))


def _megatron(program: Program, inner: dict[str, str], outside: dict[str, str]) -> Iterator[Pin]:
    """Hidden dimensions cut; everything else replicated, or along ``outside``; weights where they are used.

    Inputs start in one copy, as for every plan: where they are wanted whole, that costs a gather.
    """
    for op in program.operations:
        yield Pin("op", op.name, ((AXIS, inner.get(op.name, outside.get(op.name))),))
    for tensor in program.of_role("input") if outside else ():
        yield Pin("tensor", tensor.name, ((AXIS, tensor.axes[0]),))
