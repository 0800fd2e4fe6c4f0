"""Dimensions of operations that are one thing, as tokens are: carried from one to the next by the tensors between.

A dimension is carried where a read or write row is that dimension alone.
"""

from __future__ import annotations

from ...program import Program

Carried = frozenset[tuple[str, str]]
"""(operation, dimension) pairs."""


def carried(program: Program) -> list[Carried]:
    """The dimensions of all operations, those together that are carried to one another, in program order.

    >>> import tapestry as tp
    >>> @tp.program
    ... def net(x: tp.f32[tp.Tensor, "n c"], w: tp.param[tp.f32[tp.Tensor, "c k"]]) -> tp.Tensor:
    ...     return tp.softmax(tp.einsum("nc,ck->nk", x, w, name="y"))
    >>> [sorted(together)[-1] for together in carried(net.bind(n=2, c=3, k=4))]
    [('y', 'n'), ('y', 'k'), ('y', 'c')]
    """
    whole: dict[tuple[str, str], set[tuple[str, str]]] = {}  # by (operation, dimension) all that are one with it
    along: dict[tuple[str, int], tuple[str, str]] = {}  # by axis of a tensor one of those that go along it
    for op in program.operations:
        for dim in op.dims:
            mine = op.name, dim.name
            whole[mine] = {mine}
        for tensor, rows in ((op.output, op.write), *((read.tensor, read.index) for read in op.reads)):
            for axis, row in enumerate(rows):
                if not row.const and len(row.terms) == 1 and isinstance(row.terms[0][0], str) and row.terms[0][1] == 1:
                    mine = op.name, row.terms[0][0]
                    _join(whole, along.setdefault((tensor, axis), mine), mine)
    return [frozenset(together) for together in {id(some): some for some in whole.values()}.values()]


def _join(whole: dict[tuple[str, str], set[tuple[str, str]]], one: tuple[str, str], other: tuple[str, str]) -> None:
    """Makes one of what two are each part of."""
    larger, smaller = whole[one], whole[other]
    if larger is smaller:
        return
    if len(larger) < len(smaller):
        larger, smaller = smaller, larger
    larger.update(smaller)
    whole.update(dict.fromkeys(smaller, larger))


def zigzag_dims(program: Program) -> Carried:
    """What a causal operation's dimensions are carried to: the cut that balances causal attention is offered to the
    operations around it.
    """
    bounded = {(op.name, dim) for op in program.operations for bound in op.where for dim in bound.expr.dims}
    if not bounded:
        return frozenset()
    return frozenset(pair for together in carried(program) if together & bounded for pair in together)
