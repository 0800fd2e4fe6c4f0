"""The stream a kernel runs on: the caller's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..errors import WrongType
from .array import DeviceArray
from .bindings import runtime


def stream_pointer(stream: object = None, *arrays: DeviceArray, device: int = -1) -> int:
    """A stream's handle. `stream` is a CuPy or a torch stream, a handle, or None for the caller's current one.

    The current stream is torch's where one of the arrays is a torch tensor, else CuPy's, on the arrays' device
    (`device` where there are none).
    """
    if stream is None:
        device = arrays[0].device if arrays else device
        for array in arrays:
            if array.framework == "torch":
                return torch_stream(device)
        return _cupy_stream(device)
    if isinstance(stream, int):
        return stream
    for attribute in ("ptr", "cuda_stream"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    raise WrongType(
        "not a stream",
        expected="a CuPy stream, a torch.cuda.Stream, a handle as an int, or None for the current stream",
        came=f"{type(stream).__name__} {stream!r}",
    )


def current_stream(like: DeviceArray) -> Callable[[], int]:
    """What gives the handle of the current stream of the library that an array is of, on the array's device."""
    return functools.partial(_torch_streams() if like.framework == "torch" else _cupy_stream, like.device)


def torch_stream(device: int) -> int:
    """The handle of torch's current stream on a device."""
    return _torch_streams()(device)


@functools.cache
def _torch_streams() -> Callable[[int], int]:
    """Device -> handle of torch's current stream there."""
    torch: Any = sys.modules["torch"]
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    # The public way makes an object, and takes ten times as long.
    return raw or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


def _cupy_stream(device: int) -> int:
    runtime()
    import cupy

    return int(cupy.cuda.get_current_stream(device).ptr)
