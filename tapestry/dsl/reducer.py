"""Reductions: ``tp.sum[c, r](...)`` in index notation, ``tp.sum(x, axis="c")`` on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..expr import Bound
from .caller import here
from .door import door, spoken
from .element import Element, Reduction, element
from .guard import conditions
from .index import Given, Index, joined
from .tensor import Tensor

_KEYS = count()
Axes = int | str | Sequence[int | str] | None


@cache
def _on_tensors(monoid: str) -> Callable[..., Tensor]:
    """The fold over axes, its arguments checked."""
    from ..ops.reduction import reduce

    def fold(
        x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = ""
    ) -> Tensor:
        return reduce(monoid, x, axis, keepdims=keepdims, dtype=dtype, name=name)

    fold.__name__ = monoid
    return door(fold)


class Reducer:
    """A monoid as the language offers it."""

    def __init__(self, monoid: str) -> None:
        self.monoid = monoid
        self.__name__ = monoid
        self.__doc__ = (
            f"Fold with {monoid}: `tp.{monoid}[c, r](expression)` in index notation, `tp.{monoid}(x, axis)` on tensors."
        )

    def __getitem__(self, dims: Index | tuple[Index, ...]) -> Folding:
        """The fold over the given indices, to be called with an expression and perhaps ``where=`` index conditions."""
        asked = dims if isinstance(dims, tuple) else (dims,)
        names = tuple(self._dim(dim) for dim in asked)
        if len(set(names)) != len(names):
            raise UsageError(f"tp.{self.monoid}[{', '.join(names)}] names an index twice", where=here())
        return Folding(self.monoid, names, joined({}, *(dim.given for dim in asked)))

    if TYPE_CHECKING:

        def __call__(
            self, x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = ""
        ) -> Tensor:
            """Fold over axes, by position or name; over all when None. ``keepdims`` leaves them with extent 1."""

    else:

        def __call__(self, *args: Any, **options: Any) -> Tensor:
            """Fold over axes, by position or name; over all when None. ``keepdims`` leaves them with extent 1."""
            return _on_tensors(self.monoid)(*args, **options)

    def _dim(self, dim: object) -> str:
        if isinstance(dim, Index) and len(dim.affine.terms) == 1 and not dim.affine.const:
            name, factor = dim.affine.terms[0]
            if isinstance(name, str) and factor == 1:
                return name
        hint = "fold over names made by tp.indices"
        raise UsageError(f"tp.{self.monoid}[...] folds {spoken(dim)}, which is not an index", where=here(), hint=hint)


@dataclass(frozen=True)
class Folding:
    """A fold over indices that waits for its expression: ``tp.sum[c, r]``."""

    monoid: str
    dims: tuple[str, ...]
    given: Given

    def __call__(self, *expression: Tensor | Index | float, where: Tensor | None = None, **unknown: object) -> Tensor:
        """The fold of one expression, at the points that meet the index conditions ``where``."""
        if len(expression) != 1 or unknown:
            given = [f"{len(expression)} expressions"] * (len(expression) != 1) + [f"{name}=" for name in unknown]
            what = f"{self} takes one expression, and where= index conditions"
            raise UsageError(what, where=here(), sides={"given": ", ".join(given)})
        body = element(expression[0])
        bounds, condition = self._condition(where)
        known = joined(self.given, body.given, condition)
        own = {name: extent for name, extent in known.items() if name in self.dims}
        reduction = Reduction(f"%fold{next(_KEYS)}", self.monoid, self.dims, body, bounds, own, here())
        rest = {name: extent for name, extent in known.items() if name not in self.dims}
        return Element(reduction.read, (), (reduction,), rest)

    def _condition(self, where: Tensor | None) -> tuple[tuple[Bound, ...], Given]:
        if where is None:
            return (), {}
        found = conditions(where.expr) if isinstance(where, Element) else None
        if isinstance(where, Element) and found is not None:
            return found, where.given
        hint = "compare index expressions, join with & and |; for other conditions use tp.where inside the reduction"
        raise UsageError(f"where= of {self} is not a condition on indices", where=here(), hint=hint)

    def __str__(self) -> str:
        return f"tp.{self.monoid}[{', '.join(self.dims)}]"

    __repr__ = __str__
