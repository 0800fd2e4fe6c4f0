"""Numbers of expressions, by which equal ones are computed once."""

from __future__ import annotations

from typing import Any

from .scalar import Call, Cast, Const, Expr, children, children_first


class Numbering:
    """The same number for the same expression, found once for every node.

    Comparing and hashing expressions looks at all that is below them; so nodes are known by their identity.

    >>> numbering, one, sum_of = Numbering(), Const(1.0), Call("add", (Const(1.0), Const(1)))
    >>> numbering.of(sum_of) == numbering.of(Call("add", (one, Const(1)))), numbering.of(one) == numbering.of(Const(1))
    (True, False)
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._distinct: dict[Any, int] = {}
        self._alive: list[Expr] = []  # what is known by its identity may not be freed

    def of(self, expr: Expr) -> int:
        """Constants differ by their type too: 1 is neither 1.0 nor True."""
        for node in children_first(expr, self._numbers):
            inner = tuple(self._numbers[id(child)] for child in children(node))
            if isinstance(node, Call | Cast):
                key: Any = (node.function if isinstance(node, Call) else ("cast", node.dtype), *inner)
            else:
                key = ("constant", repr(node.value)) if isinstance(node, Const) else node
            self._numbers[id(node)] = self._distinct.setdefault(key, len(self._distinct))
            self._alive.append(node)
        return self._numbers[id(expr)]
