"""A plan as one HTML file, and as one SVG: figures, timeline, graph, shard maps, memory, reasons, program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...drawing.folding import anonymous, folded_name
from ...drawing.page import Section, page
from ...drawing.svg import Drawing, all_defs, clean, stacked, tag, text
from ...space import Region
from ..explain import Alternative, Incoming, Row
from ..machine.units import format_bytes, format_seconds
from .colours import OTHER_MOVE, kind_colour
from .explorer import explorer, explorer_data
from .graph import plan_graph
from .memory import lives, memory_drawing, workspaces
from .peers import measured_peers, predicted_peers
from .picture import Background, background
from .shardmap import legend, shard_drawing
from .shards import ShardMap, shard_maps
from .tables import TAB, bar, named, row, table, wide
from .text import backed, figures, headline, peaks, solved
from .timeline import Kinds, ratio, timeline_drawing

if TYPE_CHECKING:
    import numpy as np

    from ..interface import Plan
    from .runs import Run

MOST_REGIONS = 16


def plan_html(plan: Plan, *, run: Run | None = None, background: np.ndarray | None = None) -> str:
    """One file that needs no other.

    run: a run's result, drawn below the prediction. background: uint8 [y, x, 3], put under the shard maps of tensors
    with its extents. UsageError for another kind of array.
    """
    under = _under(background)
    maps = shard_maps(plan.resolved)
    drawings = [shard_drawing(found, under) for found in maps]
    sections = [
        Section("Timeline", explorer(explorer_data(plan, run), _timeline(plan, run)) + _run_facts(plan, run)),
        Section("Shard maps", _shard_section(maps, drawings)),
        Section("Graph", wide(plan_graph(plan.resolved))),
        Section("Memory", "".join(wide(drawing) for drawing in _memory(plan))),
        Section("Why these cuts", _reasons(plan)),
        Section("Program", f"<pre>{clean(str(plan.program))}</pre>"),
    ]
    defs = all_defs([*drawings, legend()])
    hidden = tag("svg", tag("defs", *defs), width=0, height=0, style="position:absolute", aria_hidden="true")
    head = hidden + _tiles(plan, run) + _traffic_table(plan)
    return page(plan.program.name, clean(headline(plan)), sections, head)


def plan_svg(plan: Plan, *, run: Run | None = None, background: np.ndarray | None = None) -> str:
    """The pictures alone, below one another, as an SVG file: figures, timeline, graph, shard maps."""
    under = _under(background)
    maps = [shard_drawing(found, under) for found in shard_maps(plan.resolved)]
    parts = [_caption(plan), _timeline(plan, run), plan_graph(plan.resolved), legend(), _columns(maps)]
    inner = stacked(parts, gap=30)
    body = tag("g", inner.body, transform="translate(20 20)")
    return Drawing(inner.width + 40, inner.height + 40, body, headline(plan), inner.defs).alone()


def _under(pixels: np.ndarray | None) -> Background | None:
    return None if pixels is None else background(pixels)


def _timeline(plan: Plan, run: Run | None) -> Drawing:
    measured = measured_peers(run.events) if run else None
    return timeline_drawing(Kinds.of(plan.resolved), predicted_peers(plan.simulate()), measured)


def _caption(plan: Plan) -> Drawing:
    lines = [text(0, 16, headline(plan), "strong large")]
    for k, (name, value) in enumerate(figures(plan)):
        lines.append(text(0, 40 + 17 * k, name, "soft") + text(100, 40 + 17 * k, value))
    return Drawing(700, 30 + 17 * len(figures(plan)), "".join(lines))


def _columns(drawings: Sequence[Drawing], width: float = 530) -> Drawing:
    """Two columns, filled evenly."""
    columns: list[list[Drawing]] = [[], []]
    heights = [0.0, 0.0]
    for drawing in drawings:
        k = heights.index(min(heights))
        columns[k].append(drawing)
        heights[k] += drawing.height + 24
    body = "".join(stacked(column).at(k * (width + 30), 0) for k, column in enumerate(columns))
    return Drawing(2 * width + 30, max(heights), body, "", all_defs(drawings))


def _tiles(plan: Plan, run: Run | None) -> str:
    """What one asks first, large."""
    document = plan.document
    bound, claims, predicted = document.bound, document.claims, document.predicted
    waits = f"predicted makespan, {format_seconds(predicted.exposed_transfer_s)} of it waiting for transfers"
    found = [(format_seconds(predicted.makespan_s), waits)]
    if run is not None:
        found.append((format_seconds(run.wall_s), f"measured, {ratio(run.wall_s, predicted.makespan_s)}"))
    if bound is not None:
        found.append((f"{bound.gap:.1%}", f"gap: no plan takes less than {format_seconds(bound.bound_s)}"))
    moved = format_bytes(document.traffic.bytes_total)
    found.append((moved, "received from other ranks in one run, all ranks together"))
    for tier, rank, peak, full in peaks(plan):
        found.append((format_bytes(peak), f"{tier} at most, of {format_bytes(full)}; rank {rank} is the fullest"))
    if claims.searched:
        objective = f"objective ({claims.objective}) {format_seconds(claims.objective_s)}"
        words = f"claimed, not proved: {solved(claims)}model gap{backed(claims)}; {objective}"
        found.append((f"{claims.model_gap:.2%}", words))
    tiles = (f'<div class="tile"><b>{clean(value)}</b><span>{clean(words)}</span></div>' for value, words in found)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _traffic_table(plan: Plan) -> str:
    """Bytes by kind of transfer and by link, with bars."""
    traffic = plan.document.traffic
    if not traffic.bytes_total:
        return ""
    sizes = [(kind, size, kind_colour(kind)) for kind, size in traffic.bytes_by_kind.items()]
    sizes += [(f"over {link}", size, OTHER_MOVE) for link, size in traffic.bytes_by_link.items()]
    rows = []
    for name, size, colour in sizes:
        share = bar(size / traffic.bytes_total, colour)
        rows.append(row(clean(name.replace("_", "-")), f"{TAB}{size:,} B", share))
    return table("", rows)


def _run_facts(plan: Plan, run: Run | None) -> str:
    if run is None:
        return ""
    planned = plan.document.traffic.bytes_total
    return f'<p class="soft">The run moved {run.bytes_moved:,} bytes between ranks; the plan says {planned:,}.</p>'


def _shard_section(maps: Sequence[ShardMap], drawings: Sequence[Drawing]) -> str:
    cards = []
    for found, drawing in zip(maps, drawings, strict=True):
        details = f"<details><summary>elements by rank</summary>{_regions(found)}</details>"
        cards.append(f'<div class="card"{named(found.names)}>{drawing.inline()}{details}</div>')
    return f'{wide(legend())}<div class="cards">{"".join(cards)}</div>'


def _regions(found: ShardMap) -> str:
    """The same as a table."""
    itemsize = found.tensor.itemsize
    rows = [_region_row(r, h, e, itemsize) for r, (h, e) in enumerate(zip(found.home, found.extra, strict=True))]
    more = f"<p>and {len(rows) - MOST_REGIONS} ranks more</p>" if len(rows) > MOST_REGIONS else ""
    names = "" if len(found.names) == 1 else f'<p class="soft">{clean(", ".join(found.names))}</p>'
    head = row("rank", f"owns [{clean(', '.join(found.tensor.axes))}]", f"{TAB}bytes", "needs as well", head=True)
    return names + table(head, rows[:MOST_REGIONS]) + more


def _region_row(rank: int, home: Region, extra: Region, itemsize: int) -> str:
    owns, needs = (f"<code>{clean(str(region))}</code>" if region else "" for region in (home, extra))
    return row(str(rank), owns, f"{TAB}{home.size * itemsize:,}", needs)


def _memory(plan: Plan) -> Iterable[Drawing]:
    timeline = plan.simulate()
    kinds = Kinds.of(plan.resolved)
    for tier, rank, _, full in peaks(plan):
        found = lives(plan.resolved, kinds, timeline.at([rank]), timeline.makespan_s, rank)
        found += workspaces(plan.resolved, timeline.makespan_s)
        yield memory_drawing(found, tier, rank, timeline.makespan_s, full)


def _reasons(plan: Plan) -> str:
    """`explain` as a table, operations of repeated layers once where all is the same."""
    folded: dict[tuple[object, ...], list[Row]] = {}
    for one in plan.explain().rows:
        folded.setdefault(_likeness(one), []).append(one)
    head = row("operation", "strategy", f"{TAB}computes", "waits for", "next best, all else equal", head=True)
    return table(head, (_reason(rows) for rows in folded.values()))


def _likeness(row: Row) -> tuple[object, ...]:
    incoming = tuple((anonymous(i.tensor), i.kind, i.bytes_moved) for i in row.incoming)
    return anonymous(row.op), row.domain, row.strategy, round(row.compute_s, 12), incoming, str(row.next_best)


def _reason(rows: Sequence[Row]) -> str:
    first = rows[0]
    operation = f'{clean(folded_name([one.op for one in rows]))}<br><span class="soft">{clean(first.domain)}</span>'
    moves = "<br>".join(map(_incoming, first.incoming))
    other = clean(alternative_words(first.next_best)) if first.next_best else ""
    return row(operation, clean(first.strategy), f"{TAB}{format_seconds(first.compute_s)}", moves, other)


def _incoming(move: Incoming) -> str:
    size = format_bytes(move.bytes_moved)
    return clean(f"{anonymous(move.tensor)}: {move.kind.replace('_', '-')} {size}, {format_seconds(move.seconds)}")


def alternative_words(other: Alternative) -> str:
    """``cut x over mesh0: +15 µs, −3 MiB``."""
    sign = "+" if other.extra_s >= 0 else "−"
    size = f"{'+' if other.extra_bytes >= 0 else '−'}{format_bytes(abs(other.extra_bytes))}"
    return f"{other.strategy}: {sign}{format_seconds(abs(other.extra_s))}, {size}"
