"""The part of the page that moves: timelines to zoom into and search, who sends what to whom, memory over time.

What it shows is written into the page as one object of JSON, which `explorer.js` draws with `parts.js`. Without scripts
the still picture of the timeline stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...drawing.svg import Drawing
from ..format import Compute, Transfer
from .colours import kind_colour
from .counters import memory_changes, values
from .critical import critical_path
from .peers import Peers, measured_peers, predicted_peers
from .sayings import US, Sayings
from .timeline import Kinds

if TYPE_CHECKING:
    from ..interface import Plan
    from .runs import Run

DIGITS = 3  # of microseconds


def explorer(given: Mapping[str, Any], still: Drawing) -> str:
    """Markup, data (see `explorer_data`) and script. ``still``: what is there where scripts are not run."""
    data = json.dumps(given, separators=(",", ":")).replace("<", "\\u003c")
    here = files(__package__)
    parts, script, style = (
        here.joinpath(name).read_text(encoding="utf-8") for name in ("parts.js", "explorer.js", "explorer.css")
    )
    return (
        f"<style>{style}</style>"
        f'<div id="explorer"><div class="wide" data-still>{still.inline()}</div></div>'
        f'<script type="application/json" id="explorer-data">{data}</script><script>{parts}{script}</script>'
    )


def explorer_data(plan: Plan, run: Run | None = None) -> dict[str, Any]:
    """What the script draws; times in microseconds.

    kinds    name and colour of each kind of task
    tasks    by number: name, kind, what is said of it, the tensors that it reads and writes, its operation
    rows     one for each lane: group (predicted, measured), ranks, lane, and task, start and length of every event
    moves    who sends what to whom, [from, to, bytes], of each kind of transfer; ``of``: which one a task is
    memory   by rank and tier: capacity, and [time, resident, other] at every change
    path     the critical path: task and rank, start and length
    """
    resolved, timeline = plan.resolved, plan.simulate()
    kinds = Kinds.of(resolved)
    groups = {"predicted": predicted_peers(timeline)}
    if run is not None:
        groups["measured"] = measured_peers(run.events)
    foreseen = {(event.rank, event.task): event for peers in groups["predicted"] for event in peers.events}
    sayings = Sayings(resolved, foreseen)
    names = sorted({kinds[task.id] for task in resolved.document.tasks})
    moves, of = _moves(sayings)
    return {
        "kinds": [[name.replace("_", "-"), kind_colour(name)] for name in names],
        "tasks": {task: _task(sayings, task, names.index(kinds[task])) for task in sayings.tasks},
        "rows": [row for group, peers in groups.items() for row in _rows(group, peers)],
        "moves": moves,
        "of": of,
        "memory": list(_memory(plan, sayings, kinds, groups["predicted"])),
        "path": [
            [step.task, step.rank, _us(step.start_s), _us(step.end_s - step.start_s)]
            for step in critical_path(resolved.document, timeline)
        ],
        "end": max(
            [_us(timeline.makespan_s), *(_us(event.end_s) for event in (run.events if run is not None else ()))]
        ),
    }


def _us(seconds: float) -> float:
    return round(seconds * US, DIGITS)


def _task(sayings: Sayings, number: int, kind: int) -> dict[str, Any]:
    task = sayings.tasks[number]
    if isinstance(task, Compute):
        buffers = sayings.resolved.buffers
        touched = dict.fromkeys(buffers[name].tensor for name in (*task.reads, task.write))
        return {"n": task.op, "k": kind, "t": list(touched), "w": buffers[task.write].tensor}
    return {"n": task.tensor, "k": kind, "t": [task.tensor]}


def _rows(group: str, peers: Sequence[Peers]) -> Iterable[dict[str, Any]]:
    for those in peers:
        for lane in those.lanes:
            events = sorted((e for e in those.events if e.lane == lane), key=lambda e: (e.start_s, e.end_s))
            numbers = [n for e in events for n in (e.task, _us(e.start_s), _us(e.end_s - e.start_s))]
            kernels = {e.task: e.kernel for e in events if e.kernel}
            row = {"g": group, "n": those.name, "r": those.ranks[0], "l": lane, "e": numbers}
            yield row | ({"c": kernels} if kernels else {})


def _moves(sayings: Sayings) -> tuple[list[list[list[int]]], Mapping[int, int]]:
    """Different pictures of who sends what to whom, and which one each transfer has."""
    found: dict[tuple[tuple[int, int, int], ...], int] = {}
    of: dict[int, int] = {}
    for number, task in sayings.tasks.items():
        parcels = sayings.parcels(task) if isinstance(task, Transfer) else {}
        pairs = [(other, rank, size) for rank, one in parcels.items() for other, size in one.received.items()]
        if pairs:
            of[number] = found.setdefault(tuple(sorted(pairs)), len(found))
    return [[list(pair) for pair in pairs] for pairs in found], of


def _memory(plan: Plan, sayings: Sayings, kinds: Kinds, peers: Sequence[Peers]) -> Iterable[dict[str, Any]]:
    """Of every rank that is shown, and every tier."""
    for those in peers:
        rank = those.ranks[0]
        device = plan.document.devices[rank]
        for tier, changes in memory_changes(sayings, kinds, rank, those.events).items():
            capacity = plan.machine.capacity_bytes(tier, device)
            points = [[_us(when), now.get("resident", 0), now.get("values", 0)] for when, now in values(changes)]
            yield {"n": those.name, "r": rank, "t": tier, "c": capacity, "p": points}
