"""An input on its way into the ranks' buffers, step after step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from ..planner.format import Resolved
from ..program import Tensor
from .between import filling, first_buffers
from .device import Device, Runner, Stored, in_order
from .rank import Rank
from .tensors import host_array
from .whole import empty_whole

# Arrays of fewer bytes are copied once more, which is quicker than to bind where they lie anew.
LARGE = 1 << 20


class Feed:
    """One input. What lies in memory that the device can read is read there, unless it is small; what does not is put
    into host memory first. The last such memory is remembered: given again, nothing is bound.
    """

    def __init__(self, plan: Resolved, device: Device, ranks: Sequence[Rank], tensor: Tensor) -> None:
        self._device, self._ranks, self._tensor = device, ranks, tensor
        self._buffers = [buffer for buffer in first_buffers(plan, "input") if buffer.tensor == tensor.name]
        self._whole = empty_whole(tensor)
        self._staged = self._filling(self._whole)
        self._known: tuple[Any, Runner] | None = None

    def of(self, value: Any) -> Runner:
        """What fills the buffers with a value, which was checked."""
        small = isinstance(value, np.ndarray) and value.nbytes < LARGE
        adopted = None if small else self._device.adopt(value, numpy_dtype(self._tensor.dtype))
        if adopted is None:
            self._whole.array[...] = host_array(value)
            return self._staged
        if self._known is None or not _same(self._known[0], adopted):
            self._known = adopted, self._filling(Stored(adopted, self._whole.grid))
        return self._known[1]

    def _filling(self, whole: Stored) -> Runner:
        return in_order(filling(self._ranks, self._buffers, {self._tensor.name: whole}))


def _same(a: Any, b: Any) -> bool:
    """Two arrays of one shape over the same memory, laid out alike."""
    if isinstance(a, np.ndarray):
        return bool(a.ctypes.data == b.ctypes.data and a.strides == b.strides)
    return bool(a == b)
