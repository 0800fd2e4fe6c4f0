"""A mesh with several rows within a host seen as one longer row: links there are alike, and a plan for that one is a
plan for the rows.

Where rows are cut in different ways the model may find a little less to do, and the simulator less of it hidden.
"""

from __future__ import annotations

from math import prod

from ..machine import Machine
from ..sharding.model import Model
from ..sharding.nodes import OperationNode
from ..strategy.mesh import Mesh


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
