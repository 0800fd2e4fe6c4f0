"""Arrays of several libraries, described without touching what they point to; and what is refused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.kernels.errors import WrongDevice, WrongDtype, WrongLayout, WrongType
from tapestry.kernels.runtime import array as arrays
from tapestry.kernels.runtime.array import DeviceArray, array, dense_strides

ADDRESS = 0x7F00_0000_0000
NAMES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "bool": np.bool_,
    "int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64, "uint16": np.uint16,
}  # fmt: skip


def on_device(shape: tuple[int, ...], dtype: Any, device: int = 0) -> Any:
    """A CuPy array at an address nobody owns: it can be described, not read."""
    memory = cupy.cuda.UnownedMemory(ADDRESS, 1 << 30, None, device)
    return cupy.ndarray(shape, dtype=dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


class OnDevice(torch.Tensor):
    """A tensor in host memory that says it is on GPU 1."""

    is_cuda = True  # type: ignore[assignment,misc]

    def get_device(self) -> int:
        return 1


class Interface:
    """An object with nothing but `__cuda_array_interface__`."""

    def __init__(self, **changes: object) -> None:
        whole = {"data": (ADDRESS, False), "shape": (2, 3), "typestr": "<f4", "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**whole, **changes}


Interface.__cuda_array_interface__ = None  # type: ignore[attr-defined]  # seen on the class too, as a property would be


@pytest.fixture
def pointers_on_device_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that places every pointer on GPU 3."""
    fake = SimpleNamespace(pointerGetAttributes=lambda pointer: SimpleNamespace(device=3), getDevice=lambda: 0)
    monkeypatch.setattr(arrays, "runtime", lambda: fake)


@pytest.mark.parametrize("name", NAMES)
def test_cupy_arrays(name: str) -> None:
    x = on_device((2, 3, 4), NAMES[name])
    size = np.dtype(NAMES[name]).itemsize
    assert array(x) == DeviceArray(ADDRESS, (2, 3, 4), (12 * size, 4 * size, size), name, 0, "cupy")
    turned = array(x.transpose(2, 0, 1)[1:])
    assert turned == DeviceArray(ADDRESS + size, (3, 2, 3), (size, 12 * size, 4 * size), name, 0, "cupy")
    assert not turned.contiguous


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int64, torch.bool])
def test_torch_tensors(dtype: torch.dtype) -> None:
    plain = torch.zeros(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    found = array(plain.as_subclass(OnDevice))
    size = plain.element_size()
    name = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}.get(dtype, str(dtype)[6:])
    assert found == (plain.data_ptr(), (2, 3, 4, 5), (60 * size, size, 15 * size, 3 * size), name, 1, "torch")
    assert type(found.shape) is tuple


def test_parameters_are_tensors() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(WrongDevice, match=r"weight is in host memory[\s\S]*a torch tensor on cpu"):
        array(weight, "weight")


@pytest.mark.usefixtures("pointers_on_device_3")
def test_anything_with_the_interface() -> None:
    assert array(Interface()) == DeviceArray(ADDRESS, (2, 3), (12, 4), "f32", 3, "other")
    assert array(Interface(strides=(4, 8))).strides == (4, 8)
    assert array(Interface(data=(0, False), shape=(0, 3))).elements == 0
    with pytest.raises(WrongLayout, match="mask"):
        array(Interface(mask=Interface()))


def test_an_array_is_itself() -> None:
    x = DeviceArray(ADDRESS, (2,), (4,), "f32", 0)
    assert array(x) is x


def test_sixteen_bit_integers_can_be_read_as_bf16() -> None:
    x = on_device((4, 4), np.uint16)
    assert array(x, dtype="bf16") == array(x)._replace(dtype="bf16")
    with pytest.raises(WrongDtype, match=r"x cannot be read as f32[\s\S]*4 bytes an element[\s\S]*uint16"):
        array(x, "x", dtype="f32")


@pytest.mark.parametrize(
    ("x", "kind", "text"),
    [
        (np.zeros(3), WrongDevice, "cupy.asarray(image)"),
        (torch.zeros(3), WrongDevice, 'x.to("cuda")'),
        ([1, 2], WrongType, "came       list [1, 2]"),
        (None, WrongType, "image is not an array on a GPU"),
        (0x1000, WrongType, "int 4096"),
    ],
)
def test_what_is_no_array_on_a_gpu_is_refused(x: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        array(x, "image")
    assert str(caught.value).startswith("image ")
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", [np.complex64, np.dtype(">f4")])
def test_types_no_kernel_reads_are_refused(dtype: Any) -> None:
    with pytest.raises(WrongDtype, match="element type no kernel reads"):
        arrays._numpy_name(np.dtype(dtype), "x")


def test_sparse_tensors_are_refused() -> None:
    sparse = SimpleNamespace(is_cuda=True, layout="torch.sparse_coo", get_device=lambda: 0)
    with pytest.raises(WrongLayout, match="sparse"):
        arrays._from_torch(sparse, "x")


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=5), st.permutations(range(5)), st.sampled_from(["f16", "f32", "f64"]))
def test_contiguous_means_what_numpy_means(shape: list[int], order: list[int], dtype: str) -> None:
    axes = [axis for axis in order if axis < len(shape)]
    x = np.zeros(shape, NAMES[dtype]).transpose(axes)
    found = DeviceArray(ADDRESS, x.shape, x.strides, dtype, 0)
    assert found.contiguous == x.flags.c_contiguous
    assert found.elements == math.prod(x.shape)
    assert found.itemsize == x.itemsize
    if x.size:
        assert dense_strides(x.shape, x.itemsize) == np.empty(x.shape, x.dtype).strides
