"""A program as a graph: which operation reads what another writes, and which operations are alike.

Questions of order that the program answers by itself (its operations stand in an order that can run) need nothing more.
`network` is the same graph for the algorithms of networkx, which is loaded by the first question that needs one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from .program import Operation, Program

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """The graph of one program; `Program.graph` makes it once."""

    program: Program
    _structures: dict[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def network(self) -> nx.DiGraph[str]:
        """Operations by name, in order; an edge from a writer to each of its readers, with the ``tensor``."""
        import networkx as nx

        found: nx.DiGraph[str] = nx.DiGraph()
        found.add_nodes_from(op.name for op in self.program.operations)
        for op in self.program.operations:
            for reader in self.program.consumers[op.output]:
                found.add_edge(op.name, reader.name, tensor=op.output)
        return found

    def cycle(self, name: str) -> list[str] | None:
        """The shortest way of operations, each read by the next, from one back to itself; None if there is none."""
        import networkx as nx

        ways = [
            nx.shortest_path(self.network, later, name)
            for later in self.network.successors(name)
            if nx.has_path(self.network, later, name)
        ]
        return [name, *min(ways, key=len)] if ways else None

    def structure(self, op: Operation) -> str:
        """Everything about an operation but its names, as text: equal for the same operation in another layer."""
        if op.name not in self._structures:
            self._structures[op.name] = _structure(op, self.program)
        return self._structures[op.name]

    def digest(self, op: Operation) -> str:
        """A short name of the structure, the same in every process: 16 hexadecimal digits of its SHA-256."""
        return sha256(self.structure(op).encode()).hexdigest()[:16]

    @cached_property
    def marks(self) -> list[str]:
        """Per operation, in order: its structure, how far back each operand was made (or which role it has), and
        whether its result is an output. A stretch of marks that comes again is a layer that is repeated, wiring
        included.

        Operands that earlier layers share (a table of positions) have no fixed distance: they are marked by name.
        """
        made_at = {op.output: index for index, op in enumerate(self.program.operations)}
        found = []
        for here, op in enumerate(self.program.operations):
            sources = [str(here - made_at[n]) if n in made_at else self._source_mark(n) for n in op.operands]
            found.append(f"{self.structure(op)}|{sources}|{op.output in self.program.outputs}")
        return found

    def _source_mark(self, name: str) -> str:
        """A tensor used once is marked by its role, one that different operations use by them as well.

        One that several operations share which are alike is marked by its name.
        """
        uses = [f"{self.digest(op)}.{op.operands.index(name)}" for op in self.program.consumers[name]]
        if len(set(uses)) < len(uses):
            return name
        role = self.program.tensor(name).role
        return role if len(uses) == 1 else f"{role} {sorted(uses)}"

    def origin(self, name: str) -> str:
        """How a tensor comes about, whatever the layer: the operation that makes it and those that make its operands,
        by their structures; of a tensor that is given, what uses it.
        """
        maker = self.program.producer.get(name)
        if maker is None:
            return self._source_mark(name)
        before = [self.program.producer.get(operand) for operand in maker.operands]
        return f"{self.digest(maker)} of {[op and self.digest(op) for op in before]}"


def _structure(op: Operation, program: Program) -> str:
    """Everything about an operation but its names, as text."""
    names = {name: f"%{k}" for k, name in enumerate(op.operands)}
    body = str(op.body)
    reads = [(names[r.tensor], r.index, r.guard, r.fill) for r in op.reads]
    operands = [(program.tensor(n).shape, program.tensor(n).dtype) for n in op.operands]
    out = program.tensor(op.output)
    for name in sorted(names, key=len, reverse=True):
        body = body.replace(f"{name}[", f"{names[name]}[")
    attributes = getattr(op.body, "attributes", ())
    return repr(
        (
            op.dims,
            op.write,
            op.reduce_dims,
            op.monoid,
            op.where,
            reads,
            operands,
            out.shape,
            out.dtype,
            body,
            attributes,
        )
    )
