"""Attention by cuDNN, through torch, which has it for every head layout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import gcd
from typing import TYPE_CHECKING, Any

from ...dtypes import name_of
from ...kernels.elementwise.loop import MAX_32
from ...kernels.elementwise.source import HEADER as ELEMENTS
from ...kernels.elementwise.source import indented
from ...kernels.elementwise.types import ELEMENT_TYPES
from ...kernels.runtime.module import Kernel, load
from .batched import Asked, asked_of
from .machine import THREADS, Attention, Heads, Unit
from .writing import HEADER

if TYPE_CHECKING:
    from .cuda import CudaMachine
    from .gemm import BoundProduct
    from .pool import Pool

ENTRY = "attention_state"
# A result and the logs of sums of weights, for each range of keys.
Parts = list[tuple[Any, Any]]


class LibraryAttention:
    """What is made of the library's results of an attention, one for each range of keys. Each is divided by its sum of
    weights already: a state of sum 1, with the log of that sum for its maximum; these are folded into one state, or
    into what a finished state gives.

    A product that reads the only result, if it lies as it would be stored, reads it where the library has put it.
    """

    def __init__(self, machine: CudaMachine, attention: Attention, product: BoundProduct | None) -> None:
        self.product = product
        self.machine, self.attention = machine, attention
        self.store: Kernel | None = None
        self.blocks = 0

    def given(self, found: Parts) -> None:
        """Store what is wanted of it, or have it read."""
        a = self.attention
        if self.product is not None and self._lies_as_wanted(found[0][0]):
            self.product.reading(found[0][0].data_ptr() - a.state.offset * a.state.array.dtype.itemsize)
            return
        if self.store is None:
            self.store = self._stored(found)
        pointers = [tensor.data_ptr() for pair in found for tensor in pair]
        pointers.append(a.state.array.pointer + a.state.offset * a.state.array.dtype.itemsize)
        self.store.launch(self.blocks, THREADS, pointers, stream=self.machine.stream)
        if self.product is not None:
            self.product()

    def _lies_as_wanted(self, found: Any) -> bool:
        """Whether a result [batch, head, row, element] has the steps of the array that it would be stored in."""
        to = self.attention.state
        wanted = (to.batch if self.attention.batches > 1 else found.stride(0), to.head, to.row, 1)
        return tuple(found.stride()) == wanted

    def _stored(self, found: Parts) -> Kernel:
        """The kernel that makes states, or what they are finished to, of results and logs as they lie."""
        unit = storing_unit(self.attention, [(made.stride(), log.stride()[:3]) for made, log in found])
        self.blocks = unit.blocks
        return load(self.machine.compiled(unit), self.machine.device)


class LibraryCall:
    """A bound call. The library allocates its results: in the pool where there is one, whose memory the next call may
    have; else what a graph was captured with is kept for as long as the graph may be launched.
    """

    def __init__(self, machine: CudaMachine, asked: Asked, pool: Pool | None) -> None:
        import torch

        self.torch: Any = torch
        self.machine, self.asked, self.pool = machine, asked, pool
        a = asked.attention
        self.query = self._view(asked.query, a.rows, a.heads)
        self.key, self.value = (self._view(x, asked.part.count, a.groups) for x in (asked.key, asked.value))
        self.kept: list[Any] = []

    def _view(self, x: Heads, rows: int, heads: int) -> Any:
        """The vectors [batch, head, row, element]."""
        types = {"bf16": self.torch.bfloat16, "f16": self.torch.float16, "f32": self.torch.float32}
        flat = self.torch.as_tensor(x.array.reshape((x.array.size,)), device=self.machine.torch_device())
        typed, shape = flat.view(types[name_of(x.array.dtype)]), (self.asked.batches, heads, rows)
        return typed.as_strided((*shape, self.asked.attention.width), (x.batch, x.head, x.row, 1), x.offset)

    def __call__(self) -> Parts:
        """What the weights make of the values, and the logs of the weights' sums, for each member."""
        call, asked = self.torch.ops.aten._scaled_dot_product_cudnn_attention, self.asked
        scale, sides = asked.attention.scale, (self.query, self.key, self.value)
        pool = nullcontext() if self.pool is None else self.pool.used()
        with self.torch.no_grad(), pool, self.torch.cuda.stream(self.machine.torch_stream()):
            found, log, *_ = call(*sides, None, True, 0.0, asked.part.causal, False, scale=scale)
        if self.machine.capturing and self.pool is None:
            self.kept.append((found, log))
        n = asked.share
        return [(found[k * n : (k + 1) * n], log[k * n : (k + 1) * n]) for k in range(len(asked.members))]


class Together:
    """Attentions whose results may lie over operands of the others: all are computed before any is stored."""

    def __init__(self, machine: CudaMachine, attentions: Sequence[LibraryAttention], pool: Pool | None) -> None:
        self.attentions = attentions
        self.calls = [LibraryCall(machine, asked, pool) for asked in asked_of([one.attention for one in attentions])]

    @property
    def kernels(self) -> tuple[str, ...]:
        """What computes them."""
        stored = [(ENTRY,) if one.product is None else one.product.kernels for one in self.attentions]
        return (*("cuDNN attention" for _ in self.calls), *(name for names in stored for name in names))

    def __call__(self) -> None:
        found = {member: part for call in self.calls for member, part in zip(call.asked.members, call(), strict=True)}
        for number, one in enumerate(self.attentions):
            one.given([found[number, place] for place in range(len(one.attention.parts))])


def slopes(dy: Any, q: Any, k: Any, v: Any, y: Any, logs: Any, causal: bool, scale: float) -> tuple[Any, Any, Any]:
    """See `Machine.attention_slopes`."""
    import torch

    none, call = torch.zeros((), dtype=torch.int64, device=q.device), torch.ops.aten
    rows, keys = q.shape[2], k.shape[2]
    found: tuple[Any, Any, Any] = call._scaled_dot_product_cudnn_attention_backward(
        dy, q, k, v, y, logs.contiguous(), none, none, None, None, None, rows, keys, 0.0, causal, scale=scale
    )
    return found


Steps = Sequence[tuple[Sequence[int], Sequence[int]]]


def storing_unit(a: Attention, steps: Steps) -> Unit:
    """The kernel that folds results and logs, a pair a part, which lie with such steps, and stores what is wanted."""
    stored = ELEMENT_TYPES[name_of(a.query.array.dtype)].stored
    lines, threads = _finishing(a, stored, steps) if a.finished else _storing(a, steps)
    parameters = [f"const {stored}* o{k}, const float* log{k}" for k in range(len(steps))]
    declared = ", ".join([*parameters, f"{stored if a.finished else 'float'}* state"])
    head = f'{ELEMENTS if a.finished else HEADER}extern "C" __global__ void __launch_bounds__({THREADS})\n'
    source = f"{head}{ENTRY}({declared}) {{\n{indented(lines, 1)}}}\n\n}}  // namespace tapestry\n"
    return Unit(source, ENTRY, -(-threads // THREADS))


def _storing(a: Attention, steps: Steps) -> tuple[list[str], int]:
    """One thread an element of the states."""
    width = a.width + 2
    lines = [
        *_point(a, width),
        "const int c = part;",
        *_folded(steps),
        "float o = 0.0f;",
        *(f"if (c < {a.width}) o += w{k} * widen(o{k}[{_sum('bhtc', out)}]);" for k, (out, _) in enumerate(steps)),
        f"state[{_place(a)} + c] = c < {a.width} ? o : c == {a.width} ? l : m;",
    ]
    return lines, a.batches * a.rows * a.heads * width


def _finishing(a: Attention, stored: str, steps: Steps) -> tuple[list[str], int]:
    """One thread 16 bytes of a result, where it lies so."""
    at = (a.state.batch, a.state.head, a.state.row)
    vector = gcd(8, a.width, a.state.offset, *at, *(step for out, _ in steps for step in out[:3]))
    each = [f"Raw<{stored}, {vector}> r{k};" for k in range(len(steps))]
    each += [f"load<{vector}, true>(r{k}, o{k} + {_sum('bht', out[:3])} + c);" for k, (out, _) in enumerate(steps)]
    head, last = _point(a, a.width // vector), f"store<{vector}>(state + {_place(a)} + c, "
    lines = [*head, f"const int c = part * {vector};", *each]
    if len(steps) == 1:
        lines.append(f"{last}r0);")
    else:
        added = " + ".join(f"w{k} * widen(r{k}.get(e))" for k in range(len(steps)))
        lines += [*_folded(steps), f"float y[{vector}];", "#pragma unroll", f"for (int e = 0; e < {vector}; ++e)"]
        lines += [f"    y[e] = ({added}) / l;", f"Raw<{stored}, {vector}> made;", "round(made, y);", f"{last}made);"]
    return lines, a.batches * a.rows * a.heads * a.width // vector


def _point(a: Attention, parts: int) -> list[str]:
    """What a thread of so many a vector is for."""
    count = a.batches * a.rows * a.heads * parts
    number = "Natural" if count > MAX_32 else "unsigned"
    return [
        f"const {number} k = {number}(blockIdx.x) * {THREADS}u + threadIdx.x;",
        f"if (k >= {count}u) return;",
        f"const int part = int(k % {parts}u), h = int(k / {parts}u % {a.heads}u);",
        f"const int t = int(k / {parts * a.heads}u % {a.rows}u), b = int(k / {parts * a.heads * a.rows}u);",
    ]


def _folded(steps: Steps) -> list[str]:
    """The maximum, the sum of the weights, and the weight of each part."""
    return [
        "float m = -infinity(), l = 0.0f;",
        *(f"const float m{k} = log{k}[{_sum('bht', log)}];" for k, (_, log) in enumerate(steps)),
        *(f"m = maximum(m, m{k});" for k in range(len(steps))),
        *(f"const float w{k} = exponential(m{k} - m);" for k in range(len(steps))),
        *(f"l += w{k};" for k in range(len(steps))),
    ]


def _place(a: Attention) -> str:
    return _sum("bht", (a.state.batch, a.state.head, a.state.row))


def _sum(names: str, steps: Sequence[int]) -> str:
    return " + ".join(f"{name} * {step}ll" for name, step in zip(names, steps, strict=True))
