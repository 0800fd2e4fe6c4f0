"""Reductions: ``tp.sum[c, r](...)`` in index notation, ``tp.sum(x, axis="c")`` on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from ..errors import UsageError
from ..expr import Affine, Inside, Read
from .element import Element, Reduction, element
from .index import Index
from .tensor import Tensor

_KEYS = count()
Axes = int | str | Sequence[int | str] | None


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
        names = tuple(self._dim(dim) for dim in (dims if isinstance(dims, tuple) else (dims,)))
        if len(set(names)) != len(names):
            raise UsageError(f"tp.{self.monoid}[{', '.join(names)}] names an index twice")

        def fold(body: Tensor | Index | float, *, where: Tensor | None = None) -> Tensor:
            return self._fold(names, element(body), where)

        return fold

    def __call__(
        self, x: Tensor, axis: Axes = None, *, keepdims: bool = False, dtype: str | None = None, name: str = ""
    ) -> Tensor:
        """Fold over axes, by position or name; over all when None. ``keepdims`` leaves them with extent 1."""
        from ..ops.reduction import reduce

        return reduce(self.monoid, x, axis, keepdims=keepdims, dtype=dtype, name=name)

    def _dim(self, dim: object) -> str:
        if isinstance(dim, Index) and len(dim.affine.terms) == 1 and not dim.affine.const:
            name, factor = dim.affine.terms[0]
            if isinstance(name, str) and factor == 1:
                return name
        raise UsageError(
            f"tp.{self.monoid}[{dim!r}] folds something that is not an index", hint="fold over names made by tp.indices"
        )

    def _fold(self, names: tuple[str, ...], body: Element, where: Tensor | None) -> Element:
        if where is not None and not (isinstance(where, Element) and isinstance(where.expr, Inside)):
            hint = "compare index expressions and join with &; for other conditions use tp.where inside the reduction"
            raise UsageError(f"where= of tp.{self.monoid} is not a condition on indices", hint=hint)
        bounds = where.expr.bounds if isinstance(where, Element) and isinstance(where.expr, Inside) else ()
        free = [dim for dim in body.free if dim not in names]
        key = f"%fold{next(_KEYS)}"
        reduction = Reduction(key, self.monoid, names, body, bounds)
        return Element(Read(key, tuple(Affine.dim(dim) for dim in free)), (), (reduction,))
