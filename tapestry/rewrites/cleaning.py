"""Operations that need not be there: results that nobody reads, and the same result computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import tapestry as tp

from ..expr import Affine
from ..program import Operation, Program
from .bodies import over, reading
from .forms import kept, known_operation
from .rule import Change, rule


def _unread(*, n: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n,))
    _ = (x * x).named("unread")
    return {"y": x + 1}


def _twice(*, n: int = 4, m: int = 3, dtype: str = "f32") -> tp.Tensor:
    x = tp.input("x", dtype, (n, m))
    a, b = tp.abs(x), tp.abs(x)
    return a - tp.sum(b, 0)


@rule(example=_unread)
def dead_values(program: Program, op: Operation) -> Iterator[Change]:
    """Leave out an operation whose result nobody reads.

    before:
        unread[d0] = x[d0] * x[d0]
    after:
    legal: the result is no output, and no state becomes it
    """
    if not program.consumers[op.output] and not kept(program, op.output):
        yield Change(removed=(op.name,))


@rule(example=_twice)
def common_subexpressions(program: Program, op: Operation) -> Iterator[Change]:
    """Compute once what two operations compute alike, whatever they, their dimensions and constants are called.

    before:
        abs_1[d0, d1] = abs(x[d0, d1])
        sum[d1] = sum[d0] abs_1[d0, d1]
    after:
        sum[d1] = sum[d0] abs[d0, d1]
    legal: the same body over the same index space, written to the same places in the same dtype
    """
    for other in _beside(program, op):
        gone, stays = (other, op) if kept(program, op.output) else (op, other)
        if not kept(program, gone.output) and _signature(other, program) == _signature(op, program):
            yield Change((gone.name,), instead=((gone.output, stays.output),), made_of=(stays.name, gone.name))
            return


def _beside(program: Program, op: Operation) -> Iterator[Operation]:
    """The earlier operations that read what this one reads, as far as names tell."""
    own = [name for name in op.operands if program.tensor(name).role != "const"]
    near = program.consumers[own[0]] if own else program.operations
    for other in near:
        if other is op:
            return
        if known_operation(other) and len(other.operands) == len(op.operands):
            yield other


def _signature(op: Operation, program: Program) -> str:
    """All of an operation but names, as text: texts differ where numbers do, as 0.0 and -0.0, or 1 and True, do."""
    names = {dim.name: f"i{k}" for k, dim in enumerate(op.dims)}
    values = {name: Affine.dim(new) for name, new in names.items()}
    same = {name: _constant(program, name) for name in op.operands}
    output = program.tensor(op.output)
    plain = replace(
        op,
        name="", output="", group="", source="",
        dims=tuple(replace(dim, name=names[dim.name]) for dim in op.dims),
        write=tuple(row.substitute(values) for row in op.write),
        body=reading(over(op.body, values), same),
        reduce_dims=tuple(names[name] for name in op.reduce_dims),
        where=tuple(bound.substitute(values) for bound in op.where),
    )  # fmt: skip
    return repr((plain, output.dtype, output.shape))


def _constant(program: Program, name: str) -> str:
    """A name by which constants of the same values are one."""
    tensor = program.tensor(name)
    return name if tensor.data is None else repr((tensor.dtype, tensor.shape, tensor.data))
