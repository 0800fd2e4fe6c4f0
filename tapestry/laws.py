"""Whether a monoid keeps the laws that it claims: its entry evaluated on values, a counterexample where it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .expr import FUNCTIONS, Call, Cast, Const, Expr, Monoid, Read, fold_all

Array = NDArray[Any]
State = tuple[Array, ...]
SIZE = 4096  # triples of records that are tried
CLOSE = 1e-6


def counterexample(monoid: Monoid) -> str | None:
    """A witness that a law fails which the monoid claims, or needs to be one; None where all hold.

    Laws are tried on records of one and of several points, of whole numbers and of fractions; what rounds is compared
    to within 1e-6.
    """
    for whole in (True, False):
        records = [_records(monoid, np.random.default_rng(seed), whole) for seed in range(3)]
        with np.errstate(all="ignore"):
            found = _failing(monoid, *records)
        if found is not None:
            return found
    return None


@lru_cache(maxsize=1024)
def _known(monoid: Monoid) -> str | None:
    return counterexample(monoid)


def demand_associative(monoid: Monoid, where: str | None = None) -> None:
    """UsageError, with a witness, where a fold may not be grouped."""
    found = _known(monoid)
    if found is not None:
        hint = "a scan groups its points: give the monoid a combine that is associative, and an identity"
        raise UsageError(f"{monoid.name} is no monoid", where=where, witness=found, hint=hint)


def _failing(monoid: Monoid, a: State, b: State, c: State) -> str | None:
    def both(x: State, y: State) -> State:
        return combined(monoid, x, y)

    nothing = tuple(
        np.full(x.shape, part.identity, x.dtype) for part, x in zip(monoid.components, a, strict=True)
    )  # fmt: skip
    one = tuple(np.where(np.arange(SIZE) < SIZE // 2, x, y) for x, y in zip(b, nothing, strict=True))
    tried: list[tuple[str, State, State]] = [
        ("(a b) c = a (b c)", both(both(a, b), c), both(a, both(b, c))),
        ("a identity = a", both(a, nothing), a),
        ("identity a = a", both(nothing, a), a),
    ]
    if any(part.step is not None for part in monoid.components):  # the first half are records of single points
        tried.append(("a step to b = a b", stepped(monoid, a, one), both(a, one)))
    if "commutative" in monoid.laws:
        tried.append(("a b = b a", both(a, b), both(b, a)))
    if monoid.idempotent:
        tried.append(("a a = a", both(a, a), a))
    for law, left, right in tried:
        wrong = ~np.logical_and.reduce([_close(x, y) for x, y in zip(left, right, strict=True)])
        if wrong.any():
            at = int(np.argmax(wrong))
            given = "  ".join(f"{name}={_spoken(state, at)}" for name, state in zip("abc", (a, b, c), strict=True))
            return f"{law} fails at {given}: {_spoken(left, at)} and {_spoken(right, at)}"
    return None


def _close(x: Array, y: Array) -> Array:
    near: Array = np.isclose(x.astype(float), y.astype(float), rtol=CLOSE, atol=CLOSE, equal_nan=True)
    return near


def _spoken(state: State, at: int) -> str:
    numbers = [f"{float(part[at]):.6g}" for part in state]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


def _records(monoid: Monoid, rng: np.random.Generator, whole: bool) -> State:
    """Records of single points, and, in the second half, of two."""
    first, second = (_lifted(monoid, rng, whole) for _ in range(2))
    more = combined(monoid, first, second)
    half = np.arange(SIZE) < SIZE // 2
    return tuple(np.where(half, x, y) for x, y in zip(first, more, strict=True))


def _lifted(monoid: Monoid, rng: np.random.Generator, whole: bool) -> State:
    def numbers() -> Array:
        return rng.integers(-6, 7, SIZE).astype(float) if whole else rng.uniform(-3, 3, SIZE)

    named = {"x": numbers(), "y": numbers(), "i": rng.permutation(SIZE).astype(float)}
    return tuple(
        np.broadcast_to(np.asarray(_values([c.lift], {**named, "e": np.asarray(float(c.identity))})[0], float), (SIZE,))
        for c in monoid.components
    )


def combined(monoid: Monoid, a: State, b: State) -> State:
    """Two states of records, element by element, in f64."""
    return _evaluated(monoid, [component.combine for component in monoid.components], a, b)


def stepped(monoid: Monoid, a: State, b: State) -> State:
    """A state of records and one of single points, element by element, in f64."""
    return _evaluated(monoid, [component.step or component.combine for component in monoid.components], a, b)


def _evaluated(monoid: Monoid, exprs: Sequence[Expr], a: State, b: State) -> State:
    named = {f"{side}.{c.name}": x for side, state in (("a", a), ("b", b))
             for c, x in zip(monoid.components, state, strict=True)}  # fmt: skip
    return tuple(np.broadcast_to(np.asarray(value, float), (SIZE,)) for value in _values(exprs, named))


def _values(exprs: Sequence[Expr], named: Mapping[str, Array]) -> list[Any]:
    def rule(node: Expr, args: tuple[Any, ...]) -> Any:
        if isinstance(node, Read):
            return named[node.tensor]
        if isinstance(node, Const):
            return node.value
        if isinstance(node, Cast):
            return args[0]
        assert isinstance(node, Call)
        return _called(node.function, args)

    return fold_all(exprs, rule)


def _called(function: str, args: tuple[Any, ...]) -> Array:
    entry = FUNCTIONS[function]
    arrays = [np.asarray(arg, float) for arg in np.broadcast_arrays(*args)]
    if entry.truths == "only":
        arrays = [array != 0 for array in arrays]
    elif entry.result == "branch":
        arrays[0] = arrays[0] != 0
    out = np.empty(arrays[0].shape, bool if entry.result == "bool" else float)
    body: Callable[..., Any] = entry.compute
    body(*arrays, out=out)
    return out
