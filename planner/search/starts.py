"""Choices that need no solver: nothing cut, everything cut, and dimensions cut as they are carried along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import cached_property
from itertools import combinations, product

from ...space.cuts import CutKind
from ..sharding.model import Model
from ..sharding.nodes import Node, OperationNode, SinkNode, SourceNode
from ..strategy.carried import carried
from ..strategy.mesh import Cut
from ..strategy.strategies import Cuts

Dims = Mapping[int, str]
"""By node of an operation one of its dimensions."""


def uncut(model: Model) -> dict[int, int]:
    """Everything computed everywhere, from copies where there may be copies."""
    return {k: _option(model.nodes[k], least_cut=True) for k in sorted(set(model.tied_to))}


def cut(model: Model) -> dict[int, int]:
    """Everything cut as far as it goes."""
    return {k: _option(model.nodes[k], least_cut=False) for k in sorted(set(model.tied_to))}


def _option(node: Node, *, least_cut: bool) -> int:
    """Strategies are listed the most cut first; of homes the one that holds most, or least."""
    match node:
        case OperationNode():
            return len(node.strategies) - 1 if least_cut else 0
        case SourceNode():
            sizes = [home.storage_size for home in node.homes]
            return sizes.index(max(sizes) if least_cut and node.tensor.role != "input" else min(sizes))
        case SinkNode():
            return 0


def along(model: Model, cost: Callable[[dict[int, int]], int], late: Callable[[], bool]) -> list[dict[int, int]]:
    """Dimensions cut that cost less so, one after another, those of most work first: each as it is carried through the
    program, over all of the mesh's axes, then over some, in place of what is cut there or where nothing is. What people
    call data, context, tensor and expert parallelism, and states shared out, by what the dimensions are.

    What there is after each of them that helped. ``cost``: of a choice. ``late``: whether no more is to be tried.
    """
    ways = Ways(model)
    found = [best := ways.placed(uncut(model))]
    least, tried = cost(best), [best]
    every, *some = _subsets(len(model.traffic.mesh.shape))
    for dims, subsets in [*((dims, [every]) for dims in ways.dims), *((dims, some) for dims in ways.dims if some)]:
        before = best
        for axes, kind, instead in product(subsets, ways.kinds(dims), (True, False)):
            if late():
                break
            other = ways.cut(before, dims, kind, axes, instead=instead)
            if other not in tried:
                tried.append(other)
                price = cost(other)
                best, least = (other, price) if price < least else (best, least)
        found += [best] if best is not before else []
    return found


def lean(model: Model, choice: Mapping[int, int]) -> dict[int, int]:
    """The same with every source where it takes least."""
    return Ways(model).placed(choice, lean=True)


def _subsets(axes: int) -> list[tuple[int, ...]]:
    """Axes of a mesh: all of them, then the inner ones first, as along them ranks are near to one another.

    >>> _subsets(2)
    [(0, 1), (1,), (0,)]
    """
    every = (some for count in range(1, axes + 1) for some in combinations(range(axes), count))
    return sorted(every, key=lambda some: (len(some) < axes, -some[0], -len(some)))


class Ways:
    """Choices of a model by dimensions that are cut in many operations."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ops = {node.name: k for k, node in enumerate(model.nodes) if isinstance(node, OperationNode)}

    @cached_property
    def dims(self) -> list[Dims]:
        """What is carried through the program, that of most work first; of tied operations one."""
        ways = [self._alone(together) for together in carried(self.model.program)]
        return sorted(filter(None, ways), key=lambda way: -sum(map(self._work, way)))

    @cached_property
    def _options(self) -> dict[int, dict[Cuts, int]]:
        """By node of an operation its options by their cuts."""
        return {
            k: {s.cuts: option for option, s in reversed([*enumerate(self._node(k).strategies)])}
            for k in self.ops.values()
        }

    def _node(self, number: int) -> OperationNode:
        node = self.model.nodes[number]
        assert isinstance(node, OperationNode)
        return node

    def _work(self, number: int) -> float:
        return self.model.weight[number] * self._node(number).strategies[-1].slowest

    def _alone(self, together: Set[tuple[str, str]]) -> Dims:
        """The dimension of each operation, one that it does not fold if there is one; in program order."""
        found: dict[int, str] = {}
        for number in sorted({self.ops[name] for name, _ in together}):
            op = self._node(number).op
            mine = [dim.name for dim in op.dims if dim.cut and (op.name, dim.name) in together]
            if mine and self.model.tied_to[number] == number:
                found[number] = next((dim for dim in mine if dim in op.parallel_dims), mine[0])
        return found

    def kinds(self, dims: Dims) -> list[CutKind]:
        """The kinds of cut that are offered of any of them."""
        cuts = (c for number, dim in dims.items() for each in self._options[number] for c in each if c and c.dim == dim)
        return list(dict.fromkeys(c.kind for c in cuts))

    def cut(
        self, choice: Mapping[int, int], dims: Dims, kind: CutKind, axes: tuple[int, ...], *, instead: bool
    ) -> dict[int, int]:
        """The choice with these axes of the mesh along these dimensions, ``instead`` of what they cut, or where they
        cut nothing.
        """
        found = dict(choice)
        for number, dim in dims.items():
            was = self._node(number).strategies[choice[number]].cuts
            if instead or all(was[axis] is None for axis in axes):
                found[number] = self._cut(number, was, Cut(dim, kind), axes)
        return self.placed(found)

    def _cut(self, number: int, was: Cuts, new: Cut, axes: tuple[int, ...]) -> int:
        """The option with these axes along a dimension: the others as they were, or not cut; else as it was."""
        others = [new if c is not None and c.dim == new.dim else c for c in was]
        for beside in (others, [None] * len(was)):
            for mine in (new, Cut(new.dim)):
                cuts = tuple(mine if axis in axes else c for axis, c in enumerate(beside))
                if cuts in self._options[number]:
                    return self._options[number][cuts]
        return self._options[number][was]

    def placed(self, choice: Mapping[int, int], *, lean: bool = False) -> dict[int, int]:
        """With every source where all that read it find what they need, or where it takes least."""
        found = dict(choice)
        for number in choice:
            node = self.model.nodes[number]
            if isinstance(node, SourceNode):
                asked = {self.model.need(reader, choice[reader[0]]) for reader in self._readers.get(number, ())}
                fine = [k for k, home in enumerate(node.homes) if all(home.satisfies(need) for need in asked)]
                ways = fine if fine and not lean else range(len(node.homes))
                found[number] = min(ways, key=lambda way: node.homes[way].storage_size)
        return found

    @cached_property
    def _readers(self) -> dict[int, set[tuple[int, int]]]:
        """By node of a source the operations that read it, those that are tied once, with the place of the operand."""
        found: dict[int, set[tuple[int, int]]] = {}
        for flow in self.model.flows:
            if isinstance(self.model.nodes[flow.home], SourceNode):
                readers = (reader for reader in flow.readers if isinstance(self.model.nodes[reader[0]], OperationNode))
                found.setdefault(flow.home, set()).update(readers)
        return found
