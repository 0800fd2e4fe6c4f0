"""A GPU on paper: tasks are bound to it and say what would compute them. Nothing has memory, and nothing runs."""

# Names are all that is asked of it, so most arguments do not matter.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..device import Bound, DType, Replay, Runner
from .arrays import DeviceArray, Memory
from .batched import asked_of
from .exchange import Exchange
from .gemm import name_of_call
from .machine import Attention, Convolution, Lines, Machine, Meeting, Paired, Product, Unit
from .scratch import Scratch

# Memories begin here and at multiples of that, as those of a GPU do.
FIRST, ALIGNED = 1 << 40, 512


@dataclass(frozen=True)
class Named:
    """What a runner would ask for."""

    kernels: tuple[str, ...]

    def __call__(self) -> None:
        raise _never()


def _never() -> NotImplementedError:
    return NotImplementedError("a device on paper computes nothing")


class PaperMachine(Machine):
    """Addresses that nobody reads, and names. Libraries are taken to have what is in their reach."""

    def __init__(self) -> None:
        self.next = FIRST

    def memory(self, tier: str, nbytes: int) -> Memory:
        if tier == "host":
            held = np.empty(nbytes, np.uint8)
            return Memory(held.ctypes.data, nbytes, held, held)
        pointer, self.next = self.next, self.next + -(-max(1, nbytes) // ALIGNED) * ALIGNED
        return Memory(pointer, nbytes, None)

    def launch(self, unit: Unit, arrays: Sequence[DeviceArray]) -> Runner:
        return Named((unit.entry,))

    def copy(self, lines: Lines, arrays: Sequence[DeviceArray]) -> Runner:
        return Named(("copy",))

    def product(self, product: Product, space: DeviceArray) -> Runner | None:
        return Named((name_of_call(product),))

    def paired(self, paired: Paired) -> Runner | None:
        return Named(("paired",))

    def convolution(self, convolution: Convolution, scratch: Scratch) -> Runner | None:
        return Named(("cuDNN convolution",))

    def attention(self, attentions: Sequence[Attention], scratch: Scratch) -> Runner | None:
        names = ["cuDNN attention" for _ in asked_of(attentions)]
        return Named((*names, *("cublasLtMatmul" for one in attentions if one.read_by is not None)))

    @property
    def attention_slopes(self) -> Callable[..., tuple[Any, Any, Any]]:
        def run(*_: Any) -> tuple[Any, Any, Any]:
            raise _never()

        return run

    def torch(self, run: Runner, kernels: tuple[str, ...] = ("torch",)) -> Runner:
        return Named(kernels)

    def tensor(self, array: DeviceArray) -> Any:
        return None

    def torch_device(self) -> str:
        return "meta"

    def baseline_bytes(self) -> int:
        return 0

    def close(self) -> None:
        return

    def let_go(self, memory: Memory) -> None:
        return

    # -- running: there is none ------------------------------------------------------------------------------------

    def zeros(self, size: int, dtype: DType) -> DeviceArray:
        return DeviceArray(self.memory("", size * dtype.itemsize), 0, (size,), dtype)

    def fill(self, array: DeviceArray, byte: int) -> NoReturn:
        raise _never()

    def upload(self, host: bytes, target: DeviceArray) -> NoReturn:
        raise _never()

    def download(self, source: DeviceArray) -> NoReturn:
        raise _never()

    def synchronise(self) -> NoReturn:
        raise _never()

    def mark(self) -> Callable[[], float]:
        raise _never()

    def replay(self, tasks: Sequence[Bound], *, side_by_side: bool) -> Replay:
        raise _never()

    def captured(self, run: Runner) -> Runner:
        raise _never()

    def reached(self) -> Callable[[], bool]:
        raise _never()

    def before_torch(self) -> AbstractContextManager[Any]:
        raise _never()

    def running(self) -> AbstractContextManager[Any]:
        raise _never()

    def behind(self) -> AbstractContextManager[Any]:
        raise _never()

    def handle(self, memory: Memory) -> str | None:
        raise _never()

    def opened(self, handle: str, nbytes: int) -> Memory | None:
        raise _never()

    def meet(self, meeting: Meeting) -> Runner:
        raise _never()

    def exchange(self, exchange: Exchange) -> Runner:
        raise _never()
