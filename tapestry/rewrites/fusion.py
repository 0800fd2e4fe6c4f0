"""Operations written into those that read them, so that what lies between never reaches memory.

An operation has one body, folded by one monoid: what comes before a fold can be written into it, what comes after it
cannot.
"""

from __future__ import annotations

from collections.abc import Iterator

import tapestry as tp

from ..program import Block, Operation, Program
from .forms import kept, known_operation
from .inlining import is_view, readers_through
from .rule import Change, rule


def _viewed(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    x = tp.input("x", dtype, (n, m), axes=("n", "m"))
    padded = tp.pad(tp.transpose(x), ((1, 0), (0, 0)), value=2).named("padded")
    return tp.sum(padded, 1)


def _chained(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    x, b = tp.input("x", dtype, (n, m), axes=("n", "m")), tp.input("b", dtype, (m,), axes=("m",))
    shifted = (x + b).named("shifted")
    return tp.abs(tp.pad(shifted, ((1, 0), (0, 0)), value=3)).named("y")


def _shared(*, n: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n,), axes=("n",))
    doubled = (x * 2).named("doubled")
    return {"y": doubled + 1, "z": tp.max(doubled)}


@rule(example=_viewed)
def compose_views(program: Program, op: Operation) -> Iterator[Change]:
    """Read what a view shows where it is: its index expressions over those of every read of it.

    before:
        padded[m, n] = (x[n, m - 1] if 0 <= m - 1 else 2)
        out[m] = sum[n] padded[m, n]
    after:
        out[m] = sum[n] (x[n, m - 1] if 0 <= m - 1 else 2)
    legal: the view writes each element once; a guard stays with its fill
    """
    if not isinstance(op.body, Block) and is_view(op.body):
        yield from _into_all(program, op)


@rule(example=_chained)
def fuse_pointwise(program: Program, op: Operation) -> Iterator[Change]:
    """Compute an element where the one operation that reads it needs it.

    before:
        shifted[n, m] = x[n, m] + b[m]
        y[n, m] = abs((shifted[n - 1, m] if 0 <= n - 1 else 3))
    after:
        y[n, m] = abs(where([0 <= n - 1], (x[n - 1, m] if 0 <= n - 1 else 0) + b[m], 3))
    legal: no fold, each element written once; what was rounded is rounded, what a guard left out is its fill
    """
    if not isinstance(op.body, Block) and not is_view(op.body) and len(program.consumers[op.output]) == 1:
        yield from _into_all(program, op)


@rule(example=_shared)
def fuse_into_all(program: Program, op: Operation) -> Iterator[Change]:
    """Compute an element in each of several operations that read it, instead of keeping it for them.

    before:
        doubled[n] = x[n] * 2
        y[n] = doubled[n] + 1
        z[] = max[n] doubled[n]
    after:
        y[n] = x[n] * 2 + 1
        z[] = max[n] x[n] * 2
    legal: as for one reader
    """
    if not isinstance(op.body, Block) and not is_view(op.body) and len(program.consumers[op.output]) > 1:
        yield from _into_all(program, op)


@rule(example=_shared)
def recompute(program: Program, op: Operation) -> Iterator[Change]:
    """Compute an element once more in one of the operations that read it; the others go on reading it.

    before:
        y[n] = doubled[n] + 1
    after:
        y[n] = x[n] * 2 + 1
    legal: as for one reader
    """
    if len(program.consumers[op.output]) > 1 or kept(program, op.output):
        for reader, fused in readers_through(program, op):
            if fused is not None and known_operation(reader):
                yield Change((reader.name,), (fused,), made_of=(op.name, reader.name))


def _into_all(program: Program, op: Operation) -> Iterator[Change]:
    """The operation written into all that read it, and gone."""
    if kept(program, op.output) or not all(map(known_operation, program.consumers[op.output])):
        return
    fused = []
    for _, into in readers_through(program, op):
        if into is None:
            return
        fused.append(into)
    if fused:
        yield Change((op.name, *(one.name for one in fused)), tuple(fused))
