"""The GPU: memory, streams and launches, through CuPy's bindings."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from time import perf_counter
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from ...dtypes import name_of
from ...errors import UsageError
from ...kernels.errors import LaunchError, WrongDevice
from ...kernels.runtime.bindings import runtime
from ...kernels.runtime.compiler import Compiled, compile_source
from ...kernels.runtime.device import device_architecture, device_count, properties
from ...kernels.runtime.libcuda import driver_function
from ..device import Bound, Replay, Runner, in_order
from . import paired as paired_products
from . import sharing
from .arrays import DeviceArray, Memory, of_memory
from .copying import AXES, copying_unit, outermost
from .cudnn import Cudnn
from .exchange import Exchange
from .gemm import WORKSPACE, BoundProduct, Cublas
from .grouped import grouped
from .lanes import Lanes
from .launching import Launch
from .machine import PAGE, Attention, Convolution, Lines, Machine, Meeting, OfTorch, Paired, Product, Unit
from .moving import Rows, rows_of
from .pool import Pool
from .scratch import Scratch

HOST_TIERS = ("host",)
CAPABILITY = (8, 0)
OVERLAPPING = (9, 0)  # has clusters of blocks, and kernels that start before the one ahead has ended
# What torch calls our dtypes, where it is not our name.
TORCH = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip
RECORD_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL
ANY_DIRECTION = 4  # cudaMemcpyDefault: the addresses say where they lie


class CudaMachine(Machine):
    """One GPU of this process, and its current stream. Raises `MissingCuPy`, `MissingGPU`, UsageError."""

    product_bytes = WORKSPACE

    def __init__(self) -> None:
        self.api: Any = runtime()
        import cupy

        self.cupy: Any = cupy
        self.device = self.number = _device()
        self.api.setDevice(self.device)
        self.arch = device_architecture(self.device)
        if properties(self.device).capability < CAPABILITY:
            raise WrongDevice(
                "the CuPy device needs a newer GPU",
                expected=f"compute capability {CAPABILITY[0]}.{CAPABILITY[1]} or newer, which has bf16",
                came=f"{properties(self.device).name}, {'.'.join(map(str, properties(self.device).capability))}",
            )
        self.main = cupy.cuda.Stream(non_blocking=True)
        self.stream: int = self.main.ptr
        self.planned = 0
        self.pending: list[ref[Launch]] = []
        self.capturing = False
        self.overlaps = self.clusters = properties(self.device).capability >= OVERLAPPING
        self._graphs: WeakSet[_Graph] = WeakSet()
        self._cublas: Cublas | None = None
        self._cudnn: Cudnn | None = None
        self._torch_streams: dict[int, Any] = {}
        self._pools: dict[tuple[int, int], Pool] = {}
        self._torch_pool: Any = None  # memory that a captured graph uses is in no other pool
        self._origin = self._started()

    @property
    def multiprocessors(self) -> int:
        return properties(self.device).sms

    def _started(self) -> tuple[Any, float]:
        """A moment by the clocks of the GPU and of the host."""
        event = self._event()
        event.synchronize()
        return event, perf_counter()

    # -- memory ----------------------------------------------------------------------------------------------------

    def memory(self, tier: str, nbytes: int) -> Memory:
        if not nbytes:
            return Memory(0, 0, None)
        try:
            if tier in HOST_TIERS:
                pinned = self.cupy.cuda.PinnedMemory(nbytes)
                seen = self.cupy.cuda.PinnedMemoryPointer(pinned, 0)
                return Memory(pinned.ptr, nbytes, pinned, np.frombuffer(seen, np.uint8, nbytes))
            found = self.cupy.cuda.Memory(-(-nbytes // PAGE) * PAGE if tier else nbytes)
        except self.api.CUDARuntimeError as error:
            if "MemoryAllocation" in str(error):
                raise MemoryError(str(error)) from error
            raise
        self.planned += nbytes if tier else 0
        return Memory(found.ptr, nbytes, found)

    def baseline_bytes(self) -> int:
        free, total = self.api.memGetInfo()
        return max(0, int(total - free) - self.planned)

    def fill(self, array: DeviceArray, byte: int) -> None:
        if array.nbytes:
            self.api.memsetAsync(array.pointer, byte, array.nbytes, self.stream)

    def upload(self, host: bytes, target: DeviceArray) -> None:
        source = np.frombuffer(host, np.uint8)
        self._transferred(target.pointer, source.ctypes.data, source.size)

    def download(self, source: DeviceArray) -> bytes:
        target = np.empty(source.nbytes, np.uint8)
        self._transferred(target.ctypes.data, source.pointer, target.size)
        return target.tobytes()

    def _transferred(self, target: int, source: int, nbytes: int) -> None:
        """A copy after all that was asked for; it is there on return (a plain one may return before)."""
        self.synchronise()
        if nbytes:
            self.api.memcpyAsync(target, source, nbytes, ANY_DIRECTION, self.stream)
            self.synchronise()

    # -- launches --------------------------------------------------------------------------------------------------

    def launch(self, unit: Unit, arrays: Sequence[DeviceArray]) -> Runner:
        if not unit.blocks:
            return _nothing
        pointers = [array.pointer for array in arrays]
        return self._launch(unit, pointers, tuple(arrays))

    def _launch(self, unit: Unit, arguments: Sequence[Any], held: tuple[object, ...]) -> Runner:
        found = Launch(self, unit, arguments, held)
        self.pending.append(ref(found))
        return found

    def load(self) -> None:
        """Compile what was asked for so far, unless nobody holds it any more, and load it, side by side: nothing of
        that happens while tasks run.
        """
        waiting, self.pending = [one for held in self.pending if (one := held()) is not None], []
        units = {(one.unit.entry, one.unit.exact): one.unit for one in waiting}
        if len(units) > 1:
            with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
                list(pool.map(self.compiled, units.values()))
        for one in waiting:
            one.load()

    def compiled(self, unit: Unit) -> Compiled:
        """A kernel for this GPU."""
        options = ("--fmad=false",) if unit.exact else ()
        return compile_source(unit.source, name=unit.entry, arch=f"{self.arch}{'a' * unit.own}", options=options)

    def copy(self, lines: Lines, arrays: Sequence[DeviceArray]) -> Runner:
        if not all(lines.extents):
            return _nothing
        held = tuple(arrays)
        if len(lines.extents) == 1:
            return self._stretch(lines, held)
        if any(array.memory.far for array in arrays) and (rows := rows_of(lines)) is not None:
            return in_order([self._rows(part, held) for part in rows])
        if len(lines.extents) > AXES:
            return in_order([self.copy(part, arrays) for part in outermost(lines)])
        unit, arguments = copying_unit(lines)
        return self._launch(unit, arguments, held)

    def _stretch(self, lines: Lines, held: tuple[object, ...]) -> Runner:
        nbytes = lines.extents[0] * lines.width

        def run() -> None:
            self.api.memcpyAsync(lines.target, lines.source, nbytes, ANY_DIRECTION, self.stream)

        run.held = held  # type: ignore[attr-defined]
        return run

    def _rows(self, rows: Rows, held: tuple[object, ...]) -> Runner:
        """By a copy engine, which leaves the multiprocessors to others."""
        arguments = rows.target, rows.target_step, rows.source, rows.source_step, rows.nbytes, rows.count

        def run() -> None:
            self.api.memcpy2DAsync(*arguments, ANY_DIRECTION, self.stream)

        run.held = held  # type: ignore[attr-defined]
        return run

    def product(self, product: Product, space: DeviceArray) -> BoundProduct | None:
        if self._cublas is None:
            self._cublas = Cublas(self, lambda: self.stream)
        return self._cublas.prepared(product, space)

    def paired(self, paired: Paired) -> Runner | None:
        if properties(self.device).capability != paired_products.CAPABILITY:
            return None
        unit = paired_products.unit_of(paired, properties(self.device).sms)
        held = tuple(x.array for x in (paired.left, paired.first, paired.second, paired.out))
        return self._launch(unit, paired_products.arguments(paired), held)

    def convolution(self, convolution: Convolution, scratch: Scratch) -> Runner | None:
        if convolution.groups > 1:
            return grouped(self, convolution, scratch.bytes)
        if self._cudnn is None:
            self._cudnn = Cudnn.found(self)
        return self._cudnn.prepared(convolution, scratch) if self._cudnn else None

    def attention(self, attentions: Sequence[Attention], scratch: Scratch) -> Runner | None:
        from .flash import LibraryAttention, Together

        read = any(one.read_by is not None for one in attentions)
        space = scratch.bytes(scratch.most(self.product_bytes) if read else 0)
        products = [None if one.read_by is None else self.product(one.read_by, space) for one in attentions]
        if any(one.read_by is not None and made is None for one, made in zip(attentions, products, strict=True)):
            return None
        made = [LibraryAttention(self, *pair) for pair in zip(attentions, products, strict=True)]
        return Together(self, made, self._pool(scratch.rest()))

    @property
    def attention_slopes(self) -> Callable[..., tuple[Any, Any, Any]]:
        from .flash import slopes

        return slopes

    def _pool(self, room: DeviceArray | None) -> Pool | None:
        """Torch's pool over some bytes, the same for the same bytes."""
        if room is None:
            return None
        key = room.pointer, room.nbytes
        if key not in self._pools:
            self._pools[key] = Pool(partial(self.memory, ""), room)
        return self._pools[key]

    def tensor(self, array: DeviceArray) -> Any:
        import torch

        kind: Any = getattr(torch, TORCH.get(name_of(array.dtype), name_of(array.dtype)))
        flat: Any = torch.as_tensor(array, device=self.torch_device())
        return flat.view(kind).reshape(array.shape)

    def torch(self, run: Runner, kernels: tuple[str, ...] = ("torch",)) -> Runner:
        import torch

        if self._torch_pool is None:
            self._torch_pool = torch.cuda.MemPool()

        def call() -> None:
            with torch.no_grad(), torch.cuda.use_mem_pool(self._torch_pool), torch.cuda.stream(self.torch_stream()):
                run()

        return OfTorch(call, kernels)

    def torch_stream(self) -> Any:
        """The current stream, as torch calls it."""
        if self.stream not in self._torch_streams:
            import torch

            stream_of: Any = torch.cuda.ExternalStream
            self._torch_streams[self.stream] = stream_of(self.stream, self.torch_device())
        return self._torch_streams[self.stream]

    def before_torch(self) -> AbstractContextManager[Any]:
        import torch

        found: AbstractContextManager[Any] = torch.cuda.stream(self.torch_stream())
        return found

    # -- other processes --------------------------------------------------------------------------------------------

    def handle(self, memory: Memory) -> str | None:
        return sharing.handle(self.api, memory)

    def opened(self, handle: str, nbytes: int) -> Memory | None:
        return sharing.opened(self.api, handle, nbytes)

    def let_go(self, memory: Memory) -> None:
        self.api.ipcCloseMemHandle(memory.pointer)

    def meet(self, meeting: Meeting) -> Runner:
        return self._launch(sharing.UNIT, sharing.arguments(meeting), (meeting.table,))

    def exchange(self, exchange: Exchange) -> Runner:
        written = exchange.table()
        table = of_memory(self.memory("", len(written)))
        self.upload(written, table)
        held = table, *(meeting.table for meeting in exchange.meetings), *exchange.arrays
        return self._launch(exchange.unit(), exchange.arguments(table.pointer), held)

    # -- running ---------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        self.load()
        self._origin = self._started()
        yield

    def mark(self) -> Callable[[], float]:
        found, origin = self._event(), self._origin
        return lambda: origin[1] + self.cupy.cuda.get_elapsed_time(origin[0], found) / 1e3

    def reached(self) -> Callable[[], bool]:
        found = self._event()
        return lambda: bool(found.done)

    def _event(self) -> Any:
        event = self.cupy.cuda.Event()
        self.api.eventRecord(event.ptr, self.stream)
        return event

    def replay(self, tasks: Sequence[Bound], *, side_by_side: bool) -> Replay:
        self.load()
        return Lanes(self, tasks, side_by_side=side_by_side)

    def captured(self, run: Runner) -> Runner:
        """What a function asks of the main stream, and of those it forks from it, as one graph. It has run before."""
        self.synchronise()
        self.main.begin_capture()
        self.capturing = True
        try:
            run()
        except BaseException:
            with suppress(self.api.CUDARuntimeError):  # the capture is in no state to end well
                self.main.end_capture()
            raise
        finally:
            self.capturing = False
        graph = self.main.end_capture()
        graph.upload(self.main)
        found = _Graph(graph, self.main)
        self._graphs.add(found)
        return found

    def record_in_graph(self, event: Any, stream: Any) -> None:
        """The moment at which a graph that is captured gets here, in every launch: a plain record only orders it."""
        status = driver_function("cuEventRecordWithFlags")(
            ctypes.c_void_p(event.ptr), ctypes.c_void_p(stream.ptr), ctypes.c_uint(RECORD_EXTERNAL)
        )
        if status:
            raise LaunchError(f"the driver refused: error {status}", where="cuEventRecordWithFlags")

    def synchronise(self) -> None:
        self.api.deviceSynchronize()

    def close(self) -> None:
        self.synchronise()
        for graph in self._graphs:
            graph.graph = None
        for pool in self._pools.values():
            pool.close()
        if self._cublas is not None:
            self._cublas.close()
        if self._cudnn is not None:
            self._cudnn.close()

    @contextmanager
    def behind(self) -> Iterator[None]:
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(self.cupy.cuda.get_current_stream())
        self.main.wait_event(event)
        with self.main:
            yield

    def torch_device(self) -> str:
        return f"cuda:{self.device}"


class _Graph:
    """A graph and where it is launched. It goes when its machine is closed: NCCL leaves no group whose packets a graph
    still holds.
    """

    def __init__(self, graph: Any, stream: Any) -> None:
        self.graph, self.stream = graph, stream

    def __call__(self) -> None:
        self.graph.launch(self.stream)


def _nothing() -> None:
    return


def _device() -> int:
    """The GPU of this process: under torchrun that of its local rank."""
    local = os.environ.get("LOCAL_RANK") if "RANK" in os.environ else None
    if local is None:
        return int(runtime().getDevice())
    if int(local) >= device_count():
        raise UsageError(
            "the plan has more ranks on this host than it has GPUs",
            sides={"local rank": local, "GPUs": device_count()},
            hint="plan for fewer devices, start fewer processes, or run all ranks on one GPU with the local engine",
        )
    return int(local)
