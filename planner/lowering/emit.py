"""From placed steps to the plan document's layouts, buffers and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from ...space import Region
from ..format import Buffer, Compute, LayoutText, Place, Sharding, Task, Transfer
from ..strategy.layouts import Layout
from ..strategy.mesh import Mesh, kind_of
from ..strategy.strategies import Strategy
from .memory import Arena
from .steps import ComputeStep, MoveStep, Step, Steps


class LayoutTable:
    """Names layouts by content, in order of first use."""

    def __init__(self) -> None:
        self.layouts: dict[str, LayoutText] = {}
        self.regions: dict[str, tuple[Region, ...]] = {}
        self._names: dict[tuple[tuple[str, ...], tuple[int, ...] | None], str] = {}
        self._seen: dict[int, str] = {}
        self._stored: dict[int, str] = {}

    def name(self, regions: tuple[Region, ...], parts: tuple[int, ...] | None = None) -> str:
        texts = tuple(str(region) for region in regions)
        key = (texts, parts)
        if key not in self._names:
            self._names[key] = f"L{len(self._names)}"
            self.layouts[self._names[key]] = LayoutText(texts, parts)
            self.regions[self._names[key]] = regions
        return self._names[key]

    def of(self, layout: Layout) -> str:
        if id(layout) not in self._seen:
            self._seen[id(layout)] = self.name(layout.regions, layout.parts)
        return self._seen[id(layout)]

    def stored(self, layout: Layout) -> str:
        """The layout of a buffer: where, not which share."""
        if layout.parts is None:
            return self.of(layout)
        if id(layout) not in self._stored:
            self._stored[id(layout)] = self.name(layout.regions)
        return self._stored[id(layout)]

    def shards(self, strategy: Strategy) -> str:
        if id(strategy) not in self._seen:
            self._seen[id(strategy)] = self.name(strategy.shards)
        return self._seen[id(strategy)]


@dataclass(frozen=True)
class Emitted:
    """The parts of a document that lowering makes; ``regions``: of its layouts, as they were before they were text."""

    layouts: dict[str, LayoutText]
    regions: dict[str, tuple[Region, ...]]
    buffers: tuple[Buffer, ...]
    tasks: tuple[Task, ...]
    outputs: dict[str, str]
    states: dict[str, str]


def emit(steps: Steps, arena: Arena, waits: list[tuple[int, ...]], tier: str, kinds: int = 1) -> Emitted:
    """Number the steps and write everything down. ``kinds`` of devices the machine has."""
    table = LayoutTable()
    names = _unique_names(steps)
    others = _other_places(arena, kinds)
    buffers = []
    for life in arena.lifetimes:
        slot = life.slot
        initial = None if slot.initial is None else table.of(slot.initial)
        buffers.append(
            Buffer(
                names[id(slot)],
                slot.tensor.name,
                table.stored(slot.layout),
                tier,
                arena.offsets[id(slot)],
                life.nbytes,
                initial,
                slot.record,
                others[id(slot)] if others else UNSET,
            )
        )
    over = {new: names[id(old)] for new, old in arena.over.items()}
    tasks = [_task(k, step, waits[k], names, over, table) for k, step in enumerate(steps.steps)]
    outputs = {name: names[id(slot)] for name, slot in steps.outputs.items()}
    states = {name: names[id(slot)] for name, slot in steps.states.items()}
    return Emitted(table.layouts, table.regions, tuple(buffers), tuple(tasks), outputs, states)


def _other_places(arena: Arena, kinds: int) -> dict[int, tuple[Place, ...]]:
    """By slot identity where it lies on devices of each other kind; no bytes on those that have no rank."""
    found: dict[int, tuple[Place, ...]] = {}
    for kind in range(1, kinds) if arena.apart else ():
        mine = arena.apart.get(kind)
        sizes = {} if mine is None else {id(life.slot): life.nbytes for life in mine.lifetimes}
        for life in arena.lifetimes:
            key = id(life.slot)
            place = Place(0, 0) if mine is None else Place(mine.offsets[key], sizes[key])
            found[key] = (*found.get(key, ()), place)
    return found


def _unique_names(steps: Steps) -> dict[int, str]:
    names: dict[int, str] = {}
    taken: set[str] = set()
    for slot in steps.slots:
        name = slot.name
        while name in taken:
            name += "'"
        taken.add(name)
        names[id(slot)] = name
    return names


def _task(
    number: int, step: Step, waits: tuple[int, ...], names: dict[int, str], over: dict[int, str], table: LayoutTable
) -> Task:
    match step:
        case ComputeStep(op=op, strategy=strategy):
            reads = tuple(names[id(slot)] for slot in step.reads)
            write, shards = step.write, table.shards(strategy)
            return Compute(
                number, step.lane, op.name, shards, reads, names[id(write)], waits, step.ranks, over.get(id(write)),
                UNSET if step.onto is None else names[id(step.onto)],
            )  # fmt: skip
        case MoveStep():
            return Transfer(
                number,
                step.lane,
                step.tensor.name,
                step.kind,
                names[id(step.source)],
                names[id(step.target)],
                table.of(step.have),
                table.of(step.need),
                step.monoid,
                waits,
                step.ranks,
            )


def sharding_of(strategy: Strategy, mesh: Mesh) -> Sharding:
    """The choice of one operation, for people and for `--json`."""
    partition: dict[str, str] = {}
    for axis, chosen in zip(mesh.axes, strategy.cuts, strict=True):
        if chosen is not None and chosen.only is None:
            partition[chosen.dim] = f"{partition[chosen.dim]},{axis}" if chosen.dim in partition else axis
    alike = "replicated" if strategy.alike else "explicit"
    named = zip(mesh.axes, strategy.cuts, strict=True)
    only = {axis: chosen.only for axis, chosen in named if chosen is not None and chosen.only is not None}
    kind = kind_of(strategy.cuts) if partition or only else alike
    return Sharding(partition, strategy.busy, kind, only or UNSET)
