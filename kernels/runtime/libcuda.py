"""The driver's library itself, for the two calls that CuPy has no binding for: tensor maps and launch attributes."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..errors import MissingDriver

_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


@functools.cache
def driver_function(name: str) -> Callable[..., int]:
    """A function of the NVIDIA driver, returning its error code. Raises `MissingDriver`."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(library), name)
    except (OSError, AttributeError) as error:
        raise MissingDriver(
            f"{name} is a function of the NVIDIA driver",
            expected=f"{library} of CUDA 12 or newer",
            came=str(error),
            hint="install the driver; kernels can be compiled without it",
        ) from error
    return function


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id and a union of 64 bytes, here its first integers."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Configuration(ctypes.Structure):
    """CUlaunchConfig: grid, block and dynamic shared memory, the stream, the attributes."""

    _fields_ = (
        ("numbers", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class LaunchAttributes(NamedTuple):
    """What a launch asks for beside grid and block.

    A `programmatic` one may start before the kernel ahead of it in the stream has ended, and waits for that one's
    memory itself (`griddepcontrol.wait`). `cluster` are the blocks, along each axis of the grid, that run at once and
    reach each other's shared memory.
    """

    programmatic: bool = False
    cluster: tuple[int, int, int] = (1, 1, 1)


def launch_with(
    function: int, numbers: Sequence[int], stream: int, arguments: int, attributes: LaunchAttributes
) -> Callable[[], int]:
    """A launch of a kernel with attributes, laid out for the driver: a call of what is returned is the launch.

    `numbers` are grid, block and shared bytes; the call returns the driver's error code. Arguments are read at each.
    """
    wanted = _attributes(attributes)
    held = (_Attribute * len(wanted))(*wanted)
    configuration = _Configuration((ctypes.c_uint * 7)(*numbers), stream, held, len(wanted))
    launch: Any = driver_function("cuLaunchKernelEx")
    # `byref` keeps the configuration alive, and that the attributes it points to.
    return partial(launch, ctypes.byref(configuration), ctypes.c_void_p(function), ctypes.c_void_p(arguments), None)


def packed(attributes: LaunchAttributes) -> bytes:
    """The driver's structures, one after the other."""
    return b"".join(bytes(attribute) for attribute in _attributes(attributes))


def _attributes(asked: LaunchAttributes) -> list[_Attribute]:
    found = []
    if asked.programmatic:
        found.append(_attribute(_PROGRAMMATIC, (1,)))
    if asked.cluster != (1, 1, 1):
        found.append(_attribute(_CLUSTER, asked.cluster))
    return found


def _attribute(number: int, values: Sequence[int]) -> _Attribute:
    made = _Attribute(number)
    made.value[: len(values)] = values
    return made
