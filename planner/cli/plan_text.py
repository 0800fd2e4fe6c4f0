"""A plan's summary as text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...drawing.folding import anonymous
from ...printable import columns
from ..machine.units import format_bytes, format_seconds
from ..origin import origin_text
from ..views.graph import cut_text
from ..views.text import backed, of_workspace, solved, workspace_bytes

if TYPE_CHECKING:
    from ..interface import Plan

SHOWN = 40


def plan_text(plan: Plan) -> str:
    """What was found, how good it is, what it moves and holds, and how every operation is cut."""
    mesh = "x".join(map(str, plan.document.mesh))
    head = f"{plan.program.name} on {plan.machine.name}, mesh {mesh}"
    figures = columns(
        [
            ["time", _time(plan)],
            ["bound", _bound(plan)],
            ["traffic", _traffic(plan)],
            ["memory", _memory(plan)],
            ["claimed", _claims(plan)],
            *_others(plan),
        ]
    )
    origin = plan.document.claims.origin
    made = f"\n{origin_text(origin, len(plan.program.operations))}" if origin is not None else ""
    return f"{head}\n{figures}{made}\n\n{_shardings(plan)}"


def _time(plan: Plan) -> str:
    predicted = plan.document.predicted
    work, waits = format_seconds(predicted.compute_s), format_seconds(predicted.exposed_transfer_s)
    return f"{format_seconds(predicted.makespan_s)} predicted: {work} of work on the busiest rank, {waits} of waiting"


def _bound(plan: Plan) -> str:
    bound = plan.document.bound
    if bound is None:
        return "none proved"
    known = f"no plan takes less than {format_seconds(bound.bound_s)} (gap {bound.gap:.1%})"
    if not bound.bound_s:
        return known
    return f"within {plan.document.predicted.makespan_s / bound.bound_s - 1:.1%} of the bound: {known}"


def _claims(plan: Plan) -> str:
    """What no check can prove."""
    claims = plan.document.claims
    if not claims.searched:
        return claims.status
    return f"{solved(claims)}within {claims.model_gap:.2%} of the best of the solver's model{backed(claims)}"


def _others(plan: Plan) -> list[list[str]]:
    """What the other meshes would give, where several were tried."""
    said = [
        f"{'x'.join(map(str, tried.mesh))} {'none' if tried.seconds is None else format_seconds(tried.seconds)}"
        for tried in plan.document.claims.tried
        if tried.mesh != plan.document.mesh
    ]
    return [["meshes", f"this one of {len(said) + 1} tried: {', '.join(said)}"]] if said else []


def _traffic(plan: Plan) -> str:
    traffic = plan.document.traffic
    kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in traffic.bytes_by_kind.items())
    return f"{format_bytes(traffic.bytes_total)} received by all ranks" + (f" ({kinds})" if kinds else "")


def _memory(plan: Plan) -> str:
    peaks: dict[str, int] = {}
    for tiers in plan.document.peak_bytes.values():
        for tier, size in tiers.items():
            peaks[tier] = max(size, peaks.get(tier, 0))
    rooms = workspace_bytes(plan.document)
    return ", ".join(
        f"{tier} {format_bytes(size)} on the fullest rank{of_workspace(rooms.get(tier, 0))}"
        for tier, size in peaks.items()
    )


def _shardings(plan: Plan) -> str:
    """How operations are cut, and in how many pieces; those of repeated layers that are cut alike once."""
    if plan.resolved.size == 1:
        return f"all {len(plan.program.operations)} operations on one rank"
    stated = plan.document.shardings.items()
    pieces = {op: len(tasks) for op, tasks in plan.resolved.computing.items()}
    several = any(count > 1 for count in pieces.values())
    counts = Counter((anonymous(op), cut_text(found), str(found.ranks), str(pieces[op])) for op, found in stated)
    rows = [["operation", "", "how", "ranks", "pieces"]]
    for (op, cut, ranks, number), count in list(counts.items())[:SHOWN]:
        rows.append([op, f"× {count}" if count > 1 else "", cut, ranks, number])
    more = sum(list(counts.values())[SHOWN:])
    text = columns(rows if several else [row[:-1] for row in rows])
    return text + (f"\nand {more} operations more: --json, or `tapestry explain`" if more else "")
