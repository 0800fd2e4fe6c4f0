"""Tensors declared inside a program (weights of a loop over layers, constants), state updates, and pins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import numpy_dtype
from ..errors import UsageError
from ..names import check_name
from ..program import Pin, PinKind, Role
from .tensor import Tensor
from .trace import current


def declare(role: Role, name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None) -> Tensor:
    """Declare a tensor of the program being traced. Axes are called d0, d1, ... unless named."""
    trace = current(f"tp.{role}")
    if any(type(extent) is not int or extent < 1 for extent in shape):
        raise UsageError(f"{name} has the shape {list(shape)}", hint="extents are positive integers")
    names = tuple(axes) if axes is not None else tuple(f"d{k}" for k in range(len(shape)))
    if len(names) != len(shape) or not all(isinstance(axis, str) and axis.isidentifier() for axis in names):
        sides = {"axes": list(names), "shape": list(shape)}
        raise UsageError(f"{name}: one identifier for each axis is needed", sides=sides)
    return trace.add_tensor(trace.scoped(check_name(name, "the name of a tensor")), dtype, shape, names, role)


def input(name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None = None) -> Tensor:
    """Declare an input of the program being traced."""
    return declare("input", name, dtype, shape, axes)


def update(old: Tensor, new: Tensor) -> None:
    """``new`` replaces the state ``old`` at the end of a run.

    UsageError unless ``old`` is a state of the same shape and dtype, updated once.
    """
    trace = current("tp.update")
    if not old.key or trace.tensors[old.key].record.role != "state":
        raise UsageError(f"{old!r} is not a state", hint="declare it: state[f32[Tensor, ...]] or tp.state(...)")
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        raise UsageError("a state keeps its shape and dtype", sides={"old": repr(old), "new": repr(new)})
    if any(old.key == key for key, _ in trace.states):
        raise UsageError(f"{trace.describe(old)} is updated twice", hint="update a state once, with its last value")
    trace.states.append((old.key, trace.value_key(new)))


def constant(
    values: Any, dtype: str | None = None, *, axes: Sequence[str] | None = None, name: str = "const"
) -> Tensor:
    """A small array written into the program itself: numbers, nested lists or a NumPy array.

    ``dtype`` None takes f32 for Python floats, int32 for integers, bool for truth values, and the array's own dtype for
    arrays.
    """
    import numpy as np

    from ..dtypes import name_of
    from .trace import fresh

    trace = current("tp.constant")
    array = np.asarray(values)
    if dtype is None:
        weak = {"f": "f32", "i": "int32", "b": "bool"}
        dtype = name_of(array.dtype) if isinstance(values, np.ndarray) else weak.get(array.dtype.kind, "f32")
    array = array.astype(numpy_dtype(Tensor.check_dtype(dtype)))
    wide = array if array.dtype.kind in "biu" else array.astype(np.float64)
    taken = {draft.hint: 0 for draft in trace.tensors.values()}
    label = fresh(trace.scoped(name), taken)
    names = tuple(axes) if axes is not None else tuple(f"d{k}" for k in range(array.ndim))
    return trace.add_tensor(label, dtype, array.shape, names, "const", tuple(wide.ravel().tolist()))


def shard(x: Tensor, *, kind: PinKind = "block", **cuts: str) -> Tensor:
    """Pin a tensor's layout and give it back: ``tp.shard(x, data="n")`` cuts axis n along the mesh axis "data"."""
    for mesh_axis, axis in cuts.items():
        if axis not in x.axes:
            sides = {"asked": f'{mesh_axis}="{axis}"', "axes": ", ".join(x.axes)}
            raise UsageError(f"{x!r} has no axis {axis!r}", sides=sides)
    return _pin(x, tuple(cuts.items()), kind)


def replicate(x: Tensor, *mesh_axes: str) -> Tensor:
    """Pin a tensor to be whole along the given mesh axes, or along all ("*"), and give it back."""
    return _pin(x, tuple((axis, None) for axis in mesh_axes or ("*",)), "block")


def _pin(x: Tensor, cuts: tuple[tuple[str, str | None], ...], kind: PinKind) -> Tensor:
    trace = current("a pin")
    if not cuts:
        raise UsageError(
            "the pin says nothing", hint='name a mesh axis and an axis of the tensor: tp.shard(x, data="n")'
        )
    base = trace.materialise(x)
    trace.pins.append((base.key, Pin("tensor", base.key, cuts, kind)))
    return base
