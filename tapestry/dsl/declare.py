"""Tensors declared inside a program (weights of a loop over layers, constants), state updates, and pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..dtypes import DTYPES, numpy_dtype
from ..errors import UsageError
from ..extents import WANTED, is_extent
from ..literals import Number, python_number, stored
from ..names import check_name
from ..program import Pin, PinKind, Role
from .door import door, spoken
from .tensor import Tensor
from .trace import current, fresh


@door
def declare(role: Role, name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None) -> Tensor:
    """Declare a tensor of the program being traced. Axes are called d0, d1, ... unless named."""
    trace = current(f"tp.{role}")
    label = trace.scoped(check_name(name, "the name of a tensor"))
    return trace.add_tensor(label, dtype, shape, axis_names(name, shape, axes), role)


@door
def input(name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None = None) -> Tensor:
    """Declare an input of the program being traced."""
    return declare("input", name, dtype, shape, axes)


@door
def update(old: Tensor, new: Tensor) -> None:
    """``new`` replaces the state ``old`` at the end of a run.

    UsageError unless ``old`` is a state of the same shape and dtype, updated once.
    """
    trace = current("tp.update")
    trace.demand_own([x.key for x in (old, new) if x.key])
    if not old.key or trace.tensors[old.key].record.role != "state":
        raise UsageError(f"{old!r} is not a state", hint="declare it: state[f32[Tensor, ...]] or tp.state(...)")
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        raise UsageError("a state keeps its shape and dtype", sides={"old": repr(old), "new": repr(new)})
    if any(old.key == key for key, _ in trace.states):
        raise UsageError(f"{trace.describe(old)} is updated twice", hint="update a state once, with its last value")
    trace.states.append((old.key, trace.value_key(new)))


@door
def constant(
    values: Any, dtype: str | None = None, *, axes: Sequence[str] | None = None, name: str = "const"
) -> Tensor:
    """A small array written into the program itself: numbers, nested lists or a NumPy array.

    ``dtype`` None takes f32 where a Python float is among them, else int32 for integers, bool for truth values, and the
    array's own dtype for arrays. Integers are held exactly and floats rounded once to the nearest; UsageError for what
    the dtype has nothing for, complex numbers, and rows of different lengths.
    """
    trace = current("tp.constant")
    shape, numbers = rows_of(values)
    if dtype is None:
        dtype = _own_dtype(values) or _weak_dtype(numbers)
    Tensor.check_dtype(dtype)
    try:
        data = tuple(stored(number, dtype) for number in numbers)
    except UsageError as error:
        hint = 'say so: tp.constant(..., dtype="int64")' if dtype == "int32" else error.hint
        raise UsageError(error.what, hint=hint) from None
    label = fresh(trace.scoped(check_name(name, "the name of a tensor")), {d.hint: 0 for d in trace.tensors.values()})
    return trace.add_tensor(label, dtype, shape, axis_names(label, shape, axes), "const", data)


def rows_of(values: Any) -> tuple[tuple[int, ...], list[Number]]:
    """The shape of nested lists or an array, and its numbers in row-major order."""
    if hasattr(values, "shape") and hasattr(values, "ravel") and values.shape:
        if getattr(values.dtype, "kind", "") == "c":
            raise UsageError(f"{spoken(values)} is complex", hint="write its real and imaginary parts as two constants")
        return tuple(map(int, values.shape)), [_number(value) for value in values.ravel()]
    if not isinstance(values, list | tuple):
        return (), [_number(values)]
    parts = [rows_of(value) for value in values]
    shapes = list(dict.fromkeys(shape for shape, _ in parts))
    if len(shapes) > 1:
        sides = {f"row {k}": list(shape) for k, (shape, _) in enumerate(parts[:8])}
        raise UsageError("a constant has rows of different lengths", sides=sides)
    return (len(parts), *(shapes[0] if shapes else ())), [number for _, numbers in parts for number in numbers]


def _number(value: Any) -> Number:
    found = python_number(value)
    if found is None:
        what = f"{spoken(value)} is {'complex' if isinstance(value, complex) else 'not a number'}"
        raise UsageError(what, hint="constants are made of real numbers and truth values")
    return found


def _own_dtype(values: Any) -> str | None:
    """The dtype of an array, None for Python's values."""
    if not hasattr(values, "dtype"):
        return None
    name = next((name for name in DTYPES if numpy_dtype(name) == values.dtype), None)
    if name is None:
        hint = f'say which one holds the values: tp.constant(..., dtype="int32"); known: {", ".join(DTYPES)}'
        raise UsageError(f"{values.dtype} is no dtype of a program", hint=hint)
    return name


def _weak_dtype(numbers: Sequence[Number]) -> str:
    if any(isinstance(number, float) for number in numbers) or not numbers:
        return "f32"
    return "bool" if all(isinstance(number, bool) for number in numbers) else "int32"


def axis_names(name: str, shape: Sequence[int], axes: Sequence[str] | None) -> tuple[str, ...]:
    """The names given, or d0, d1, ...; UsageError for a negative extent, or unless there is one identifier for each."""
    if not all(map(is_extent, shape)):
        raise UsageError(f"{name} has the shape {list(shape)}", hint=f"each of its extents is {WANTED}")
    names = tuple(axes) if axes is not None else tuple(f"d{k}" for k in range(len(shape)))
    if len(names) != len(shape) or not all(isinstance(axis, str) and axis.isidentifier() for axis in names):
        sides = {"axes": list(names), "shape": list(shape)}
        raise UsageError(f"{name}: one identifier for each axis is needed", sides=sides)
    return names


@door
def shard(x: Tensor, *, kind: PinKind = "block", **cuts: str) -> Tensor:
    """Pin a tensor's layout and give it back: ``tp.shard(x, data="n")`` cuts axis n along the mesh axis "data"."""
    _demand_axes(x, cuts)
    return _pin(x, tuple(cuts.items()), kind)


@door
def replicate(x: Tensor, *mesh_axes: str) -> Tensor:
    """Pin a tensor to be whole along the given mesh axes, or along all ("*"), and give it back."""
    return _pin(x, tuple((axis, None) for axis in mesh_axes or ("*",)), "block")


@door
def forbid(x: Tensor, **cuts: str | None) -> Tensor:
    """Forbid a tensor's layout and give it back: ``tp.forbid(x, data="n")`` does not cut axis n along the mesh axis
    "data", ``tp.forbid(x, data=None)`` does not leave it whole along it. Several together forbid that all hold.
    """
    _demand_axes(x, cuts)
    return _pin(x, tuple(cuts.items()), "block", forbid=True)


def _demand_axes(x: Tensor, cuts: Mapping[str, str | None]) -> None:
    for mesh_axis, axis in cuts.items():
        if axis is not None and axis not in x.axes:
            sides = {"asked": f'{mesh_axis}="{axis}"', "axes": ", ".join(x.axes)}
            raise UsageError(f"{x!r} has no axis {axis!r}", sides=sides)


def _pin(x: Tensor, cuts: tuple[tuple[str, str | None], ...], kind: PinKind, *, forbid: bool = False) -> Tensor:
    trace = current("a pin")
    if not cuts:
        raise UsageError(
            "the pin says nothing", hint='name a mesh axis and an axis of the tensor: tp.shard(x, data="n")'
        )
    base = trace.materialise(x)
    trace.pins.append((base.key, Pin("tensor", base.key, cuts, kind, forbid)))
    return base
