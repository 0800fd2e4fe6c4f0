"""What is different between two plans: what was asked, what it takes, how operations are cut, where tensors lie.

Both plans are read as they are; neither is planned again. Operations and tensors are compared by name, and those of
repeated layers that changed alike are one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..drawing.folding import anonymous, folded_name
from ..printable import columns
from ..space import Region
from .format import Transfer
from .format.digest import digests
from .machine.units import format_bytes, format_seconds
from .simulate import Prices
from .views.graph import cut_text
from .views.shardmap import facts
from .views.shards import shard_maps
from .views.text import peaks

if TYPE_CHECKING:
    from .interface import Plan

SHOWN = 24


@dataclass(frozen=True)
class Asked:
    """Something that was given, and is another: the mesh, a number of the machine, an extent."""

    what: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Seconds:
    """A time of the whole plan."""

    what: str
    before: float
    after: float


@dataclass(frozen=True)
class Bytes:
    """An amount of traffic or memory of the whole plan."""

    what: str
    before: int
    after: int


@dataclass(frozen=True)
class Side:
    """An operation in one plan: how it is cut, seconds of its slowest rank, seconds and bytes of transfers into it."""

    cut: str
    compute_s: float
    moves_s: float
    moves_bytes: int


@dataclass(frozen=True)
class Recut:
    """Operations that are cut otherwise, or take or move another amount."""

    ops: tuple[str, ...]
    before: Side
    after: Side

    @property
    def added_s(self) -> float:
        """Seconds that all of them take more, overlap not taken off."""
        before, after = self.before, self.after
        return len(self.ops) * (after.compute_s + after.moves_s - before.compute_s - before.moves_s)


@dataclass(frozen=True)
class Replaced:
    """Tensors that lie otherwise, or are moved otherwise."""

    tensors: tuple[str, ...]
    before: str
    after: str


@dataclass(frozen=True)
class Difference:
    """From one plan to another. Prints as a table, and `to_json` gives plain data.

    ``operations`` come with the largest change of time first; ``only_before`` and ``only_after`` are operations that
    the other plan's program does not have.
    """

    before: str
    after: str
    asked: tuple[Asked, ...]
    times: tuple[Seconds, ...]
    sizes: tuple[Bytes, ...]
    operations: tuple[Recut, ...]
    tensors: tuple[Replaced, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    same: bool

    @property
    def figures(self) -> tuple[Seconds | Bytes, ...]:
        return (*self.times, *self.sizes)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def __str__(self) -> str:
        return "\n\n".join(_paragraphs(self))


def diff(before: Plan, after: Plan) -> Difference:
    """Compare two plans. CheckFailed for one that is not well-formed."""
    sides = _sides(before), _sides(after)
    return Difference(
        before=_head(before),
        after=_head(after),
        asked=tuple(_asked(before, after)),
        times=tuple(_times(before, after)),
        sizes=tuple(_sizes(before, after)),
        operations=tuple(_recut(*sides)),
        tensors=tuple(_replaced(before, after)),
        only_before=tuple(name for name in sides[0] if name not in sides[1]),
        only_after=tuple(name for name in sides[1] if name not in sides[0]),
        same=digests(before.document) == digests(after.document),
    )


def _head(plan: Plan) -> str:
    return f"{plan.program.name} on {plan.machine.name}, mesh {'x'.join(map(str, plan.document.mesh))}"


# -- what was asked ----------------------------------------------------------------------------------------------------


def _asked(before: Plan, after: Plan) -> Iterator[Asked]:
    yield from _changed("mesh", list(before.document.mesh), list(after.document.mesh))
    yield from _changed("devices", list(before.document.devices), list(after.document.devices))
    yield from _changed("machine", before.document.machine, after.document.machine)
    for name in ("objective", "seed"):
        yield from _changed(name, getattr(before.document.claims, name), getattr(after.document.claims, name))
    shapes = [{tensor.name: list(tensor.shape) for tensor in plan.program.tensors} for plan in (before, after)]
    shared = [{name: shape[name] for name in shape if all(name in other for other in shapes)} for shape in shapes]
    given = [{t.name for t in plan.program.tensors if t.role != "value"} for plan in (before, after)]
    yield from _changed("shape", *({name: shape[name] for name in shape if name in given[0]} for shape in shared))
    if before.program.pins != after.program.pins:
        yield Asked("pins", *([str(pin) for pin in plan.program.pins] for plan in (before, after)))


def _changed(what: str, before: Any, after: Any) -> Iterator[Asked]:
    """The smallest parts of two JSON values that differ, by their path."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            yield from _changed(f"{what} {name}", before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and _deep(before):
        for k, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changed(f"{what} {_label(one, k)}", one, other)
    elif before != after:
        yield Asked(what, before, after)


def _deep(values: Sequence[Any]) -> bool:
    return any(isinstance(value, (Mapping, list)) for value in values)


def _label(value: Any, position: int) -> str:
    name = value.get("name") if isinstance(value, Mapping) else None
    return str(position) if name is None else str(name)


# -- what it takes -----------------------------------------------------------------------------------------------------


def _times(before: Plan, after: Plan) -> Iterator[Seconds]:
    old, new = before.document.predicted, after.document.predicted
    yield Seconds("makespan", old.makespan_s, new.makespan_s)
    yield Seconds("work of the busiest rank", old.compute_s, new.compute_s)
    yield Seconds("waiting for transfers", old.exposed_transfer_s, new.exposed_transfer_s)
    bounds = before.document.bound, after.document.bound
    if bounds[0] is not None and bounds[1] is not None:
        yield Seconds("no plan takes less than", bounds[0].bound_s, bounds[1].bound_s)


def _sizes(before: Plan, after: Plan) -> Iterator[Bytes]:
    old, new = before.document.traffic, after.document.traffic
    yield Bytes("traffic", old.bytes_total, new.bytes_total)
    for by in ("bytes_by_kind", "bytes_by_link"):
        amounts = getattr(old, by), getattr(new, by)
        for name in dict.fromkeys((*amounts[0], *amounts[1])):
            place = "" if by == "bytes_by_kind" else "over "
            yield Bytes(f"  {place}{name.replace('_', '-')}", amounts[0].get(name, 0), amounts[1].get(name, 0))
    held = [{tier: peak for tier, _, peak, _ in peaks(plan)} for plan in (before, after)]
    for tier in dict.fromkeys((*held[0], *held[1])):
        yield Bytes(f"memory {tier}, fullest rank", held[0].get(tier, 0), held[1].get(tier, 0))


@dataclass(frozen=True)
class _Shares:
    """An operation in a plan, and which points each rank computes: axes of the mesh may just have other names."""

    side: Side
    shards: tuple[Region, ...]

    def same(self, other: _Shares) -> bool:
        return self.shards == other.shards and replace(self.side, cut="") == replace(other.side, cut="")


def _sides(plan: Plan) -> dict[str, _Shares]:
    """Every operation of a plan as it is computed there."""
    prices, document = Prices(plan.resolved), plan.document
    into: dict[str, list[Transfer]] = {}
    for task in document.tasks:
        if isinstance(task, Transfer):
            into.setdefault(task.target, []).append(task)
    found = {}
    for op, tasks in plan.resolved.computing.items():
        reads = dict.fromkeys(buffer for task in tasks for buffer in task.reads)
        moves = [prices.move(move) for buffer in reads for move in into.get(buffer, [])]
        slowest = max(map(sum, zip(*([w.seconds for w in prices.compute(task)] for task in tasks), strict=True)))
        seconds, nbytes = sum(move.seconds for move in moves), sum(move.nbytes for move in moves)
        side = Side(cut_text(document.shardings[op]), slowest, seconds, nbytes)
        found[op] = _Shares(side, plan.resolved.computed(op))
    return found


def _recut(before: Mapping[str, _Shares], after: Mapping[str, _Shares]) -> list[Recut]:
    folded: dict[tuple[str, Side, Side], list[str]] = {}
    for name, old in before.items():
        new = after.get(name, old)
        if not old.same(new):
            folded.setdefault((anonymous(name), old.side, new.side), []).append(name)
    rows = [Recut(tuple(names), old, new) for (_, old, new), names in folded.items()]
    return sorted(rows, key=lambda row: -abs(row.added_s))


def _replaced(before: Plan, after: Plan) -> Iterator[Replaced]:
    places = [
        {name: f"{shards.tier}: {facts(shards)}" for shards in shard_maps(plan.resolved) for name in shards.names}
        for plan in (before, after)
    ]
    folded: dict[tuple[str, str, str], list[str]] = {}
    for name, old in places[0].items():
        new = places[1].get(name, old)
        if old != new:
            folded.setdefault((anonymous(name), old, new), []).append(name)
    for (_, old, new), names in folded.items():
        yield Replaced(tuple(names), old, new)


# -- as text -----------------------------------------------------------------------------------------------------------


def _paragraphs(found: Difference) -> Iterator[str]:
    yield f"{found.before}\n{found.after}"
    if found.same:
        yield "the plans are the same"
        return
    if found.asked:
        yield "asked otherwise\n" + _rows([[a.what, " -> ".join(map(short, (a.before, a.after)))] for a in found.asked])
    yield "figures\n" + _rows([[figure.what, *figure_words(figure)] for figure in found.figures])
    if found.operations:
        head = "operations computed otherwise: time of the slowest rank, transfers into it"
        yield f"{head}\n" + _rows([line for row in found.operations for line in _lines(row)], 2 * SHOWN)
    if found.tensors:
        rows = [line for row in found.tensors for line in _places(row)]
        yield "tensors that lie otherwise\n" + _rows(rows, 2 * SHOWN)
    for where, names in (("first", found.only_before), ("second", found.only_after)):
        if names:
            yield f"operations of the {where} plan alone\n" + _rows([[name] for name in names])
    if not found.operations and not found.tensors:
        yield "all operations are computed alike, from tensors that lie alike"


def figure_words(figure: Seconds | Bytes) -> list[str]:
    """Before, after, and how much that is more."""
    if isinstance(figure, Seconds):
        both = [format_seconds(figure.before), format_seconds(figure.after)]
    else:
        both = [format_bytes(figure.before), format_bytes(figure.after)]
    return [*both, _ratio(figure.before, figure.after)]


def _lines(row: Recut) -> list[list[str]]:
    return [[folded_name(row.ops), *side_words(row.before)], ["", *side_words(row.after)]]


def side_words(side: Side) -> list[str]:
    """How it is cut, the time of its slowest rank, the transfers into it."""
    return [side.cut, format_seconds(side.compute_s), _moves(side)]


def _moves(side: Side) -> str:
    return f"{format_bytes(side.moves_bytes)} in {format_seconds(side.moves_s)}" if side.moves_bytes else "none"


def _places(row: Replaced) -> list[list[str]]:
    return [[folded_name(row.tensors), row.before], ["", row.after]]


def _rows(rows: Sequence[Sequence[str]], most: int = SHOWN) -> str:
    more = f"\n  and {len(rows) - most} lines more: --json" if len(rows) > most else ""
    return columns(rows[:most], indent="  ") + more


def _ratio(before: float, after: float) -> str:
    if before == after:
        return "the same"
    return f"{after / before - 1:+.1%}" if before else "new"


def short(value: Any) -> str:
    """A value that was asked for, in at most 60 characters."""
    text = "x".join(map(str, value)) if isinstance(value, list) and not _deep(value) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
