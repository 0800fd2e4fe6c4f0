"""From an element of index notation to operations: ranges found, accesses checked, one operation for each reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..expr import Affine, Expr, Read, rewrite
from ..program import Dim
from .caller import located, place, user_frame
from .element import Element, Reduction, element, free_dims
from .index import Index
from .ranges import all_accesses, check_accesses, solve
from .tensor import Tensor
from .trace import Trace, current


def axes_of(x: Tensor) -> tuple[Index, ...]:
    """One index for each axis of a tensor, named like it."""
    return tuple(Index(Affine.dim(axis)) for axis in x.axes)


def define(
    name: str,
    out: Sequence[Index],
    body: Tensor,
    *,
    dtype: str | None = None,
    explicit: str = "",
    extents: Mapping[str, int] | None = None,
) -> Tensor:
    """The operation ``result[out] = body``: `tp.op` for operations whose rank is not known when they are written."""
    call = located(name, place(user_frame()))
    return Definition(current(name), name, call, explicit).build(
        element(body), [str(i) for i in out], extents or {}, dtype
    )


@dataclass
class Definition:
    """Turns an element into operations. ``call`` is "name (file:line)", for errors; ``explicit`` overrides the name."""

    trace: Trace
    name: str
    call: str
    explicit: str

    def build(self, body: Element, out: Sequence[str], known: Mapping[str, int], dtype: str | None) -> Tensor:
        """The tensor with the axes ``out``. ``known`` gives extents; others are the largest that stay in bounds.

        Raises ReadOutOfBounds, and UsageError for indices that nothing bounds or that are neither output nor folded.
        """
        needed = list(dict.fromkeys([*out, *_dims(body)]))
        extents = solve(needed, known, [access for access, _ in all_accesses(body)], self.call)
        check_accesses(body, {name: extents[name] for name in needed}, self.call)
        self._check_free(body, out)
        return self._emit(self.name, body, out, extents, dtype, self.explicit)

    def _check_free(self, body: Element, out: Sequence[str]) -> None:
        loose = [name for name in body.free if name not in out]
        if loose:
            hint = f"fold them (tp.sum[{', '.join(loose)}]) or declare them after ->"
            raise UsageError(
                f"the index {' '.join(loose)} is neither an output axis nor folded", where=self.call, hint=hint
            )

    def _emit(
        self,
        name: str,
        body: Element,
        out: Sequence[str],
        extents: Mapping[str, int],
        dtype: str | None,
        explicit: str | None,
    ) -> Tensor:
        """One operation for the expression; one more, without a name of its own, for every inner reduction."""
        only = body.reductions[0] if len(body.reductions) == 1 else None
        fold = only if only and body.expr == body_read(only) else None
        expr = self._without_reductions(fold.body if fold else body, out, extents)
        dims = [Dim(dim, extents[dim]) for dim in (*out, *(fold.dims if fold else ()))]
        return self.trace.compute(
            name,
            dims,
            expr,
            reduce_dims=fold.dims if fold else (),
            monoid=fold.monoid if fold else None,
            where=fold.where if fold else (),
            dtype=dtype,
            explicit=explicit or "",
            anonymous=explicit is None,
        )

    def _without_reductions(self, body: Element, out: Sequence[str], extents: Mapping[str, int]) -> Expr:
        """The expression with every reduction computed by an operation of its own."""
        results: dict[str, Tensor] = {}
        for fold in body.reductions:
            free = free_dims(body_read(fold))
            order = [dim for dim in out if dim in free] + [dim for dim in free if dim not in out]
            part = Element(body_read(fold), (), (fold,))
            results[fold.key] = self._emit(f"{self.name}.{fold.monoid}", part, order, extents, None, None)

        def leaf(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in results:
                result = results[node.tensor]
                free = [dim.terms[0][0] for dim in node.index]
                return result.at(tuple(node.index[free.index(axis)] for axis in result.axes))
            return node

        return rewrite(body.expr, leaf) if results else body.expr


def body_read(fold: Reduction) -> Expr:
    """The read that stands for a reduction's result."""
    return Read(fold.key, tuple(Affine.dim(dim) for dim in fold.body.free if dim not in fold.dims))


def _dims(body: Element) -> list[str]:
    """Every index of an expression and of the reductions in it."""
    found = list(body.free)
    for fold in body.reductions:
        found += [*fold.dims, *_dims(fold.body)]
    return found
