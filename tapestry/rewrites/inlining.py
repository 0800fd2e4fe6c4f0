"""The element of a tensor that an operation computes, written where it is read.

    t[i] = f(x[2*i])          t[j + 1]  is  f(x[2*j + 2])
    t[n - 1 - i] = f(x[i])    t[j]      is  f(x[n - 1 - j])

What was written was rounded, so it is rounded still; where a guarded read missed the tensor, its fill stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..autodiff.inversion import invert
from ..dtypes import DTYPES
from ..expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, Inside, Read, rewrite, substitute, walk
from ..expr.simplify import Ranges, Simplifier
from ..program import Block, Operation, Program
from ..result_type import Typing

MOST_NODES = 400  # of a body; beyond, writing it out and compiling it take longer than it gains


@dataclass(frozen=True)
class Inlinable:
    """An operation that maps points to elements one by one: its body by the index of the element."""

    axes: tuple[str, ...]
    values: Mapping[str, Affine]
    body: Expr
    dtype: str
    exact: bool

    @staticmethod
    def of(program: Program, op: Operation) -> Inlinable | None:
        """None for folds, blocks, restricted domains, and writes that are not undone by index expressions."""
        if op.monoid is not None or op.where or isinstance(op.body, Block):
            return None
        tensor = program.tensor(op.output)
        axes = tuple(f"'{k}" for k in range(len(tensor.shape)))
        found = invert(op.dims, op.write, axes, tensor.shape)
        if found is None or found.where or any(dim.extent > 1 for dim in found.dims):
            return None
        single = {dim.name: Affine() for dim in found.dims}
        values = {name: value.substitute(single) for name, value in found.values.items()}
        held = Typing(dtypes_of(program, op)).of(op.body) == (tensor.dtype, False)
        exact = held and DTYPES[tensor.dtype].compute == tensor.dtype
        return Inlinable(axes, values | single, op.body, tensor.dtype, exact)

    def at(self, read: Read, reader: Reader) -> Expr:
        """The value that a read of the tensor finds."""
        place = dict(zip(self.axes, read.index, strict=True))
        body = substitute(self.body, {name: value.substitute(place) for name, value in self.values.items()})
        if isinstance(body, Read) and reader.dtypes[body.tensor] == self.dtype:
            alike = not body.guard or not read.guard or repr(body.fill) == repr(read.fill)
            if alike:
                return _guarded(body, read.guard, read.fill if read.guard else body.fill)
        if not self.exact:
            body = Cast(self.dtype, body)
        if not read.guard:
            return body

        def leaf(node: Expr) -> Expr:
            leaves = isinstance(node, Read) and not reader.inside(node)
            return _guarded(node, read.guard, node.fill) if isinstance(node, Read) and leaves else node

        return Call("where", (Inside(read.guard), rewrite(body, leaf), self._filled(read.fill)))

    def _filled(self, fill: float | int | bool) -> Expr:
        """The fill as an element of the tensor; a number is one of the float types that are computed in by itself."""
        plain = DTYPES[self.dtype].kind == "float" and DTYPES[self.dtype].compute == self.dtype
        return Const(fill) if plain and not isinstance(fill, bool) else Cast(self.dtype, Const(fill))


def _guarded(read: Read, guard: tuple[Bound, ...], fill: float | int | bool) -> Read:
    return replace(read, guard=tuple(dict.fromkeys((*read.guard, *guard))), fill=fill)


class Reader:
    """What an operation that something is written into knows of the tensors of its program."""

    def __init__(self, program: Program, op: Operation, maker: Operation) -> None:
        self.program = program
        self.dtypes = dtypes_of(program, op, maker)
        self.ranges = {dim.name: (0, dim.extent) for dim in op.dims}

    def inside(self, read: Read) -> bool:
        """Whether a read without its guard stays inside its tensor at every point, as far as intervals tell."""
        reach = zip(
            (row.bounds(self.ranges) for row in read.index), self.program.tensor(read.tensor).shape, strict=True
        )
        return all(lo >= 0 and hi <= extent for (lo, hi), extent in reach)

    def simple(self, body: Expr) -> Expr:
        return Exact(self.ranges, self.dtypes).expr(body)


def inlined(program: Program, maker: Operation, reader: Operation, found: Inlinable) -> Operation | None:
    """The reader with what the maker computes written into it.

    None where a block reads it as what is no read, or where the body would grow beyond `MOST_NODES`.
    """
    context = Reader(program, reader, maker)
    if isinstance(reader.body, Block):
        return _in_block(maker, reader, reader.body, found, context)
    occurrences = sum(1 for node in walk(reader.body) if isinstance(node, Read) and node.tensor == maker.output)
    if size(reader.body) + occurrences * (size(found.body) + 4) > MOST_NODES:
        return None

    def leaf(node: Expr) -> Expr:
        return found.at(node, context) if isinstance(node, Read) and node.tensor == maker.output else node

    return replace(reader, body=context.simple(rewrite(reader.body, leaf)))


def _in_block(maker: Operation, reader: Operation, block: Block, found: Inlinable, context: Reader) -> Operation | None:
    reads: list[Read] = []
    for read in block.reads:
        value = read if read.tensor != maker.output else context.simple(found.at(read, context))
        if not isinstance(value, Read):
            return None
        reads.append(value)
    return replace(reader, body=replace(block, reads=tuple(reads)))


def size(body: Expr) -> int:
    """The parts of an expression."""
    return sum(1 for _ in walk(body))


def is_view(body: Expr) -> bool:
    """Whether an expression only says which element, or which constant, stands where."""
    return all(map(_only_chooses, walk(body)))


def _only_chooses(node: Expr) -> bool:
    if isinstance(node, Call):
        return FUNCTIONS[node.function].result == "branch" and isinstance(node.args[0], Inside)
    return isinstance(node, Read | Const | Inside)


def dtypes_of(program: Program, *operations: Operation) -> dict[str, str]:
    """The dtypes of all tensors that some operations name."""
    names = {name for op in operations for name in (*op.operands, op.output)}
    return {name: program.tensor(name).dtype for name in names}


class Exact(Simplifier):
    """Simplifies indices and guards, and nothing that a dtype hangs on."""

    def __init__(self, ranges: Ranges, dtypes: Mapping[str, str]) -> None:
        super().__init__(ranges, names=True)
        self.dtypes, self.typing = dtypes, Typing(dtypes)

    def missed(self, read: Read) -> Expr:
        return Cast(self.dtypes[read.tensor], Const(read.fill))

    def called(self, call: Call) -> Expr:
        """A choice that is decided is taken where the other side does not widen it."""
        taken = super().called(call)
        return taken if taken is call or self.typing.of(taken) == self.typing.of(call) else call


def readers_through(program: Program, maker: Operation) -> Iterator[tuple[Operation, Operation | None]]:
    """Every reader of what an operation computes, with that reader once it computes it itself (None: it cannot)."""
    found = Inlinable.of(program, maker)
    for reader in program.consumers[maker.output]:
        yield reader, None if found is None else inlined(program, maker, reader, found)
