"""Which operations the rules know. What they do not know they leave as it is.

The language grows. An operation with a field, or a body with a node, that the rules were not written for means
something that they cannot see, so no rule is asked about it, and none takes away what it reads. The same holds
for functions that some arguments make an error: it is to come where the program says, as often as it says.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from fnmatch import fnmatchcase
from typing import Any

from ..expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, Floor, IndexValue, Inside, Read, Table, walk
from ..expr.index import Atom
from ..program import Block, Dim, Operation, Program, Tensor

_FIELDS: dict[type, frozenset[str]] = {
    Operation: frozenset(
        ["name", "dims", "output", "write", "body", "reduce_dims", "monoid", "where", "group", "source"]
    ),
    Program: frozenset(["name", "tensors", "operations", "outputs", "states", "pins", "bindings", "meta"]),
    Tensor: frozenset(["name", "dtype", "shape", "role", "axes", "data"]),
    Dim: frozenset(("name", "extent", "cut")),
    Block: frozenset(("kernel", "reads", "attributes")),
    Read: frozenset(("tensor", "index", "guard", "fill")),
    Const: frozenset(("value",)),
    IndexValue: frozenset(("index",)),
    Inside: frozenset(("bounds",)),
    Call: frozenset(("function", "args")),
    Cast: frozenset(("dtype", "arg")),
    Bound: frozenset(("expr", "lo", "hi")),
}


def known_program(program: Program) -> bool:
    """Whether the program has nothing but what the rules know of programs."""
    return _known(program) and all(_known(tensor) for tensor in program.tensors)


def known_operation(op: Operation) -> bool:
    """Whether everything in an operation is of a form that the rules know."""
    if not (_known(op) and all(map(_known, op.dims)) and _indices(op.write) and _bounds(op.where)):
        return False
    if isinstance(op.body, Block):
        return _known(op.body) and all(map(_node, op.body.reads))
    return all(map(_node, walk(op.body)))


def _node(node: Expr) -> bool:
    if not _known(node):
        return False
    if isinstance(node, Read):
        return _indices(node.index) and _bounds(node.guard)
    if isinstance(node, IndexValue):
        return _indices((node.index,))
    if isinstance(node, Call):
        return node.function in FUNCTIONS and not FUNCTIONS[node.function].strict
    return not isinstance(node, Inside) or _bounds(node.bounds)


def _known(thing: Any) -> bool:
    """Of exactly a type that is known, its further fields as if they were not there."""
    mine = _FIELDS.get(type(thing))
    return mine is not None and all(
        field.name in mine or getattr(thing, field.name) == _default(field) for field in fields(thing)
    )


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _bounds(bounds: tuple[Bound, ...]) -> bool:
    return all(_known(bound) and _indices((bound.expr,)) for bound in bounds)


def _indices(rows: tuple[Affine, ...]) -> bool:
    return all(type(row) is Affine and all(map(_atom, (atom for atom, _ in row.terms))) for row in rows)


def _atom(atom: Atom) -> bool:
    return type(atom) is str or ((type(atom) is Floor or type(atom) is Table) and _indices((atom.inner,)))


def pinned(program: Program, target: str, name: str) -> bool:
    """Whether a pin of the program speaks of an operation or tensor ("op", "tensor"): such are left as they are."""
    return any(pin.target == target and fnmatchcase(name, pin.pattern) for pin in program.pins)


def kept(program: Program, name: str) -> bool:
    """Whether a tensor is seen from outside: an output, or what a state becomes."""
    return name in program.outputs or any(new == name for _, new in program.states)
