"""Arrays that come from outside, as a convolution needs them: checked, described, and allocated where none is given."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import WrongDevice, WrongDtype, WrongLayout, WrongShape, WrongValue
from ..runtime.array import DeviceArray, array
from ..runtime.stream import stream_pointer
from .launch import View
from .problem import DTYPES, ConvolutionProblem

CHUNK = 16  # bytes: what the copy engine asks of addresses and strides


def images(x: Any, name: str, where: str) -> DeviceArray:
    """A tensor [n, h, w, c] of halves. Raises `WrongShape`, `WrongDtype`, and as `array` does."""
    found = array(x, name)
    if len(found.shape) != 4:
        raise WrongShape(f"{name} has {len(found.shape)} axes", where=where, expected="[n, h, w, c]", came=found.shape)
    if found.dtype not in DTYPES:
        raise WrongDtype(
            f"{name} is not in half precision", where=where, expected=" or ".join(DTYPES), came=found.dtype
        )
    return found


def like(x: DeviceArray, other: DeviceArray, name: str, where: str, shape: tuple[int, ...], dtype: str) -> None:
    """Refuse `other` unless it is on x's GPU and has this shape and type."""
    if other.device != x.device:
        raise WrongDevice(
            f"{name} is on another GPU", where=where, expected=f"device {x.device}", came=f"device {other.device}"
        )
    if other.dtype != dtype:
        raise WrongDtype(f"{name} has the wrong type", where=where, expected=dtype, came=other.dtype)
    if other.shape != shape:
        raise WrongShape(f"{name} has the wrong shape", where=where, expected=shape, came=other.shape)


def dense(x: DeviceArray, name: str, where: str) -> int:
    """The pointer of a dense array. Raises `WrongLayout`."""
    if not x.contiguous:
        raise WrongLayout(
            f"{name} is not contiguous", where=where, expected=f"dense, in the order of {x.shape}", came=_layout(x)
        )
    return x.pointer


def aligned(x: DeviceArray, step: int, name: str, where: str) -> None:
    """Refuse an array that does not begin at a multiple of `step` bytes. Raises `WrongLayout`."""
    if x.pointer % step:
        raise WrongLayout(
            f"{name} does not begin where several elements are written at once",
            where=where,
            expected=f"an address that is a multiple of {step} bytes",
            came=f"{x.pointer:#x}, {x.pointer % step} bytes beyond one",
            hint="pass an array of its own, or a part of one that begins there",
        )


def view(x: DeviceArray, name: str, where: str) -> View:
    """A channels-last tensor: strides of whole elements, channels one after the other. Raises `WrongLayout`."""
    n, h, w, c = x.shape
    if c > 1 and x.strides[3] != x.itemsize:
        raise WrongLayout(
            f"{name} is not channels-last",
            where=where,
            expected=f"a stride of {x.itemsize} bytes between channels: [n, h, w, c] in that order in memory",
            came=_layout(x),
            hint="torch: x.to(memory_format=torch.channels_last).permute(0, 2, 3, 1); CuPy: cupy.ascontiguousarray",
        )
    normal = (h * w * c, w * c, c)  # an axis of one element may have any stride: it gets the dense one
    steps = [
        step // x.itemsize if extent > 1 else usual
        for extent, step, usual in zip(x.shape[:3], x.strides[:3], normal, strict=True)
    ]
    if any(step % x.itemsize for step in x.strides[:3]) or x.pointer % x.itemsize:
        raise WrongLayout(f"{name} lies between elements", where=where, expected="whole elements", came=_layout(x))
    return View(x.pointer, (n, h, w, c), (steps[0], steps[1], steps[2]), x.dtype)


def fetchable(*views: View | None) -> bool:
    """Whether the copy engine takes these tensors: everything a positive multiple of 16 bytes."""
    return all(
        found.pointer % CHUNK == 0
        and found.shape[3] * 2 % CHUNK == 0
        and all(step > 0 and step * 2 % CHUNK == 0 for step in found.strides)
        for found in views
        if found is not None
    )


def _layout(x: DeviceArray) -> str:
    return f"shape {x.shape}, strides {x.strides} bytes at {x.pointer:#x}"


def filters(w: DeviceArray, x: DeviceArray, problem: ConvolutionProblem, where: str) -> int:
    """The pointer of a filter [k, r, s, c / groups]: dense, of x's type and on its GPU."""
    like(x, w, "w", where, problem.weight_shape, x.dtype)
    return dense(w, "w", where)


def per_channel(values: DeviceArray | None, x: DeviceArray, channels: int, name: str, where: str) -> int:
    """The pointer of one f32 a channel, or 0."""
    if values is None:
        return 0
    like(x, values, name, where, (channels,), "f32")
    return dense(values, name, where)


def room(workspace: DeviceArray, size: int, where: str) -> int:
    """The pointer of a workspace of at least so many bytes."""
    held = workspace.elements * workspace.itemsize
    dense(workspace, "workspace", where)
    if held < size or workspace.pointer % CHUNK:
        expected = f"{size} bytes, aligned to {CHUNK}"
        raise WrongShape(
            "the workspace is too small or not aligned", where=where, expected=expected, came=f"{held} bytes"
        )
    return workspace.pointer


def apart(out: DeviceArray, name: str, where: str, *others: tuple[str, DeviceArray]) -> None:
    """Refuse an output that begins where an operand does: it would be overwritten while it is read."""
    for other, found in others:
        if out.pointer == found.pointer and out.elements:
            raise WrongValue(f"{name} is {other}", where=where, expected="another array", came=hex(out.pointer))


def empty(source: Any, x: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
    """A new array of the library that `source` is of (CuPy for others), its memory ordered on the stream."""
    with _on(x, stream):
        if x.framework == "torch":
            return source.new_empty(shape, dtype=_torch_type(dtype))
        import cupy

        return cupy.empty(shape, _numpy_type(dtype))


def given_or_empty(out: Any, source: Any, x: DeviceArray, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
    """The array to write: the one that was given, or a new one as `empty` makes it."""
    return empty(source, x, shape, dtype, stream) if out is None else out


def _torch_type(dtype: str) -> Any:
    torch = sys.modules["torch"]
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
    return getattr(torch, names.get(dtype, dtype))


def _numpy_type(dtype: str) -> Any:
    if dtype == "bf16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return {"f16": "float16", "f32": "float32"}.get(dtype, dtype)


@contextlib.contextmanager
def _on(x: DeviceArray, stream: int) -> Iterator[None]:
    """Allocations on the array's device, in the order of the stream, which need not be the current one."""
    current = stream_pointer(None, x) == stream
    with contextlib.ExitStack() as stack:
        if x.framework == "torch":
            torch: Any = sys.modules["torch"]
            if not current:
                stack.enter_context(torch.cuda.stream(torch.cuda.ExternalStream(stream, device=x.device)))
        else:
            import cupy

            stack.enter_context(cupy.cuda.Device(x.device))
            if not current:
                stack.enter_context(cupy.cuda.ExternalStream(stream, x.device))
        yield
