"""Reductions: ``tp.sum[c, r](...)`` in index notation, ``tp.sum(x, axis="c")`` on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..expr import Bound, Inside
from .caller import here
from .door import door, spoken
from .element import Element, Reduction, element
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
            f"Fold with {monoid}: tp.{monoid}[c, r](expression) in index notation, tp.{monoid}(x, axis) on tensors."
        )

    def __getitem__(self, dims: Index | tuple[Index, ...]) -> Callable[..., Tensor]:
        """The fold over the given indices, to be called with an expression and perhaps ``where=`` index conditions."""
        asked = dims if isinstance(dims, tuple) else (dims,)
        names = tuple(self._dim(dim) for dim in asked)
        if len(set(names)) != len(names):
            raise UsageError(f"tp.{self.monoid}[{', '.join(names)}] names an index twice", where=here())
        given = joined({}, *(dim.given for dim in asked))

        def fold(body: Tensor | Index | float, *, where: Tensor | None = None) -> Tensor:
            return self._fold(names, given, element(body), where)

        return fold

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

    def _fold(self, names: tuple[str, ...], given: Given, body: Element, where: Tensor | None) -> Element:
        bounds, condition = self._condition(where)
        known = joined(given, body.given, condition)
        own = {name: extent for name, extent in known.items() if name in names}
        reduction = Reduction(f"%fold{next(_KEYS)}", self.monoid, names, body, bounds, own, here())
        rest = {name: extent for name, extent in known.items() if name not in names}
        return Element(reduction.read, (), (reduction,), rest)

    def _condition(self, where: Tensor | None) -> tuple[tuple[Bound, ...], Given]:
        if where is None:
            return (), {}
        if isinstance(where, Element) and isinstance(where.expr, Inside):
            return where.expr.bounds, where.given
        hint = "compare index expressions and join with &; for other conditions use tp.where inside the reduction"
        raise UsageError(f"where= of tp.{self.monoid} is not a condition on indices", where=here(), hint=hint)
