"""What a program's drawing shows: a node for an operation, input or output, an edge for a tensor on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..program import Operation, Program, Tensor
from ..text import format_op, format_type
from .folding import Run, find_runs, split_layer


@dataclass(frozen=True)
class Notes:
    """What a plan writes on a program: by operation its strategy, by (tensor, its reader) how it gets there."""

    ops: Mapping[str, str] = field(default_factory=dict)
    edges: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def of(self, op: Operation) -> str:
        """All notes on one operation and what it reads."""
        return "|".join([self.ops.get(op.name, ""), *(self.edges.get((n, op.name), "") for n in op.operands)])


@dataclass(frozen=True)
class Held:
    """A parameter or constant that an operation reads; ``moved`` where it has to be brought first."""

    text: str
    moved: bool = False


@dataclass(frozen=True)
class Node:
    """One shape: ``kind`` is op, input, state or output; ``params`` are drawn inside; ``hint`` shows on hovering."""

    key: str
    kind: str
    name: str
    type: str
    params: tuple[Held, ...] = ()
    note: str = ""
    group: str = ""
    run: Run | None = None
    hint: str = ""


@dataclass(frozen=True)
class Edge:
    """A tensor from one node to another. ``again`` where it leads to the next repetition of the same layer."""

    source: str
    target: str
    tensor: str
    note: str = ""
    again: bool = False


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every edge that is not ``again`` leads forward."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(program: Program, notes: Notes | None = None) -> Graph:
    """The drawing's graph: inputs, operations in order with repeated layers folded, outputs."""
    notes = notes or Notes()
    runs = find_runs(program, notes.of)
    stands = _representatives(program, runs)
    nodes = [_source(tensor.name, tensor.role, program) for tensor in program.of_role("input", "state")]
    nodes += [_node(op, program, notes, runs.get(op.name)) for op in program.operations if stands[op.name] == op.name]
    ends = dict.fromkeys(program.outputs, "output") | {new: f"new {old}" for old, new in program.states}
    nodes += [Node(f">{name}", "output", name, text) for name, text in ends.items()]
    order = {node.key: k for k, node in enumerate(nodes)}
    return Graph(tuple(nodes), tuple(_edges(program, notes, stands, order, list(ends))))


def _representatives(program: Program, runs: Mapping[str, Run]) -> dict[str, str]:
    """Operation -> the operation of the first layer of its run that stands for it, by place in the layer."""
    places: dict[tuple[str, int], list[str]] = {}
    for op in program.operations:
        found = split_layer(op.name)
        if found:
            places.setdefault(found[:2], []).append(op.name)
    stands = {op.name: op.name for op in program.operations}
    for (scope, number), names in places.items():
        run = runs.get(names[0])
        if run is not None and number != run.first:
            stands |= zip(names, places[scope, run.first], strict=True)
    return stands


def _source(name: str, role: str, program: Program) -> Node:
    return Node(f"<{name}", role, name, format_type(program.tensor(name)), hint=f"{role} {name}")


def _node(op: Operation, program: Program, notes: Notes, run: Run | None) -> Node:
    inside = len(f"{run.scope}{run.first}.") if run else 0
    group = op.group[inside:] if run else op.group
    name = op.name[inside:]
    short = name.removeprefix(f"{group}.") if group else name
    held = (t for t in map(program.tensor, op.operands) if t.role in ("param", "const"))
    params = tuple(_held(t, op.name[:inside], notes.edges.get((t.name, op.name), "")) for t in held)
    own = program.tensor(op.output)
    hint = "\n".join(line.strip() for line in format_op(op, own))
    return Node(op.name, "op", short, format_type(own), params, notes.ops.get(op.name, ""), op.group, run, hint)


def _held(tensor: Tensor, layer: str, note: str) -> Held:
    words = f"{tensor.name.removeprefix(layer)} {format_type(tensor)}"
    return Held(f"{words}  {note}", moved=True) if note else Held(words)


def _edges(
    program: Program, notes: Notes, stands: Mapping[str, str], order: Mapping[str, int], ends: list[str]
) -> list[Edge]:
    found: dict[tuple[str, str], Edge] = {}

    def start(name: str) -> str | None:
        if name in program.producer:
            return stands[program.producer[name].name]
        return f"<{name}" if f"<{name}" in order else None

    for op in program.operations:
        for name in op.operands:
            source, target = start(name), stands[op.name]
            if source is not None:
                again = order[source] >= order[target]
                if not again or not any(edge.again and edge.source == source for edge in found.values()):
                    note = notes.edges.get((name, op.name), "")
                    found.setdefault((source, target), Edge(source, target, name, note, again))
    for name in ends:
        source = start(name)
        if source is not None:
            found.setdefault((source, f">{name}"), Edge(source, f">{name}", name))
    return list(found.values())
