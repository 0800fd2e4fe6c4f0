"""Arrays of whatever library: pointer, shape, strides, element type and device, without importing the library."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import WrongDevice, WrongDtype, WrongLayout, WrongType
from .bindings import runtime

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
}  # fmt: skip
_SHORT = {
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
    "float64": "f64",
}  # fmt: skip


class DeviceArray(NamedTuple):
    """Memory on a GPU. `strides` are in bytes; `framework` is `torch`, `cupy` or `other`.

    It does not keep the memory alive: the array it was made from must.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    framework: str = "other"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.dtype]

    @property
    def elements(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie densely in row-major order. Strides of axes of extent 1 do not matter."""
        return not self.elements or all(
            extent == 1 or step == dense
            for extent, step, dense in zip(
                self.shape, self.strides, dense_strides(self.shape, self.itemsize), strict=True
            )
        )


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of dense row-major memory.

    >>> dense_strides((2, 3, 4), 2)
    (24, 8, 2)
    """
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def array(x: Any, name: str = "array", *, dtype: str | None = None) -> DeviceArray:
    """What an array on a GPU is: CuPy, torch, anything with `__cuda_array_interface__` or DLPack.

    `dtype` reads the elements as another type of the same width, for bf16 kept as 16-bit integers. `name` is what
    errors call it. Raises `WrongType` (no array), `WrongDevice` (in host memory), `WrongDtype`, `WrongLayout` (sparse,
    masked).
    """
    found = x if isinstance(x, DeviceArray) else _reader(type(x))(x, name)  # type: ignore[arg-type]
    return found if dtype is None else _viewed(found, dtype, name)


@functools.lru_cache(maxsize=256)
def _reader(kind: type) -> Callable[[Any, str], DeviceArray]:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _from_torch
    if cupy is not None and issubclass(kind, cupy.ndarray):
        return _from_cupy
    if hasattr(kind, "__cuda_array_interface__"):
        return _from_interface
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__") and not hasattr(kind, "__array_interface__"):
        return _from_dlpack
    return _refuse


class _Identities(dict[type, Callable[[Any], Any]]):
    """By kind of array, what a prepared call depends on of one, as a key: where it lies, its shape, strides and type.

    In less time than `array` takes: asked for in every call, so that a lookup is all that it takes. Those of kinds that
    it does not know raise TypeError.
    """

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        found = self[kind] = _identifier(kind)
        return found


identities = _Identities()


def _identifier(kind: type) -> Callable[[Any], Any]:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return _torch_identity
    if cupy is not None and kind is cupy.ndarray:
        return _cupy_identity
    return _same if kind is DeviceArray else _unknown


# The device is not asked for: no two of a process have memory at one address.


def _torch_identity(x: Any) -> Any:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


def _cupy_identity(x: Any) -> Any:
    return x.data.ptr, x.shape, x.strides, x.dtype


def _same(x: Any) -> Any:
    return x


def _unknown(x: Any) -> Any:
    raise TypeError(type(x).__name__)


def _from_cupy(x: Any, name: str) -> DeviceArray:
    memory = x.data
    return DeviceArray(memory.ptr, x.shape, x.strides, _numpy_name(x.dtype, name), memory.device_id, "cupy")


def _from_torch(x: Any, name: str) -> DeviceArray:
    device = x.get_device()
    if not x.is_cuda:
        raise _in_host_memory(name, f"a torch tensor on {x.device}", 'x.to("cuda")')
    if x.layout is not sys.modules["torch"].strided:
        raise WrongLayout(f"{name} is sparse", expected="a dense tensor", came=str(x.layout))
    dtype = _torch_name(x.dtype, name)
    size = ITEM_BYTES[dtype]
    return DeviceArray(
        x.data_ptr(), tuple(x.shape), tuple([size * step for step in x.stride()]), dtype, device, "torch"
    )


def _from_interface(x: Any, name: str) -> DeviceArray:
    import numpy as np

    interface = x.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise WrongLayout(f"{name} has a mask", expected="a plain array", came="a masked one")
    pointer, shape = int(interface["data"][0]), tuple(interface["shape"])
    dtype = _numpy_name(np.dtype(interface["typestr"]), name)
    strides = tuple(interface.get("strides") or dense_strides(shape, ITEM_BYTES[dtype]))
    device = int(runtime().pointerGetAttributes(pointer).device) if pointer else int(runtime().getDevice())
    return DeviceArray(pointer, shape, strides, dtype, device)


_DLPACK_CUDA, _DLPACK_MANAGED = 2, 13


def _from_dlpack(x: Any, name: str) -> DeviceArray:
    kind, _ = x.__dlpack_device__()
    if kind not in (_DLPACK_CUDA, _DLPACK_MANAGED):
        raise _in_host_memory(name, f"a {type(x).__name__} on DLPack device type {kind}", "move it to the GPU first")
    runtime()
    import cupy

    return _from_cupy(cupy.from_dlpack(x), name)._replace(framework="other")


def _refuse(x: Any, name: str) -> DeviceArray:
    if hasattr(x, "__array_interface__"):
        raise _in_host_memory(name, f"a {type(x).__module__}.{type(x).__name__}", f"cupy.asarray({name})")
    raise WrongType(
        f"{name} is not an array on a GPU",
        expected="a CuPy array, a torch CUDA tensor, or an object with __cuda_array_interface__ or __dlpack__",
        came=f"{type(x).__name__} {x!r:.80}",
    )


def _in_host_memory(name: str, came: str, hint: str) -> WrongDevice:
    return WrongDevice(f"{name} is in host memory", expected="an array on a GPU", came=came, hint=hint)


@functools.lru_cache(maxsize=256)
def _numpy_name(dtype: Any, name: str) -> str:
    return _known(_SHORT.get(dtype.name, dtype.name), name, native=dtype.isnative)


@functools.lru_cache(maxsize=256)
def _torch_name(dtype: Any, name: str) -> str:
    text = str(dtype).removeprefix("torch.")
    return _known(_SHORT.get(text, text), name)


def _known(text: str, name: str, *, native: bool = True) -> str:
    if text in ITEM_BYTES and native:
        return text
    raise WrongDtype(
        f"{name} has an element type no kernel reads",
        expected=", ".join(ITEM_BYTES),
        came=text if native else f"{text}, byte-swapped",
        hint='bf16 without a name of its own: view the elements as uint16 and say dtype="bf16"',
    )


def _viewed(x: DeviceArray, dtype: str, name: str) -> DeviceArray:
    if ITEM_BYTES[_known(dtype, name)] != x.itemsize:
        raise WrongDtype(
            f"{name} cannot be read as {dtype}", expected=f"{ITEM_BYTES[dtype]} bytes an element", came=x.dtype
        )
    return x._replace(dtype=dtype)
