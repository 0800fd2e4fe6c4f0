"""A mesh with several rows within a host seen as one longer row: links there are alike, and a plan for that one is a
plan for the rows.

Where rows are cut in different ways the model may find a little less to do, and the simulator less of it hidden.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ..machine import Machine
from ..sharding.model import Model
from ..sharding.nodes import OperationNode
from ..sharding.solving import Solution
from ..strategy.mesh import Mesh
from .found import Found

if TYPE_CHECKING:
    from .search import Search


def within_host(mesh: Mesh, machine: Machine) -> int:
    """The first axis from which on all of a mesh lies within a host."""
    inside = (k for k in range(len(mesh.shape)) if machine.devices_per_host % prod(mesh.shape[k:]) == 0)
    return next(inside, len(mesh.shape))


def crosswise(model: Model, mesh: Mesh, machine: Machine) -> frozenset[tuple[int, int]]:
    """The (decision, option) that cut the axes within a host in different ways; none where there is one such axis.

    An operation that can be cut in different ways alone keeps all of them.
    """
    first = within_host(mesh, machine)
    found: set[tuple[int, int]] = set()
    for number in sorted(set(model.tied_to)) if len(mesh.shape) - first > 1 else ():
        node = model.nodes[number]
        if isinstance(node, OperationNode):
            mine = {(number, k) for k, each in enumerate(node.strategies) if len({*each.cuts[first:]}) > 1}
            found |= mine if len(mine) < len(node.strategies) else set()
    return frozenset(found)


def as_one_row(search: Search) -> Found | None:
    """The answer with all rows within a host cut alike, if that fits: there is less to choose from, so it is soon
    there. None where there is one row, or where the objective is not time.
    """
    q = search.question
    across = crosswise(search.model, q.mesh, q.machine) if q.objective == "time" else ()
    answer = search.asked(q.capacity, without=across) if across else None
    if answer is None or not answer.choice:
        return None
    q.say("lowering one row")
    found = search.lowered(answer.choice, answer)
    if found.candidate.peak > q.capacity:
        return None
    q.clock.secured = True
    return found


def beside(search: Search, row: Found | None, solution: Solution) -> Found:
    """An answer lowered; that of one longer row, where it is as good or shorter."""
    if row is None:
        return search.lowered(solution.choice, solution)
    if solution.objective < row.solution.objective:
        found = search.lowered_below(row, solution.choice, solution)
        if found is not None and found.makespan_s < row.makespan_s:
            search.seen.append(row)
            return found
    return replace(row, solution=solution)
