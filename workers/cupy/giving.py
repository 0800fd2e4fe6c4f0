"""Arrays of the device as tensors of other libraries, without the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import numpy_dtype
from ..device import DType
from ..tensors import is_host, namespace
from .arrays import DeviceArray

ON_CUDA = 2  # kDLCUDA
BF16 = numpy_dtype("bf16")


def near(value: Any, dtype: DType, device: int) -> bool:
    """Whether a tensor lies on a GPU, and its library has tensors of a dtype that DLPack carries."""
    if is_host(value) or tuple(map(int, value.__dlpack_device__())) != (ON_CUDA, device):
        return False
    return dtype.kind in "biuf" or (dtype == BF16 and hasattr(namespace(value), "bfloat16"))


def given(array: DeviceArray, like: Any) -> Any:
    """A copy of an array as a tensor of the kind of another. All that wrote to the array is done."""
    import cupy

    library, plain = namespace(like), np.dtype(np.int16) if array.dtype == BF16 else array.dtype
    memory = cupy.cuda.UnownedMemory(array.pointer, array.nbytes, array)
    copied = cupy.ndarray(array.shape, plain, cupy.cuda.MemoryPointer(memory, 0)).copy()
    found = copied if library is cupy else library.from_dlpack(copied)
    return found.view(library.bfloat16) if array.dtype == BF16 else found
