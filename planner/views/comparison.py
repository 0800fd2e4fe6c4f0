"""Two plans as one HTML file: what was asked otherwise, what the second takes more, and both timelines on one scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ...drawing.folding import folded_name
from ...drawing.page import Section, page
from ...drawing.svg import Drawing, clean
from ..diff import Bytes, Difference, Recut, Seconds, Side, diff, figure_words, short, side_words
from ..explain import Alternative, Row
from ..format import Compute
from ..machine.units import format_seconds
from .colours import OTHER_MOVE, kind_colour
from .explorer import explorer, explorer_data
from .html import alternative_words
from .peers import Peers, predicted_peers
from .tables import TAB, bar, row, table
from .timeline import Chart, Kinds, charts_drawing

if TYPE_CHECKING:
    from ..interface import Plan

FIRST, SECOND = "first", "second"
MOST_ROWS = 400  # of a table
MOST_RANKS = 64  # to choose from one by one
MOST_EVENTS = 20_000  # of a plan that can be chosen; those of its busiest rank are always there

Told = list[list[str]]


def diff_html(before: Plan, after: Plan) -> str:
    """One file that needs no other. CheckFailed for a plan that is not well-formed."""
    found = diff(before, after)
    changes = _changes(found, _Reasons(before, after))
    sides = _Side(FIRST, before, changes), _Side(SECOND, after, changes)
    sections = [Section("Asked otherwise", _asked(found))] if found.asked else []
    sections += [
        Section("Figures", table("", _figures(found))),
        Section("Timelines", _said_of_marks(changes) + explorer(compared_data(sides, changes), _still(sides))),
        Section("Operations computed otherwise", _operations(found, changes)),
        Section("Tensors that lie otherwise", _tensors(found)),
    ]
    sections += [
        Section(f"Operations of the {which} plan alone", _alone(names)) for which, names in _own(found) if names
    ]
    name = before.program.name if before.program.name == after.program.name else "Two plans"
    return page(f"{name}: what is different", "", sections, _heads(found), made_by="diff")


# -- what is told of an operation or a tensor --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Changes:
    """What is told of each change, and which one is that of an operation, or of a tensor that is moved."""

    told: Sequence[Told]
    operations: Mapping[str, int]
    tensors: Mapping[str, int]


def _changes(found: Difference, reasons: _Reasons) -> _Changes:
    told: list[Told] = []
    operations: dict[str, int] = {}
    tensors: dict[str, int] = {}
    for change in found.operations:
        operations |= dict.fromkeys(change.ops, len(told))
        words = [*_both(_in_words(change.before), _in_words(change.after)), ["alike", folded_name(change.ops)]]
        reason = reasons.of(change)
        told.append([*words, ["why", reason]] if reason else words)
    for laid in found.tensors:
        tensors |= dict.fromkeys(laid.tensors, len(told))
        told.append(_both(laid.before, laid.after))
    for which, names in _own(found):
        operations |= dict.fromkeys(names, len(told))
        told.append([["only in", f"the {which} plan"]])
    return _Changes(told, operations, tensors)


def _both(before: str, after: str) -> Told:
    return [[f"{FIRST} plan", before], [f"{SECOND} plan", after]]


def _in_words(side: Side) -> str:
    cut, seconds, moves = side_words(side)
    return f"{cut}: computes {seconds}, transfers into it {moves}"


def _own(found: Difference) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield FIRST, found.only_before
    yield SECOND, found.only_after


class _Reasons:
    """Why operations are cut as in the second plan: a pin, or what it would take to cut them as before."""

    def __init__(self, before: Plan, after: Plan) -> None:
        old = set(before.program.pins)
        self.pins = [pin for pin in after.program.pins if pin.target == "op" and pin not in old]
        self.rows: dict[str, Row] = {one.op: one for one in after.explain().rows}

    def of(self, change: Recut) -> str:
        """Nothing where it is not known."""
        for pin in self.pins:
            if any(fnmatchcase(name, pin.pattern) for name in change.ops):
                return f"pinned: {pin}"
        if change.before.cut == change.after.cut:
            return ""
        others = [other for name in change.ops for other in self._others(name) if other.strategy == change.before.cut]
        chosen = min(others, key=lambda other: not other.simulated, default=None)
        if chosen is None:
            return ""
        room = "" if chosen.fits else ", more memory than there is"
        return f"in the second plan as before, all else equal, {alternative_words(chosen)}{room}"

    def _others(self, name: str) -> Iterable[Alternative]:
        found = self.rows.get(name)
        return () if found is None else found.others


# -- timelines ---------------------------------------------------------------------------------------------------------


class _Side:
    """One of the plans, its ranks, and the busiest of them."""

    def __init__(self, name: str, plan: Plan, changes: _Changes) -> None:
        self.name, self.plan, self.changes = name, plan, changes
        self.peers = predicted_peers(plan.simulate())
        self.busiest = max(self.peers, key=_work, default=None)

    def chart(self) -> Chart:
        """Of the busiest rank."""
        kinds, marked = Kinds.of(self.plan.resolved), self.changes.operations
        tasks = {task.id for task in self.plan.document.tasks if isinstance(task, Compute) and task.op in marked}
        took = format_seconds(self.plan.document.predicted.makespan_s)
        return Chart(f"{self.name}: {took}", kinds, [self.busiest] if self.busiest else [], tasks)

    def drawn(self) -> set[int]:
        """First ranks of those that can be chosen: the busiest, then as many as there is room for."""
        room, found = MOST_EVENTS, set()
        for those in sorted(self.peers, key=lambda those: those is not self.busiest):
            room -= len(those.events)
            if room >= 0 or those is self.busiest:
                found.add(those.ranks[0])
        return found

    def data(self) -> dict[str, Any]:
        """As of one plan (see `explorer_data`), its tasks called after the plan, changes with them."""
        data, drawn = explorer_data(self.plan), self.drawn()
        busiest = self.busiest.ranks[0] if self.busiest else 0
        for made in data["rows"]:
            made["g"] = self.name
            made["e"][::3] = map(self._called, made["e"][::3])
        return data | {
            "tasks": {self._called(task): one | self._change(one) for task, one in data["tasks"].items()},
            "rows": [made for made in data["rows"] if made["r"] in drawn],
            "of": {self._called(task): number for task, number in data["of"].items()},
            "memory": [one | {"n": f"{one['n']}, {self.name}"} for one in data["memory"] if one["r"] == busiest],
            "path": [[self._called(task), *rest] for task, *rest in data["path"] if rest[0] in drawn],
        }

    def _called(self, task: int) -> str:
        return f"{self.name} {task}"

    def _change(self, task: Mapping[str, Any]) -> dict[str, int]:
        number = (self.changes.operations if "w" in task else self.changes.tensors).get(task["n"])
        return {} if number is None else {"c": number}


def _work(peers: Peers) -> float:
    return sum(event.end_s - event.start_s for event in peers.events if event.lane == "compute")


def compared_data(sides: Sequence[_Side], changes: _Changes) -> dict[str, Any]:
    """What the script draws of both plans (see `explorer_data`), and more.

    changes  what is told of each; ``c`` of a task: which one is its own
    ranks    what can be chosen to be seen: words, and the rank of each plan, or None for all
    """
    both = [side.data() for side in sides]
    kinds = sorted({tuple(kind) for data in both for kind in data["kinds"]})
    tasks: dict[str, Any] = {}
    of: dict[str, int] = {}
    moves: list[Any] = []
    for data in both:
        mine = [kinds.index(tuple(kind)) for kind in data["kinds"]]
        tasks |= {task: one | {"k": mine[one["k"]]} for task, one in data["tasks"].items()}
        of |= {task: number + len(moves) for task, number in data["of"].items()}
        moves += data["moves"]
    joined = {name: [entry for data in both for entry in data[name]] for name in ("rows", "memory", "path")}
    end = max(data["end"] for data in both)
    given = {"tasks": tasks, "of": of, "moves": moves, "changes": changes.told, "ranks": list(_ranks(sides))}
    return {"kinds": kinds, **given, **joined, "end": end}


def _ranks(sides: Sequence[_Side]) -> Iterator[tuple[str, dict[str, int] | None]]:
    yield "busiest rank of each", {side.name: side.busiest.ranks[0] for side in sides if side.busiest}
    found: dict[int, dict[str, int]] = {}
    for side in sides:
        drawn = side.drawn()
        for those in side.peers:
            if those.ranks[0] in drawn:
                for rank in those.ranks:
                    found.setdefault(rank, {})[side.name] = those.ranks[0]
    for rank in sorted(found)[:MOST_RANKS]:
        yield f"rank {rank}", found[rank]
    yield "every rank", None


def _still(sides: Sequence[_Side]) -> Drawing:
    return charts_drawing([side.chart() for side in sides])


def _said_of_marks(changes: _Changes) -> str:
    if not changes.told:
        return ""
    return '<p class="soft">A line along the foot: computed otherwise, or moves a tensor that lies otherwise.</p>'


# -- tables ------------------------------------------------------------------------------------------------------------


def _heads(found: Difference) -> str:
    heads = "".join(
        f'<div class="tile"><span>{which}</span><b>{clean(head)}</b></div>'
        for which, head in ((FIRST, found.before), (SECOND, found.after))
    )
    return f'<div class="tiles">{heads}</div>' + ("<p>The plans are the same.</p>" if found.same else "")


def _asked(found: Difference) -> str:
    head = row("", FIRST, SECOND, head=True)
    return _table(head, [row(clean(a.what), *(clean(short(v)) for v in (a.before, a.after))) for a in found.asked])


def _figures(found: Difference) -> Iterator[str]:
    yield row("", f"{TAB}{FIRST}", f"{TAB}{SECOND}", f"{TAB}change", "", head=True)
    for figure in found.figures:
        yield row(clean(figure.what), *(TAB + clean(words) for words in figure_words(figure)), _bars(figure))


def _bars(figure: Seconds | Bytes) -> str:
    most = max(figure.before, figure.after)
    colours = kind_colour("matmul"), OTHER_MOVE
    both = zip((figure.before, figure.after), colours, strict=True)
    return "".join(bar(value / most, colour, 150) for value, colour in both) if most else ""


def _operations(found: Difference, changes: _Changes) -> str:
    if not found.operations:
        return "<p>All operations are computed alike.</p>"
    head = row("operation", "", "how it is cut", f"{TAB}computes", "transfers into it", "why", head=True)
    return _table(head, [_operation(change, changes) for change in found.operations])


def _operation(change: Recut, changes: _Changes) -> str:
    told = dict(changes.told[changes.operations[change.ops[0]]])
    sides = ((FIRST, change.before, folded_name(change.ops), ""), (SECOND, change.after, "", told.get("why", "")))
    rows = []
    for which, side, name, why in sides:
        cut, seconds, moves = map(clean, side_words(side))
        marked = f'<span class="soft">{which}</span>'
        rows.append(row(clean(name), marked, cut, TAB + seconds, moves, clean(why), names=change.ops))
    return "".join(rows)


def _tensors(found: Difference) -> str:
    if not found.tensors:
        return "<p>All tensors lie alike.</p>"
    head = row("tensor", FIRST, SECOND, head=True)
    written = [
        row(clean(folded_name(laid.tensors)), clean(laid.before), clean(laid.after), names=laid.tensors)
        for laid in found.tensors
    ]
    return _table(head, written)


def _alone(names: Sequence[str]) -> str:
    return _table("", [row(clean(name), names=[name]) for name in names])


def _table(head: str, rows: Sequence[str]) -> str:
    more = f'<p class="soft">and {len(rows) - MOST_ROWS} more: --json</p>' if len(rows) > MOST_ROWS else ""
    return table(head, rows[:MOST_ROWS]) + more
