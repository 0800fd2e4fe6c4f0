"""Sharding as one assignment problem: one option per node, the price of every transfer, the memory of every instant.

A tensor is moved once for each layout that some consumer needs and that no larger needed layout contains. A state's new
value is moved to where the state lies. Repeated layers are tied: their nodes share one decision and their costs are
multiplied, so that depth costs nothing.

Objective ``time``, in seconds: T + (A + B + C) / 1024 with T = max(A + B, B + C), where A is compute (slowest rank of
each operation), B transfers of inputs and computed values, which something waits for, and C transfers of resident
tensors, which can run ahead of their use. Objective ``bytes``: all bytes received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from ...program import Program
from ...records import Width, width_of
from ..strategy.calls import Call
from ..strategy.columns import Ints
from ..strategy.layouts import Layout
from ..strategy.rooms import Room
from ..strategy.traffic import Traffic
from .alike import Pair, alike
from .nodes import Node, OperationNode, SinkNode, SourceNode
from .repetition import Repetitions
from .replaced import replaced

PICO = 10**12
TIE = 1024


@dataclass(frozen=True, eq=False)
class Flow:
    """One tensor: the node that is its home, the (node, operand) pairs that read it, the operations it lives between.

    ``source``: resident (param, state, const), so that its transfers can run ahead.
    """

    tensor: str
    home: int
    readers: tuple[tuple[int, int], ...]
    first: int
    last: int
    source: bool
    width: Width
    reader_at: tuple[int, ...]


@dataclass(eq=False)
class Model:
    """Nodes tied into classes, and the flows between them.

    ``instants`` are the indices of the operations at which memory is counted, and the number of all operations for the
    end, where outputs that are partial are moved to what they end as. ``over``: by tensor the flow whose place it takes
    while both are there, where their layouts are the same (`replaced`). ``rooms``: ranks told apart by their memory.
    ``kept``: copies of resident tensors are there for the whole run, as where a batch goes through in pieces.
    ``together``: pairs of decisions of which not every two options may be taken together (`alike`).
    """

    program: Program
    nodes: list[Node]
    tied_to: list[int]
    weight: dict[int, int]
    flows: list[Flow]
    instants: list[int]
    traffic: Traffic
    objective: str
    over: Mapping[str, Flow]
    rooms: tuple[Room, ...] = ()
    kept: bool = False
    align: int = 256
    together: Sequence[Pair] = ()

    def option(self, choice: Mapping[int, int], node: int) -> int:
        """The option a node takes under a choice of the representatives."""
        return choice[self.tied_to[node]]

    def home(self, flow: Flow, option: int) -> Layout:
        node = self.nodes[flow.home]
        assert not isinstance(node, SinkNode)
        return node.homes[option]

    def homes(self, flow: Flow) -> list[Layout]:
        """All that a flow's home may be, by option."""
        return [self.home(flow, option) for option in range(len(self.nodes[flow.home].labels))]

    def left(self, flow: Flow, home: Layout) -> int:
        """The last instant at which a tensor takes what its home does. A partial one is folded before the end, where
        only what the last operation leaves is still to be folded.
        """
        end = len(self.program.operations)
        return min(flow.last, end - 1) if home.parts is not None and flow.first < end - 1 else flow.last

    def copied(self, flow: Flow, readers: Sequence[int]) -> tuple[int, int]:
        """The first and the last instant of a copy that is made for readers at these instants."""
        if self.kept and flow.source:
            return flow.first, flow.last
        return min(readers), min(max(readers), flow.last)

    def need(self, reader: tuple[int, int], option: int) -> Layout:
        return self.nodes[reader[0]].needs[option][reader[1]]

    def alike(self) -> list[list[Flow]]:
        """The flows, those together that tie the same nodes in the same way: they cost the same."""
        groups: dict[tuple[object, ...], list[Flow]] = {}
        for flow in self.flows:
            groups.setdefault((flow.home, flow.readers, flow.source, flow.width), []).append(flow)
        return list(groups.values())

    def stored(self, layout: Layout, width: Width, room: Room | None = None) -> int:
        """Aligned bytes of a buffer for a layout; on the ranks of a room where one is given."""
        size = width.complete if layout.parts is None else width.partial
        elements = layout.storage_size if room is None else layout.stored_on(room.ranks)
        return -(-elements * size // self.align) * self.align

    def price(self, have: Layout, need: Layout, width: Width) -> int:
        """Picoseconds or bytes of one transfer."""
        seconds, nbytes = self.traffic.cost(have, need, width)
        return nbytes if self.objective == "bytes" else round(seconds * PICO)

    def prices(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> Ints:
        """[have, need] the same of all of them. Each layout is there once."""
        seconds, nbytes = self.traffic.costs(haves, needs, width)
        return nbytes if self.objective == "bytes" else np.rint(seconds * PICO).astype(np.int64)

    def work(self, node: int, option: int) -> int:
        """Picoseconds of an operation's slowest rank; for the objective ``bytes`` what it moves between its turns."""
        found = self.nodes[node]
        if not isinstance(found, OperationNode):
            return 0
        return found.moved[option] if self.objective == "bytes" else round(found.seconds[option] * PICO)

    def workspace(self, node: int, option: int) -> int:
        """Bytes that an operation takes beside operands and result."""
        found = self.nodes[node]
        return found.workspace[option] if isinstance(found, OperationNode) else 0


def maximal(needs: Sequence[Layout]) -> list[Layout]:
    """The distinct layouts that no other one contains, in order of appearance."""
    different = list(dict.fromkeys(needs))
    if len(different) < 2:
        return different
    return [
        n
        for n in different
        if not any(
            m is not n and n.within(m) and not (m.within(n) and different.index(m) > different.index(n))
            for m in different
        )
    ]


def build_model(
    program: Program,
    nodes: list[Node],
    repetition: Repetitions,
    traffic: Traffic,
    objective: str,
    rooms: tuple[Room, ...] = (),
    *,
    kept: bool = False,
    calls: Sequence[Call] = (),
) -> Model:
    """Tie repeated layers, collect flows."""
    op_index = {op.name: k for k, op in enumerate(program.operations)}
    node_of_op = {node.name: k for k, node in enumerate(nodes) if isinstance(node, OperationNode)}
    tied_to = _tie(program, nodes, repetition, op_index, node_of_op)
    weight: dict[int, int] = {}
    for target in tied_to:
        weight[target] = weight.get(target, 0) + 1
    flows = _flows(program, nodes, tied_to, op_index)
    count = len(program.operations)
    uneven = any(
        tied_to[k] == k
        for k in tied_to
        if isinstance(nodes[k], OperationNode)
        and repetition.representative(op_index[nodes[k].name]) != op_index[nodes[k].name]
    )
    instants = list(range(count)) if uneven else repetition.telling(count)
    of = {flow.tensor: flow for flow in flows}
    over = {new: of[old] for new, old in replaced(program).items()}
    model = Model(program, nodes, tied_to, weight, flows, instants, traffic, objective, over, rooms, kept)
    if objective == "time":
        model.together = alike(nodes, tied_to, calls)
    if _end_tells(model):
        instants.append(count)
    return model


def _end_tells(model: Model) -> bool:
    """Whether more may be there at the end than while the last operation runs: outputs that were partial may take more
    than what that one reads last.
    """
    program = model.program
    sinks = [node for node in model.nodes if isinstance(node, SinkNode) and node.tensor.name in program.outputs]
    folded = sum(max(model.stored(end, width_of(program, s.tensor.name)) for end in s.ends) for s in sinks)
    last = len(program.operations) - 1
    if last not in model.instants:
        return bool(sinks)
    dying = [flow for flow in model.flows if flow.last == last and flow.tensor not in model.over]
    return folded > sum(min(model.stored(home, flow.width) for home in model.homes(flow)) for flow in dying)


def _tie(
    program: Program,
    nodes: list[Node],
    repetition: Repetitions,
    op_index: Mapping[str, int],
    node_of_op: Mapping[str, int],
) -> list[int]:
    """Per node its representative: operations by position in the stretch, source tensors by all that read them."""
    tied = list(range(len(nodes)))
    for k, node in enumerate(nodes):
        if isinstance(node, OperationNode):
            stands = program.operations[repetition.representative(op_index[node.name])]
            tied[k] = _if_alike(nodes, k, node_of_op[stands.name])
    alike: dict[tuple[tuple[int, int], ...], int] = {}
    for k, node in enumerate(nodes):
        if isinstance(node, SourceNode) and program.consumers[node.name]:
            read = _read_by(program, node.name, repetition, op_index)
            tied[k] = _if_alike(nodes, k, alike.setdefault(read, k))
    return tied


def _read_by(
    program: Program, tensor: str, repetition: Repetitions, op_index: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """The operations that read a tensor, by those that stand for them, and which of their operands it is.

    The stretches of a step of training run through the layers in different orders, so those that stand for the readers
    of one weight may read weights of different layers.
    """
    readers = dict.fromkeys(op_index[reader.name] for reader in program.consumers[tensor])
    places = ((k, at) for k in readers for at, name in enumerate(program.operations[k].operands) if name == tensor)
    return tuple(sorted((repetition.representative(k), at) for k, at in places))


def _if_alike(nodes: list[Node], node: int, other: int) -> int:
    """The representative, unless pins by name left the two with different options."""
    a, b = nodes[node], nodes[other]
    return other if _facts(a) == _facts(b) else node


def _facts(node: Node) -> tuple[object, ...]:
    match node:
        case SourceNode():
            return (node.homes,)
        case OperationNode():
            return node.homes, node.needs, node.seconds, node.workspace
        case SinkNode():
            return (node.ends,)


def _flows(program: Program, nodes: list[Node], tied_to: list[int], op_index: Mapping[str, int]) -> list[Flow]:
    home_of = {node.tensor.name: k for k, node in enumerate(nodes) if not isinstance(node, SinkNode)}
    readers_of: dict[str, list[tuple[int, int]]] = {name: [] for name in home_of}
    for k, node in enumerate(nodes):
        if isinstance(node, SinkNode):
            readers_of[node.tensor.name].append((k, 0))
        elif isinstance(node, OperationNode):
            for j, name in enumerate(node.op.operands):
                readers_of[name].append((k, j))
    for state, value in program.states:
        readers_of[value].append((home_of[state], 0))
    updated = {value for _, value in program.states}
    end = len(program.operations)
    flows = []
    for name, home in home_of.items():
        tensor = program.tensor(name)
        source = isinstance(nodes[home], SourceNode)
        readers = [nodes[k] for k, _ in readers_of[name]]
        at = tuple(op_index[node.name] if isinstance(node, OperationNode) else end for node in readers)
        stays = name in program.outputs or tensor.role in ("param", "state", "const")
        first = -1 if source else op_index[nodes[home].name]
        # A state's new value ends in the state's place.
        last = end if stays else end - 1 if name in updated else max(at, default=first)
        asking = tuple((tied_to[k], j) for k, j in readers_of[name])
        resident = tensor.role in ("param", "state", "const")
        flows.append(Flow(name, tied_to[home], asking, first, last, resident, width_of(program, name), at))
    return flows


def evaluate(model: Model, choice: Mapping[int, int], exposed: int = 2) -> tuple[int, dict[str, int]]:
    """The objective of a choice (one option per representative), plainly, and its parts A, B, C (picoseconds) or bytes.

    Shares nothing with the solver: what it says is what a solver must find.
    """
    parts = {"compute": 0, "values": 0, "resident": 0}
    for node in range(len(model.nodes)):
        parts["compute"] += model.work(node, model.option(choice, node))
    for flow in model.flows:
        parts["resident" if flow.source else "values"] += _moved(
            model, flow, choice, lambda flow, have, need: model.price(have, need, flow.width)
        )
    return combine(model.objective, parts, exposed), parts


class Costs:
    """What `evaluate` says, for many choices that have most in common: what is alike in several is looked up.

    ``price``: of a transfer of a flow, where it is not the model's own.
    """

    def __init__(self, model: Model, price: Callable[[Flow, Layout, Layout], int] | None = None) -> None:
        self.model, self._price = model, price or (lambda flow, have, need: model.price(have, need, flow.width))
        self._work = {
            node: [model.weight[node] * model.work(node, option) for option in range(len(model.nodes[node].labels))]
            for node in sorted(model.weight)
        }
        self._flows = [(flows[0], len(flows), _deciding(flows[0])) for flows in model.alike()]
        self._key = [itemgetter(*nodes) for _, _, nodes in self._flows]  # of one node its option alone
        self._known: list[dict[object, int]] = [{} for _ in self._flows]

    @cached_property
    def _touching(self) -> dict[int, list[int]]:
        """By node the numbers of the flows that it has to do with."""
        found: dict[int, list[int]] = {node: [] for node in self._work}
        for number, (_, _, nodes) in enumerate(self._flows):
            for node in nodes:
                found[node].append(number)
        return found

    def of(self, choice: Mapping[int, int]) -> int:
        """The objective of a choice."""
        return combine(self.model.objective, self.parts(choice))

    def parts(self, choice: Mapping[int, int]) -> dict[str, int]:
        """What it is made of."""
        parts = {"compute": sum(work[choice[node]] for node, work in self._work.items()), "values": 0, "resident": 0}
        for number, (flow, _, _) in enumerate(self._flows):
            parts["resident" if flow.source else "values"] += self._moving(number, choice)
        return parts

    def changed(self, choice: dict[int, int], parts: Mapping[str, int], node: int, option: int) -> dict[str, int]:
        """The same with one decision changed, which is changed in the choice."""
        found, before = dict(parts), [self._moving(number, choice) for number in self._touching[node]]
        found["compute"] += self._work[node][option] - self._work[node][choice[node]]
        choice[node] = option
        for number, cost in zip(self._touching[node], before, strict=True):
            found["resident" if self._flows[number][0].source else "values"] += self._moving(number, choice) - cost
        return found

    def beside(self, node: int) -> list[int]:
        """The other nodes that have to do with what it makes, reads or is."""
        return [n for n in dict.fromkeys(k for f in self._touching[node] for k in self._flows[f][2]) if n != node]

    def _moving(self, number: int, choice: Mapping[int, int]) -> int:
        known, key = self._known[number], self._key[number](choice)
        found = known.get(key)
        if found is None:
            flow, count, _ = self._flows[number]
            found = known[key] = count * _moved(self.model, flow, choice, self._price)
        return found


def _deciding(flow: Flow) -> tuple[int, ...]:
    """The nodes whose options say what is moved of a tensor."""
    return tuple(dict.fromkeys((flow.home, *(node for node, _ in flow.readers))))


def _moved(model: Model, flow: Flow, choice: Mapping[int, int], price: Callable[[Flow, Layout, Layout], int]) -> int:
    """What moving one tensor costs."""
    have = model.home(flow, choice[flow.home])
    wanted = [model.need(reader, choice[reader[0]]) for reader in flow.readers]
    return sum(price(flow, have, need) for need in maximal([n for n in wanted if not have.satisfies(n)]))


def least_objective(model: Model) -> int:
    """No choice costs less: every operation at its cheapest, nothing moved."""
    nodes = range(len(model.nodes))
    compute = sum(min(model.work(k, option) for option in range(len(model.nodes[k].labels))) for k in nodes)
    return combine(model.objective, {"compute": compute, "values": 0, "resident": 0})


def combine(objective: str, parts: Mapping[str, int], exposed: int = 2) -> int:
    """The objective from its parts; see the module's docstring.

    exposed: halves of B that add to A, 2 in the objective itself.
    """
    total = parts["compute"] + parts["values"] + parts["resident"]
    if objective == "bytes":
        return total
    worked = 2 * parts["compute"] + exposed * parts["values"]
    return TIE // 2 * max(worked, 2 * (parts["values"] + parts["resident"])) + total


def memory_at(model: Model, choice: Mapping[int, int], instant: int) -> dict[str, int]:
    """Bytes of all that is alive while operation ``instant`` runs, or at the end, by what people call it."""
    found: dict[str, int] = {}
    for flow in model.flows:
        if not flow.first <= instant <= flow.last:
            continue
        have = model.home(flow, choice[flow.home])
        under = model.over.get(flow.tensor)
        replaces = (
            under is not None and under.first <= instant <= under.last and model.home(under, choice[under.home]) is have
        )
        if instant <= model.left(flow, have) and not replaces:
            found[flow.tensor] = model.stored(have, flow.width)
        wanted = [model.need(reader, choice[reader[0]]) for reader in flow.readers]
        copy = f"{flow.tensor} as it is moved"
        for need in maximal([n for n in wanted if not have.satisfies(n)]):
            users = [at for at, n in zip(flow.reader_at, wanted, strict=True) if n.within(need)]
            first, last = model.copied(flow, users)
            if first <= instant <= last:
                found[copy] = found.get(copy, 0) + model.stored(need, flow.width)
    running = model.program.operations[instant : instant + 1]
    for node, found_node in enumerate(model.nodes):
        if isinstance(found_node, OperationNode) and any(found_node.op is op for op in running):
            taken = model.workspace(node, model.option(choice, node))
            if taken:
                found[f"what {found_node.name} takes in turns"] = taken
    return found
