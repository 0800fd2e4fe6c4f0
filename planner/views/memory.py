"""The arena of one rank over time: every buffer a rectangle, as long as it lives and as high as its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...drawing.svg import Drawing, line, rect, tag, text, title
from ..format import Buffer, Compute, Resolved
from ..format.events import Event
from ..machine.units import format_bytes, format_seconds
from .colours import kind_colour
from .timeline import LEFT, RIGHT, WIDTH, Kinds, fitting, ink_on, ticks

HEIGHT = 250.0
RESIDENT = "#9aa4af"
KEPT_ROLES = ("param", "const", "state")
WORKSPACE = "workspace"


@dataclass(frozen=True)
class Living:
    """A buffer on one rank: from the first task that touches it (0 if it is there before the run) to the end of the
    last, or to the beginning of the one that writes over it.
    """

    buffer: Buffer
    start_s: float
    end_s: float
    kind: str


def lives(resolved: Resolved, kinds: Kinds, events: Iterable[Event], end_s: float, rank: int = 0) -> list[Living]:
    """Buffers in the plan's order, by the events of a rank. Parameters, states and outputs stay to the end."""
    when = {event.task: (event.start_s, event.end_s) for event in events}
    spans: dict[str, tuple[float, float]] = {}
    makers: dict[str, str] = {}
    for task in resolved.document.tasks:
        if isinstance(task, Compute):
            prior = () if task.prior is None else (task.prior,)
            touched, written = (*task.reads, *prior, task.write), task.write
        else:
            touched, written = (task.source, task.target), task.target
        makers.setdefault(written, kinds[task.id])
        if task.id in when:
            start, end = when[task.id]
            for name in touched:
                known = spans.get(name, (start, start))
                last = start if isinstance(task, Compute) and name == task.over else end
                spans[name] = (min(known[0], start), max(known[1], last))
    kept = {*resolved.document.outputs.values(), *resolved.document.states.values(), *_resident(resolved)}
    here = [buffer.there(resolved.kinds[rank]) for buffer in resolved.document.buffers]
    return [_living(resolved, buffer, spans, makers, kept, end_s) for buffer in here]


def workspaces(resolved: Resolved, end_s: float) -> list[Living]:
    """What kernels work in, from the first to the last, drawn as buffers are."""
    rooms = resolved.document.rooms.items()
    return [
        Living(Buffer(f"workspace of {lane}", "", "", room.tier, room.offset, room.nbytes), 0.0, end_s, WORKSPACE)
        for lane, room in rooms
    ]


def _resident(resolved: Resolved) -> set[str]:
    """Buffers of parameters and states that are there before the run and that nothing is written over."""
    over = {task.over for task in resolved.document.tasks if isinstance(task, Compute)}
    first = (buffer for buffer in resolved.document.buffers if buffer.initial is not None and buffer.name not in over)
    return {buffer.name for buffer in first if resolved.program.tensor(buffer.tensor).role in KEPT_ROLES}


def _living(
    resolved: Resolved, buffer: Buffer, spans: Mapping[str, tuple[float, float]], makers: Mapping[str, str],
    kept: set[str], end_s: float,
) -> Living:  # fmt: skip
    start, end = spans.get(buffer.name, (0.0, 0.0 if buffer.initial is None else end_s))
    role = resolved.program.tensor(buffer.tensor).role
    before = buffer.initial is not None
    kind = role if before else makers.get(buffer.name, "copy")
    return Living(buffer, 0.0 if before else start, end_s if buffer.name in kept else end, kind)


def memory_drawing(found: Sequence[Living], tier: str, rank: int, end_s: float, capacity: int) -> Drawing:
    """Time to the right as in the timeline, offsets upwards; the line of the capacity where it is near."""
    here = [life for life in found if life.buffer.tier == tier and life.buffer.nbytes]
    peak = max((life.buffer.offset + life.buffer.nbytes for life in here), default=1)
    ceiling = capacity if peak <= capacity <= 1.6 * peak else peak
    x_scale, y_scale = (WIDTH - LEFT - RIGHT) / end_s if end_s > 0 else 0.0, HEIGHT / ceiling
    top = 44.0
    words = f"{tier} of rank {rank}: {format_bytes(peak)} of {format_bytes(capacity)} ({peak / max(capacity, 1):.2%})"
    parts = [text(0, 14, words, "strong"), rect(LEFT, top, WIDTH - LEFT - RIGHT, HEIGHT, class_="wash")]
    parts += [_block(life, x_scale, y_scale, top) for life in here]
    for tick in ticks(end_s):
        x = LEFT + tick * x_scale
        parts.append(line(x, top - 5, x, top) + text(x, top - 9, format_seconds(tick), "middle soft tiny"))
    for share in range(5):
        y = top + HEIGHT * (1 - share / 4)
        parts.append(
            text(LEFT - 8, y + 4, format_bytes(ceiling * share // 4), "end soft tiny") + line(LEFT - 4, y, LEFT, y)
        )
    if ceiling == capacity:
        parts.append(
            line(LEFT, top, WIDTH - RIGHT, top, "edge moved")
            + text(WIDTH - RIGHT, top - 4, "capacity", "end accent tiny")
        )
    return Drawing(WIDTH, top + HEIGHT + 8, "".join(parts), f"memory of rank {rank}")


def _block(life: Living, x_scale: float, y_scale: float, top: float) -> str:
    buffer = life.buffer
    x, width = LEFT + life.start_s * x_scale, max((life.end_s - life.start_s) * x_scale, 0.6)
    height = buffer.nbytes * y_scale
    y = top + HEIGHT - (buffer.offset * y_scale + height)
    colour = RESIDENT if life.kind in ("input", WORKSPACE, *KEPT_ROLES) else kind_colour(life.kind)
    live = f"{format_seconds(life.start_s)} to {format_seconds(life.end_s)}"
    hint = title(f"{buffer.name}: {format_bytes(buffer.nbytes)} at {buffer.offset}, {live}")
    label = fitting(buffer.name, width - 4) if height > 11 and width > 24 else ""
    words = text(x + width / 2, y + height / 2 + 3.5, label, f"middle small {ink_on(colour)}") if label else ""
    edge = 0.5 if height > 2 else None
    return tag(
        "g",
        hint,
        rect(x, y, width, height, fill=colour, stroke="var(--paper)" if edge else None, stroke_width=edge),
        words,
    )
