"""What all hosts would take of a program at least, if each did its share as one host by itself does all of it, and
nothing were moved within hosts.

A host is looked at as one device with links as fast as those of all of its devices together. How much of an operation
each of them computes, and what it lacks of operands and results, follows from strategies over hosts alone, of which
there are few. Elimination says what the best choice of them takes in the model of `sharding.model`, or less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..clock import Clock
from ..machine import Link, Machine
from ..solvers.assign import AssignmentProblem, ProblemBuilder, Supply, least_cost
from ..strategy.strategies import StrategyTable
from ..strategy.traffic import Traffic
from .assignment import Moved, OutOfTime, Translation
from .crossing import least_start
from .model import Model
from .nodes import Node, OperationNode, SinkNode, SourceNode, op_node, sink_node, source_node

Ints = NDArray[np.int64]

# T is no less than (1 - w)(A + B) + w(B + C) = (1 - w) A + B + w C for any w of [0, 1]: those that are tried.
WEIGHTS = (0.1, 0.0)
# Entries that an elimination may go through: half a second.
WORK = 10_000_000


def of_hosts(machine: Machine) -> Machine:
    """Every host of a machine as one device, whose link to others is all that its devices have to other hosts."""
    wider = {scope for scope, size in machine.reaches if size > machine.devices_per_host}
    links = [link for link in machine.links if link.scope in wider]
    fastest = max(link.gb_per_s for link in links) * machine.devices_per_host
    start = min(least_start(link) for link in links)
    return replace(
        machine, devices_per_host=1, devices_per_island=0, links=(Link(links[0].kind, fastest, start, "cluster"),)
    )


@dataclass(frozen=True, eq=False)
class Hosts:
    """A model of one host by itself, and ``work``: picoseconds that its operations take there, by node that is decided,
    all that are tied to it together. ``table`` and ``traffic``: strategies and prices over hosts.
    """

    model: Model
    work: Mapping[int, int]
    table: StrategyTable
    traffic: Traffic
    clock: Clock

    def saved(self) -> int | None:
        """Picoseconds of one host's that all of them may save at most; None where that is too much to find out, or the
        time is up. Raises TimeLimit.
        """
        try:
            translation = Translation(self._over_hosts(), self.clock)
        except OutOfTime:
            return None
        least = [least_cost(self._problem(translation, weight), WORK) for weight in WEIGHTS]
        known = [cost for cost in least if cost is not None]
        return sum(self.work.values()) - max(known) * translation.unit if known else None

    def _over_hosts(self) -> Model:
        """The model with options over hosts for the nodes that are decided, and nothing said of memory."""
        nodes, decided = [*self.model.nodes], sorted(set(self.model.tied_to))
        for node in decided:
            found = nodes[node]
            if isinstance(found, OperationNode):
                nodes[node] = op_node(found.op, self.table, self.model.objective, (), self.clock)
        for flow in {flow.home: flow for flow in self.model.flows}.values():
            home, asking = nodes[flow.home], [(nodes[reader], j) for reader, j in flow.readers]
            if isinstance(home, SourceNode):
                every = ((node.needs, j) for node, j in asking if isinstance(node, OperationNode))
                wanted = dict.fromkeys(needs[j] for options, j in every for needs in options)
                nodes[flow.home] = source_node(home.tensor, self.table, [*wanted], ())
            elif isinstance(home, OperationNode):
                for (reader, _), (end, _) in zip(flow.readers, asking, strict=True):
                    if isinstance(end, SinkNode):
                        nodes[reader] = sink_node(end.tensor, self.table, home.homes)
        return replace(self.model, nodes=nodes, traffic=self.traffic, instants=[], over={}, rooms=())

    def _problem(self, translation: Translation, weight: float) -> AssignmentProblem:
        """What one of the sums that T is not below costs."""
        builder, unit = ProblemBuilder(), translation.unit
        for node in translation.decided:
            shares = self._shares(translation.model.nodes[node])
            builder.add_node(np.floor((1 - weight) * self.work.get(node, 0) * shares / unit))
        for moved in translation.moved:
            prices = len(moved.flows) * moved.prices // unit
            if not moved.flows[0].source:
                builder.add_supply(translation.supply(moved, prices))
            elif weight:
                builder.add_supply(self._to_one(translation.supply(moved, (weight * prices).astype(np.int64)), moved))
        return builder.build()

    def _shares(self, node: Node) -> NDArray[np.float64]:
        """By option how much of an operation the busiest host computes."""
        if not isinstance(node, OperationNode):
            return np.zeros(len(node.labels))
        whole = max(self.table.strategy(node.op, (None,) * len(self.table.mesh.shape)).points)
        return np.array([max(strategy.points) / whole for strategy in node.strategies])

    def _to_one(self, supply: Supply, moved: Moved) -> Supply:
        """What is moved to the last reader alone that does not make the tensor's next value: with all readers, forward
        and backward passes would be tied together so tightly that nothing is eliminated.
        """
        flow = moved.flows[0]
        at = [flow.reader_at[j] for j in moved.group]
        last = max(range(len(at)), key=lambda j: (at[j] != self._renewed.get(flow.tensor), at[j]))
        return replace(supply, readers=supply.readers[last : last + 1], asks=supply.asks[last : last + 1])

    @cached_property
    def _renewed(self) -> dict[str, int]:
        """By state the operation that makes its next value."""
        at = {op.output: k for k, op in enumerate(self.model.program.operations)}
        return {state: at[value] for state, value in self.model.program.states if value in at}
