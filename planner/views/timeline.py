"""Timelines: a row for every lane of every rank, a bar for every task, time to the right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10

from ...drawing.svg import Drawing, line, number, rect, shortened, tag, text, text_width, title
from ..format import Compute, Resolved, Transfer
from ..format.events import Event
from ..machine.units import format_seconds
from ..strategy.cost import kernel_class
from .colours import kind_colour
from .peers import Peers, left_out

WIDTH, LEFT, RIGHT = 1080.0, 92.0, 24.0
BAR, LANE, RANK_GAP, NAME = 17.0, 20.0, 7.0, 15.0
MOST_DRAWN = 16
NARROWEST = 0.7  # pixels: neighbours narrower than this become one bar


@dataclass(frozen=True)
class Kinds:
    """Task number -> what it is: a kernel class, the kind of a transfer, or ``copy``."""

    of_task: Mapping[int, str]

    @staticmethod
    def of(resolved: Resolved) -> Kinds:
        ops = resolved.program.op_by_name
        found = {}
        for task in resolved.document.tasks:
            if isinstance(task, Compute):
                found[task.id] = kernel_class(ops[task.op])
            else:
                found[task.id] = task.kind if isinstance(task, Transfer) else "copy"
        return Kinds(found)

    def __getitem__(self, task: int) -> str:
        return self.of_task.get(task, "copy")


@dataclass(frozen=True)
class Chart:
    """Timelines of ranks below a heading. ``marked``: tasks with a line along their foot."""

    heading: str
    kinds: Kinds
    peers: Sequence[Peers]
    marked: Collection[int] = ()

    @property
    def events(self) -> Iterator[Event]:
        return _events(self.peers)


def timeline_drawing(kinds: Kinds, predicted: Sequence[Peers], measured: Sequence[Peers] | None = None) -> Drawing:
    """Predicted above measured, both on one axis: that of the longer one. The ratio of the two is printed."""
    groups = {"predicted": predicted} if measured is None else {"predicted": predicted, "measured": measured}
    spans = {name: max((event.end_s for event in _events(peers)), default=0.0) for name, peers in groups.items()}
    return charts_drawing([Chart(_heading(name, spans), kinds, peers) for name, peers in groups.items()])


def charts_drawing(charts: Sequence[Chart]) -> Drawing:
    """One above the other, on the axis of the longest."""
    widest = max((event.end_s for chart in charts for event in chart.events), default=0.0)
    parts, y = [], 0.0
    for chart in charts:
        drawn = _chart(chart, widest)
        parts.append(drawn.at(0, y))
        y += drawn.height + 18
    key = _key({chart.kinds[event.task] for chart in charts for event in chart.events})
    return Drawing(WIDTH, y + key.height, "".join(parts) + key.at(LEFT, y), "timeline")


def _events(peers: Iterable[Peers]) -> Iterator[Event]:
    return (event for those in peers for event in those.events)


def _heading(name: str, spans: Mapping[str, float]) -> str:
    said = f"{name}: {format_seconds(spans[name])}"
    return said if name == "predicted" else f"{said}, {ratio(spans[name], spans['predicted'])}"


def ratio(measured: float, predicted: float) -> str:
    """How a run compares with its prediction.

    >>> ratio(0.0534, 0.05), ratio(3.0, 0.1), ratio(1.0, 0.0)
    ('1.07 times the prediction', '30 times the prediction', 'nothing was predicted')
    """
    return f"{measured / predicted:.3g} times the prediction" if predicted > 0 else "nothing was predicted"


def _chart(chart: Chart, span: float) -> Drawing:
    shown, rest = chart.peers[:MOST_DRAWN], chart.peers[MOST_DRAWN:]
    scale = (WIDTH - LEFT - RIGHT) / span if span > 0 else 0.0
    top, parts, y = 44.0, [], 44.0
    for k, those in enumerate(shown):
        y += RANK_GAP if k else 0
        if len(those.ranks) > 1:  # too long to stand beside a lane
            parts.append(text(0, y + 10, those.name, "small strong"))
            y += NAME
        else:
            parts.append(text(0, y + 12.5, those.name, "small strong"))
        for lane in those.lanes:
            parts.append(_row(chart, [event for event in those.events if event.lane == lane], scale, y))
            parts.append(text(LEFT - 8, y + 12.5, lane, "end soft small"))
            y += LANE
    more = "".join(text(0, y + 14, words, "soft small") for words in left_out(rest))
    body = text(0, 14, chart.heading, "strong") + _axis(span, scale, top, y) + "".join(parts) + more
    return Drawing(WIDTH, y + (20 if more else 6), body)


def _row(chart: Chart, events: Sequence[Event], scale: float, y: float) -> str:
    ground = rect(LEFT, y, WIDTH - LEFT - RIGHT, BAR, class_="wash")
    return ground + "".join(_bar(bar, scale, y) for bar in _bars(chart, events, scale))


@dataclass(frozen=True)
class _Bar:
    """One task, or several too short to be told apart."""

    kind: str
    name: str
    start_s: float
    end_s: float
    hint: str
    marked: bool


def _bars(chart: Chart, events: Sequence[Event], scale: float) -> Iterator[_Bar]:
    """In order of time, slivers of one kind next to each other joined."""
    held: _Bar | None = None
    count = 1
    for event in sorted(events, key=lambda e: (e.start_s, e.end_s)):
        kind, marked = chart.kinds[event.task], event.task in chart.marked
        now = _Bar(kind, event.name, event.start_s, event.end_s, _hint(event, kind), marked)
        small = (event.end_s - event.start_s) * scale < NARROWEST
        like = held is not None and (held.kind, held.marked) == (kind, marked)
        if held and small and like and (event.start_s - held.end_s) * scale < NARROWEST:
            count += 1
            held = _Bar(kind, "", held.start_s, event.end_s, f"{count} tasks of kind {kind}", marked)
            continue
        if held:
            yield held
        held, count = now, 1
    if held:
        yield held


def _hint(event: Event, kind: str) -> str:
    took = format_seconds(event.end_s - event.start_s)
    return f"{event.name} ({kind}), task {event.task}\n{took} from {format_seconds(event.start_s)} on"


def _bar(bar: _Bar, scale: float, y: float) -> str:
    x, width = LEFT + bar.start_s * scale, max((bar.end_s - bar.start_s) * scale, 0.6)
    colour = kind_colour(bar.kind)
    shape = rect(x, y, width, BAR, fill=colour, stroke="var(--paper)", stroke_width=0.5 if width > 3 else None)
    label = fitting(bar.name, width - 8)
    words = text(x + width / 2, y + 12, label, f"middle small {ink_on(colour)}") if label else ""
    mark = rect(x, y + BAR - 1, width, 3, class_="accent") if bar.marked else ""
    return tag("g", title(bar.hint), shape, words, mark)


def fitting(name: str, width: float) -> str:
    """The whole name, its last part, or as much of its end as says something."""
    for candidate in (name, name.rpartition(".")[2]):
        if candidate and text_width(candidate, 10) <= width:
            return candidate
    cut = shortened(name.rpartition(".")[2], width, 10)
    return cut if len(cut) > 5 else ""


def ink_on(colour: str) -> str:
    """The class of text that can be read on a colour: by its luminance (ITU-R BT.601)."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "dark" if 0.299 * red + 0.587 * green + 0.114 * blue > 132 else "light"


def _axis(span: float, scale: float, top: float, bottom: float) -> str:
    parts = []
    for tick in ticks(span):
        x = LEFT + tick * scale
        parts.append(line(x, top - 5, x, bottom))
        parts.append(text(x, top - 9, format_seconds(tick), "middle soft tiny"))
    return "".join(parts)


def ticks(span: float, most: int = 10) -> list[float]:
    """Round instants from 0 on: steps of 1, 2 or 5 times a power of ten, at most ``most`` of them.

    >>> ticks(0.0037)
    [0.0, 0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.0035]
    """
    if not span > 0:
        return [0.0]
    power = 10.0 ** floor(log10(span / most))
    step = next(power * k for k in (1, 2, 5, 10, 20) if span / (power * k) <= most)
    return [float(f"{k * step:.12g}") for k in range(int(span / step * (1 + 1e-9)) + 1)]


def _key(kinds: Iterable[str]) -> Drawing:
    """Colours and what they stand for."""
    x, parts = 0.0, []
    for kind in sorted(kinds):
        parts.append(rect(x, 2, 12, 12, fill=kind_colour(kind)) + text(x + 17, 12, kind.replace("_", "-"), "small"))
        x += 17 + text_width(kind, 10) + 22
    return Drawing(x, 18, tag("g", *parts), number(x))
