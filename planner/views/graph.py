"""The program's graph with the plan written on it: how every operation is cut, how tensors get to it."""

from __future__ import annotations

from collections.abc import Sequence

from ...drawing.graph import Notes
from ...drawing.program import program_drawing
from ...drawing.svg import Drawing
from ..format import Compute, Resolved, Transfer
from ..format.document import Copy, Sharding
from ..machine.units import format_bytes


def plan_graph(resolved: Resolved) -> Drawing:
    """The drawing."""
    return program_drawing(resolved.program, notes_of(resolved))


def notes_of(resolved: Resolved) -> Notes:
    """Strategies by operation, transfers by (tensor, operation)."""
    document = resolved.document
    ops = {name: cut_text(sharding) for name, sharding in document.shardings.items()}
    into: dict[str, list[Transfer | Copy]] = {}
    for task in document.tasks:
        if not isinstance(task, Compute):
            into.setdefault(task.target, []).append(task)
    edges = {}
    for name, tasks in resolved.computing.items():
        for number, operand in enumerate(resolved.program.op_by_name[name].operands):
            buffers = dict.fromkeys(task.reads[number] for task in tasks)
            if moves := [move for buffer in buffers for move in into.get(buffer, ())]:
                edges[operand, name] = moves_text(resolved, moves)
    return Notes(ops, edges)


def cut_text(sharding: Sharding) -> str:
    """``cut x over mesh0``; ``cut x over mesh1, on mesh0 = 2`` where the other ranks compute nothing of it."""
    places = [f"on {axis} = {at}" for axis, at in (sharding.only or {}).items()]
    if not sharding.partition:
        return ", ".join(places) or f"on all {sharding.ranks} ranks alike"
    kind = "" if sharding.kind == "block" else f" ({sharding.kind})"
    cuts = ", ".join(f"{dim} over {axes}" for dim, axes in sharding.partition.items())
    return ", ".join([f"cut {cuts}{kind}", *places])


def moves_text(resolved: Resolved, moves: Sequence[Transfer | Copy]) -> str:
    """``all-gather 4 MiB``; ``all-gather 4 MiB in 4 parts``; those of different kinds one after another."""
    parts: dict[str, list[int]] = {}
    for move in moves:
        if isinstance(move, Copy):
            parts["copy"] = []
        else:
            parts.setdefault(move.kind.replace("_", "-"), []).append(resolved.moved_bytes(move))
    return ", ".join(
        kind + (f" {format_bytes(sum(sizes))}" if sizes else "") + (f" in {len(sizes)} parts" if len(sizes) > 1 else "")
        for kind, sizes in parts.items()
    )
