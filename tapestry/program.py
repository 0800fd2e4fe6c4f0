"""The program: tensors, block operations in order, and which tensors come in, stay and go out. All immutable.

One operation owns one tensor: it computes ``write.tensor[write.index] = reduce over reduce_dims of body`` for every
point of its domain. `verify` (tapestry.verify) states what makes a program valid; `tapestry.text` prints it;
`tapestry.serialize` writes JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from .dtypes import DTYPES
from .expr import FUNCTIONS, MONOIDS, Affine, Bound, Call, Expr, Read, reads
from .space.cuts import CutKind

if TYPE_CHECKING:
    from .expr.scans import Scan
    from .graph import ProgramGraph
    from .selection import Selection

Role = Literal["input", "param", "state", "const", "value"]
PinKind = CutKind


@dataclass(frozen=True)
class Tensor:
    """A named array.

    ``axes`` names its axes (for pins, drawings and errors); ``data`` holds a constant's values, flat.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role = "value"
    axes: tuple[str, ...] = ()
    data: tuple[float | int | bool, ...] | None = None

    def __post_init__(self) -> None:
        if not self.axes:
            object.__setattr__(self, "axes", tuple(str(k) for k in range(len(self.shape))))

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].bytes

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize


@dataclass(frozen=True)
class Dim:
    """One dimension of an operation's index space: 0 <= name < extent. ``cut`` False forbids sharding it."""

    name: str
    extent: int
    cut: bool = True


@dataclass(frozen=True)
class Block:
    """The body of a block operation: a named kernel, its attributes, and the reads it makes per index point.

    ``reads`` are exact projections over the operation's dimensions; kernel argument k reads ``reads[k]``.
    """

    kernel: str
    reads: tuple[Read, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def attrs(self) -> dict[str, Any]:
        return dict(self.attributes)

    def __str__(self) -> str:
        return f"{self.kernel}({', '.join(map(str, self.reads))})"


@dataclass(frozen=True)
class Operation:
    """One block operation.

    dims         the index space, in order; ``where`` restricts it (causal attention: key - query < 1)
    reduce_dims  the dimensions folded by ``monoid`` (empty and None when there is no reduction); those that a block
                 kernel takes whole stand here too, without a monoid
    write        index of the element written, one expression per axis of ``output``, over the other dimensions
    body         a scalar expression, or a `Block`
    group        the composite it came from ("softmax_3"), for drawings; ``source`` is "file.py:line"
    """

    name: str
    dims: tuple[Dim, ...]
    output: str
    write: tuple[Affine, ...]
    body: Expr | Block
    reduce_dims: tuple[str, ...] = ()
    monoid: str | None = None
    where: tuple[Bound, ...] = ()
    group: str = ""
    source: str = ""

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Distinct reads, in order of appearance."""
        return self.body.reads if isinstance(self.body, Block) else reads(self.body)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Distinct tensors read, in order of appearance."""
        return tuple(dict.fromkeys(read.tensor for read in self.reads))

    @cached_property
    def read_in_place(self) -> tuple[int, ...]:
        """The operands, by number, of which each point reads only the element that it writes: the result may take
        their place; none of those of a fold, whose points share a result.

        y[i, j] = x[i, j] + b[j]     x: every point reads what lies where it writes
        y[i, j] = x[i, j] + x[j, i]  not x: another point needs what this one writes over
        """
        if self.reduce_dims or self.monoid is not None or isinstance(self.body, Block):
            return ()
        elsewhere = {read.tensor for read in self.reads if read.index != self.write}
        return tuple(k for k, name in enumerate(self.operands) if name not in elsewhere)

    @cached_property
    def factors(self) -> tuple[Expr, Expr] | None:
        """The two factors of a sum of products, which matrix units compute; None for every other operation."""
        if isinstance(self.body, Block) or self.monoid is None or not isinstance(self.body, Call):
            return None
        products = FUNCTIONS[self.body.function].matrix == "product"
        return (self.body.args[0], self.body.args[1]) if products and MONOIDS[self.monoid].matrix else None

    @cached_property
    def scan(self) -> Scan | None:
        """The scan that it is, whose results come out of one another; None for every other operation."""
        from .expr.scans import scan_of

        return None if isinstance(self.body, Block) else scan_of(self.reduce_dims, self.where, [self.body])

    @cached_property
    def extents(self) -> dict[str, int]:
        return {dim.name: dim.extent for dim in self.dims}

    @cached_property
    def selections(self) -> tuple[Selection, ...]:
        """The dimensions of which one value counts, because it has to equal a value of the program."""
        from .selection import neutral_value, selections

        if isinstance(self.body, Block):
            return ()
        return selections(self.body, self.extents, neutral_value(self.monoid), self.where)

    @cached_property
    def record_dim(self) -> str | None:
        """The dimension along which a fold of several results stores them; None for every other operation."""
        if self.monoid is None or isinstance(self.body, Block) or not MONOIDS[self.monoid].several or not self.write:
            return None
        last = str(self.write[-1])
        return last if last in self.extents else None

    @cached_property
    def idle(self) -> int:
        """How many points there are for each that counts: one is folded of all along the dimension of a record, and of
        those that the body selects from.
        """
        several = 1 if self.record_dim is None else self.extents[self.record_dim]
        return several * prod(self.extents[chosen.dim] for chosen in self.selections)

    @cached_property
    def data_dependent(self) -> frozenset[str]:
        """The operands of which a point that counts reads one element, which the data say: their images are hulls."""
        chosen = {selection.dim for selection in self.selections}
        fixed = {read.tensor for read in self.reads if not any(row.dims & chosen for row in read.index)}
        return frozenset(self.operands) - fixed if chosen else frozenset()

    @property
    def parallel_dims(self) -> tuple[str, ...]:
        return tuple(dim.name for dim in self.dims if dim.name not in self.reduce_dims)

    def dim(self, name: str) -> Dim:
        return next(dim for dim in self.dims if dim.name == name)


@dataclass(frozen=True)
class Pin:
    """What the user fixes about the operation or tensor whose name matches ``pattern`` (fnmatch).

    ``cuts`` maps a mesh axis ("mesh0", or the name given to it) to a dimension of the operation or an axis of the
    tensor, or to None for "not cut along this mesh axis" (replicated). Mesh axes that are not named stay free.
    ``forbid``: what ``cuts`` say, all of it together, must not be, whatever the kind of cut.
    """

    target: Literal["op", "tensor"]
    pattern: str
    cuts: tuple[tuple[str, str | None], ...]
    kind: PinKind = "block"
    forbid: bool = False


@dataclass(frozen=True)
class Program:
    """A whole program, operations in an order in which they can run.

    ``states`` pairs a state tensor with the value that replaces it at the end of a run.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...] = ()
    pins: tuple[Pin, ...] = ()
    bindings: tuple[tuple[str, Any], ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def op_by_name(self) -> dict[str, Operation]:
        return {op.name: op for op in self.operations}

    @cached_property
    def producer(self) -> dict[str, Operation]:
        """Tensor name -> the operation that writes it."""
        return {op.output: op for op in self.operations}

    @cached_property
    def consumers(self) -> dict[str, tuple[Operation, ...]]:
        """Tensor name -> the operations that read it, in order."""
        found: dict[str, list[Operation]] = {tensor.name: [] for tensor in self.tensors}
        for op in self.operations:
            for name in op.operands:
                found.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in found.items()}

    @cached_property
    def graph(self) -> ProgramGraph:
        """The operations as a graph: cycles, structure, what is alike."""
        from .graph import ProgramGraph

        return ProgramGraph(self)

    @cached_property
    def records(self) -> dict[str, tuple[str, ...]]:
        """Tensor name -> the dtypes in which partial results of it are kept, where these are not its elements."""
        from .records import record_of

        found = {op.output: record_of(op, self) for op in self.operations}
        return {name: record for name, record in found.items() if record is not None}

    def tensor(self, name: str) -> Tensor:
        return self.by_name[name]

    def of_role(self, *roles: Role) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.role in roles)

    def with_pins(self, *pins: Pin) -> Program:
        return replace(self, pins=(*self.pins, *pins)) if pins else self

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """How Jupyter shows a program: its graph, and its text beside it; see `tapestry.drawing`."""
        from .drawing.program import program_svg

        return {"image/svg+xml": program_svg(self), "text/plain": str(self)}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """How hypothesis shows a program of a failing example: as text that makes it again where it is pasted."""
        printer.text(f'tp.parse("""\\\n{self}""")')

    def __str__(self) -> str:
        """The whole program as text; see `tapestry.text`."""
        from .text import format_program

        return format_program(self)
