"""A plan as text: figures, how every operation is cut, where every tensor lies, and the timeline in characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...drawing.folding import anonymous
from ...printable import columns
from ..format import Claims, Document, Resolved
from ..machine.units import format_bytes, format_seconds
from ..origin import origin_text
from ..timeline import Timeline
from .graph import cut_text
from .peers import Peers, left_out, predicted_peers, ranks_text
from .shardmap import facts
from .shards import shard_maps

if TYPE_CHECKING:
    from ..interface import Plan

COLUMNS, MOST_DRAWN = 72, 8


def plan_text(plan: Plan) -> str:
    """The whole plan for reading in a terminal. Repeated layers are shown once."""
    resolved = plan.resolved
    parts = [
        headline(plan),
        columns(figures(plan), indent="  "),
        "operations",
        columns(_operations(resolved), indent="  "),
        "tensors",
        columns(_tensors(resolved), indent="  "),
    ]
    timeline = plan.simulate()
    parts += [
        f"timeline (# work, = transfer, {format_seconds(timeline.makespan_s / COLUMNS)} a character)",
        "\n".join(_strips(timeline)),
    ]
    return "\n\n".join(parts)


def headline(plan: Plan) -> str:
    mesh = "x".join(map(str, plan.document.mesh))
    return f"{plan.program.name} on {plan.machine.name}, mesh {mesh}"


def figures(plan: Plan) -> list[list[str]]:
    """Name and value of what one asks first."""
    document = plan.document
    claims, predicted, rooms = document.claims, document.predicted, workspace_bytes(document)
    bound = document.bound
    rows = [
        [
            "makespan",
            f"{format_seconds(predicted.makespan_s)} ({format_seconds(predicted.exposed_transfer_s)} of it waiting)",
        ],
        ["bound", "none proved" if bound is None else f"{format_seconds(bound.bound_s)}, gap {bound.gap:.2%}"],
        ["traffic", _traffic(plan)],
    ]
    rows += [
        [
            f"memory {tier}",
            f"{format_bytes(peak)} of {format_bytes(full)} on rank {rank}{of_workspace(rooms.get(tier, 0))}",
        ]
        for tier, rank, peak, full in peaks(plan)
    ]
    objective = f"objective ({claims.objective}) {format_seconds(claims.objective_s)}, model gap {claims.model_gap:.2%}"
    if claims.origin is not None:
        rows.append(["rewritten", origin_text(claims.origin, len(plan.program.operations))])
    claimed = f"{solved(claims)}{objective}{backed(claims)}" if claims.searched else claims.status
    return [*rows, ["claimed", claimed]]


def solved(claims: Claims) -> str:
    """What comes before the gap of the solver's model, which says all but whether there was an answer of the solver.

    What is optimal in a model that sums times need not be the best plan, so that word stands in no line beside a plan.
    """
    return "no solver answered in time, " if claims.status == "fallback" else ""


def backed(claims: Claims) -> str:
    """On whose word a model has no better choice, where that is not proved."""
    engine, _, said = claims.status.partition(" (")[2].rpartition(": ")
    return f" (none better, says {engine})" if said == "optimal)" else ""


def _traffic(plan: Plan) -> str:
    traffic = plan.document.traffic
    kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in traffic.bytes_by_kind.items())
    return format_bytes(traffic.bytes_total) + (f" ({kinds})" if kinds else "")


def workspace_bytes(document: Document) -> dict[str, int]:
    """By tier, what is for kernels to work in on each rank."""
    found: dict[str, int] = {}
    for room in document.rooms.values():
        found[room.tier] = found.get(room.tier, 0) + room.nbytes
    return found


def of_workspace(nbytes: int) -> str:
    """What follows the bytes of a rank.

    >>> of_workspace(32 << 20), of_workspace(0)
    (', 32 MiB of it for kernels to work in', '')
    """
    return f", {format_bytes(nbytes)} of it for kernels to work in" if nbytes else ""


def peaks(plan: Plan) -> Iterator[tuple[str, int, int, int]]:
    """Per tier in use: its name, the fullest rank, what that holds at most, and what it may hold (bytes)."""
    found: dict[str, tuple[int, int, int]] = {}
    for rank, tiers in plan.document.peak_bytes.items():
        for tier, size in tiers.items():
            full = plan.machine.capacity_bytes(tier, plan.document.devices[int(rank)])
            known = found.get(tier)
            if known is None or size * known[2] > known[1] * full:
                found[tier] = (int(rank), size, full)
    for tier, (fullest, most, full) in found.items():
        if most:
            yield tier, fullest, most, full


def _operations(resolved: Resolved) -> list[list[str]]:
    rows: dict[tuple[str, str], int] = {}
    for name, sharding in resolved.document.shardings.items():
        key = (anonymous(name), cut_text(sharding))
        rows[key] = rows.get(key, 0) + 1
    return [[name, cut, f"× {count}" if count > 1 else ""] for (name, cut), count in rows.items()]


def _tensors(resolved: Resolved) -> list[list[str]]:
    return [
        [m.name, m.tensor.dtype, "x".join(map(str, m.tensor.shape)) or "()", facts(m)] for m in shard_maps(resolved)
    ]


def _strips(timeline: Timeline) -> Iterator[str]:
    peers = predicted_peers(timeline)
    shown = peers[:MOST_DRAWN]
    rows = [(_called(those), lane, those) for those in shown for lane in those.lanes]
    width = max((len(name) for name, *_ in rows), default=0)
    for name, lane, those in rows:
        cells = [" "] * COLUMNS
        for event in those.events:
            if event.lane == lane:
                first = int(event.start_s / timeline.makespan_s * COLUMNS)
                last = max(first + 1, round(event.end_s / timeline.makespan_s * COLUMNS))
                cells[first:last] = ("#" if lane == "compute" else "=") * len(cells[first:last])
        yield f"{name:>{max(3, width)}} {lane:<8}|{''.join(cells)}|"
    yield from left_out(peers[MOST_DRAWN:])


def _called(peers: Peers) -> str:
    count = len(peers.ranks)
    return str(peers.ranks[0]) if count == 1 else f"{ranks_text(peers.ranks, 2)} × {count}"
