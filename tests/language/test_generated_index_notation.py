"""Index notation on generated expressions, against an oracle that enumerates points in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, num
from tapestry.dsl.define import define
from tapestry.testing import outputs_of, program_of

HORIZON = 160  # values of an output index that the oracle looks at; every window below ends far earlier


# --- the range of an output index -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """``out[p] = sum[r](x[((a*p + b*r + c) // d) % m or not] * w[r], where=lo <= e*p + f*r < hi)``."""

    x: int
    w: int
    a: int
    b: int
    c: int
    d: int
    m: int
    condition: tuple[int, int, int, int] | None

    def index(self, p: Any, r: Any) -> Any:
        found = (self.a * p + self.b * r + self.c) // self.d
        return found % self.m + p // 3 if self.m else found

    def holds(self, p: int, r: int) -> bool:
        if self.condition is None:
            return True
        e, f, lo, hi = self.condition
        return lo <= e * p + f * r < hi


def windows() -> st.SearchStrategy[Window]:
    small = st.integers(-3, 3)
    condition = st.tuples(small, small, st.integers(-4, 4), st.integers(0, 20))
    extents = st.integers(1, 12), st.integers(1, 4)
    return st.builds(
        Window,
        *extents,
        small,
        small,
        st.integers(-3, 9),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 2, 4]),
        st.none() | condition,
    )


def admissible(spec: Window) -> list[bool]:
    def inside(p: int) -> bool:
        return all(0 <= spec.index(p, r) < spec.x for r in range(spec.w) if spec.holds(p, r))

    return [inside(p) for p in range(HORIZON)]


@given(windows())
def test_an_output_has_exactly_its_admissible_range(spec: Window) -> None:
    @tp.op
    def windowed(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "p"]:
        p, r = tp.indices("p", r=spec.w)
        where = None
        if spec.condition is not None:
            e, f, lo, hi = spec.condition
            where = (lo <= e * p + f * r) & (e * p + f * r < hi)
        return tp.sum[r](x[spec.index(p, r)] * w[r], where=where)

    assume(spec.condition is None or any(spec.condition[:2]))
    assume(spec.a or spec.m or (spec.condition and spec.condition[0]))  # p occurs
    # A condition that no point meets says nothing of a read that it does not speak of.
    assume(any(spec.holds(p, r) for p in range(HORIZON) for r in range(spec.w)))
    rng = np.random.default_rng(0)
    x, w = rng.integers(1, 9, spec.x), rng.integers(1, 9, spec.w)
    fits = admissible(spec)
    extent = fits.index(False) if False in fits else None
    if extent and not any(fits[extent:]):
        want = [
            sum(int(x[spec.index(p, r)]) * int(w[r]) for r in range(spec.w) if spec.holds(p, r)) for p in range(extent)
        ]
        np.testing.assert_array_equal(outputs_of(windowed, x=x, w=w)[0], want)
        return
    message = ""
    try:
        program_of(windowed, x=x, w=w)
    except tp.UsageError as error:
        message = str(error)
    allowed = ["nothing bounds the index p"] if extent is None else ["two readings", "outside its shape"]
    assert any(words in message for words in allowed), message
    if extent is not None and not any(fits):
        assert "outside its shape" in message


# --- scopes of folds ------------------------------------------------------------------------------------------------

LETTERS = "ij"
SHAPES = {"a": (3,), "b": (4,), "c": (3, 4), "d": (4, 4), "e": ()}
Ast = tuple[Any, ...]


def expressions(depth: int) -> st.SearchStrategy[Ast]:
    """("read", tensor, letters), ("add"|"multiply", left, right), ("sum"|"max", letter, body)."""
    letter = st.sampled_from(LETTERS)
    reads = st.sampled_from(sorted(SHAPES)).flatmap(
        lambda name: st.tuples(*[letter] * len(SHAPES[name])).map(lambda letters: ("read", name, letters))
    )
    if depth == 0:
        return reads
    smaller = expressions(depth - 1)
    return st.one_of(
        reads,
        st.tuples(st.sampled_from(["add", "multiply"]), smaller, smaller),
        st.tuples(st.sampled_from(["sum", "max"]), letter, smaller),
        st.tuples(st.sampled_from(["sum", "max"]), letter, smaller),
    )


def free(tree: Ast) -> set[str]:
    if tree[0] == "read":
        return set(tree[2])
    return free(tree[2]) - {tree[1]} if tree[0] in ("sum", "max") else free(tree[1]) | free(tree[2])


def along(tree: Ast, letter: str) -> set[int]:
    """Extents of the axes read with a letter that is free in the expression."""
    if tree[0] == "read":
        return {SHAPES[tree[1]][k] for k, one in enumerate(tree[2]) if one == letter}
    if tree[0] in ("sum", "max"):
        return set() if tree[1] == letter else along(tree[2], letter)
    return along(tree[1], letter) | along(tree[2], letter)


def well_formed(tree: Ast) -> bool:
    """Every fold runs along axes of one extent."""
    if tree[0] == "read":
        return True
    if tree[0] in ("sum", "max"):
        return len(along(tree[2], tree[1])) == 1 and well_formed(tree[2])
    return well_formed(tree[1]) and well_formed(tree[2])


def value(tree: Ast, arrays: Mapping[str, np.ndarray], at: Mapping[str, int]) -> int:
    if tree[0] == "read":
        return int(arrays[tree[1]][tuple(at[letter] for letter in tree[2])])
    if tree[0] in ("sum", "max"):
        (extent,) = along(tree[2], tree[1])
        parts = [value(tree[2], arrays, {**at, tree[1]: k}) for k in range(extent)]
        return sum(parts) if tree[0] == "sum" else max(parts)
    left, right = value(tree[1], arrays, at), value(tree[2], arrays, at)
    return left + right if tree[0] == "add" else left * right


def written(tree: Ast, tensors: Mapping[str, Tensor], letters: Mapping[str, Any]) -> Any:
    if tree[0] == "read":
        x = tensors[tree[1]]
        return x[tuple(letters[one] for one in tree[2])] if x.shape else x + letters["i"] * 0
    if tree[0] in ("sum", "max"):
        return getattr(tp, tree[0])[letters[tree[1]]](written(tree[2], tensors, letters))
    left, right = written(tree[1], tensors, letters), written(tree[2], tensors, letters)
    return left + right if tree[0] == "add" else left * right


@given(expressions(4))
def test_every_fold_has_indices_of_its_own(tree: Ast) -> None:
    outer = sorted(free(tree))
    assume(tree[0] != "read")
    extents = {letter: min(along(tree, letter)) for letter in outer}

    rng = np.random.default_rng(1)
    arrays = {name: rng.integers(-2, 3, shape) for name, shape in SHAPES.items()}

    def body(tensors: Mapping[str, Tensor]) -> Tensor:
        names = dict(zip(LETTERS, tp.indices(" ".join(LETTERS)), strict=True))
        out = [tp.indices(**{letter: extent}) for letter, extent in extents.items()]
        return define("f", out, written(tree, tensors, names))

    if not well_formed(tree):
        message = ""
        try:
            program_of(lambda *tensors: body(dict(zip(arrays, tensors, strict=True))), **arrays)
        except tp.UsageError as error:
            message = str(error)
        assert "the fold index" in message, message
        return
    (got,) = outputs_of(lambda *tensors: body(dict(zip(arrays, tensors, strict=True))), **arrays)
    points = product(*(range(extents[letter]) for letter in outer))
    want = [value(tree, arrays, dict(zip(outer, point, strict=True))) for point in points]
    np.testing.assert_array_equal(got.ravel(), want)
