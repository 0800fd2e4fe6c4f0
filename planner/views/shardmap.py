"""Shard maps: who owns which part of a tensor, in the colours of the ranks; what a rank needs beyond its own, hatched.

Halos are drawn at least a few pixels wide in the whole picture and to scale in a magnified inset beside it; what is
gathered from afar is shown rank by rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...drawing.svg import Drawing, clean, number, rect, tag, text, text_width, title
from ...space import Region
from .colours import hatch, hatching, rank_colour
from .inset import halo_inset
from .picture import Background
from .plane import Plane
from .shards import ShardMap

WIDE, TALL = 300.0, 200.0  # the largest picture
SHARED = "#8893a0"  # what all ranks have is nobody's colour
THINNEST = 4.0  # pixels of a halo
MOST_TILES = 8
HEADING = 500.0
MOST_SHARDS = 64  # drawn of one tensor


def shard_drawing(shards: ShardMap, under: Background | None = None, *, heading: bool = True) -> Drawing:
    """One tensor's map.

    under: a picture to draw it over where the extents are the same. heading: name, type and facts above.
    """
    axes = shards.axes((under.rows, under.columns) if under else None)
    plane = Plane.of(shards.tensor, axes, WIDE, TALL)
    if under is not None and plane.extents != (under.rows, under.columns):
        under = None
    words = facts(shards) + (f"; the first {MOST_SHARDS} are drawn" if len(shards.owners) > MOST_SHARDS else "")
    lines = _wrapped(words) if heading else []
    top = 21.0 + 13 * len(lines) if heading else 0.0
    parts = [_heading(shards, lines)] if heading else []
    parts.append(_framed(shards, plane, under, 18, top + 14))
    width, height = 18 + plane.width + 8, top + 14 + plane.height + 10
    if shards.thin:
        inset = halo_inset(shards, plane, under)
        parts.append(inset.at(width + 24, top))
        width, height = width + 24 + inset.width, max(height, top + inset.height)
    elif any(shards.extra):
        tiles = _tiles(shards, plane)
        parts.append(tiles.at(width + 16, top + 14))
        width, height = width + 16 + tiles.width, max(height, top + 14 + tiles.height)
    defs = tuple(hatching(rank) for rank in range(min(8, len(shards.home))))
    pictures = (under.definition,) if under else ()
    return Drawing(max(width, 420), height, "".join(parts), f"shard map of {shards.name}", defs + pictures)


def facts(shards: ShardMap) -> str:
    """In words: copies, contributions, halos, whether the data say what is needed, how it is moved."""
    words = [_ownership(shards)]
    if shards.thin:
        words.append("halo " + " and ".join(_halos(shards)))
    elif any(shards.extra):
        words.append("needed beyond what a rank owns")
    if shards.chosen:
        words.append("read where the data say: needs are hulls")
    if shards.moves:
        words.append("moved by " + ", ".join(kind.replace("_", "-") for kind in shards.moves))
    return "; ".join(words)


def _ownership(shards: ShardMap) -> str:
    ranks = sum(map(bool, shards.home))
    if shards.monoid:
        return f"partial: {ranks} contributions, folded with {shards.monoid}"
    if ranks == 1:
        return f"on rank {next(r for r, region in enumerate(shards.home) if region)} alone"
    if shards.replicated:
        return f"×{ranks} copies"
    return f"{len(shards.owners)} shards" + (f", ×{number(shards.copies)} copies" if shards.copies > 1 else "")


def _halos(shards: ShardMap) -> Iterator[str]:
    shown = shards.axes()
    for axis, (below, above) in enumerate(shards.halo):
        if below or above:
            word = f"{shards.tensor.axes[axis]}-element"
            if axis in shown and len(shards.tensor.shape) > 1:
                word = "row" if axis == shown[0] else "column"
            both = below == above
            size = f"{below} {word}{'s' * (below != 1)} on either side" if both else _uneven(below, above, word)
            yield f"{size} (along {shards.tensor.axes[axis]})"


def _uneven(below: int, above: int, word: str) -> str:
    sides = [f"{size} {word}{'s' * (size != 1)} {side}" for size, side in ((below, "before"), (above, "after")) if size]
    return " and ".join(sides)


def _wrapped(words: str) -> list[str]:
    """Lines no wider than `HEADING`, broken between statements."""
    lines: list[str] = []
    for part in words.split("; "):
        if lines and text_width(f"{lines[-1]}; {part}", 10) <= HEADING:
            lines[-1] += f"; {part}"
        else:
            lines.append(part)
    return lines


def _heading(shards: ShardMap, lines: Sequence[str]) -> str:
    tensor = shards.tensor
    kind = f"{tensor.dtype}[{', '.join(f'{a}={n}' for a, n in zip(tensor.axes, tensor.shape, strict=True))}]"
    name = tag("tspan", clean(shards.name), class_="strong") + tag("tspan", clean(kind), class_="soft small", dx=9)
    below = (text(0, 27 + 13 * k, line, "soft small") for k, line in enumerate(lines))
    return tag("text", name, x=0, y=12) + "".join(below)


def _framed(shards: ShardMap, plane: Plane, under: Background | None, x: float, y: float) -> str:
    """The picture with its axes named along the edges."""
    parts = [_sheets(plane)] if shards.replicated or shards.monoid else []
    if under is not None:
        parts.append(under.part(0, 0, plane.width, plane.height, (0, 0, under.columns, under.rows)))
    else:
        parts.append(rect(0, 0, plane.width, plane.height, class_="wash"))
    owners = shards.owners[:MOST_SHARDS]
    colours = [SHARED if shards.replicated else rank_colour(ranks[0]) for _, ranks in owners]
    pieces = zip(owners, colours, strict=True)
    parts += [_shard(region, ranks, plane, colour, over=under is not None) for (region, ranks), colour in pieces]
    if shards.thin:
        parts += [
            _halo(rank, home, extra, plane)
            for rank, (home, extra) in enumerate(list(zip(shards.home, shards.extra, strict=True))[:MOST_SHARDS])
        ]
    parts.append(rect(0, 0, plane.width, plane.height, class_="frame"))
    parts += [_name_of(region, ranks, shards, plane, over=under is not None) for region, ranks in owners]
    if shards.replicated or shards.monoid:
        parts.append(_badge(shards, plane))
    columns, rows = plane.names[-1], plane.names[0] if len(plane.names) > 1 else ""
    parts.append(text(plane.width / 2, -4, columns, "middle soft small"))
    parts.append(
        text(-5, plane.height / 2, rows, "middle soft small", transform=f"rotate(-90 -5 {number(plane.height / 2)})")
    )
    return tag("g", *parts, transform=f"translate({number(x)} {number(y)})")


def _sheets(plane: Plane) -> str:
    """Copies lie behind one another."""
    return "".join(rect(d, d, plane.width, plane.height, class_="card") for d in (8, 4))


def _badge(shards: ShardMap, plane: Plane) -> str:
    words = (
        f"{shards.monoid} of {sum(map(bool, shards.home))} parts" if shards.monoid else f"×{len(shards.home)} copies"
    )
    width = text_width(words, 12) + 16
    x, y = plane.width / 2, plane.height / 2
    if plane.height < 30 or plane.width < width + 8:
        return text(plane.width + 14, y + 4, words, "strong")
    return rect(x - width / 2, y - 12, width, 22, class_="card", rx=11) + text(x, y + 3, words, "middle strong")


def _shard(region: Region, ranks: Sequence[int], plane: Plane, colour: str, *, over: bool) -> str:
    everyone = len(ranks) > 1
    hint = title(f"{_ranks(ranks)} own{'' if everyone else 's'} {region}")
    shapes = [
        rect(
            r.x,
            r.y,
            r.width,
            r.height,
            fill=colour,
            fill_opacity=0.26 if over else 0.5 if not everyone else 0.3,
            stroke=colour,
        )
        for r in plane.rects(region)
    ]
    return tag("g", hint, *shapes)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


def _name_of(region: Region, ranks: Sequence[int], shards: ShardMap, plane: Plane, *, over: bool) -> str:
    """The rank's number on each of its pieces that has room."""
    if shards.replicated or shards.monoid:
        return ""
    found = []
    words = ",".join(map(str, ranks))
    for r in plane.rects(region):
        if r.width > text_width(words, 12) + 2 and r.height > 12:
            class_ = "middle strong halo" if over else "middle strong"
            found.append(text(r.x + r.width / 2, r.y + r.height / 2 + 4, words, class_))
    return "".join(found)


def _halo(rank: int, home: Region, extra: Region, plane: Plane) -> str:
    """Hatched, at least `THINNEST` wide, growing away from the rank's own part."""
    if not extra:
        return ""
    middle = plane.middle(home)
    hint = title(f"rank {rank} also needs {extra}")
    shapes = []
    for r in plane.rects(extra):
        wide = r.at_least(THINNEST, middle)
        shapes.append(
            rect(wide.x, wide.y, wide.width, wide.height, fill=hatch(rank), stroke=rank_colour(rank), stroke_width=0.8)
        )
    return tag("g", hint, *shapes)


@dataclass(frozen=True)
class _Tile:
    rank: int
    home: Region
    extra: Region


def _tiles(shards: ShardMap, plane: Plane) -> Drawing:
    """Rank by rank: own part solid, what it is sent hatched."""
    tiles = [_Tile(r, h, e) for r, (h, e) in enumerate(zip(shards.home, shards.extra, strict=True))]
    shown = tiles[:MOST_TILES]
    small = plane.fitted(62, 62)
    columns = 2 if len(shown) <= 4 else 4
    step_x, step_y = max(small.width, 36.0) + 14, small.height + 22
    parts = []
    for k, tile in enumerate(shown):
        parts.append(
            tag(
                "g",
                _tile(tile, small),
                transform=f"translate({number(k % columns * step_x)} {number(k // columns * step_y)})",
            )
        )
    rows = -(-len(shown) // columns)
    if len(tiles) > len(shown):
        parts.append(text(0, rows * step_y + 8, f"and {len(tiles) - len(shown)} ranks more", "soft tiny"))
    return Drawing(min(columns, len(shown)) * step_x, rows * step_y + 12, "".join(parts))


def _tile(tile: _Tile, plane: Plane) -> str:
    colour = rank_colour(tile.rank)
    parts = [
        title(f"rank {tile.rank} owns {tile.home} and needs {tile.extra} as well"),
        rect(0, 0, plane.width, plane.height, class_="wash"),
    ]
    for r in plane.rects(tile.extra):
        wide = r.at_least(1.5, (0.0, 0.0))
        parts.append(rect(wide.x, wide.y, wide.width, wide.height, fill=hatch(tile.rank), fill_opacity=0.8))
    for r in plane.rects(tile.home):
        wide = r.at_least(1.5, (0.0, 0.0))
        parts.append(rect(wide.x, wide.y, wide.width, wide.height, fill=colour))
    parts.append(rect(0, 0, plane.width, plane.height, class_="frame"))
    return tag("g", *parts, text(plane.width / 2, plane.height + 11, f"rank {tile.rank}", "middle soft tiny"))


def legend() -> Drawing:
    """What the marks mean."""
    colour, small = rank_colour(0), "small"
    parts = [
        rect(0, 2, 22, 12, fill=colour, fill_opacity=0.5, stroke=colour),
        text(28, 12, "owned by a rank, in its colour", small),
        rect(210, 2, 22, 12, fill=hatch(0), stroke=colour),
        text(238, 12, "needed by that rank, owned by another", small),
        rect(454, 4, 22, 12, class_="card"),
        rect(450, 0, 22, 12, class_="card"),
        text(482, 12, "copies, or parts still to be folded", small),
    ]
    return Drawing(700, 20, "".join(parts), "legend of the shard maps", (hatching(0),))
