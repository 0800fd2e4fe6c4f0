"""Scopes of index notation: each fold has indices of its own, whatever they are called.

An expression is surveyed once. Every index gets a symbol: its name, or, where another index of the operation has that,
the name with a number behind ``#``. Questions about ranges are asked of symbols, so that the letter i of one sum never
meets the letter i of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..expr import Affine, Bound
from .element import Access, Element, Reduction

Symbols = Mapping[str, str]


@dataclass(frozen=True)
class Site:
    """One access of the operation, said in symbols, with the conditions under which it happens."""

    access: Access
    index: tuple[Affine, ...]
    conditions: tuple[Bound, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.tensor.shape

    def alone(self, symbol: str) -> list[int]:
        """The axes that it reads with this index and nothing else."""
        return [k for k, expr in enumerate(self.index) if expr == Affine.dim(symbol)]


@dataclass(frozen=True)
class Fold:
    """One fold of the operation with the symbols of its indices."""

    reduction: Reduction
    symbols: dict[str, str]


@dataclass
class Survey:
    """Every access and every fold of an expression whose output indices are ``out``."""

    out: Sequence[str]
    sites: list[Site] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)

    @property
    def reads(self) -> list[Site]:
        """The accesses that must stay inside their tensors."""
        return [site for site in self.sites if not site.access.guarded]

    def visit(self, body: Element, scope: Symbols, conditions: tuple[Bound, ...] = ()) -> Survey:
        """Add what is in an element; ``scope`` gives the symbols of its free indices."""
        for access in body.accesses:
            index = tuple(renamed(expr, scope) for expr in access.index)
            self.sites.append(Site(access, index, (*conditions, *_renamed_all(access.conditions, scope))))
        for reduction in body.reductions:
            own = {name: self._fresh(name) for name in reduction.dims}
            self.folds.append(Fold(reduction, own))
            inner = {**scope, **own}
            self.visit(reduction.body, inner, (*conditions, *_renamed_all(reduction.where, inner)))
        return self

    def _fresh(self, name: str) -> str:
        taken = {*self.out, *(symbol for fold in self.folds for symbol in fold.symbols.values())}
        return next(s for s in (name, *(f"{name}#{k}" for k in range(2, len(taken) + 3))) if s not in taken)


def survey(body: Element, out: Sequence[str]) -> Survey:
    """Every access and every fold of an expression whose free indices are output axes."""
    return Survey(out).visit(body, {name: name for name in out})


def renamed(expr: Affine, symbols: Symbols) -> Affine:
    """The expression in symbols."""
    changed = {name: Affine.dim(symbol) for name, symbol in symbols.items() if name != symbol and name in expr.dims}
    return expr.substitute(changed) if changed else expr


def _renamed_all(bounds: Sequence[Bound], symbols: Symbols) -> tuple[Bound, ...]:
    return tuple(Bound(renamed(bound.expr, symbols), bound.lo, bound.hi) for bound in bounds)


def letter_of(symbol: str) -> str:
    """The user's name of an index."""
    return symbol.partition("#")[0]
