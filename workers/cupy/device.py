"""The CuPy device: arenas in the memory of a GPU, tasks as launches of kernels, lanes as streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...blocks import BLOCKS
from ...expr import MONOIDS
from ...kernels.errors import KernelError
from ...kernels.runtime.device import device_count, properties
from ...kernels.runtime.libcuda import driver_function
from ...program import Block
from ...space import Grid, Region
from ..device import Bound, Chain, Device, DType, Evaluation, Hardware, Packed, Replay, Runner, Stored, in_order
from ..tensors import is_host, namespace
from . import cudnn, gemm, laid_out, pool
from .arrays import DeviceArray, Memory, apart, of_memory
from .at_once import Launched, at_once, fit
from .attention import written_attention
from .chained import (
    added_products,
    finished_attentions,
    fused_maps,
    named_alike,
    paired_products,
    positive_products,
    products_onto,
    read_attentions,
)
from .changes import changes_of
from .convolutions import convolution_of
from .declared import Launch, Take, bind_declared
from .dense_slopes import bind_products
from .evaluating import folding_jobs, jobs_of, unfolded
from .few_queries import Limit, all_few, few_queries
from .gathered import gathered_map, gathering, written_gather
from .giving import given, near
from .heads import attentions_of, for_library
from .jobs import Job
from .laid_out import rows_of_windows
from .machine import Attention, Lines, Machine, Product
from .maps import written_map
from .moving import bind_copy, bind_pack, bind_unpack, contiguous
from .outside import Outside, axes_of
from .parts import PARTS_BYTES, in_parts
from .peers import joined
from .products import multiplications, products_of
from .rows import rows_of
from .scratch import Scratch
from .slopes import LibrarySlopes, slopes_of
from .sought import TABLE, UNASKED, sought
from .stretches import together
from .thin import thin_product
from .weighed import weighed_values
from .windows import beside
from .writing import Written, written

if TYPE_CHECKING:
    import torch

    from ...planner.format import Resolved
    from ..memory import Memory as Memories
    from ..transport.company import Company
    from ..transport.transport import Transport


class CupyDevice(Device):
    """All ranks of a process on one GPU: that of its LOCAL_RANK under torchrun, else the current one."""

    backend: ClassVar[str] = "nccl"
    computes_in: ClassVar[str] = "hbm"
    graphs: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    works_in_plan: ClassVar[bool] = True
    workspaces: ClassVar[Mapping[str, tuple[int, float]]] = MappingProxyType(
        {
            "matmul": (gemm.WORKSPACE, 0.0),
            "conv": (cudnn.WORKSPACE, 0.0),
            "attention": (gemm.WORKSPACE + pool.SEGMENTS, 1.0),
            "reduce": (PARTS_BYTES, 0.0),
        }
    )

    def __init__(self, machine: Machine | None = None) -> None:
        if machine is None:
            from .cuda import CudaMachine

            machine = CudaMachine()
        self.machine = machine
        self._scratch: dict[str, Scratch] = {}
        self._outside = Outside(machine)
        self._slopes_made: list[LibrarySlopes] = []  # of calls of which not all sides were asked for yet

    @classmethod
    def present(cls) -> bool:
        """Whether there is a driver, CuPy, and a GPU."""
        try:
            driver_function("cuInit")
            return device_count() > 0
        except KernelError:
            return False

    @classmethod
    def on_paper(cls) -> Device:
        """A GPU that has no memory."""
        from .paper import PaperMachine

        return cls(PaperMachine())

    @classmethod
    def hardware(cls, ranks: int) -> Hardware:  # noqa: ARG003
        """The GPUs that CuPy sees; copies run beside kernels on them."""
        import cupy

        _, total = cupy.cuda.runtime.memGetInfo()
        return Hardware(cls.model(), device_count(), int(total), shared=False, overlap=True)

    @classmethod
    def model(cls) -> str:
        """NVIDIA and its name for the first GPU. No context is made."""
        return f"NVIDIA {properties(0).name.removeprefix('NVIDIA ')}"

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, tier: str, nbytes: int) -> DeviceArray:
        """Page-locked memory for the tier "host", memory of the GPU for every other."""
        return of_memory(self.machine.memory(tier, nbytes))

    def view(self, arena: DeviceArray, offset: int, grid: Grid, dtype: DType) -> Stored:
        return Stored(DeviceArray(arena.memory, arena.offset + offset, grid.shape, dtype), grid)

    def poison(self, array: DeviceArray) -> None:
        """Floats and records become NaN and -1, integers 0xA5 bytes, truths true."""
        whole = array.dtype.kind in "iu"
        self.machine.fill(array, 1 if array.dtype.kind == "b" else 0xA5 if whole else 0xFF)

    def baseline_bytes(self) -> int:
        """What is in use on the GPU beside the arenas: context, libraries, temporaries, and other processes."""
        return self.machine.baseline_bytes()

    def adopt(self, value: Any, dtype: DType) -> DeviceArray | None:
        """Tensors on a GPU are read where they lie, once they are there; those that are not dense are made so there."""
        if is_host(value):
            return None
        import cupy

        raw = value.detach() if hasattr(value, "detach") else value
        if dtype.name == "bfloat16":  # CuPy has no such arrays
            raw = raw.view(namespace(value).int16)
        with self.machine.behind():
            dense = cupy.ascontiguousarray(cupy.from_dlpack(raw))
        return DeviceArray(Memory(dense.data.ptr, dense.nbytes, dense), 0, tuple(value.shape), dtype)

    def near(self, value: Any, dtype: DType) -> bool:
        return near(value, dtype, self.machine.number)

    def given(self, array: DeviceArray, like: Any) -> Any:
        return given(array, like)

    # -- binding ---------------------------------------------------------------------------------------------------

    def compute(self, task: Evaluation) -> Runner:
        if isinstance(task.op.body, Block):
            if BLOCKS[task.op.body.kernel].bodies is not None:
                with self.temporaries(task.lane):
                    return bind_declared(*self._of_torch(task))
            return self._attention(task) if task.op.body.kernel == "attention" else self._slopes(task)
        return in_order([run for job in jobs_of(together(unfolded(task))) for run in self._job(job, task)])

    def _attention(self, task: Evaluation) -> Runner:
        """By a library where it has it, else by a kernel of its own."""
        calls = attentions_of(task)
        made = self._attended(calls, task.lane) if calls else None
        return made or in_order([self._launch(one) for one in written_attention(task)])

    def _slopes(self, task: Evaluation) -> Runner:
        """The slopes of attention, by a library where it has them, else by torch's products."""
        calls = slopes_of(task) if self.machine.attention_slopes is not None else None
        if calls:
            made = self.sharing(LibrarySlopes(self.machine, calls, task))
            return self.machine.torch(made, made.kernels)
        with self.temporaries(task.lane):
            return bind_products(*self._of_torch(task))

    def sharing(self, made: LibrarySlopes) -> LibrarySlopes:
        """Slopes that take what a task bound before made of the same calls, if there is one."""
        if not any(made.follow(before) for before in reversed(self._slopes_made)):
            self._slopes_made.append(made)
        self._slopes_made = [one for one in self._slopes_made if not one.complete]
        return made

    def _of_torch(self, task: Evaluation) -> tuple[Machine, Take, Launch, Evaluation]:
        """What a task needs that is computed by functions of torch's tensors."""
        return self.machine, partial(self.take, lane=task.lane), lambda job: in_order(self._job(job, task)), task

    def _weighed(self, chain: Chain) -> Runner | None:
        """Attention that the program spells out, of few queries."""
        found = weighed_values(chain)
        return None if found is None or not all_few([found[0]]) else self._few([found], chain.tasks[-1].lane)

    def _attended(self, calls: Sequence[Attention], lane: str) -> Runner | None:
        """Attention of which a library or the kernel for few queries has all calls."""
        if all_few(calls):
            return self._few([(one, None) for one in calls], lane)
        if not all(map(for_library, calls)):
            return None
        with self.temporaries(lane):
            return self.machine.attention(calls, self._of(lane))

    def _few(self, calls: Sequence[tuple[Attention, Limit | None]], lane: str) -> Runner:
        """Calls for few queries; a result that lies over an operand is put there when all of them are done."""
        operands = [x.array for one, _ in calls for x in (one.query, one.key, one.value)]
        found, after = list[Runner](), list[Runner]()
        with self.temporaries(lane):
            for one, limit in calls:
                into = one.state.array
                if not apart(into, operands):
                    aside = self.take(into.size, into.dtype, lane).reshape(into.shape)
                    lines = Lines(aside.pointer, into.pointer, 1, (into.nbytes,), (1,), (1,))
                    after.append(self.machine.copy(lines, (aside, into)))
                    one = replace(one, state=replace(one.state, array=aside))
                kernel = few_queries(self.machine, one, lambda size, dtype: self.take(size, dtype, lane), limit)
                found.append(self._launch(kernel))
        return in_order([*found, *after])

    def _job(self, job: Job, task: Evaluation) -> list[Runner]:
        """A matrix product or a convolution by a library, a plain map by a vectorised kernel, anything else by one of
        its own.
        """
        if not job.points:
            return []
        if axes := axes_of(job):
            return [self._launch(written(job, axes, self._outside.words(task, axes)))]
        if changed := changes_of(job):
            return [self._launch(written(changed))]
        if made := self._of_windows(job, task.lane) or self._products(products_of(job), [task]):
            return made
        found = self._convolution(job, task.lane) or self._sought(job, task.lane)
        if found is not None:
            return [found]
        if gathering(job):
            return [self._launch(written_gather(job))]
        mapped = written_map(job)
        return [self._launch(mapped)] if mapped else self._general(job, task.lane)

    def _mapped(self, job: Job) -> Runner:
        """A map without conditions."""
        return self._launch(written_map(job) or written(job))

    def _general(self, job: Job, lane: str) -> list[Runner]:
        """By kernels of its own, one after another."""
        with self.temporaries(lane):
            jobs = in_parts(job, lambda size, dtype: self.take(size, dtype, lane))
        return [self._launch(written(part)) for one in jobs for part in beside(one)]

    def _of_windows(self, job: Job, lane: str) -> list[Runner]:
        """Windows that share no element, as matrices; none if it is anything else."""
        if job.record is None or job.points * sum(fold.points for fold in job.folds) < self.machine.worth:
            return []
        found: list[Runner] = []
        with self.temporaries(lane):
            room = self._of(lane).most(laid_out.ROOM)
            parts = rows_of_windows(job, lambda size, dtype: self.take(size, dtype, lane), room)
            for part in parts or ():
                made = [self._product(one, lane) for one in part.products]
                around = [[self._mapped(job)] if job else [] for job in (part.before, part.after)]
                if None in made:
                    return []
                found += [*around[0], *(run for run in made if run is not None), *around[1]]
        return found

    def _convolution(self, job: Job, lane: str) -> Runner | None:
        found = convolution_of(job)
        if found is None:
            return None
        with self.temporaries(lane):
            return self.machine.convolution(found, self._of(lane))

    def _sought(self, job: Job, lane: str) -> Runner | None:
        """Points that find their places in a table first."""
        with self.temporaries(lane):
            found = sought(job, lambda size: self.take(size, TABLE, lane))
        if found is None:
            return None
        return in_order([partial(self.machine.fill, found.table, UNASKED), *map(self._launch, found.kernels)])

    def fold_onto(self, task: Evaluation, prior: Stored) -> Runner:
        """A product adds to what lies there; anything else is folded by a kernel of its own."""
        made = self._products(products_onto(task, prior), [task])
        return in_order(made) if made else super().fold_onto(task, prior)

    def joined(self, chain: Chain) -> Runner | None:
        """A product that adds, attention that is finished and read, maps of maps, folded rows that are mapped."""
        chain = replace(chain, tasks=tuple(named_alike(unfolded(task)) for task in chain.tasks))
        through = replace(chain, tasks=tuple(map(together, chain.tasks)))
        found = (make(one) for make in (added_products, positive_products) for one in (through, chain))
        products = next((products for products in found if products), None)
        if made := self._products(products, chain.tasks):
            return in_order(made)
        pair = paired_products(through)
        if pair is not None:
            return self.machine.paired(pair)
        calls = finished_attentions(chain) or read_attentions(chain)
        if calls:
            return self._attended(calls, chain.tasks[-1].lane)
        weighed = self._weighed(chain)
        if weighed is not None:
            return weighed
        maps = fused_maps(chain)
        if maps is not None:
            return self.compute(maps)
        gathered = gathered_map(chain)
        if gathered is not None and not axes_of(gathered):
            return self._launch(written_gather(gathered))
        rows = rows_of(chain)
        return None if rows is None else self._launch(rows)

    def _products(self, products: Sequence[Product] | None, tasks: Sequence[Evaluation]) -> list[Runner]:
        """Products of a few rows by kernels of their own, others by a library; none if it has not all of them, or they
        are too small for it.
        """
        found: list[Runner] = []
        large = multiplications(products or ()) >= self.machine.worth
        steady = {task.reads[name].array for task in tasks for name in task.steady} if products else set()
        for one in products or ():
            thin = thin_product(one, self.machine, steady)
            run = self._launch(thin) if thin else self._product(one, tasks[-1].lane) if large else None
            if run is None:
                return []
            found.append(run)
        return found

    def _product(self, product: Product, lane: str) -> Runner | None:
        with self.temporaries(lane):
            scratch = self._of(lane)
            return self.machine.product(product, scratch.bytes(scratch.most(self.machine.product_bytes)))

    def _launch(self, kernel: Written) -> Runner:
        return Launched(self.machine.launch(kernel.unit, kernel.arrays), kernel)

    def fit(self, runs: Sequence[Runner]) -> bool:
        return fit(runs)

    def at_once(self, runs: Sequence[Runner]) -> Runner:
        return self._launch(at_once(runs))

    def copy(self, source: Stored, target: Stored, region: Region) -> Runner:
        return bind_copy(self.machine, source, target, region)

    def fold(self, parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: str, lane: str) -> Runner:
        return in_order([self._launch(written(job)) for job in folding_jobs(parts, target, MONOIDS[monoid])])

    # -- elements on their way -------------------------------------------------------------------------------------

    def temporaries(self, lane: str) -> AbstractContextManager[None]:
        return self._of(lane).frame()

    def take(self, size: int, dtype: DType, lane: str | None) -> DeviceArray:
        if lane is not None:
            return self._of(lane).take(size, dtype)
        return DeviceArray(self.machine.memory("", size * dtype.itemsize), 0, (size,), dtype)

    def work_in(self, lane: str, room: DeviceArray) -> None:
        self._scratch[lane] = Scratch(partial(self.machine.memory, ""), room)

    def _of(self, lane: str) -> Scratch:
        if lane not in self._scratch:
            self._scratch[lane] = Scratch(partial(self.machine.memory, ""))
        return self._scratch[lane]

    def pack(self, source: Stored, target: Packed) -> Runner:
        return bind_pack(self.machine, source, target)

    def unpack(self, source: Packed, target: Stored) -> Runner:
        return bind_unpack(self.machine, source, target)

    def contiguous(self, stored: Stored, region: Region) -> DeviceArray | None:
        return contiguous(stored, region)

    def tensor(self, array: DeviceArray | np.ndarray[Any, Any]) -> torch.Tensor:
        import torch

        if isinstance(array, np.ndarray):
            return torch.from_numpy(array.view(np.uint8))
        return torch.as_tensor(array, device=self.machine.torch_device())

    def transport(self, company: Company, plan: Resolved, memory: Memories | None) -> Transport | None:
        """From memory to memory where all ranks are GPUs of one host that reach each other."""
        return joined(self.machine, self, company, plan, memory)

    def before_torch(self) -> AbstractContextManager[Any]:
        """Torch takes the machine's current stream for its own."""
        return self.machine.before_torch()

    # -- running ---------------------------------------------------------------------------------------------------

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        return self.machine.replay(tasks, side_by_side=True)

    def in_turn(self, tasks: Sequence[Bound]) -> Replay:
        """Those of one rank lane beside lane, where they wait for each other only as the plan says."""
        return self.machine.replay(tasks, side_by_side=len({bound.place.rank for bound in tasks}) == 1)

    def repeated(self, run: Runner) -> Runner:
        """One CUDA graph."""
        return self.machine.captured(run)

    def running(self) -> AbstractContextManager[Any]:
        return self.machine.running()

    def mark(self) -> Callable[[], float]:
        return self.machine.mark()

    def reached(self) -> Callable[[], bool]:
        return self.machine.reached()

    def synchronise(self) -> None:
        self.machine.synchronise()
        self._outside.demand_none()

    def close(self) -> None:
        self.machine.close()
        self._scratch.clear()


DEVICE = CupyDevice
