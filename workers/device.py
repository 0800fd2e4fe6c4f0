"""The `Device` interface: the memory of ranks, and tasks bound to it.

A device is a folder of this package whose module ``device`` has a class ``DEVICE``; nothing else names it (`devices`).
One object serves all ranks that a process holds. Everything that a task needs is thought out when it is bound; a
`Runner` only computes or moves.

Runners that are called one after another from one thread take effect in that order. A device that works
asynchronously may return from a runner before its work is done; `synchronise` waits for it. The tasks of one lane run
one after another, so temporary memory is taken from the lane (`temporaries`) and shared by its tasks.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..program import Operation, Program
from ..space import Grid, Region
from .faults import Place
from .tensors import host_array, is_host

if TYPE_CHECKING:
    import torch

    from ..planner.format import Resolved, Task
    from .memory import Memory
    from .result import Event
    from .transport.company import Company
    from .transport.transport import Transport

Runner = Callable[[], None]
DType = np.dtype[Any]


@dataclass(frozen=True)
class Stored:
    """A dense array of the device (or of NumPy, for what is outside) and the grid of global elements it stores."""

    array: Any
    grid: Grid


@dataclass(frozen=True)
class Packed:
    """The elements of a region, grid after grid, one after another in an array of one axis."""

    array: Any
    region: Region


@dataclass(frozen=True)
class Payload:
    """An array of one axis to be sent or received into, and what to run before the one or after the other."""

    array: Any
    run: Runner


@dataclass(frozen=True)
class Hardware:
    """What a computer has of a device: its name, how many there are, bytes of the memory in which one computes, and
    whether transfers run beside compute on it. ``shared``: that memory is of all together.
    """

    name: str
    count: int
    memory_bytes: int
    shared: bool
    overlap: bool


@dataclass(frozen=True)
class Evaluation:
    """A compute task: the operation at the points (axes in the order of ``op.dims``), and where its tensors lie.

    Points that leave out a part of a reduction leave the partial fold in ``write``, the monoid's identity where no
    point falls. ``write`` may lie over one of ``reads`` where the plan says so (`Compute.over`): it stores the same
    grid then, and every point reads of that operand the element that it writes and no other. So whatever the order of
    the points, it is enough that each reads before it writes. ``place`` is what an error names that is known only when
    the runner has returned. ``steady``: the operands that no task of the plan changes, nor anybody between steps.
    """

    program: Program
    op: Operation
    points: Region
    reads: Mapping[str, Stored]
    write: Stored
    lane: str
    place: Place
    steady: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Chain:
    """Compute tasks that may be done as one, in the place of the last (`workers.chains`).

    ``stored`` are the tensors whose values somebody else reads: what of the others is written may be left out.
    """

    tasks: tuple[Evaluation, ...]
    stored: frozenset[str]


@dataclass(frozen=True)
class Bound:
    """A task with its runner; ``place`` turns what goes wrong inside into an error that names the task.

    ``kernels``: what computes it, the names of kernels in their order, as far as the device says.
    """

    task: Task
    place: Place
    run: Runner
    kernels: tuple[str, ...] = ()


class Replay(ABC):
    """Tasks as something to be run again and again."""

    @abstractmethod
    def __call__(self, began: float) -> list[Event]:
        """Run them once: what ran when, counted from ``began`` (of `perf_counter`). It returns when all is done.

        TaskError names the task that failed; what goes wrong unseen, `Device.synchronise` tells.
        """

    def keep(self, *, timed: bool) -> bool:
        """They have run once, and what they use stays where it is: a device may keep what they ask for as one graph,
        and only launch it from now on. Whether it does; transports then count nothing any more. Without ``timed`` no
        events need to be given, and calls may return before all is done.
        """
        del timed
        return False


class Device(ABC):
    """What computes, and where: see the module. Arrays are the device's own unless said otherwise."""

    # The backend of torch.distributed that carries its arrays between processes.
    backend: ClassVar[str] = "gloo"

    # The tier of a machine in which it computes.
    computes_in: ClassVar[str] = "host"

    # Whether what is asked for again becomes one graph (`repeated`): a task asked for by itself takes longer than it
    # does in a step that is replayed.
    graphs: ClassVar[bool] = False

    # Whether `joined` is worth asking.
    joins: ClassVar[bool] = False

    # Whether tasks work in the workspaces of a plan (`work_in`); otherwise these are left out of the arenas.
    works_in_plan: ClassVar[bool] = False

    # By kernel class what its tasks want to work in: bytes, and bytes for each byte of the result. Of a machine that is
    # measured it is written down.
    workspaces: ClassVar[Mapping[str, tuple[int, float]]] = MappingProxyType({})

    @classmethod
    def present(cls) -> bool:
        """Whether this computer has what it takes. It may not be slow to answer."""
        return True

    @classmethod
    def on_paper(cls) -> Device | None:
        """The device without its hardware, to which tasks are bound so that they say what would compute them; None
        where it has nothing to say.
        """
        return None

    @classmethod
    def hardware(cls, ranks: int) -> Hardware:
        """What there is of it here, for so many ranks: by default the cores and the memory of this computer, on which
        transfers run beside compute if there are cores for both.
        """
        cores = len(os.sched_getaffinity(0))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Hardware(f"one core of {platform.machine()}", cores, memory, shared=True, overlap=cores >= 2 * ranks)

    @classmethod
    def model(cls) -> str | None:
        """The name of the hardware here, of a device whose plans are made for one; None: any plan is as good."""
        return None

    # -- memory ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, tier: str, nbytes: int) -> Any:
        """The arena of one rank and tier, exactly so many bytes. MemoryError if there is no room."""

    @abstractmethod
    def view(self, arena: Any, offset: int, grid: Grid, dtype: DType) -> Stored:
        """A buffer: the grid stored densely from a byte of an arena on."""

    @abstractmethod
    def poison(self, array: Any) -> None:
        """Overwrite an array with what no computation leaves: NaN for floats, garbage for the rest."""

    def baseline_bytes(self) -> int:
        """What context and libraries occupy on the device beside the arenas; nothing for host memory."""
        return 0

    def adopt(self, value: Any, dtype: DType) -> Any | None:
        """The device's own array over the memory of an array or tensor, dense or not; None where it lies elsewhere.

        dtype: what it holds. By default the device computes in host memory.
        """
        return host_array(value) if is_host(value) else None

    def near(self, value: Any, dtype: DType) -> bool:
        """Whether a tensor lies where the device computes, and it can be `given` its like of a dtype there."""
        return False

    def given(self, array: Any, like: Any) -> Any:
        """A copy of an array of the device as a tensor of the kind of one that is `near`; what wrote to it is done."""
        raise NotImplementedError

    # -- binding ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def compute(self, task: Evaluation) -> Runner:
        """Evaluate an operation at some points."""

    def fold_onto(self, task: Evaluation, prior: Stored) -> Runner:
        """Evaluate an operation at some points and fold that onto the partial results of the elements that they write,
        into ``task.write``, which may be ``prior``: first what is there, then the fold of the points by themselves.
        """
        from .accumulating import bind_accumulated

        return bind_accumulated(self, task, prior)

    def joined(self, chain: Chain) -> Runner | None:
        """Several tasks as one kernel or few; None where the device does them one by one.

        It runs where the last of them stands, and rounds what is not stored less often than the tasks would.
        """
        del chain
        return None

    def fit(self, runs: Sequence[Runner]) -> bool:
        """Whether the device does better to run these at once (`at_once`); they have nothing to do with one another."""
        del runs
        return False

    def at_once(self, runs: Sequence[Runner]) -> Runner:
        """Runners that `fit` each other as one."""
        return in_order(runs)

    @abstractmethod
    def copy(self, source: Stored, target: Stored, region: Region) -> Runner:
        """Copy the elements of a region that both store, within a tier or between two. Either side may be a NumPy
        array: inputs come, and outputs leave, this way.
        """

    @abstractmethod
    def fold(self, parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: str, lane: str) -> Runner:
        """Fold contributions, in the order given, into the elements of the target that they cover."""

    # -- elements on their way -------------------------------------------------------------------------------------

    @abstractmethod
    def temporaries(self, lane: str) -> AbstractContextManager[None]:
        """What is taken from the lane inside is for one task: afterwards the next task may use the same memory."""

    @abstractmethod
    def take(self, size: int, dtype: DType, lane: str | None) -> Any:
        """An array of one axis of so many elements, from a lane's temporary memory or (None) of its own."""

    def work_in(self, lane: str, room: Any) -> None:
        """From now on what is taken from a lane lies in these bytes of an arena, as far as they go. By default it lies
        elsewhere.
        """
        del lane, room

    @abstractmethod
    def pack(self, source: Stored, target: Packed) -> Runner:
        """Write the elements of the target's region one after another into its array."""

    @abstractmethod
    def unpack(self, source: Packed, target: Stored) -> Runner:
        """Put back what `pack` took."""

    def contiguous(self, stored: Stored, region: Region) -> Any | None:
        """The elements of a region as an array of one axis that shares their memory; None where they lie scattered, or
        are NumPy's and the device's are not.
        """
        return None

    def outgoing(self, source: Stored, regions: Sequence[Region], lane: str) -> Payload:
        """What to send: the memory itself where the regions are one and lie together, else a packed copy."""
        lent = self.contiguous(source, regions[0]) if len(regions) == 1 else None
        if lent is not None:
            return Payload(lent, nothing)
        array, parts = self._packets(regions, source.array.dtype, lane)
        return Payload(array, in_order([self.pack(source, part) for part in parts]))

    def incoming(self, target: Stored, regions: Sequence[Region], lane: str) -> Payload:
        """Where to receive: the memory itself where the regions are one and lie together, else to be unpacked."""
        lent = self.contiguous(target, regions[0]) if len(regions) == 1 else None
        if lent is not None:
            return Payload(lent, nothing)
        array, parts = self._packets(regions, target.array.dtype, lane)
        return Payload(array, in_order([self.unpack(part, target) for part in parts]))

    def _packets(self, regions: Sequence[Region], dtype: DType, lane: str) -> tuple[Any, list[Packed]]:
        array = self.take(sum(region.size for region in regions), dtype, lane)
        return array, packets(array, regions)

    @abstractmethod
    def tensor(self, array: Any) -> torch.Tensor:
        """The bytes of an array of one axis as a tensor that shares its memory, for torch.distributed."""

    def before_torch(self) -> AbstractContextManager[Any]:
        """Inside, what torch is asked to do on the device comes after what the device was asked for, and before what it
        will be.
        """
        return nullcontext()

    def transport(self, company: Company, plan: Resolved, memory: Memory | None) -> Transport | None:
        """The way from this rank to the other processes of a run, if the device has one of its own; None:
        torch.distributed. All of them ask; memory: None for a process that has no rank.
        """
        return None

    # -- running ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def replay(self, tasks: Sequence[Bound]) -> Replay:
        """The tasks of one rank: lanes side by side, each in order, waits kept."""

    @abstractmethod
    def in_turn(self, tasks: Sequence[Bound]) -> Replay:
        """The tasks of all ranks of this process, given in an order in which each may run after those before it. They
        take effect as if in that order.
        """

    def repeated(self, run: Runner) -> Runner:
        """The same for many times to come. It has run once, what it uses stays in place, and it waits for nothing: a
        device may keep what it asks for as one graph.
        """
        return run

    def running(self) -> AbstractContextManager[Any]:
        """Settings that hold while runners run."""
        return nullcontext()

    def mark(self) -> Callable[[], float]:
        """The moment at which all that was run so far is done: ask for it (as `perf_counter`) after `synchronise`."""
        now = perf_counter()
        return lambda: now

    def reached(self) -> Callable[[], bool]:
        """Whether all that was run so far is done, to be asked from time to time."""
        return lambda: True

    def synchronise(self) -> None:
        """Wait until all that was run is done. TaskError for what went wrong in a runner that had returned."""
        return

    def close(self) -> None:
        """Give the memory back. No runner may be called any more."""
        return


def packets(array: Any, regions: Sequence[Region]) -> list[Packed]:
    """An array of one axis as the packed elements of several regions, one region after another."""
    found, start = [], 0
    for region in regions:
        found.append(Packed(array[start : start + region.size], region))
        start += region.size
    return found


def nothing() -> None:
    """The task of a rank whose shard is empty."""


def kernels_of(run: Runner) -> tuple[str, ...]:
    """The names of the kernels that a runner asks for, where it says so by its attribute ``kernels``."""
    found: tuple[str, ...] = getattr(run, "kernels", ())
    return found


@dataclass(frozen=True)
class Within:
    """The runner of a task that is done by the kernel of a later one."""

    by: str

    def __call__(self) -> None:
        return

    @property
    def kernels(self) -> tuple[str, ...]:
        """Where it is done."""
        return (f"within {self.by}",)


@dataclass(frozen=True)
class _InOrder:
    runners: tuple[Runner, ...]

    def __call__(self) -> None:
        for runner in self.runners:
            runner()

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(name for runner in self.runners for name in kernels_of(runner))


def in_order(runners: Sequence[Runner]) -> Runner:
    """One runner for several."""
    needed = [runner for runner in runners if runner is not nothing]
    if len(needed) < 2:
        return needed[0] if needed else nothing
    return _InOrder(tuple(needed))
