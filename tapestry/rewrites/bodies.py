"""Bodies of operations, scalar expressions and blocks alike, with other tensors or other dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..expr import Affine, Expr, Read, rewrite, substitute
from ..program import Block

Body = Expr | Block


def over(body: Body, values: Mapping[str, Affine]) -> Body:
    """The body with index expressions in place of dimensions."""
    if isinstance(body, Block):
        return replace(body, reads=tuple(_read_over(read, values) for read in body.reads))
    return substitute(body, values)


def _read_over(read: Read, values: Mapping[str, Affine]) -> Read:
    guard = tuple(bound.substitute(values) for bound in read.guard)
    return Read(read.tensor, tuple(row.substitute(values) for row in read.index), guard, read.fill)


def reading(body: Body, instead: Mapping[str, str]) -> Body:
    """The body with other tensors read in place of some."""

    def moved(read: Read) -> Read:
        return replace(read, tensor=instead.get(read.tensor, read.tensor))

    return with_reads(body, moved)


def with_reads(body: Body, change: Callable[[Read], Read]) -> Body:
    """The body with each of its reads changed."""
    if isinstance(body, Block):
        return replace(body, reads=tuple(map(change, body.reads)))
    return rewrite(body, lambda node: change(node) if isinstance(node, Read) else node)
