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
    edges: dict[tuple[str, str], dict[tuple[str, str], None]] = {}

    def join(a: tuple[str, str], b: tuple[str, str]) -> None:
        edges.setdefault(a, {})[b] = None
        edges.setdefault(b, {})[a] = None

    starts = [(f"op {op.name}", dim.name) for op in program.operations for dim in op.dims]
    for op in program.operations:
        rows = [(op.output, axis, row) for axis, row in enumerate(op.write)]
        rows += [(read.tensor, axis, row) for read in op.reads for axis, row in enumerate(read.index)]
        for tensor, axis, row in rows:
            if not row.const and len(row.terms) == 1 and isinstance(row.terms[0][0], str) and row.terms[0][1] == 1:
                join((f"op {op.name}", row.terms[0][0]), (f"tensor {tensor}", str(axis)))
    found: list[Carried] = []
    seen: set[tuple[str, str]] = set()
    for start in starts:
        if start in seen:
            continue
        reached, frontier = {start}, [start]
        while frontier:
            new = [beside for beside in edges.get(frontier.pop(), {}) if beside not in reached]
            reached.update(new)
            frontier += new
        seen |= reached
        found.append(frozenset((name.removeprefix("op "), d) for name, d in reached if name.startswith("op ")))
    return found


def zigzag_dims(program: Program) -> Carried:
    """What a causal operation's dimensions are carried to: the cut that balances causal attention is offered to the
    operations around it.
    """
    bounded = {(op.name, dim) for op in program.operations for bound in op.where for dim in bound.expr.dims}
    return frozenset(pair for together in carried(program) if together & bounded for pair in together)
