"""Attention by cuDNN, through torch, which has it for every head layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...dtypes import name_of
from ...kernels.elementwise.loop import MAX_32
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from ...kernels.runtime.module import Kernel, load
from .machine import THREADS, Attention, Heads, Unit
from .writing import HEADER

if TYPE_CHECKING:
    from .cuda import CudaMachine

ENTRY, FLOAT = "attention_state", 4


class LibraryAttention:
    """Bound calls, one a range of keys. What each gives is divided by its sum of weights already: a state of sum 1,
    with the log of that sum for its maximum; these are folded into one state.

    The library allocates its results; what a graph was captured with is kept for as long as the graph may be launched.
    """

    def __init__(self, machine: CudaMachine, attention: Attention) -> None:
        import torch

        self.torch: Any = torch
        self.machine, self.attention = machine, attention
        a = attention
        self.query = self._view(a.query, a.rows, a.heads, a.width)
        self.parts = [
            (*(self._view(_from(x, part.first), part.count, a.groups, a.width) for x in (a.key, a.value)), part.causal)
            for part in a.parts
        ]
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
            found = [self._called(*part) for part in self.parts]
        if self.store is None:
            self.store = self._stored(found)
        pointers = [tensor.data_ptr() for pair in found for tensor in pair]
        pointers.append(a.state.array.pointer + a.state.offset * FLOAT)
        self.store.launch(-(-self.elements // THREADS), THREADS, pointers, stream=self.machine.stream)
        if self.machine.capturing:
            self.kept.append(found)

    def _called(self, key: Any, value: Any, causal: bool) -> tuple[Any, Any]:
        """What the weights make of the values, and the logs of the weights' sums."""
        call = self.torch.ops.aten._scaled_dot_product_cudnn_attention
        scale = self.attention.scale
        found, log, *_ = call(self.query, key, value, None, True, 0.0, causal, False, scale=scale)
        return found, log

    def _stored(self, found: list[tuple[Any, Any]]) -> Kernel:
        """The kernel that makes states of results and logs as they lie."""
        source = storing_source(self.attention, [(made.stride(), log.stride()[:3]) for made, log in found])
        unit = Unit(source, ENTRY, -(-self.elements // THREADS))
        return load(self.machine.compiled(unit), self.machine.device)

    @property
    def elements(self) -> int:
        a = self.attention
        return a.batches * a.rows * a.heads * (a.width + 2)


def _from(x: Heads, row: int) -> Heads:
    return replace(x, offset=x.offset + row * x.row)


def storing_source(a: Attention, steps: Sequence[tuple[Sequence[int], Sequence[int]]]) -> str:
    """CUDA source: one thread an element of the states, of results and logs (one pair a part) with such steps."""
    stored = ELEMENT_TYPES[name_of(a.query.array.dtype)].stored
    width = a.width + 2
    to = _sum("bht", (a.state.batch, a.state.head, a.state.row))
    count = a.batches * a.rows * a.heads * width
    number = "Natural" if count > MAX_32 else "unsigned"
    lines = [
        f"const {number} k = {number}(blockIdx.x) * {THREADS}u + threadIdx.x;",
        f"if (k >= {count}u) return;",
        f"const int c = int(k % {width}u), h = int(k / {width}u % {a.heads}u);",
        f"const int t = int(k / {width * a.heads}u % {a.rows}u), b = int(k / {width * a.heads * a.rows}u);",
        "float m = -infinity(), l = 0.0f, o = 0.0f;",
        *(f"const float m{k} = log{k}[{_sum('bht', log)}];" for k, (_, log) in enumerate(steps)),
        *(f"m = maximum(m, m{k});" for k in range(len(steps))),
        *(f"const float w{k} = exponential(m{k} - m);" for k in range(len(steps))),
        *(f"l += w{k};" for k in range(len(steps))),
        *(f"if (c < {a.width}) o += w{k} * widen(o{k}[{_sum('bhtc', out)}]);" for k, (out, _) in enumerate(steps)),
        f"state[{to} + c] = c < {a.width} ? o : c == {a.width} ? l : m;",
    ]
    head = f'{HEADER}extern "C" __global__ void __launch_bounds__({THREADS})\n'
    parameters = [f"const {stored}* o{k}, const float* log{k}" for k in range(len(steps))]
    declared = ", ".join([*parameters, "float* state"])
    return f"{head}{ENTRY}({declared}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"


def _sum(names: str, steps: Sequence[int]) -> str:
    return " + ".join(f"{name} * {step}ll" for name, step in zip(names, steps, strict=True))
