"""From an element of index notation to operations: ranges found, accesses checked, one operation for each reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import TapestryError, UsageError
from ..expr import Affine, Bound, Expr, Read, rewrite
from ..program import Dim
from .caller import here, located
from .element import Element, Reduction, element, free_dims, indexed
from .guard import protected
from .index import Index, joined
from .ranges import solve
from .table import check_tables
from .tensor import Tensor
from .trace import Trace, current

Folds = Mapping[str, Mapping[str, int]]  # extents of each fold's indices, by the fold's key


def axes_of(x: Tensor) -> tuple[Index, ...]:
    """One index for each axis of a tensor, named like it."""
    return tuple(Index(Affine.dim(axis), {axis: extent}) for axis, extent in zip(x.axes, x.shape, strict=True))


def define(
    name: str,
    out: Sequence[Index],
    body: Tensor,
    *,
    dtype: str | None = None,
    explicit: str = "",
    extents: Mapping[str, int] | None = None,
) -> Tensor:
    """The operation ``result[out] = body``: `tp.op` for operations whose rank is not known when they are written.

    ``extents`` gives ranges of indices, of those that are folded too, as `tp.indices` would.
    """
    found = element(body)
    names = [str(i) for i in out]
    given = joined(found.given, *(i.given for i in out), extents or {})
    body = Element(found.expr, found.accesses, tuple(_told(fold, extents or {}) for fold in found.reductions), given)
    return Definition(current(name), name, here(), explicit).build(body, names, {}, dtype)


def _told(fold: Reduction, extents: Mapping[str, int]) -> Reduction:
    """The fold with extents given to its indices."""
    own = {name: extent for name, extent in extents.items() if name in fold.dims}
    return replace(fold, given=joined(fold.given, own))


def _all_folds(body: Element) -> list[Reduction]:
    """The folds of an expression and those in them."""
    return [one for fold in body.reductions for one in (fold, *_all_folds(fold.body))]


@dataclass
class Definition:
    """Turns an element into operations. ``place`` is the call's "file:line"; ``explicit`` overrides the name."""

    trace: Trace
    name: str
    place: str
    explicit: str

    def build(self, body: Element, out: Sequence[str], named: Mapping[str, int], dtype: str | None) -> Tensor:
        """The tensor with the axes ``out``; ``named`` gives extents to names of the signature.

        Raises ReadOutOfBounds, and UsageError for indices whose range is not said once, or that are neither output nor
        folded.
        """
        try:
            self._check_free(body, out)
            extents = solve(self.name, body, out, named)
        except TapestryError as error:
            if self.place and self.place not in str(error):
                error.add_note(f"called at {self.place}")
            raise
        return self._emit(self.name, body, extents.out, extents.folds, dtype, self.explicit)

    def _check_free(self, body: Element, out: Sequence[str]) -> None:
        for fold in _all_folds(body):
            hidden = [dim for dim in fold.dims if dim in out and dim not in body.free]
            if hidden:
                raise self._folded_output(hidden[0], fold, body, out)
        loose = [name for name in body.free if name not in out]
        if loose:
            sites = [access.place for access in body.accesses if any(expr.dims & set(loose) for expr in access.index)]
            place = next(iter(sites), self.place)
            hint = f"fold them (tp.sum[{', '.join(loose)}]) or declare them after ->"
            what = f"the index {' '.join(loose)} is neither an output axis nor folded"
            raise UsageError(what, where=located(self.name, place), sides={"expression": body}, hint=hint)

    def _folded_output(self, dim: str, fold: Reduction, body: Element, out: Sequence[str]) -> UsageError:
        """An output index that is folded and occurs nowhere else: to be kept, or the same value for all?"""
        what = f"the output index {dim} is folded, and occurs nowhere else"
        sides = {"output": f"[{', '.join(out)}]", "expression": body}
        hint = f"leave {dim} out of the fold, or, for the same value at every {dim}, fold another letter"
        return UsageError(what, where=located(self.name, fold.place), sides=sides, hint=hint)

    def _emit(
        self,
        name: str,
        body: Element,
        scope: Mapping[str, int],
        folds: Folds,
        dtype: str | None,
        explicit: str | None,
    ) -> Tensor:
        """One operation for the expression; one more, without a name of its own, for every inner reduction.

        ``scope`` are the output indices with their extents; a fold's own indices hide those of the same name.
        """
        fold = self._outermost(body, scope)
        own = {dim: folds[fold.key][dim] for dim in fold.dims} if fold else {}
        inner = {**scope, **own}
        ranges = {dim: (0, extent) for dim, extent in inner.items()}
        where = fold.where if fold else ()
        inside = fold.body if fold else body
        expr = self._without_reductions(inside, inner, folds, where)
        if any(access.conditions for access in inside.accesses):
            expr = protected(expr, lambda key: self.trace.tensors[key].record.shape, ranges)
        check_tables(located(name, self.place), indexed(expr, where), ranges)
        dims = [Dim(dim, extent) for dim, extent in (*scope.items(), *own.items())]
        return self.trace.compute(
            name,
            dims,
            expr,
            reduce_dims=fold.dims if fold else (),
            monoid=fold.monoid if fold else None,
            where=where,
            dtype=dtype,
            explicit=explicit or "",
            anonymous=explicit is None,
        )

    def _outermost(self, body: Element, scope: Mapping[str, int]) -> Reduction | None:
        """The fold that the whole expression is, if its indices are called otherwise than the output's."""
        fold = body.reductions[0] if len(body.reductions) == 1 else None
        return fold if fold and body.expr == fold.read and not scope.keys() & set(fold.dims) else None

    def _without_reductions(
        self, body: Element, scope: Mapping[str, int], folds: Folds, where: tuple[Bound, ...]
    ) -> Expr:
        """The expression with every reduction computed by an operation of its own, at the points where it is needed."""
        results: dict[str, Tensor] = {}
        for fold in body.reductions:
            read = fold.read
            free = free_dims(read)
            order = [dim for dim in scope if dim in free]
            needed = tuple(bound for bound in where if bound.expr.dims <= set(free))
            part = Element(read, (), (replace(fold, where=(*fold.where, *needed)),))
            axes = {dim: scope[dim] for dim in order}
            results[fold.key] = self._emit(f"{self.name}.{fold.monoid}", part, axes, folds, None, None)

        def leaf(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in results:
                result = results[node.tensor]
                free = [dim.terms[0][0] for dim in node.index]
                return result.at(tuple(node.index[free.index(axis)] for axis in result.axes))
            return node

        return rewrite(body.expr, leaf) if results else body.expr
