"""The derivative of a scalar expression along one of its reads, from the derivatives of the table of functions."""

from __future__ import annotations

from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import FUNCTIONS, Call, Cast, Const, Expr, Function, Read, children_first
from ..expr.derivatives import call, partials

Zero = None
NOTHING = Const(0.0)


def derivative(body: Expr, read: Read) -> Expr | None:
    """d body / d read; None where it is 0 everywhere. UsageError for a function that has none."""
    return _Derivatives(read).of(body)


class _Derivatives:
    """Along one read; a sub-expression that stands in several places is differentiated once."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self._seen: dict[int, tuple[Expr, Expr | None]] = {}

    def of(self, node: Expr) -> Expr | None:
        for part in children_first(node, self._seen):
            self._seen[id(part)] = (part, self._found(part))
        return self._seen[id(node)][1]

    def _found(self, node: Expr) -> Expr | None:
        if isinstance(node, Read):
            return Const(1) if node == self.read else Zero
        if isinstance(node, Cast):
            return self.of(node.arg) if DTYPES[node.dtype].kind == "float" else Zero
        return self._of_call(node) if isinstance(node, Call) else Zero

    def _of_call(self, node: Call) -> Expr | None:
        function = FUNCTIONS[node.function]
        inner = [self.of(arg) for arg in node.args]
        if function.fixed or not any(found is not None for found in inner):
            return Zero  # comparisons and integers are constant wherever they have a derivative
        if function.result == "branch":
            return _chosen(node.args[0], inner[1], inner[2])
        return _chained(function, node.args, inner)


def _chosen(condition: Expr, first: Expr | None, second: Expr | None) -> Expr | None:
    """Of the branch that is taken: what the other one's derivative is does not matter, NaN included."""
    if first is None and second is None:
        return Zero
    return call("where", condition, first or Const(0.0), second or Const(0.0))


def _chained(function: Function, args: tuple[Expr, ...], inner: list[Expr | None]) -> Expr | None:
    outer = partials(function, *args)
    if outer is None:
        hint = "tp.stop_gradient(...) says that it is to count as a constant"
        raise UsageError(f"{function.name} has no derivative", hint=hint)
    total: Expr | None = Zero
    for partial, found in zip(outer, inner, strict=True):
        if found is not None and partial != Const(0):
            total = plus(total, times(partial, found))
    return total


def times(a: Expr, b: Expr) -> Expr:
    """a * b, without factors of one; of a choice between b and 0 the choice between a * b and 0."""
    if a == Const(1):
        return b
    if isinstance(b, Call) and b.function == "where" and b.args[2] == NOTHING:
        return call("where", b.args[0], times(a, b.args[1]), NOTHING)
    return a if b == Const(1) else call("multiply", a, b)


def plus(a: Expr | None, b: Expr) -> Expr:
    """a + b; None is 0."""
    return b if a is None else call("add", a, b)
