"""A machine whose kernels run on the host: g++ compiles the very sources that the GPU's compiler gets.

Memory is NumPy's, surrounded by bytes that nobody may write; matrix products are NumPy's on the same strided views.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter, sleep
from typing import Any

import numpy as np

from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.dense import CHANNELS_FIRST, CHANNELS_LAST, Asked
from tapestry.workers.cupy.exchange import Exchange
from tapestry.workers.cupy.gemm import gemm_of
from tapestry.workers.cupy.machine import (
    Attention,
    Convolution,
    Keys,
    Lines,
    Machine,
    Meeting,
    OfTorch,
    Paired,
    Product,
)
from tapestry.workers.cupy.machine import Unit as Kernel
from tapestry.workers.cupy.scratch import Scratch
from tapestry.workers.device import Bound, Replay, Runner, in_order, nothing
from tapestry.workers.lanes import HostLanes, InTurn

from ...kernels.elementwise.host import Unit, build
from .host_arrays import heads, host_bytes, matrix, steps_of, view_of, words
from .host_libraries import convolve, multiply, operands

GUARD, MARK = 256, 0x5C
SHOWN: dict[str, Memory] = {}


ALONE = threading.Lock()  # shared memory of an emulated kernel is its library's: ranks in threads take turns


class HostMachine(Machine):
    """``products``: whether the libraries are there; ``packed``: whether convolutions are asked for dense arrays.
    ``kernels`` are all that were launched.
    """

    worth = 1  # what tests multiply is small

    def __init__(self, *, products: bool = True, packed: bool = False) -> None:
        self.products, self.packed = products, packed
        self.units: dict[str, Unit] = {}
        self.libraries: list[ctypes.CDLL] = []
        self.built: dict[str, Any] = {}
        self.whole: list[np.ndarray[Any, Any]] = []
        self.kernels: list[str] = []

    def memory(self, tier: str, nbytes: int) -> Memory:
        whole = np.full(nbytes + 2 * GUARD + 64, MARK, np.uint8)
        self.whole.append(whole)
        start = GUARD + -(whole.ctypes.data + GUARD) % 64
        bytes_ = whole[start : start + nbytes]
        bytes_[...] = 0xA5
        return Memory(bytes_.ctypes.data, nbytes, whole, bytes_)

    def check(self) -> None:
        """Nothing was written before an allocation."""
        for whole in self.whole:
            assert (whole[:GUARD] == MARK).all(), "bytes before a memory were written"
            assert (whole[-GUARD + 64 :] == MARK).all(), "bytes behind a memory were written"

    def fill(self, array: DeviceArray, byte: int) -> None:
        host_bytes(array)[...] = byte

    def launch(self, unit: Kernel, arrays: Sequence[DeviceArray]) -> Runner:
        if not unit.blocks:
            return lambda: None
        shape = (unit.blocks, unit.threads, len(arrays), unit.cluster, unit.shared)
        self.units[unit.entry] = Unit(unit.source, unit.entry, *shape)
        held = tuple(arrays)

        def run() -> None:
            self._build()
            pointers = (ctypes.c_void_p * len(held))(*(array.pointer for array in held))
            with ALONE:
                self.built[unit.entry](pointers)
            self.kernels.append(unit.entry.split("_")[0])
            self.check()

        run.kernels = (unit.entry,)  # type: ignore[attr-defined]
        return run

    def _build(self) -> None:
        missing = [unit for entry, unit in self.units.items() if entry not in self.built]
        if missing:
            library = build(missing)
            self.libraries.append(library)
            self.built |= {unit.entry: getattr(library, f"host_{unit.entry}") for unit in missing}

    def copy(self, lines: Lines, arrays: Sequence[DeviceArray]) -> Runner:
        held = tuple(arrays)

        def run() -> None:
            shape, width = lines.extents, lines.width
            for array, first, steps in zip(held, (lines.source, lines.target), steps_of(lines), strict=True):
                last = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + width
                assert array.pointer <= first
                assert last <= array.pointer + array.nbytes
            assert not any(value % width for value in (lines.source, lines.target, *sum(steps_of(lines), ())))
            views = [
                view_of(first, steps, lines)
                for first, steps in zip((lines.source, lines.target), steps_of(lines), strict=True)
            ]
            views[1][...] = views[0]

        return run

    def product(self, product: Product, space: DeviceArray) -> Runner | None:
        if not self.products:
            return None
        gemm = gemm_of(product)

        def run() -> None:
            self.kernels.append("product")
            for batch in range(gemm.batches):
                multiply(gemm, batch)

        run.kernels = ("product" if gemm.added is None else "product, added",)  # type: ignore[attr-defined]
        return run

    def paired(self, paired: Paired) -> Runner | None:
        """Both products by NumPy, the function by a kernel."""
        if not self.products:
            return None
        size, entry = paired.rows * paired.columns, f"pair{len(self.units)}"
        body = "".join(f"        {line}\n" for line in paired.function)
        source = (
            "#include <tapestry/functions.cuh>\n\nnamespace tapestry {\nstruct Pair" + entry + " {\n"
            "    static TAPESTRY_FN float of(float a, float b) {\n" + body + "    }\n};\n"
            f'extern "C" __global__ void {entry}(const float* a, const float* b, float* y) {{\n'
            f"    const unsigned k = blockIdx.x * 64u + threadIdx.x;\n"
            f"    if (k < {size}u) y[k] = Pair{entry}::of(a[k], b[k]);\n}}\n}}  // namespace tapestry\n"
        )
        sums = [of_floats(self, size) for _ in range(3)]
        mapped = self.launch(Kernel(source, entry, -(-size // 64), 64), sums)

        def run() -> None:
            left = matrix(paired.left, paired.rows, paired.folded)
            for weights, into in zip((paired.first, paired.second), sums, strict=False):
                made = left @ matrix(weights, paired.folded, paired.columns)
                host_bytes(into).view(np.float32)[...] = made.reshape(-1)
            mapped()
            self.kernels[-1] = "paired"
            found = host_bytes(sums[2]).view(np.float32).reshape(paired.rows, paired.columns)
            out = paired.out
            lines = host_bytes(out.array).view(out.array.dtype)[out.offset :]
            for row in range(paired.rows):
                lines[row * out.row : row * out.row + paired.columns] = found[row]

        return run

    def convolution(self, convolution: Convolution, scratch: Scratch) -> Runner | None:
        """As cuDNN is asked: of dense filters, with as many zeros before x as behind it."""
        if not self.products or len({one.array.dtype for one in operands(convolution)}) > 1:
            return None
        layout = CHANNELS_LAST if convolution.x.steps[1] == 1 else CHANNELS_FIRST
        asked = Asked(self, convolution, scratch.bytes, layout, packed=self.packed)
        made = asked.convolution

        def run() -> None:
            self.kernels.append(f"convolution {made.computed}")
            convolve(made, layout)

        return in_order([*asked.before, run, *asked.after])

    def attention(self, attentions: Sequence[Attention], scratch: Scratch) -> Runner | None:
        space = scratch.bytes(scratch.most(self.product_bytes))
        products = [None if one.read_by is None else self.product(one.read_by, space) for one in attentions]

        def run() -> None:
            for store in [self._attend(one) for one in attentions]:
                store()
            for product in products:
                if product is not None:
                    product()

        return run if self.products else None

    def _attend(self, a: Attention) -> Runner:
        """Attention of dense heads in f32, as the library computes it, and what stores it."""
        self.kernels.append("library attention")
        q = heads(a, a.query, a.rows, a.heads, a.width).astype(np.float32)
        states = [self._part(a, q, part) for part in a.parts]
        m = np.maximum.reduce([log for _, log in states])
        total = sum(np.exp(log - m) for _, log in states)
        out = sum(np.exp(log - m)[..., None] * found for found, log in states)

        def store() -> None:
            if a.finished:
                heads(a, a.state, a.rows, a.heads, a.width)[...] = out / total[..., None]
                return
            state = heads(a, a.state, a.rows, a.heads, a.width + 2)
            state[..., : a.width], state[..., a.width], state[..., a.width + 1] = out, total, m

        return store

    def _part(
        self, a: Attention, q: np.ndarray[Any, Any], part: Keys
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The normalised values and the log of the sum of weights."""
        from_ = [replace(x, offset=x.offset + part.first * x.row) for x in (a.key, a.value)]
        k, v = (heads(a, x, part.count, a.groups, a.width).astype(np.float32) for x in from_)
        k, v = (np.repeat(x, a.heads // a.groups, axis=1) for x in (k, v))
        scores = q @ k.swapaxes(2, 3) * np.float32(a.scale)
        if part.causal:
            scores = np.where(np.tri(a.rows, part.count, dtype=bool), scores, -np.inf)
        largest = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - largest)
        total = weights.sum(axis=-1, keepdims=True)
        return (weights @ v / total).astype(a.query.array.dtype).astype(np.float32), (largest + np.log(total))[..., 0]

    @property
    def attention_slopes(self) -> Callable[..., tuple[Any, Any, Any]] | None:
        return self._slopes if self.products else None

    def _slopes(
        self, dy: Any, q: Any, k: Any, v: Any, y: Any, logs: Any, causal: bool, scale: float
    ) -> tuple[Any, Any, Any]:
        """As the library computes them, in f32, rounded to the type of the queries."""

        self.kernels.append("library slopes")
        share = q.shape[1] // k.shape[1]
        keys, values = (x.float().repeat_interleave(share, 1) for x in (k, v))
        weights = (scale * q.float() @ keys.mT - logs).exp()
        weights = weights.tril() if causal else weights
        towards = scale * weights * (dy.float() @ values.mT - (dy.float() * y.float()).sum(-1, keepdim=True))
        of_heads = (towards.mT @ q.float(), weights.mT @ dy.float())
        of_groups = (x.unflatten(1, (-1, share)).sum(2) for x in of_heads)
        return tuple(x.to(q.dtype) for x in (towards @ keys, *of_groups))  # type: ignore[return-value]

    def upload(self, host: bytes, target: DeviceArray) -> None:
        host_bytes(target)[...] = np.frombuffer(host, np.uint8)

    def download(self, source: DeviceArray) -> bytes:
        return host_bytes(source).tobytes()

    def synchronise(self) -> None:
        return

    def mark(self) -> Callable[[], float]:
        now = perf_counter()
        return lambda: now

    def replay(self, tasks: Sequence[Bound], *, side_by_side: bool) -> Replay:
        return HostLanes(tasks) if side_by_side else InTurn(self, tasks)

    def reached(self) -> Callable[[], bool]:
        return lambda: True

    def captured(self, run: Runner) -> Runner:
        return run

    def before_torch(self) -> AbstractContextManager[Any]:
        return nullcontext()

    # -- other processes: threads of this one -----------------------------------------------------------------------

    def handle(self, memory: Memory) -> str | None:
        SHOWN[str(memory.pointer)] = memory
        return str(memory.pointer)

    def opened(self, handle: str, nbytes: int) -> Memory | None:
        assert nbytes <= SHOWN[handle].nbytes
        return replace(SHOWN[handle], nbytes=nbytes, far=True)

    def let_go(self, memory: Memory) -> None:
        assert memory.far

    def meet(self, meeting: Meeting) -> Runner:
        tell, heard = self.meeting(meeting)

        def run() -> None:
            tell()
            while not heard():
                sleep(0.0005)

        return run

    def exchange(self, exchange: Exchange) -> Runner:
        """What the table of its kernel says, word by word."""
        table = np.frombuffer(exchange.table(), np.uint64)
        assert table[-1] == 0, "blocks are done before any began"
        copies = []
        for source, step, target, other, count, rows in table[:-1].reshape(-1, 6).tolist():
            extents, steps = (rows, count), [(each, exchange.width) for each in (step, other)]
            arrays = [
                next(a for a in exchange.arrays if a.pointer <= at < a.pointer + a.nbytes) for at in (source, target)
            ]
            copies.append(self.copy(Lines(source, target, exchange.width, extents, *steps), arrays))
        met = [nothing if one is None else self.meet(one) for one in (exchange.before, exchange.after)]
        return in_order([met[0], *copies, met[1]])

    def meeting(self, meeting: Meeting) -> tuple[Runner, Callable[[], bool]]:
        """The two halves of a meeting: what it tells, and whether all was heard."""
        bases = host_bytes(meeting.table).view(np.uint64)
        ranks = range(len(bases))
        count = words(meeting.held, 1)
        others = [words(int(bases[rank]) + meeting.offset, len(bases)) for rank in ranks if meeting.tell >> rank & 1]
        mine = words(int(bases[meeting.number]) + meeting.offset, len(bases))
        awaited = [rank for rank in ranks if meeting.hear >> rank & 1]

        def tell() -> None:
            count[0] += 1
            for flags in others:
                flags[meeting.number] = count[0]

        return tell, lambda: all(mine[rank] >= count[0] for rank in awaited)

    def running(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def close(self) -> None:
        return

    def behind(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def baseline_bytes(self) -> int:
        return 0

    def tensor(self, array: DeviceArray) -> Any:
        import torch

        return torch.from_numpy(host_bytes(array).view(array.dtype).reshape(array.shape))

    def torch(self, run: Runner, kernels: tuple[str, ...] = ("torch",)) -> Runner:
        return OfTorch(run, kernels)

    def torch_device(self) -> str:
        return "cpu"


def of_floats(machine: HostMachine, size: int) -> DeviceArray:
    return DeviceArray(machine.memory("", 4 * size), 0, (size,), np.dtype(np.float32))
