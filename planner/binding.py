"""What holds a plan back: the memory that is full, and at which task; what its time is made of; and what a little more
of either would bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec

from .format import Compute, Resolved, Task
from .machine import Link, Machine
from .machine.embed import machine_to_json
from .machine.units import format_bytes, format_seconds
from .simulate import PriceBook, Prices, simulate

LARGEST = 4


@dataclass(frozen=True)
class Full:
    """Memory of a tier at its fullest on any rank: the task then, and the tensors that lie there, the largest first."""

    tier: str
    task: str
    used: int
    capacity: int
    largest: tuple[tuple[str, int], ...]
    tensors: int


@dataclass(frozen=True)
class OnLink:
    """A kind of link: bytes received over it in all, and seconds of the step that 1 GB/s more of it would save."""

    kind: str
    nbytes: int
    gb_per_s: float
    saves_s: float


@dataclass(frozen=True)
class More:
    """The plan that is made with so many bytes more on each device, on the same mesh: its makespan."""

    nbytes: int
    makespan_s: float


@dataclass(frozen=True)
class Binding:
    """``memory``: of each tier that a plan uses. ``links``: of each kind that it moves bytes over. ``more``: what more
    memory buys, where that was asked.
    """

    makespan_s: float
    compute_s: float
    memory: tuple[Full, ...]
    links: tuple[OnLink, ...]
    more: More | None = None

    @staticmethod
    def of(resolved: Resolved, prices: Prices, more: int = 0) -> Binding:
        """From the document, simulated once more for each kind of link, and planned again with ``more`` bytes."""
        run = simulate(resolved.document, prices)
        machine = prices.book.machine
        links = []
        for kind, nbytes in resolved.document.traffic.bytes_by_link.items():
            rate = max(link.gb_per_s for link in machine.links if link.kind == kind)
            links.append(OnLink(kind, nbytes, rate, run.makespan_s - _with(resolved, faster(machine, kind, 1.0))))
        memory, bought = tuple(fullest(resolved, machine)), _roomier(resolved, machine, more) if more else None
        return Binding(run.makespan_s, run.compute_s, memory, tuple(links), bought)

    def lines(self) -> Iterator[str]:
        """For people."""
        exposed = max(0.0, self.makespan_s - self.compute_s)
        share = exposed / self.makespan_s if self.makespan_s else 0.0
        yield (
            f"step {format_seconds(self.makespan_s)}: {format_seconds(self.compute_s)} of work on the busiest rank, "
            f"{format_seconds(exposed)} ({share:.0%}) of waiting for transfers"
        )
        for full in self.memory:
            top = ", ".join(f"{name} {format_bytes(size)}" for name, size in full.largest)
            more = f" and {full.tensors - len(full.largest)} more" if full.tensors > len(full.largest) else ""
            yield (
                f"  memory  {full.tier}: {format_bytes(full.used)} of {format_bytes(full.capacity)} at {full.task}: "
                f"{top}{more}"
            )
        for link in self.links:
            saves = f"saves {format_seconds(link.saves_s)}" if link.saves_s > 0 else "saves nothing"
            yield f"  link    {link.kind}: {link.nbytes:,} B at up to {link.gb_per_s:g} GB/s; 1 GB/s more {saves}"
        if self.more is not None:
            saved = self.makespan_s - self.more.makespan_s
            gain = f"saves {format_seconds(saved)}" if saved > 0 else "saves nothing"
            yield f"  more    {format_bytes(self.more.nbytes)} of memory more on each device {gain}, planned again"


def faster(machine: Machine, kind: str, gb_per_s: float) -> Machine:
    """A machine on which links of a kind have so many GB/s more; measured curves are faster by the same ratio."""

    def better(link: Link) -> Link:
        ratio = (link.gb_per_s + gb_per_s) / link.gb_per_s
        curves = tuple(
            replace(curve, points=tuple((size, rate * ratio) for size, rate in curve.points)) for curve in link.curve
        )
        return replace(link, gb_per_s=link.gb_per_s + gb_per_s, curve=curves)

    return replace(machine, links=tuple(better(link) if link.kind == kind else link for link in machine.links))


def _with(resolved: Resolved, machine: Machine) -> float:
    """The same plan's makespan on another machine."""
    other = msgspec.structs.replace(resolved.document, machine=machine_to_json(machine))
    return simulate(resolved.document, Prices(resolved, PriceBook.of(other))).makespan_s


def _roomier(resolved: Resolved, machine: Machine, more: int) -> More:
    """What planning the same again, on the same mesh, gives with more memory."""
    from .interface import plan

    document, tier = resolved.document, machine.device.compute_tier
    larger = machine.with_memory({tier.name: tier.capacity_bytes + more * _sharing(machine)})
    mesh = dict(zip(document.mesh_axes, document.mesh, strict=True))
    again = plan(resolved.program, larger, mesh=mesh, objective=document.claims.objective, seed=document.claims.seed)
    return More(more, again.document.predicted.makespan_s)


def _sharing(machine: Machine) -> int:
    """How many devices have the memory that they compute from together."""
    return machine.devices_per_host if machine.device.compute_tier.shared_per_host else 1


def fullest(resolved: Resolved, machine: Machine) -> Iterator[Full]:
    """Each tier at the task at which most bytes of buffers are in use, in the order of the list."""
    document = resolved.document
    lives = _lives(resolved)
    for tier in dict.fromkeys(buffer.tier for buffer in document.buffers):
        rank, peak, capacity = _fullest_rank(resolved, machine, tier)
        here = [buffer.there(resolved.kinds[rank]) for buffer in document.buffers if buffer.tier == tier]
        worst = _worst([(*lives[buffer.name], buffer.nbytes) for buffer in here], len(document.tasks))
        sizes: dict[str, int] = {}
        for buffer in here:
            if lives[buffer.name][0] <= worst <= lives[buffer.name][1]:
                sizes[buffer.tensor] = sizes.get(buffer.tensor, 0) + buffer.nbytes
        for lane, room in document.rooms.items():
            if room.tier == tier:
                sizes[f"workspace of {lane}"] = room.nbytes
        top = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        at = _named(document.tasks[worst]) if document.tasks else "the start"
        yield Full(tier, at, peak, capacity, tuple(top[:LARGEST]), len(top))


def _fullest_rank(resolved: Resolved, machine: Machine, tier: str) -> tuple[int, int, int]:
    """The first of those that leave least of the tier free, what it takes and what it may take."""
    found = [
        (rank, resolved.document.peak_bytes.get(str(rank), {}).get(tier, 0), machine.capacity_bytes(tier, device))
        for rank, device in enumerate(resolved.document.devices)
    ]
    return min(found, key=lambda each: each[2] - each[1])


def _lives(resolved: Resolved) -> dict[str, tuple[int, int]]:
    """By buffer the first and the last task, by place in the list, at which it holds something."""
    document, program = resolved.document, resolved.program
    end = len(document.tasks)
    first = {buffer.name: 0 for buffer in document.buffers if buffer.initial is not None}
    last: dict[str, int] = {}
    over = set[str]()
    for k, task in enumerate(document.tasks):
        for name in _touched(task):
            first.setdefault(name, k)
            last[name] = k
        if isinstance(task, Compute) and task.over is not None:  # what is written takes its place
            last[task.over] = k - 1
            over.add(task.over)
    kept = {*document.outputs.values(), *document.states.values()}
    for buffer in document.buffers:
        resident = buffer.initial is not None and program.tensor(buffer.tensor).role in ("param", "state", "const")
        if buffer.name in kept or (resident and buffer.name not in over):
            last[buffer.name] = end
    return {buffer.name: (first.get(buffer.name, 0), last.get(buffer.name, 0)) for buffer in document.buffers}


def _worst(lives: Sequence[tuple[int, int, int]], tasks: int) -> int:
    """The first place in the list at which most bytes are in use."""
    change = [0] * (tasks + 2)
    for start, stop, nbytes in lives:
        change[start] += nbytes
        change[stop + 1] -= nbytes
    usage = list(accumulate(change))
    return max(range(tasks), key=usage.__getitem__, default=0)


def _touched(task: Task) -> tuple[str, ...]:
    if isinstance(task, Compute):
        return (*task.reads, *(() if task.prior is None else (task.prior,)), task.write)
    return (task.source, task.target)


def _named(task: Task) -> str:
    return task.op if isinstance(task, Compute) else f"the move of {task.tensor}"
