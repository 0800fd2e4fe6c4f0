"""Tensors of other libraries at the door: whatever speaks DLPack comes in without a copy, and the same kind goes out.

A value lies in host memory, where NumPy sees it, or on a device, which may `Device.adopt` it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from ..errors import UsageError
from .stores.arrays import Array

HOST = (1, 3)  # DLDeviceType: kDLCPU, kDLCUDAHost


def is_host(value: Any) -> bool:
    """Whether NumPy can see a value where it lies."""
    return not hasattr(value, "__dlpack_device__") or value.__dlpack_device__()[0] in HOST


def host_array(value: Any) -> Array:
    """A value in host memory as NumPy's array, sharing its memory where it is an array or a tensor already.

    UsageError for one that lies elsewhere.
    """
    if not is_host(value):
        raise UsageError(
            "a tensor lies on a device that the plan does not compute on",
            sides={"given": f"{type(value).__module__}.{type(value).__name__} on {value.device}"},
            hint="move it to the host, or run the plan on that device",
        )
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    plain = value.detach() if hasattr(value, "detach") else value
    library = namespace(value)
    if str(value.dtype).endswith("bfloat16"):  # NumPy's DLPack does not know it
        found: Array = np.from_dlpack(plain.view(library.int16)).view(numpy_dtype("bf16"))
        return found
    return np.from_dlpack(plain)


def namespace(value: Any) -> Any:
    """The library that a value is of, which makes its like by ``asarray``."""
    return sys.modules[type(value).__module__.partition(".")[0]]


def sample(values: Iterable[Any]) -> Any | None:
    """The first of some values that is a tensor of another library."""
    return next((v for v in values if hasattr(v, "__dlpack__") and not isinstance(v, np.ndarray | np.generic)), None)


def maker(tensor: Any | None) -> Callable[[Array], Any]:
    """What turns NumPy's arrays into tensors of the kind of one, on its device. Arrays stay arrays where there is none.

    They share the array's memory where that kind lies in host memory.
    """
    if tensor is None:
        return lambda array: array
    library = namespace(tensor)
    place: AbstractContextManager[Any] = nullcontext() if is_host(tensor) else tensor.device

    def made(array: Array) -> Any:
        with place:  # the device of both, torch's and CuPy's arrays, makes what is made inside lie there
            if array.dtype == numpy_dtype("bf16"):
                return library.asarray(array.view(np.int16)).view(library.bfloat16)
            return library.asarray(array)

    return made
