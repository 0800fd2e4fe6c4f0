"""Weights of which every host holds all, beside weights that hosts share out among them.

A weight that hosts share is gathered before the forward pass reads it, and its gradient is left with each host's share;
one that every host holds needs no gathering, and its gradient is all-reduced. Over the links between hosts that is as
much in either case, so that the model holds them for equal; but one part of it hides under the forward pass and the
other under the backward pass. How much of which is best the simulator tells: the largest weights first, more and more
are asked to be held by every host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from ...program import Operation, Program
from ...space import Region
from ..sharding.model import Model
from ..sharding.nodes import SourceNode
from ..strategy.layouts import Layout
from .found import Found

if TYPE_CHECKING:
    from .search import Search

Family = frozenset[int]
"""Decisions where a weight lies and what is updated with it, as the means of its gradients."""

# What a plan takes of the busiest rank's computing, if transfers leave something to be gained; how many families are
# looked at, none of which takes less than so much of the largest; and how many answers in a row may be in vain.
WAITING, FAMILIES, LEAST, IN_VAIN = 1.02, 8, 0.02, 2


def with_copies(search: Search, best: Found) -> Found:
    """The shortest of the answer and of those in which every host holds some of the weights."""
    shared, start, vain = set[tuple[int, int]](), best.choice, 0
    for options in _shared(search, best):
        if search.late or vain == IN_VAIN:
            break
        search.question.say("copies on hosts")
        shared |= options
        answer = search.asked(search.question.capacity, start=start, without=shared)
        found = search.lowered_below(best, answer.choice, best.solution) if answer.choice else None
        shorter = best if found is None else search.shorter(best, found)
        best, vain = shorter, vain + 1 if shorter is best else 0
    return best


def _shared(search: Search, best: Found) -> Iterator[set[tuple[int, int]]]:
    """By family the options that share it out among hosts, where ranks wait and something is updated."""
    question, timeline, hosts = search.question, best.candidate.timeline, _hosts(search)
    updated = question.objective == "time" and best.choice and question.program.states
    if updated and len(hosts) > 1 and timeline.makespan_s > WAITING * timeline.compute_s:
        yield from _Shared(search.model, hosts, best.choice).by_size()


def _hosts(search: Search) -> list[range]:
    """The ranks of each host; one of all where the mesh does not cross hosts, or fills them unevenly."""
    size, each = search.question.mesh.size, search.question.machine.devices_per_host
    return [range(k, k + each) for k in range(0, size, each)] if size % each == 0 else [range(size)]


class _Shared:
    """The weights that hosts share under a choice."""

    def __init__(self, model: Model, hosts: list[range], choice: Mapping[int, int]) -> None:
        self.model, self.hosts, self.choice = model, hosts, choice
        self.sources = {node.name: k for k, node in enumerate(model.nodes) if isinstance(node, SourceNode)}
        self._whole: dict[Layout, bool] = {}

    def by_size(self) -> Iterator[set[tuple[int, int]]]:
        """Of each family that hosts share the options that leave a host without some of it, the largest first."""
        sizes: dict[Family, int] = {}
        for state, value in self.model.program.states:
            names = updated_with(self.model.program, state, value)
            family = frozenset(self.model.tied_to[self.sources[name]] for name in names)
            sizes[family] = sizes.get(family, 0) + self.model.program.tensor(state).nbytes
        whole = [family for family in sizes if not any(family < other for other in sizes)]
        for family in sorted(whole, key=lambda each: -sizes[each])[:FAMILIES]:
            options = {pair for node in family for pair in self._sharing(node)}
            taken = {(node, self.choice[node]) for node in family}
            if sizes[family] >= LEAST * max(sizes.values()) and options & taken and self._all_may(family, options):
                yield options

    def _sharing(self, number: int) -> Iterator[tuple[int, int]]:
        node = self.model.nodes[number]
        assert isinstance(node, SourceNode)
        yield from ((number, k) for k, home in enumerate(node.homes) if not self._on_every_host(home))

    def _all_may(self, family: Family, options: set[tuple[int, int]]) -> bool:
        """Whether each of them has an option left."""
        return all(any((node, k) not in options for k in range(len(self.model.nodes[node].labels))) for node in family)

    def _on_every_host(self, home: Layout) -> bool:
        if home not in self._whole:
            total = prod(home.shape)
            parts = (Region.union([home.region(rank) for rank in ranks]) for ranks in self.hosts)
            self._whole[home] = all(part.size == total for part in parts)
        return self._whole[home]


def updated_with(program: Program, state: str, value: str) -> set[str]:
    """The states that a state's new value is made of, itself among them, element by element."""
    shape, found, left = program.tensor(state).shape, {state}, [value]
    while left:
        op = program.producer.get(left.pop())
        if op is not None and _element_by_element(program, op, shape):
            for name in op.operands:
                tensor = program.tensor(name)
                if tensor.role == "state" and tensor.shape == shape:
                    found.add(name)
                elif tensor.role == "value" and tensor.shape == shape:
                    left.append(name)
    return found


def _element_by_element(program: Program, op: Operation, shape: tuple[int, ...]) -> bool:
    return not op.reduce_dims and program.tensor(op.output).shape == shape
