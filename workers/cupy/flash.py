"""Attention by cuDNN, through torch, which has it for every head layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dtypes import name_of
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from ...kernels.runtime.module import Kernel, load
from .machine import THREADS, Attention, Heads, Unit
from .writing import HEADER

if TYPE_CHECKING:
    from .cuda import CudaMachine

ENTRY, FLOAT = "attention_state", 4


class LibraryAttention:
    """A bound call. What it computes is divided by its sum already: a state of sum 1 and the log of the sum as maximum.

    The library allocates its results; what a graph was captured with is kept for as long as the graph may be launched.
    """

    def __init__(self, machine: CudaMachine, attention: Attention) -> None:
        import torch

        self.torch: Any = torch
        self.machine, self.attention = machine, attention
        a = attention
        self.query = self._view(a.query, a.rows, a.heads, a.width)
        self.key, self.value = (self._view(x, a.keys, a.groups, a.width) for x in (a.key, a.value))
        self.state = self._view(a.state, a.rows, a.heads, a.width + 2)
        self.store: Kernel | None = None
        self.kept: list[Any] = []

    def _view(self, x: Heads, rows: int, heads: int, width: int) -> Any:
        """The vectors [batch, head, row, element]."""
        types = {"bf16": self.torch.bfloat16, "f16": self.torch.float16, "f32": self.torch.float32}
        flat = self.torch.as_tensor(x.array.reshape((x.array.size,)), device=self.machine.torch_device())
        typed = flat.view(types[name_of(x.array.dtype)])
        return typed.as_strided((self.attention.batches, heads, rows, width), (x.batch, x.head, x.row, 1), x.offset)

    def __call__(self) -> None:
        a = self.attention
        with self.torch.no_grad(), self.torch.cuda.stream(self.machine.torch_stream()):
            found, log, *_ = self.torch.ops.aten._scaled_dot_product_cudnn_attention(
                self.query, self.key, self.value, None, True, 0.0, a.causal, False, scale=a.scale
            )
        if self.store is None:
            self.store = self._stored(found.stride(), log.stride()[:3])
        pointers = found.data_ptr(), log.data_ptr(), a.state.array.pointer + a.state.offset * FLOAT
        self.store.launch(-(-self.elements // THREADS), THREADS, pointers, stream=self.machine.stream)
        if self.machine.capturing:
            self.kept.append((found, log))

    def _stored(self, found: Sequence[int], log: Sequence[int]) -> Kernel:
        """The kernel that makes states of results and logs that lie so."""
        a = self.attention
        source = storing_source(a, found, log)
        unit = Unit(source, ENTRY, -(-self.elements // THREADS))
        return load(self.machine.compiled(unit), self.machine.device)

    @property
    def elements(self) -> int:
        a = self.attention
        return a.batches * a.rows * a.heads * (a.width + 2)


def storing_source(a: Attention, found: Sequence[int], log: Sequence[int]) -> str:
    """CUDA source: one thread an element of the states."""
    stored = ELEMENT_TYPES[name_of(a.query.array.dtype)].stored
    width = a.width + 2
    inside = " + ".join(f"{name} * {step}ll" for name, step in zip("bhtc", found, strict=True))
    logs = " + ".join(f"{name} * {step}ll" for name, step in zip("bht", log, strict=True))
    to = " + ".join(
        f"{name} * {step}ll" for name, step in zip("bht", (a.state.batch, a.state.head, a.state.row), strict=True)
    )
    lines = [
        f"const Natural k = Natural(blockIdx.x) * {THREADS}u + threadIdx.x;",
        f"if (k >= {a.batches * a.rows * a.heads * width}ull) return;",
        f"const int c = int(k % {width}u), h = int(k / {width}u % {a.heads}u);",
        f"const int t = int(k / {width * a.heads}u % {a.rows}u), b = int(k / {width * a.heads * a.rows}ull);",
        f"state[{to} + c] = c < {a.width} ? widen(found[{inside}]) : c == {a.width} ? 1.0f : log[{logs}];",
    ]
    head = f'{HEADER}extern "C" __global__ void __launch_bounds__({THREADS})\n'
    parameters = f"const {stored}* found, const float* log, float* state"
    return f"{head}{ENTRY}({parameters}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"
