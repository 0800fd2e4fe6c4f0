"""Every single alteration of a plan: one wait, transfer, offset, shard, task or order removed or changed.

Works on the records of the format alone. What a plan states about itself can be restated after the alteration, so that
only the alteration itself can give it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tapestry.planner.format.document import Compute, Document, LayoutText, Task, Transfer
from tapestry.program import Program

from .elements import points, write
from .traffic import restated

CELL = 8


@dataclass(frozen=True)
class Mutant:
    """``altered`` still states the figures of the plan that it was made of, ``document`` its own."""

    kind: str
    what: str
    altered: Document
    program: Program

    @cached_property
    def document(self) -> Document:
        return restated(self.altered, self.program)


def mutants(document: Document, program: Program) -> Iterator[Mutant]:
    for kind, made in FAMILIES.items():
        for what, altered in made(document):
            if altered != document:
                yield Mutant(kind, what, altered, program)


def _swapped(tasks: tuple[Task, ...], k: int, *instead: Task) -> tuple[Task, ...]:
    return (*tasks[:k], *instead, *tasks[k + 1 :])


Altered = Iterator[tuple[str, Document]]


def waits_removed(document: Document) -> Altered:
    for k, task in enumerate(document.tasks):
        for wait in task.waits:
            less = replace(task, waits=tuple(w for w in task.waits if w != wait))
            yield (
                f"task {task.id} no longer waits for {wait}",
                replace(document, tasks=_swapped(document.tasks, k, less)),
            )


def waits_changed(document: Document) -> Altered:
    for k, task in enumerate(document.tasks):
        for wait in task.waits:
            for other in document.tasks:
                if other.id not in (wait, task.id):
                    changed = replace(task, waits=tuple(other.id if w == wait else w for w in task.waits))
                    text = f"task {task.id} waits for {other.id} instead of {wait}"
                    yield text, replace(document, tasks=_swapped(document.tasks, k, changed))


def _without(document: Document, k: int) -> Document:
    gone = document.tasks[k].id
    left = (task for n, task in enumerate(document.tasks) if n != k)
    return replace(document, tasks=tuple(replace(t, waits=tuple(w for w in t.waits if w != gone)) for t in left))


def tasks_removed(document: Document) -> Altered:
    for k, task in enumerate(document.tasks):
        yield f"task {task.id} removed", _without(document, k)


def ranks_removed(document: Document) -> Altered:
    """A task no longer runs on one of its ranks."""
    for k, task in enumerate(document.tasks):
        ranks = tuple(range(len(document.devices))) if task.ranks is None else task.ranks
        for rank in ranks:
            if len(ranks) > 1:
                fewer = replace(task, ranks=tuple(r for r in ranks if r != rank))
                yield (
                    f"task {task.id} removed on rank {rank}",
                    replace(document, tasks=_swapped(document.tasks, k, fewer)),
                )


def ranks_split(document: Document) -> Altered:
    """A task's ranks are split in two tasks, the second at the end; who waited for it waits for the first half."""
    fresh = max(task.id for task in document.tasks) + 1
    for k, task in enumerate(document.tasks):
        ranks = tuple(range(len(document.devices))) if task.ranks is None else task.ranks
        for n in range(1, len(ranks)):
            halves = replace(task, ranks=ranks[:n]), replace(task, id=fresh, ranks=ranks[n:])
            yield f"task {task.id} split after {n} ranks", replace(document, tasks=_swapped(document.tasks, k, *halves))
            late = (*_swapped(document.tasks, k, halves[0]), halves[1])
            yield f"task {task.id} split after {n} ranks, the rest late", replace(document, tasks=late)


def offsets_changed(document: Document) -> Altered:
    for k, buffer in enumerate(document.buffers):
        others = {other.offset for other in document.buffers if other.tier == buffer.tier}
        for offset in sorted(others | {buffer.offset + CELL, buffer.offset - CELL, buffer.offset + 4}):
            moved = replace(buffer, offset=offset)
            yield f"buffer {buffer.name} moved to {offset}", replace(document, buffers=_put(document.buffers, k, moved))


def _put(items: tuple[Any, ...], k: int, item: Any) -> tuple[Any, ...]:
    return (*items[:k], item, *items[k + 1 :])


def _region_changes(layout: LayoutText) -> Iterator[tuple[str, LayoutText]]:
    """One rank's region loses its first or last element, or all; gains the next; or is exchanged with another's."""
    for rank, text in enumerate(layout.regions):
        mine = points(text)
        if not mine:
            continue
        yield f"rank {rank} loses {mine[0]}", _with(layout, rank, write(set(mine[1:])))
        yield f"rank {rank} loses {mine[-1]}", _with(layout, rank, write(set(mine[:-1])))
        yield f"rank {rank} loses all", _with(layout, rank, "empty")
        for axis in range(len(mine[0])):
            more = (*mine[-1][:axis], mine[-1][axis] + 1, *mine[-1][axis + 1 :])
            yield f"rank {rank} gains {more}", _with(layout, rank, write({*mine, more}))
        for other in range(rank):
            swapped = _with(_with(layout, rank, layout.regions[other]), other, text)
            yield f"ranks {rank} and {other} exchange", swapped


def _with(layout: LayoutText, rank: int, text: str) -> LayoutText:
    return replace(layout, regions=_put(layout.regions, rank, text))


def _relaid(document: Document, k: int, **names: str) -> Altered:
    """A task gets an altered copy of one of its layouts."""
    task = document.tasks[k]
    for field, name in names.items():
        for what, layout in _region_changes(document.layouts[name]):
            layouts = {**document.layouts, "altered": layout}
            tasks = _swapped(document.tasks, k, replace(task, **{field: "altered"}))
            yield f"{field} of task {task.id}: {what}", replace(document, layouts=layouts, tasks=tasks)


def shards_changed(document: Document) -> Altered:
    for k, task in enumerate(document.tasks):
        if isinstance(task, Compute):
            yield from _relaid(document, k, shards=task.shards)


def transfers_changed(document: Document) -> Altered:
    for k, task in enumerate(document.tasks):
        if isinstance(task, Compute):
            continue
        have = {"have": task.have} if isinstance(task, Transfer) else {}
        yield from _relaid(document, k, need=task.need, **have)
        for field in ("source", "target"):
            for buffer in document.buffers:
                if buffer.tensor == task.tensor:
                    changed = replace(task, **{field: buffer.name})
                    yield (
                        f"{field} of task {task.id}: {buffer.name}",
                        replace(document, tasks=_swapped(document.tasks, k, changed)),
                    )
        if isinstance(task, Transfer):
            yield from _parts_changed(document, k, task)


def _parts_changed(document: Document, k: int, task: Transfer) -> Altered:
    layout = document.layouts[task.have]
    if layout.parts is None:
        return
    choices = [("no parts", None), *((f"parts {p}", p) for p in _renumbered(layout.parts))]
    for what, parts in choices:
        layouts = {**document.layouts, "altered": replace(layout, parts=parts)}
        monoid = task.monoid if parts is not None else None
        tasks = _swapped(document.tasks, k, replace(task, have="altered", monoid=monoid))
        yield f"task {task.id} has {what}", replace(document, layouts=layouts, tasks=tasks)
    for monoid in (None, "max"):
        tasks = _swapped(document.tasks, k, replace(task, monoid=monoid))
        yield f"task {task.id} folds with {monoid}", replace(document, tasks=tasks)


def _renumbered(parts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for rank in range(len(parts)):
        for number in {*parts, max(parts) + 1} - {parts[rank]}:
            yield _put(parts, rank, number)


def buffers_changed(document: Document) -> Altered:
    """A buffer is laid out, or filled at the start, for one element less or more; or is too small."""
    for k, buffer in enumerate(document.buffers):
        for field in ("layout", "initial"):
            name = getattr(buffer, field)
            for what, layout in [] if name is None else _region_changes(document.layouts[name]):
                layouts = {**document.layouts, "altered": layout}
                buffers = _put(document.buffers, k, replace(buffer, **{field: "altered"}))
                yield f"{field} of buffer {buffer.name}: {what}", replace(document, layouts=layouts, buffers=buffers)
        smaller = replace(buffer, nbytes=buffer.nbytes - CELL)
        yield f"buffer {buffer.name} is too small", replace(document, buffers=_put(document.buffers, k, smaller))
        if buffer.initial is not None:
            emptied = replace(buffer, initial=None)
            yield f"buffer {buffer.name} starts empty", replace(document, buffers=_put(document.buffers, k, emptied))


def tasks_changed(document: Document) -> Altered:
    """A task works on another buffer of the same tensor, on another lane, or twice."""
    fresh = max(task.id for task in document.tasks) + 1
    for k, task in enumerate(document.tasks):
        again = replace(task, id=fresh)
        yield f"task {task.id} twice", replace(document, tasks=_swapped(document.tasks, k, task, again))
        yield f"task {task.id} again at the end", replace(document, tasks=(*document.tasks, again))
        for lane in ("compute", "comm", "h2d"):
            moved = replace(task, lane=lane)
            yield f"task {task.id} on lane {lane}", replace(document, tasks=_swapped(document.tasks, k, moved))
        if isinstance(task, Compute):
            for other in document.buffers:
                yield (
                    f"task {task.id} writes {other.name}",
                    replace(document, tasks=_swapped(document.tasks, k, replace(task, write=other.name))),
                )
                for n in range(len(task.reads)):
                    moved = replace(task, reads=_put(task.reads, n, other.name))
                    yield (
                        f"task {task.id} reads {other.name}",
                        replace(document, tasks=_swapped(document.tasks, k, moved)),
                    )


def over_changed(document: Document) -> Altered:
    """A task no longer says that it writes over what it reads, or says it of something else."""
    for k, task in enumerate(document.tasks):
        for over in (None, *task.reads) if isinstance(task, Compute) else ():
            changed = _swapped(document.tasks, k, replace(task, over=over))
            yield f"task {task.id} writes over {over}", replace(document, tasks=changed)


def onto_changed(document: Document) -> Altered:
    """A task folds onto nothing, or onto another buffer of its tensor; or one that folds onto nothing onto one."""
    tensors = {buffer.name: buffer.tensor for buffer in document.buffers}
    for k, task in enumerate(document.tasks):
        if isinstance(task, Compute) and any(isinstance(t, Compute) and t.onto for t in document.tasks):
            same = (name for name, tensor in tensors.items() if tensor == tensors[task.write])
            for onto in (UNSET, *same):
                changed = _swapped(document.tasks, k, replace(task, onto=onto))
                yield f"task {task.id} folds onto {onto or 'nothing'}", replace(document, tasks=changed)


def order_changed(document: Document) -> Altered:
    """Two tasks exchange places, or one goes to the front or the end."""
    tasks = document.tasks
    for k in range(len(tasks)):
        rest = (*tasks[:k], *tasks[k + 1 :])
        for n in range(len(tasks)):
            if n != k:
                yield (
                    f"task {tasks[k].id} moved to place {n}",
                    replace(document, tasks=(*rest[:n], tasks[k], *rest[n:])),
                )


def ends_changed(document: Document) -> Altered:
    for field in ("outputs", "states"):
        for name in getattr(document, field):
            for buffer in document.buffers:
                yield (
                    f"{name} ends in {buffer.name}",
                    replace(document, **{field: {**getattr(document, field), name: buffer.name}}),
                )


FAMILIES = {
    made.__name__: made
    for made in (
        waits_removed,
        waits_changed,
        tasks_removed,
        ranks_removed,
        ranks_split,
        offsets_changed,
        shards_changed,
        transfers_changed,
        buffers_changed,
        tasks_changed,
        over_changed,
        onto_changed,
        order_changed,
        ends_changed,
    )
}
