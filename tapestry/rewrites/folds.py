"""Folds as rules see them: what a part of one is, the factors of what is summed, one fold written into another.

t[i] = sum[k] f(i, k)      c[j] * t[2*j]  is  sum[k] c[j] * f(2*j, k)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ..autodiff.inversion import invert
from ..dtypes import DTYPES
from ..expr import FUNCTIONS, MONOIDS, Affine, Bound, Call, Const, Expr, Read, depends_on, reads, substitute
from ..expr.monoids import accumulator_dtype
from ..program import Block, Dim, Operation, Program, Tensor
from ..result_type import result_dtype
from .drafts import drafted, fresh_dims, read_of, simple
from .forms import kept, known_operation


def folds_values(op: Operation) -> bool:
    """Whether what is folded are plain values, in any grouping and order, so that a part of a fold is one again."""
    return op.monoid is not None and MONOIDS[op.monoid].function is not None and not MONOIDS[op.monoid].ordered


def partial_dtype(program: Program, op: Operation, body: Expr) -> str:
    """The dtype of a part of a fold of ``body``: that of its accumulator where values enter it unrounded."""
    assert op.monoid is not None
    component = MONOIDS[op.monoid].components[0]
    stored = program.tensor(op.output).dtype
    value = result_dtype(body, {name: program.tensor(name).dtype for name in program.by_name})
    return accumulator_dtype(value, stored) if component.unrounded else component.dtype_for(value, stored)


def is_sum(op: Operation) -> bool:
    """Whether an operation adds up values of an expression, over a domain that is no scan's and no lookup's."""
    plain = op.monoid is not None and MONOIDS[op.monoid].matrix and not isinstance(op.body, Block)
    return plain and op.scan is None and not op.selections


@dataclass(frozen=True)
class Factor:
    """One factor of a product, or what it is divided by."""

    expr: Expr
    divides: bool = False

    @property
    def dims(self) -> frozenset[str]:
        return depends_on(self.expr)


def factors_of(body: Expr) -> list[Factor]:
    """The factors of a product, in order; any other expression is one factor."""
    if isinstance(body, Call) and FUNCTIONS[body.function].matrix == "product":
        return [factor for arg in body.args for factor in factors_of(arg)]
    if isinstance(body, Call) and body.function == "divide":
        return [*factors_of(body.args[0]), Factor(body.args[1], divides=True)]
    return [Factor(body)]


def product_of(factors: Sequence[Factor]) -> Expr:
    """The product of at least one factor."""
    first = Call("divide", (Const(1), factors[0].expr)) if factors[0].divides else factors[0].expr
    return reduce(
        lambda so_far, factor: Call("divide" if factor.divides else "multiply", (so_far, factor.expr)),
        factors[1:],
        first,
    )


def inside(program: Program, op: Operation) -> bool:
    """Whether every read stays inside its tensor whatever the domain of the operation leaves out."""
    ranges = {dim.name: (0, dim.extent) for dim in op.dims}
    return not op.where or all(
        read.guard or all(lo >= 0 and hi <= n for (lo, hi), n in zip(_reach(read, ranges), shape, strict=True))
        for read in op.reads
        for shape in [program.tensor(read.tensor).shape]
    )


def _reach(read: Read, ranges: Mapping[str, tuple[int, int]]) -> Iterable[tuple[int, int]]:
    return (row.bounds(ranges) for row in read.index)


def factored(
    program: Program, op: Operation, over: frozenset[str], what: str, dtype: str | None = None
) -> tuple[Operation, Operation, Tensor] | None:
    """A sum of products as the sum of those factors that depend on ``over``, a part of its folded dimensions, times the
    others: the inner sum, the operation that reads it, and the tensor between them.

    None where no factor can be taken out, or the inner sum would have to add up what depends on nothing.
    """
    assert not isinstance(op.body, Block)
    factors = factors_of(op.body)
    mine = [factor for factor in factors if factor.dims & over]
    if not mine or len(mine) == len(factors) or not inside(program, op):
        return None
    left = [name for name in op.reduce_dims if name not in over]
    within = [bound for bound in op.where if not left or bound.expr.dims & over]
    needed = over.union(*(factor.dims for factor in mine), *(bound.expr.dims for bound in within))
    body = product_of(mine)
    inner, between = drafted(
        program, op, what, _as_read(op, mine, needed, over), body,
        dtype or partial_dtype(program, op, body),
        reduce_dims=[name for name in op.reduce_dims if name in over], monoid=op.monoid, where=tuple(within),
    )  # fmt: skip
    at = factors.index(mine[0])
    rest = [factor for factor in factors if factor not in mine]
    before = sum(1 for factor in factors[:at] if factor in rest)
    outer = replace(
        op,
        dims=tuple(dim for dim in op.dims if dim.name not in over),
        body=product_of([*rest[:before], Factor(read_of(between)), *rest[before:]]),
        reduce_dims=tuple(left),
        monoid=op.monoid if left else None,
        where=tuple(bound for bound in op.where if bound not in within),
    )
    return inner, outer, between


def _as_read(op: Operation, factors: Sequence[Factor], needed: frozenset[str], over: frozenset[str]) -> list[Dim]:
    """The needed dimensions: what stays in the order in which the factors read it, then what is folded ``over``."""
    rows = [row for factor in factors for read in reads(factor.expr) for row in read.index]
    seen = list(dict.fromkeys(name for row in rows for name in sorted(row.dims)))
    places = {name: k for k, name in enumerate(seen)}
    found = sorted(op.dims, key=lambda dim: (dim.name in over, places.get(dim.name, len(seen))))
    return [dim for dim in found if dim.name in needed]


@dataclass(frozen=True)
class Folded:
    """A fold, as the value of each element that it writes: its body by the element's index, and what it folds over."""

    op: Operation
    axes: tuple[str, ...]
    values: Mapping[str, Affine]

    @staticmethod
    def of(program: Program, op: Operation) -> Folded | None:
        """None for what is no fold or known by its form, and for writes that are not undone by index expressions."""
        plain = op.monoid is not None and not isinstance(op.body, Block) and op.scan is None and not op.selections
        if not plain or not known_operation(op) or not inside(program, op):
            return None
        shape = program.tensor(op.output).shape
        axes = tuple(f"'{k}" for k in range(len(shape)))
        kept_dims = [dim for dim in op.dims if dim.name not in op.reduce_dims]
        found = invert(kept_dims, op.write, axes, shape)
        if found is None or found.where or any(dim.extent > 1 for dim in found.dims):
            return None
        single = {dim.name: Affine() for dim in found.dims}
        return Folded(op, axes, {name: value.substitute(single) for name, value in found.values.items()} | single)

    def at(self, read: Read, taken: Iterable[str]) -> tuple[tuple[Dim, ...], Expr, tuple[Bound, ...]]:
        """Dimensions, not named as those taken, body and domain of the fold that an unguarded read finds."""
        assert not isinstance(self.op.body, Block)
        place = dict(zip(self.axes, read.index, strict=True))
        names = dict(zip(self.op.reduce_dims, fresh_dims(self.op.reduce_dims, taken), strict=True))
        values = {name: value.substitute(place) for name, value in self.values.items()}
        values |= {old: Affine.dim(new) for old, new in names.items()}
        dims = tuple(replace(self.op.dim(old), name=new) for old, new in names.items())
        where = tuple(bound.substitute(values) for bound in self.op.where)
        return dims, substitute(self.op.body, values), where


def only_read_by(program: Program, maker: Operation, reader: Operation) -> bool:
    """Whether a result is read by one operation alone, once, without a guard, and is not seen from outside."""
    reads = [read for read in reader.reads if read.tensor == maker.output]
    alone = program.consumers[maker.output] == (reader,) and not kept(program, maker.output)
    return alone and len(reads) == 1 and not reads[0].guard


def alike(program: Program, maker: Operation, reader: Operation) -> bool:
    """Whether values are kept by both alike: integers wrap at the same width, floats are floats."""
    mine, theirs = (program.tensor(op.output).dtype for op in (maker, reader))
    return mine == theirs or {DTYPES[mine].kind, DTYPES[theirs].kind} == {"float"}


def distributed(program: Program, maker: Operation, reader: Operation) -> Operation | None:
    """The sum of ``maker``, a factor of what ``reader`` computes or adds up, drawn around all factors."""
    found = Folded.of(program, maker) if is_sum(maker) else None
    single = reader.monoid is None and not reader.where
    if isinstance(reader.body, Block) or not (single or is_sum(reader)) or found is None:
        return None
    if not only_read_by(program, maker, reader) or not alike(program, maker, reader):
        return None
    factors = factors_of(reader.body)
    at = [k for k, factor in enumerate(factors) if isinstance(factor.expr, Read) and factor.expr.tensor == maker.output]
    if len(at) != 1 or factors[at[0]].divides or (len(factors) == 1 and single):
        return None
    read = factors[at[0]].expr
    assert isinstance(read, Read)
    dims, body, where = found.at(read, reader.extents)
    inner = factors_of(body)
    names = tuple(dim.name for dim in dims)
    return simple(
        program,
        replace(
            reader,
            dims=(*reader.dims, *dims),
            body=product_of([*factors[: at[0]], *inner, *factors[at[0] + 1 :]]),
            reduce_dims=(*reader.reduce_dims, *names),
            monoid=maker.monoid,
            where=(*reader.where, *where),
        ),
    )
