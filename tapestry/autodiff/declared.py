"""Block operations of one's own, differentiated by what their declaration says (`tapestry.block`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..blocks import Bodies
from ..dsl.tensor import Tensor, base_at
from ..dsl.trace import Trace
from ..errors import UsageError
from ..expr import Affine, Read, depends_on, substitute
from ..program import Block, Operation


def shares(trace: Trace, op: Operation, bodies: Bodies, arrived: str) -> Iterator[tuple[Operation, Read, Read]]:
    """For every operand that has a cotangent: the points it is read at, its cotangent at each of them, the read.

    ``arrived`` is the tensor that holds the cotangent of the result. UsageError where the declaration gives something
    else than it should.
    """
    assert isinstance(op.body, Block)
    assert bodies.derivative is not None
    operands = [_operand(trace, op, read) for read in op.body.reads]
    record = trace.tensors[arrived].record
    given = Tensor(trace, record.shape, record.dtype, trace.tensors[op.output].record.axes, base_at(arrived), arrived)
    found = bodies.derivative(given, *operands, **op.body.attrs)
    listed = list(found) if isinstance(found, Sequence) else [found]
    for operand, share, read in zip(operands, _demanded(op, operands, listed), op.body.reads, strict=True):
        if share is not None:
            dims = tuple(dim for dim in op.dims if dim.name in operand.axes)
            held = Read(trace.materialise(share).key, tuple(Affine.dim(dim.name) for dim in dims))
            yield replace(op, dims=dims, reduce_dims=(), monoid=None), held, read


def _operand(trace: Trace, op: Operation, read: Read) -> Tensor:
    """What a kernel gets of an operand, as a view with the dimensions that it depends on for its axes."""
    own = depends_on(read)
    names = tuple(dim.name for dim in op.dims if dim.name in own)

    def at(index: tuple[Affine, ...]) -> Read:
        found = substitute(read, dict(zip(names, index, strict=True)))
        assert isinstance(found, Read)
        return found

    return Tensor(trace, tuple(op.extents[name] for name in names), trace.dtypes[read.tensor], names, at)


def _demanded(op: Operation, operands: Sequence[Tensor], found: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """One cotangent or None an operand, of its shape. UsageError otherwise."""
    assert isinstance(op.body, Block)
    wanted = [operand.shape for operand in operands]
    given = [None if share is None else share.shape for share in found]
    if len(given) != len(wanted) or any(g not in (None, w) for g, w in zip(given, wanted, strict=True)):
        sides = {"operands": ", ".join(map(str, wanted)), "derivative": ", ".join(map(str, given))}
        raise UsageError(f"the derivative of {op.body.kernel} gives other shapes", where=op.source, sides=sides)
    return found
