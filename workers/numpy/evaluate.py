"""Scalar expressions over a box, compiled to NumPy calls on strided views and reused scratch arrays.

A `Compiler` walks an expression once and leaves a `Kernel`: leaves (views over the whole box, 1 long along
dimensions that do not matter) and steps (function, inputs, output). `Kernel.at` runs the steps on one slab of the box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dtypes import name_of, numpy_dtype
from ...expr import (
    FUNCTIONS,
    Affine,
    Bound,
    Call,
    Cast,
    Const,
    Expr,
    Floor,
    IndexValue,
    Inside,
    Numbering,
    Read,
    Table,
    children_first,
)
from ..device import Stored
from . import folding
from .calls import copy_into, lookup, take_from, truth_into, value_of, where_stored
from .folding import (
    BOOL,
    DOUBLE,
    INT,
    SINGLE,
    Array,
    Scalar,
    compute_dtype,
    fold_numbers,
    result_in,
    round_into,
    scalar,
    together,
)
from .scratch import Scratch
from .views import Slices, position_table, slab_shape, strided, within

Spans = tuple[bool, ...]


@dataclass(frozen=True)
class Slot:
    """An array that a kernel works on: which dimensions it spans, and its element type. Scalars live outside."""

    number: int
    spans: Spans
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Step:
    compute: Callable[..., Any]
    inputs: tuple[Slot | Scalar, ...]
    output: Slot


@dataclass
class Kernel:
    """Leaves and steps; ``result`` is where the value is after the steps (a plain number if it is constant)."""

    leaves: dict[int, Array] = field(default_factory=dict)
    temps: dict[int, Slot] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    result: Slot | Scalar = 0
    _shapes: dict[tuple[int, ...], dict[int, Array]] = field(default_factory=dict)

    def prepare(self, shapes: set[tuple[int, ...]], scratch: Scratch) -> None:
        """Take scratch arrays for the largest slab; smaller ones use a part of the same memory."""
        largest = tuple(map(max, zip(*shapes, strict=True))) if shapes else ()
        base = {n: scratch.take(spanned(largest, slot.spans), slot.dtype) for n, slot in self.temps.items()}
        for shape in shapes:
            self._shapes[shape] = {n: _shrunk(array, shape, self.temps[n].spans) for n, array in base.items()}

    def at(self, slab: Slices) -> Array | Scalar:
        """Run the steps on a slab; the value broadcasts to it. Valid until the next call."""
        registers = dict(self._shapes[slab_shape(slab)])
        for number, leaf in self.leaves.items():
            registers[number] = within(leaf, slab)
        for step in self.steps:
            args = [registers[i.number] if isinstance(i, Slot) else i for i in step.inputs]
            step.compute(*args, out=registers[step.output.number])
        return registers[self.result.number] if isinstance(self.result, Slot) else self.result


def spanned(shape: Sequence[int], spans: Spans) -> tuple[int, ...]:
    return tuple(n if spans_axis else 1 for n, spans_axis in zip(shape, spans, strict=True))


def _shrunk(base: Array, shape: tuple[int, ...], spans: Spans) -> Array:
    wanted = spanned(shape, spans)
    if wanted == base.shape:
        return base
    count = int(np.prod(wanted))
    return base.reshape(-1)[:count].reshape(wanted)


class Compiler:
    """Builds one kernel over the box ``dims``. Every function computes in the widest type of its arguments."""

    def __init__(
        self,
        dims: Sequence[tuple[str, int]],
        stored: Mapping[str, Stored],
        where: tuple[Bound, ...] = (),
        *,
        lenient: bool = False,
    ) -> None:
        self.lenient = lenient
        self.dims, self.stored, self.where = tuple(dims), stored, where
        self.ranges = {name: (0, extent) for name, extent in self.dims}
        self.kernel = Kernel()
        self._memo: dict[int | str, Slot | Scalar] = {}
        self._numbering = Numbering()
        self._uses: dict[int, int] = {}
        self._free: list[Slot] = []
        self._next = 0

    # -- results -------------------------------------------------------------------------------------------------

    def finish(self, expr: Expr, out: Array | None = None, *, cast: np.dtype[Any] | None = None) -> Kernel:
        """Compile; the value lands in ``out`` (rounded once), or stays where it is, as ``cast`` if given."""
        value = self.value(expr)
        if out is not None:
            self._land(value, out)
        elif cast is not None:
            self.kernel.result = (
                value if isinstance(value, Slot) and value.dtype == cast else self.converted(value, cast)
            )
        else:
            self.kernel.result = value
        return self.kernel

    def _land(self, value: Slot | Scalar, out: Array) -> None:
        """Let the last step write straight into ``out`` where that is the same computation, else copy."""
        target = self.leaf(out)
        last = self.kernel.steps[-1] if self.kernel.steps else None
        if (
            isinstance(value, Slot)
            and last is not None
            and last.output == value
            and value.number in self.kernel.temps
            and value.dtype == out.dtype
            and value.spans == target.spans
            and (isinstance(last.compute, np.ufunc) or not self._read_from(out))
        ):
            self.kernel.steps[-1] = Step(last.compute, last.inputs, target)
            if all(value not in (*s.inputs, s.output) for s in self.kernel.steps):
                del self.kernel.temps[value.number]
        else:
            self.kernel.steps.append(Step(round_into, (value,), target))
        self.kernel.result = target

    def _read_from(self, out: Array) -> bool:
        """Whether operands may lie where the result goes: ufuncs read before they write, other bodies may not."""
        return any(np.may_share_memory(held.array, out) for held in self.stored.values())

    # -- slots ---------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._next += 1
        return self._next

    def leaf(self, array: Array) -> Slot:
        slot = Slot(self._number(), tuple(n > 1 for n in array.shape), array.dtype)
        self.kernel.leaves[slot.number] = array
        return slot

    def temp(self, spans: Spans, dtype: np.dtype[Any]) -> Slot:
        for slot in self._free:
            if slot.spans == spans and slot.dtype == dtype:
                self._free.remove(slot)
                self._uses.pop(slot.number, None)
                return slot
        slot = Slot(self._number(), spans, dtype)
        self.kernel.temps[slot.number] = slot
        return slot

    def apply(self, compute: Callable[..., Any], inputs: Sequence[Slot | Scalar], dtype: np.dtype[Any]) -> Slot:
        """Append a step whose output is a fresh array."""
        slots = [value for value in inputs if isinstance(value, Slot)]
        spans = (
            tuple(any(flags) for flags in zip(*(slot.spans for slot in slots), strict=True))
            if slots
            else (False,) * len(self.dims)
        )
        out = self.temp(spans, dtype)
        self.kernel.steps.append(Step(compute, tuple(inputs), out))
        return out

    def release(self, value: Slot | Scalar, *, times: int = 1) -> None:
        """One use of a temporary is over; after the last its memory is free for others."""
        if isinstance(value, Slot) and value.number in self.kernel.temps:
            self._uses[value.number] = self._uses.get(value.number, 1) - times
            if self._uses[value.number] <= 0 and value not in self._free:
                self._free.append(value)

    # -- expressions ---------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Slot | Scalar:
        """Where the value of an expression is; equal expressions are computed once."""
        self._count(expr)
        return self._value(expr)

    def _count(self, expr: Expr) -> None:
        """Uses of every distinct sub-expression, so that its memory is kept exactly as long as needed."""
        self._expected: dict[int, int] = {}
        stack = [expr]
        while stack:
            node = stack.pop()
            number = self._numbering.of(node)
            self._expected[number] = self._expected.get(number, 0) + 1
            if self._expected[number] == 1 and isinstance(node, Call | Cast):
                stack += node.args if isinstance(node, Call) else [node.arg]

    def _value(self, expr: Expr) -> Slot | Scalar:
        computed: dict[int, None] = {}
        for node in children_first(expr, computed):
            computed[id(node)] = None
            number = self._numbering.of(node)
            if number not in self._memo:
                self._memo[number] = slot = self._compute(node)
                if isinstance(slot, Slot) and slot.number in self.kernel.temps:
                    self._uses.setdefault(slot.number, self._expected.get(number, 1))
        return self._known(expr)

    def _known(self, expr: Expr) -> Slot | Scalar:
        """Where a value is that is computed already."""
        return self._memo[self._numbering.of(expr)]

    def _compute(self, expr: Expr) -> Slot | Scalar:
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Read):
            return self._read(expr)
        if isinstance(expr, IndexValue):
            index = self._index(expr.index)
            return index if isinstance(index, Slot) else np.int64(index)
        if isinstance(expr, Inside):
            inside = self._inside(expr.bounds)
            return inside if isinstance(inside, Slot) else np.bool_(inside)
        if isinstance(expr, Cast):
            return self._cast(expr)
        return self._call(expr)

    def _call(self, expr: Call) -> Slot | Scalar:
        args = [self._known(arg) for arg in expr.args]
        if not any(isinstance(arg, Slot) for arg in args):
            return fold_numbers(expr.function, [arg for arg in args if not isinstance(arg, Slot)])
        entry = FUNCTIONS[expr.function]
        branch = entry.result == "branch"
        if branch and not isinstance(args[0], Slot):
            return self._chosen(expr, *((args[1], args[2]) if args[0] else (args[2], args[1])))
        prepared, dtype = self._prepared(expr.function, args)
        for before, now in zip(args, prepared, strict=True):
            if now is not before:
                self.release(now)
            # A choice copies its last argument before it reads the others, so these may not share memory with it.
            if not branch:
                self.release(before)
        out = self.apply(entry.compute, prepared, result_in(expr.function, dtype))
        if branch:
            for before in args:
                self.release(before)
        return out

    def _chosen(self, expr: Call, value: Slot | Scalar, other: Slot | Scalar) -> Slot | Scalar:
        """A choice that is made already: another name of one branch."""
        self.release(other)
        self._rename(value, expr)
        return value

    def _rename(self, value: Slot | Scalar, expr: Expr) -> None:
        """All uses of ``expr``, in place of one, are now uses of a value that it is another name of."""
        if isinstance(value, Slot):
            self._uses[value.number] = self._uses.get(value.number, 1) + self._expected[self._numbering.of(expr)] - 1

    def _prepared(self, function: str, args: list[Slot | Scalar]) -> tuple[list[Slot | Scalar], np.dtype[Any]]:
        """Arguments in the type that the function computes in, and that type."""
        branch = FUNCTIONS[function].result == "branch"
        compared = args[1:] if branch else args
        types = [arg.dtype for arg in compared if isinstance(arg, Slot | np.generic)]
        dtype = together(function, types, [arg for arg in compared if not isinstance(arg, Slot | np.generic)])
        found = [self._in_type(arg, dtype) for arg in compared]
        return ([self._in_type(args[0], BOOL), *found] if branch else found), dtype

    def _in_type(self, value: Slot | Scalar, dtype: np.dtype[Any]) -> Slot | Scalar:
        if not isinstance(value, Slot):
            return scalar(np.asarray(value).astype(dtype))
        if value.dtype == dtype:
            return value
        return self.apply(truth_into, [value], BOOL) if dtype == BOOL else self.converted(value, dtype)

    def converted(self, value: Slot | Scalar, dtype: np.dtype[Any]) -> Slot:
        return self.apply(copy_into, [value], dtype)

    def _cast(self, expr: Cast) -> Slot | Scalar:
        value = self._known(expr.arg)
        if not isinstance(value, Slot):
            return folding.number(value, expr.dtype)
        narrow = numpy_dtype(expr.dtype)
        if value.dtype == narrow:
            self._rename(value, expr)
            return value
        self.release(value)
        rounded = self.apply(round_into, [value], narrow)
        wide = compute_dtype(expr.dtype)
        if wide == narrow:
            return rounded
        self._uses[rounded.number] = 1
        self.release(rounded)
        return self.converted(rounded, wide)

    # -- indices -------------------------------------------------------------------------------------------------

    def _along(self, name: str) -> Slot:
        """0, 1, 2, ... along one dimension."""
        if name not in self._memo:
            shape = [extent if n == name else 1 for n, extent in self.dims]
            self._memo[name] = self.leaf(np.arange(self.ranges[name][1]).reshape(shape))
        found = self._memo[name]
        assert isinstance(found, Slot)
        return found

    def _index(self, expr: Affine) -> Slot | Scalar:
        """The value of an index expression, int64."""
        total: Slot | Scalar = expr.const
        for atom, c in expr.terms:
            value: Slot | Scalar = self._along(atom) if isinstance(atom, str) else self._of_inner(atom)
            if c != 1:
                value = self.apply(np.multiply, [value, c], INT)
            total = value if total is expr.const and not total else self.apply(np.add, [value, total], INT)
        return total

    def _of_inner(self, atom: Floor | Table) -> Slot | Scalar:
        inner = self._index(atom.inner)
        if isinstance(atom, Floor):
            return self.apply(np.floor_divide, [inner, atom.divisor], INT)
        if not isinstance(inner, Slot):
            return int(atom.value(inner))
        return self.apply(value_of(atom), [inner], INT)

    def _inside(self, bounds: Sequence[Bound]) -> Slot | Scalar:
        """Truth of bounds; those that are decided over the box cost nothing."""
        found: Slot | Scalar = True
        for bound in bounds:
            for truth in self._sides(bound):
                found = truth if found is True else self.apply(np.logical_and, [found, truth], BOOL)
        return found

    def _sides(self, bound: Bound) -> list[Slot | Scalar]:
        known = bound.decided(self.ranges)
        if known is not None:
            return [] if known else [False]
        value = self._index(bound.expr)
        sides: list[Slot | Scalar] = []
        if bound.lo is not None:
            sides.append(self.apply(np.greater_equal, [value, bound.lo], BOOL))
        if bound.hi is not None:
            sides.append(self.apply(np.less, [value, bound.hi], BOOL))
        return sides

    # -- reads ---------------------------------------------------------------------------------------------------

    def _read(self, read: Read) -> Slot | Scalar:
        stored = self.stored[read.tensor]
        view = None if read.guard else strided(stored, read.index, self.dims)
        found: Slot | Scalar = self._gather(read, stored) if view is None else self.leaf(view)
        return self._widened(found)

    def _widened(self, value: Slot | Scalar) -> Slot | Scalar:
        if not isinstance(value, Slot) or value.dtype in (DOUBLE, SINGLE, INT, BOOL):
            return value
        return self.converted(value, INT if value.dtype.kind in "iu" else SINGLE)

    def _gather(self, read: Read, stored: Stored) -> Slot | Scalar:
        """A read by index arrays: floors, storage in several intervals, or a guard over more than one dimension."""
        mask = self._inside((*read.guard, *self.where))
        fill = folding.number(read.fill, name_of(stored.array.dtype))
        if mask is False or not stored.array.size:
            return fill
        flat: Slot | Scalar = 0
        for expr, axis, step in zip(read.index, stored.grid.axes, stored.array.strides, strict=True):
            table = position_table(axis) * (step // stored.array.itemsize)
            local = self.apply(
                lookup(table, axis.lo, None if self.lenient else str(read)), [self._index(expr), mask], INT
            )
            flat = local if flat == 0 and not isinstance(flat, Slot) else self.apply(np.add, [flat, local], INT)
        found = self.apply(take_from(stored.array), [flat], stored.array.dtype)
        return found if mask is True else self.apply(where_stored, [mask, found, fill], stored.array.dtype)
