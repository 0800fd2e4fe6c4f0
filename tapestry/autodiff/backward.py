"""From the operations of a trace to those of its gradient.

Operations are taken last to first. What arrives at a tensor from its readers is added up to its cotangent d_T; an
operation hands its own on to each tensor that it reads:

    Y[w(p)] = fold over p of body(T[f(p)], ...)
    d_T[e] += sum over p with f(p) = e of d_Y[w(p)] * (d fold / d body) * (d body / d T[f(p)])

`inversion` says which points those are, `scalar` differentiates the body, the monoid's entry its fold. The result is
operations like any others: planned, checked and run by what is there, and differentiated again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module

from ..arithmetic import explicit
from ..blocks import BLOCKS
from ..bounds import Ranges, escape
from ..dsl.tensor import unique_names
from ..dsl.trace import Trace
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import (
    MONOIDS,
    Affine,
    Bound,
    Call,
    Cast,
    Const,
    Expr,
    Inside,
    Monoid,
    Read,
    fold,
    reads,
    rewrite,
    substitute,
    with_children,
)
from ..expr.derivatives import FoldDerivative, call
from ..program import Block, Dim, Operation
from ..program import Tensor as TensorRecord
from ..records import over_records
from ..result_type import result_dtype
from .attention import Attended, attended, slopes
from .declared import shares
from .inversion import Inverse, invert
from .scalar import derivative, plus, times

Pieces = Callable[[Trace, Operation], "list[Operation]"]
Adjoint = Callable[[Trace, Operation, Read], "tuple[Operation, tuple[Expr, Expr]]"]


def cotangents(trace: Trace, operations: Sequence[Operation], loss: str, wanted: Iterable[str]) -> dict[str, str]:
    """Adds the operations that compute d loss / d T for each wanted tensor; the key of the result by the tensor's.

    ``operations`` are those between them, in order. The loss is one float; what it does not depend on gets zeros.
    """
    wanted = list(wanted)
    backward = _Backward(trace, _active(trace, operations, wanted))
    backward.arrived[loss] = [Const(1.0)]
    whole = {found.finish.output: found for found in _attentions(operations) if found.state.output not in wanted}
    for op in reversed(operations):
        if op.output in whole:
            backward.hand_on_attended(whole[op.output])
        else:
            backward.hand_on(op)
    return {key: backward.cotangent(key) for key in wanted}


def _active(trace: Trace, operations: Sequence[Operation], wanted: Iterable[str]) -> set[str]:
    """The float tensors that depend on what is wanted."""
    found = set(wanted)
    for op in operations:
        is_float = DTYPES[trace.dtypes[op.output]].kind == "float"
        if is_float and op.output not in trace.held and found & set(op.operands):
            found.add(op.output)
    return found


def _attentions(operations: Sequence[Operation]) -> Iterator[Attended]:
    """What is attention in full, the state of which nothing else reads."""
    made = {op.output: op for op in operations}
    readers = Counter(name for op in operations for name in set(op.operands))
    for op in operations:
        states = [name for name in set(op.operands) if name in made and readers[name] == 1]
        found = attended(made[states[0]], op) if len(states) == 1 == len(set(op.operands)) else None
        if found is not None:
            yield found


@dataclass
class _Backward:
    """The cotangents of one loss. What arrived at a tensor are expressions over its axes."""

    trace: Trace
    active: set[str]
    arrived: dict[str, list[Expr]] = field(default_factory=dict)
    _totals: dict[str, Expr] = field(default_factory=dict)

    def hand_on(self, op: Operation) -> None:
        """What arrived at an operation's result goes on to what it reads."""
        if op.output not in self.active or op.output not in self.arrived:
            return
        if not isinstance(op.body, Block):
            self._hand_on(op)
            return
        bodies = BLOCKS[op.body.kernel].bodies
        if bodies is not None and bodies.derivative is not None:
            for points, share, read in shares(self.trace, op, bodies, self.cotangent(op.output)):
                if read.tensor in self.active:
                    self._along(points, share, read)
            return
        pieces = _pieces(op)(self.trace, op)
        self.active |= {piece.output for piece in pieces}
        for piece in reversed(pieces):
            if piece.output in self.arrived:
                self._hand_on(piece, op.output)

    def hand_on_attended(self, found: Attended) -> None:
        """What arrived at the result of attention goes on to queries, keys and values."""
        output = found.finish.output
        if output in self.active and output in self.arrived and self.active & set(found.state.operands):
            for points, share, read in slopes(self.trace, found, self.cotangent(output)):
                if read.tensor in self.active:
                    self._along(points, share, read)

    def cotangent(self, key: str) -> str:
        """The tensor that adds up what arrived at one."""
        value, record = self._total(key), self.trace.tensors[key].record
        whole = tuple(map(Affine.dim, axis_names(record)))
        if isinstance(value, Read) and value.index == whole and not value.guard:
            other = self.trace.tensors[value.tensor].record
            if (other.shape, other.dtype) == (record.shape, record.dtype):
                return value.tensor
        return self._compute(key, _dims_of(record), value)

    def _total(self, key: str) -> Expr:
        """What arrived at a tensor, added up: one read over its axes, or one number."""
        if key not in self._totals:
            record = self.trace.tensors[key].record
            total: Expr | None = None
            for part in self.arrived.get(key) or [Const(0.0)]:
                total = plus(total, part)
            assert total is not None
            if not isinstance(total, Read | Const):
                total = Read(self._compute(key, _dims_of(record), total), tuple(map(Affine.dim, axis_names(record))))
            self._totals[key] = total
        return self._totals[key]

    # -- one operation -----------------------------------------------------------------------------------------------

    def _hand_on(self, op: Operation, constant: str = "") -> None:
        """What arrived at the result of an operation, along its reads of all tensors but a constant one."""
        assert not isinstance(op.body, Block)
        active = [read for read in op.reads if read.tensor in self.active and read.tensor != constant]
        if op.monoid is not None and MONOIDS[op.monoid].adjoint is not None:
            self._hand_on_scan(op, active, _adjoint(op.monoid))
            return
        # Conversions are written out first: 1 / n beside an f64 is not the 1 / n of integers, which is of 32 bits.
        body = explicit(op.body, self.trace.dtypes) if active else op.body
        slopes = [(read, slope) for read in active if (slope := derivative(body, read)) is not None]
        if slopes:
            record = self.trace.tensors[op.output].record
            arrived = substitute(self._total(op.output), dict(zip(axis_names(record), op.write, strict=True)))
            arrived = times(arrived, self._of_fold(op, op.body))
            for read, slope in slopes:
                self._along(op, times(arrived, self._with_result(op, slope)), read)

    def _hand_on_scan(self, op: Operation, active: Sequence[Read], adjoint: Adjoint) -> None:
        """What arrived at the results of a scan of pairs, along both values of each."""
        assert isinstance(op.body, Call)
        if not active:
            return
        record = self.trace.tensors[op.output].record
        arrived = substitute(self._total(op.output), dict(zip(axis_names(record), op.write, strict=True)))
        assert isinstance(arrived, Read)
        flat, values = adjoint(self.trace, op, arrived)
        body = explicit(op.body, self.trace.dtypes)
        assert isinstance(body, Call)
        for read in active:
            for value, part in zip(values, body.args, strict=True):
                slope = derivative(part, read)
                if slope is not None:
                    self._along(flat, times(value, slope), read)

    def _along(self, op: Operation, value: Expr, read: Read) -> None:
        """What one read hands on at each point, added up at the elements that are read."""
        record = self.trace.tensors[read.tensor].record
        renamed = _renamed(op, axis_names(record))
        dims = [replace(dim, name=renamed.get(dim.name, dim.name), cut=True) for dim in op.dims]
        names = {old: Affine.dim(new) for old, new in renamed.items()}
        rows = [row.substitute(names) for row in read.index]
        where = [bound.substitute(names) for bound in (*op.where, *read.guard)]
        inverse = invert(dims, rows, axis_names(record), record.shape, where)
        if inverse is not None:
            value = substitute(substitute(value, names), inverse.values)
            self.arrived.setdefault(read.tensor, []).append(self._gathered(read.tensor, record, value, inverse))

    def _with_result(self, op: Operation, slope: Expr) -> Expr:
        """The derivative with the stored result for the body itself: exp and tanh are not computed again.

        Only where nothing is lost when the result is stored.
        """
        if op.monoid is not None or isinstance(op.body, Read | Const | Block):
            return slope
        stored = self.trace.dtypes[op.output]
        if result_dtype(op.body, self.trace.dtypes) != stored or DTYPES[stored].compute != stored:
            return slope
        return _replaced(slope, op.body, Read(op.output, op.write))

    def _gathered(self, key: str, record: TensorRecord, value: Expr, inverse: Inverse) -> Expr:
        """The value added up over the points that read an element, as an expression over the element's axes."""
        value, inverse = self._guarded(record, value, inverse)
        if not inverse.dims:
            return _only(value, inverse.where)
        total = self._compute(key, [*_dims_of(record), *inverse.dims], value, inverse)
        return Read(total, tuple(map(Affine.dim, axis_names(record))))

    def _guarded(self, record: TensorRecord, value: Expr, inverse: Inverse) -> tuple[Expr, Inverse]:
        """Conditions on what arrived alone become guards of its read: a window of products, as a padded convolution is.

        Only where it is 0 beyond its guard, and where all other reads stay inside their tensors without the conditions.
        """
        factors = value.args if isinstance(value, Call) and value.function == "multiply" else (value,)
        arrived = factors[0]
        if not isinstance(arrived, Read) or arrived.fill:
            return value, inverse
        mine = frozenset[str]().union(*(row.dims for row in arrived.index))
        moved = tuple(bound for bound in inverse.where if bound.expr.dims <= mine)
        left = tuple(bound for bound in inverse.where if bound not in moved)
        ranges = {dim.name: (0, dim.extent) for dim in (*_dims_of(record), *inverse.dims)}
        others = [read for factor in factors[1:] for read in reads(factor)]
        if not moved or any(self._escapes(read, ranges, left) for read in others):
            return value, inverse
        held = replace(arrived, guard=(*arrived.guard, *moved))
        found = replace(value, args=(held, *factors[1:])) if isinstance(value, Call) and len(factors) > 1 else held
        return found, replace(inverse, where=left)

    def _escapes(self, read: Read, ranges: Ranges, where: tuple[Bound, ...]) -> bool:
        shape = self.trace.tensors[read.tensor].record.shape
        return escape(read.index, shape, ranges, (*where, *read.guard)) is not None

    def _compute(self, key: str, dims: Sequence[Dim], value: Expr, inverse: Inverse | None = None) -> str:
        draft = self.trace.tensors[key]
        result = self.trace.compute(
            "d_" + draft.hint.rpartition(".")[2],
            dims,
            value,
            reduce_dims=[dim.name for dim in inverse.dims] if inverse else (),
            monoid="sum" if inverse else None,
            where=inverse.where if inverse else (),
            dtype=draft.record.dtype,
            anonymous=True,
        )
        return result.key

    # -- folds -------------------------------------------------------------------------------------------------------

    def _of_fold(self, op: Operation, body: Expr) -> Expr:
        """The derivative of the result along the value at a point; helpers fold over the same points."""
        if op.monoid is None:
            return Const(1)
        monoid = MONOIDS[op.monoid]
        if monoid.slopes:
            return self._of_several(op, body, monoid)
        rule = monoid.derivative
        if rule is None:
            hint = "tp.stop_gradient(...) says that it is to count as a constant"
            raise UsageError(f"the fold {op.monoid} has no derivative", where=op.source, hint=hint)
        return self._by_rule(op, body, rule, {"y": Read(op.output, op.write)})

    def _of_several(self, op: Operation, body: Expr, monoid: Monoid) -> Expr:
        """The derivative of that of several results which stands at the place of the point."""
        along, names = Affine.dim(op.record_dim or ""), [component.name for component in monoid.components]
        results = {f"r.{name}": Read(op.output, (*op.write[:-1], Affine.of(k))) for k, name in enumerate(names)}
        found: Expr = Const(0.0)
        for k, (name, rule) in reversed(list(enumerate(zip(names, monoid.slopes, strict=True)))):
            part = self._by_rule(over_records(op), body, rule, {**results, "y": results[f"r.{name}"]})
            found = call("where", Inside((Bound(along, k, k + 1),)), part, found)
        return found

    def _by_rule(self, op: Operation, body: Expr, rule: FoldDerivative, at: dict[str, Expr]) -> Expr:
        stored = self.trace.dtypes[op.output]
        exact = isinstance(body, Read) and self.trace.dtypes[body.tensor] == stored
        at = {**at, "x": body if exact else Cast(stored, body)}
        for name, monoid, folded in rule.helpers:
            at[name] = Read(self._helper(op, monoid, _filled(folded, at), f"{op.monoid}_{name}"), op.write)
        return _filled(rule.partial, at)

    def _helper(self, op: Operation, monoid: str, value: Expr, name: str) -> str:
        result = self.trace.compute(
            name, op.dims, value, reduce_dims=op.reduce_dims, monoid=monoid, where=op.where,
            dtype=self.trace.dtypes[op.output] if self.trace.dtypes[op.output] == "f64" else "f32", anonymous=True,
        )  # fmt: skip
        return result.key


def _filled(expr: Expr, at: Mapping[str, Expr]) -> Expr:
    """The expression of a monoid's entry with what its names stand for."""
    return rewrite(expr, lambda node: at[node.tensor] if isinstance(node, Read) else node)


def _replaced(expr: Expr, part: Expr, by: Expr) -> Expr:
    """The expression with something else for a part of it."""
    return fold(expr, lambda node, args: by if node == part else with_children(node, args))


def _adjoint(monoid: str) -> Adjoint:
    """The derivative of the scans of a monoid."""
    module, _, name = (MONOIDS[monoid].adjoint or "").partition(":")
    found: Adjoint = getattr(import_module(module), name)
    return found


def _pieces(op: Operation) -> Pieces:
    """What a block operation computes, as operations that differentiate; UsageError where its entry has none."""
    assert isinstance(op.body, Block)
    entry = BLOCKS[op.body.kernel]
    if entry.pieces is None:
        hint = "give its declaration a derivative (tapestry.block), or hold it constant: tp.stop_gradient(...)"
        raise UsageError(f"the block kernel {entry.name} has no derivative", where=op.source, hint=hint)
    module, _, name = entry.pieces.partition(":")
    found: Pieces = getattr(import_module(module), name)
    return found


def axis_names(record: TensorRecord) -> tuple[str, ...]:
    """The names of the axes as those of dimensions: an axis without a name is called by its number."""
    return unique_names(tuple(axis if axis.isidentifier() else f"d{axis}" for axis in record.axes))


def _dims_of(record: TensorRecord) -> list[Dim]:
    return [Dim(axis, extent) for axis, extent in zip(axis_names(record), record.shape, strict=True)]


def _renamed(op: Operation, axes: Sequence[str]) -> dict[str, str]:
    """New names for dimensions of an operation that are called like an axis of the tensor it reads."""
    taken = {*axes, *op.extents}
    found: dict[str, str] = {}
    for name in op.extents:
        if name in axes:
            found[name] = next(f"{name}{n}" for n in range(1, len(taken) + 2) if f"{name}{n}" not in taken)
            taken.add(found[name])
    return found


def _only(value: Expr, where: tuple[Bound, ...]) -> Expr:
    """The value where the conditions hold, and 0 elsewhere, where nothing is read."""
    if not where:
        return value

    def leaf(node: Expr) -> Expr:
        return replace(node, guard=(*node.guard, *where)) if isinstance(node, Read) else node

    guarded = rewrite(value, leaf)
    return (
        guarded if isinstance(guarded, Read) and not guarded.fill else call("where", Inside(where), guarded, Const(0.0))
    )
