"""The magnified inset of a shard map: a border between two ranks, element by element, with the halos across it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...drawing.svg import Drawing, line, rect, tag, text, title
from ...space import Region
from .colours import hatch, rank_colour
from .picture import Background
from .plane import Plane, Rect
from .shards import ShardMap

SIDE = 150.0  # pixels
FEWEST, MOST = 12, 96  # elements along a side


@dataclass(frozen=True)
class _Border:
    """A halo: what ``rank`` needs beyond its home, along one of the drawn axes (0: vertical), and where both lie."""

    rank: int
    along: int
    row: range
    column: range
    home: list[tuple[int, int]]

    @property
    def thickness(self) -> int:
        run = self.column if self.along else self.row
        return run.stop - run.start


def halo_inset(shards: ShardMap, plane: Plane, under: Background | None) -> Drawing:
    """A square window on the first border, or nothing where the halo lies along an axis that is not drawn."""
    border = _border(shards, plane)
    if border is None:
        return Drawing(0, 0, "")
    window = _window(border, plane)
    pairs = enumerate(zip(shards.home, shards.extra, strict=True))
    near = [(r, home, extra) for r, (home, extra) in pairs if _visible(home, window) or _visible(extra, window)]
    parts = [_backdrop(window, under)]
    for rank, home, _ in near:
        parts += [_piece(r, rank_colour(rank), 0.28) for r in _visible(home, window)]
    for rank, _, extra in near:
        marks = (_piece(r, hatch(rank), 1.0) + _outline(r, rank_colour(rank)) for r in _visible(extra, window))
        parts.append(tag("g", title(f"rank {rank} also needs {extra}"), *marks))
    parts += [_lattice(window), rect(0, 0, window.width, window.height, class_="frame")]
    parts.append(_labels(near, window))
    rows = "column" if border.along else "row"
    words = f"magnified: halo {border.thickness} {rows}{'s' * (border.thickness != 1)}"
    body = tag("g", *parts, transform="translate(0 14)") + text(0, 8, words, "small strong")
    return Drawing(
        max(window.width, 150), window.height + 32, body + text(0, window.height + 27, _span(window), "soft tiny")
    )


def _border(shards: ShardMap, plane: Plane) -> _Border | None:
    for rank, (home, extra) in enumerate(zip(shards.home, shards.extra, strict=True)):
        if not home or not extra or len(plane.axes) < 1:
            continue
        grid = extra.grids[-1]
        runs = [grid.axes[k].cover().runs[-1] for k in plane.axes]
        row, column = ([range(1)] * (2 - len(runs)) + runs)[-2:]
        along = 1 if len(runs) == 1 else _crossing(home, plane, row, column)
        edges = [(home.hull().lo[k], home.hull().hi[k]) for k in plane.axes]
        return _Border(rank, along, row, column, ([(0, 1)] * (2 - len(edges)) + edges)[-2:])
    return None


def _crossing(home: Region, plane: Plane, row: range, column: range) -> int:
    """The axis along which the halo leaves the home."""
    hull = home.hull()
    vertical, horizontal = plane.axes
    above = row.stop <= hull.lo[vertical] or row.start >= hull.hi[vertical]
    beside = column.stop <= hull.lo[horizontal] or column.start >= hull.hi[horizontal]
    return int(beside) if above != beside else int(len(column) < len(row))


def _window(border: _Border, plane: Plane) -> Plane:
    """A square of elements around the middle of the halo, inside the tensor."""
    span = min(max(FEWEST, 5 * border.thickness), MOST)
    sizes = [min(span, extent) for extent in plane.extents]
    centres = [_centre(run, *edges) for run, edges in zip((border.row, border.column), border.home, strict=True)]
    starts = [min(max(0, c - n // 2), e - n) for c, n, e in zip(centres, sizes, plane.extents, strict=True)]
    height = SIDE if len(plane.axes) > 1 else plane.height
    scale = max(sizes)
    wide, tall = SIDE * sizes[1] / scale, (SIDE * sizes[0] / scale if len(plane.axes) > 1 else height)
    return replace(plane, extents=(sizes[0], sizes[1]), width=wide, height=tall, origin=(starts[0], starts[1]))


def _centre(run: range, low: int, high: int) -> int:
    """The middle of the halo; where it turns a corner of the home, that corner."""
    if run.start < low < run.stop:
        return low
    return high if run.start < high < run.stop else (run.start + run.stop) // 2


def _backdrop(window: Plane, under: Background | None) -> str:
    if under is None:
        return rect(0, 0, window.width, window.height, class_="wash")
    rows, columns = window.extents
    return under.part(0, 0, window.width, window.height, (window.origin[1], window.origin[0], columns, rows))


def _visible(region: Region, window: Plane) -> list[Rect]:
    found = []
    for r in window.rects(region):
        x, y = max(r.x, 0.0), max(r.y, 0.0)
        width, height = min(r.x + r.width, window.width) - x, min(r.y + r.height, window.height) - y
        if width > 0 and height > 0:
            found.append(Rect(x, y, width, height))
    return found


def _piece(r: Rect, fill: str, opacity: float) -> str:
    return rect(r.x, r.y, r.width, r.height, fill=fill, fill_opacity=opacity)


def _outline(r: Rect, colour: str) -> str:
    return rect(r.x, r.y, r.width, r.height, fill="none", stroke=colour, stroke_width=1.5)


def _lattice(window: Plane) -> str:
    """Lines between elements while they can be told apart."""
    rows, columns = window.extents
    if max(window.height / rows, window.width / columns) < 4 or max(rows, columns) > 40:
        return ""
    lines = [
        line(k * window.width / columns, 0, k * window.width / columns, window.height, stroke_opacity=0.6)
        for k in range(1, columns)
    ]
    lines += [
        line(0, k * window.height / rows, window.width, k * window.height / rows, stroke_opacity=0.6)
        for k in range(1, rows)
    ]
    return tag("g", *lines, stroke_width=0.5)


def _labels(near: Sequence[tuple[int, Region, Region]], window: Plane) -> str:
    """Ranks' numbers on what they own and no one else needs."""
    parts = []
    for rank, home, _ in near:
        rest = home
        for _, _, extra in near:
            rest = rest - extra
        pieces = _visible(rest, window)
        if pieces:
            widest = max(pieces, key=lambda r: r.width * r.height)
            if min(widest.width, widest.height) > 16:
                parts.append(
                    text(widest.x + widest.width / 2, widest.y + widest.height / 2 + 4, str(rank), "middle strong halo")
                )
    return "".join(parts)


def _span(window: Plane) -> str:
    """Which elements the window shows."""
    (rows, columns), (top, left) = window.extents, window.origin
    names = [name.split(" ")[0] for name in window.names]
    spans = [f"{names[-1]} {left:.0f}:{left + columns:.0f}"]
    if len(names) > 1:
        spans.insert(0, f"{names[0]} {top:.0f}:{top + rows:.0f}")
    return ", ".join(spans)
