"""Folds. A state is one array for each component of the monoid's record.

Floats are added up in float64 whatever the accumulator, so that the oracle is the more precise side; what one shard
hands to the next is rounded to the accumulator's dtype. The usual monoids have textbook forms here; others are folded
by the expressions of their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import DTYPES
from ..expr import MONOIDS, Call, Cast, Const, Expr, Read, fold_all
from .expressions import Value, call
from .values import Array, round_to, widen

State = tuple[Array, ...]

UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


class Fold:
    """One operation's fold: a monoid, the dtype of what is folded and that of the result, and how far other executions
    may be off (`rounding.share_of_terms`).
    """

    def __init__(self, monoid: str, value: str, stored: str, share: float = 0.0) -> None:
        self.name, self.monoid, self.stored, self.share = monoid, MONOIDS[monoid], stored, share
        self.dtypes = self.monoid.dtypes_for(value, stored)
        self.whole = self.monoid.packed and not self.monoid.several  # the record of a block kernel, in one array

    def _held(self, dtype: str) -> np.dtype[Any]:
        """The type in which a component is held here."""
        kind = DTYPES[dtype].kind
        return np.dtype({"bool": np.bool_, "int": np.int64, "float": np.float64}[kind])

    def identity(self, shape: tuple[int, ...]) -> State:
        """The record of a fold over nothing, at every place."""
        if self.whole:
            state = np.zeros(shape)
            state[..., -1] = -np.inf
            return (state,)
        return tuple(
            np.full(shape, component.identity_in(dtype), self._held(dtype))
            for component, dtype in zip(self.monoid.components, self.dtypes, strict=True)
        )

    def lift(self, value: Value, position: Array, second: Value | None = None) -> State:
        """The records of single points; ``second`` is that of a pair."""
        named = {"x": value, "y": second or value, "i": Value(position, "int64")}
        found = []
        for component, dtype in zip(self.monoid.components, self.dtypes, strict=True):
            nothing = Value(np.asarray(component.identity_in(dtype), self._held(dtype)), dtype)
            array = interpret(component.lift, {**named, "e": nothing}).array
            found.append((array if component.unrounded else round_to(array, dtype)).astype(self._held(dtype)))
        return tuple(found)

    def reduce(self, state: State, axes: tuple[int, ...]) -> State:
        """The records folded over some axes, in the order of the points."""
        ufunc = UFUNCS.get(self.name)
        if ufunc is not None:
            start = self.identity(())[0].item()
            return (np.asarray(ufunc.reduce(state[0], axis=axes, initial=start)),)
        kept = [k for k in range(state[0].ndim) if k not in axes]
        rows = [array.transpose([*axes, *kept]) for array in state]
        shape = tuple(state[0].shape[k] for k in kept)
        return self._pairwise(tuple(row.reshape(-1, *shape) for row in rows), shape)

    def _pairwise(self, rows: State, shape: tuple[int, ...]) -> State:
        """Neighbours combined until one is left."""
        if not len(rows[0]):
            return self.identity(shape)
        while len(rows[0]) > 1:
            even = len(rows[0]) // 2 * 2
            merged = self.combine(tuple(row[0:even:2] for row in rows), tuple(row[1:even:2] for row in rows))
            rows = tuple(np.concatenate([new, row[even:]]) for new, row in zip(merged, rows, strict=True))
        return tuple(row[0] for row in rows)

    def combine(self, a: State, b: State) -> State:
        """Two states, element by element, ``a`` the earlier."""
        own = _OWN.get(self.name)
        if own is not None:
            return (own(a[0], b[0]),)
        if self.name in UFUNCS:
            return (np.asarray(UFUNCS[self.name](a[0], b[0])),)
        named = {**self._named("a", a), **self._named("b", b)}
        found = interpret_all([component.combine for component in self.monoid.components], named)
        return tuple(value.array.astype(held.dtype) for value, held in zip(found, a, strict=True))

    def partial(self, state: State) -> State:
        """A state as one shard hands it on: rounded to the dtypes of the record."""
        if self.whole:
            return (widen(round_to(state[0], self.stored), self.stored).astype(np.float64),)
        return tuple(
            round_to(array, dtype).astype(array.dtype) for array, dtype in zip(state, self.dtypes, strict=True)
        )

    def finish(self, state: State) -> Array:
        """What is stored; of several results, one after another along the last axis."""
        if self.monoid.several:
            return np.stack(state, axis=-1)
        if self.monoid.finish is None or self.name in UFUNCS:
            return state[0]
        return interpret(self.monoid.finish, self._named("r", state)).array

    def _named(self, record: str, state: State) -> dict[str, Value]:
        """Components as values; floats are computed with in float64."""
        return {
            f"{record}.{component.name}": Value(array, "f64" if array.dtype.kind == "f" else dtype)
            for component, dtype, array in zip(self.monoid.components, self.dtypes, state, strict=True)
        }


def interpret(expr: Expr, named: Mapping[str, Value]) -> Value:
    """An expression of a monoid's entry, over named values."""
    return interpret_all([expr], named)[0]


def interpret_all(exprs: Sequence[Expr], named: Mapping[str, Value]) -> list[Value]:
    """Some expressions of a monoid's entry, over named values."""

    def rule(node: Expr, args: tuple[Value, ...]) -> Value:
        if isinstance(node, Read):
            return named[node.tensor]
        if isinstance(node, Call):
            return call(node.function, list(args))
        if isinstance(node, Cast):
            return Value(widen(round_to(args[0].array, node.dtype), node.dtype), node.dtype)
        assert isinstance(node, Const)
        dtype = "bool" if isinstance(node.value, bool) else "int32" if isinstance(node.value, int) else "f32"
        return Value(np.asarray(node.value, dtype=np.float64 if dtype == "f32" else None), dtype, True)

    return fold_all(exprs, rule)


def _merge_softmax(a: Array, b: Array) -> Array:
    """States [..., (o, l, m)]: m = max(m1, m2); l and o are scaled by exp(m_k - m) and added; no key seen counts 0."""
    m = np.maximum(a[..., -1:], b[..., -1:])
    finite = np.where(np.isfinite(m), m, 0.0)
    sums = a[..., :-1] * np.exp(a[..., -1:] - finite) + b[..., :-1] * np.exp(b[..., -1:] - finite)
    return np.concatenate([sums, m], axis=-1)


_OWN: dict[str, Callable[[Array, Array], Array]] = {"online_softmax": _merge_softmax}
