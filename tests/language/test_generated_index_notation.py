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


# --- guards, choices and conditions ---------------------------------------------------------------------------------

RANGES = {"i": 4, "j": 3, "s": 3}


class Outside(Exception):
    """The oracle read outside of a tensor."""


def positions() -> st.SearchStrategy[Ast]:
    """("index", coefficients of i, j and s, constant, divisor, modulus or 0)."""
    small = st.integers(-2, 2)
    return st.tuples(
        st.just("index"),
        st.tuples(small, small, small),
        st.integers(-2, 4),
        st.integers(1, 3),
        st.sampled_from([0, 0, 3]),
    )


def at_point(tree: Ast, point: Mapping[str, Any]) -> Any:
    """An index expression, at a point or of indices."""
    _, coefficients, constant, divisor, modulus = tree
    found = constant + sum(c * point[name] for c, name in zip(coefficients, "ijs", strict=True) if c)
    if divisor > 1:
        found = found // divisor
    return found % modulus if modulus else found


def conditions() -> st.SearchStrategy[Ast]:
    """("condition", index, least, end)."""
    return st.tuples(st.just("condition"), positions(), st.integers(-2, 2), st.integers(0, 5))


def elements(depth: int) -> st.SearchStrategy[Ast]:
    reads = st.one_of(
        st.tuples(st.just("x"), positions()),
        st.tuples(st.just("get"), positions(), st.integers(-3, 3)),
        st.tuples(st.just("m"), positions(), positions()),
        st.tuples(st.just("get m"), positions(), positions(), st.integers(-3, 3)),
    )
    if depth == 0:
        return reads
    smaller = elements(depth - 1)
    return st.one_of(
        st.tuples(st.just("choose"), conditions(), smaller, smaller),
        st.tuples(st.just("add"), smaller, smaller),
        reads,
    )


def met(tree: Ast, point: Mapping[str, int]) -> bool:
    return bool(tree[2] <= at_point(tree[1], point) < tree[3])


def element_at(tree: Ast, x: np.ndarray, m: np.ndarray, point: Mapping[str, int]) -> int:
    """What an element is at a point, nothing evaluated that a choice leaves out."""
    if tree[0] == "choose":
        return element_at(tree[2] if met(tree[1], point) else tree[3], x, m, point)
    if tree[0] == "add":
        return element_at(tree[1], x, m, point) + element_at(tree[2], x, m, point)
    tensor = m if "m" in tree[0] else x
    index = tuple(at_point(part, point) for part in tree[1:] if isinstance(part, tuple))
    if all(0 <= k < extent for k, extent in zip(index, tensor.shape, strict=True)):
        return int(tensor[index])
    if "get" in tree[0]:
        return int(tree[-1])
    raise Outside


def condition_of(tree: Ast, letters: Mapping[str, Any]) -> Any:
    found = letters["i"] * 0 + at_point(tree[1], letters)
    return (tree[2] <= found) & (found < tree[3])


def element_of(tree: Ast, x: Tensor, m: Tensor, letters: Mapping[str, Any]) -> Any:
    if tree[0] == "choose":
        branches = (element_of(part, x, m, letters) for part in tree[2:])
        return tp.where(condition_of(tree[1], letters), *branches)
    if tree[0] == "add":
        return element_of(tree[1], x, m, letters) + element_of(tree[2], x, m, letters)
    tensor = m if "m" in tree[0] else x
    index = tuple(letters["i"] * 0 + at_point(part, letters) for part in tree[1:] if isinstance(part, tuple))
    return tensor.get(*index, fill=tree[-1]) if "get" in tree[0] else tensor[index]


@given(elements(2), st.none() | conditions(), st.sampled_from(["sum", "max"]))
def test_guards_choices_and_conditions_are_what_they_say(tree: Ast, where: Ast | None, monoid: str) -> None:
    """Either the program has the values of the enumeration, or it is refused; refused for no less than a read outside.

    A read in the branch that is taken where a condition of two sides fails is refused though no point would use it.
    """
    rng = np.random.default_rng(2)
    x, m = rng.integers(-9, 10, 5).astype(np.int32), rng.integers(-9, 10, (3, 4)).astype(np.int32)

    @tp.op
    def f(x: num[Tensor, "a"], m: num[Tensor, "b c"]) -> num[Tensor, "i j"]:
        i, j, s = tp.indices(**RANGES)
        letters = {"i": i, "j": j, "s": s}
        condition = None if where is None else condition_of(where, letters)
        found: Tensor = getattr(tp, monoid)[s](element_of(tree, x, m, letters), where=condition)
        return found

    identity = 0 if monoid == "sum" else -(2**31)
    want = np.full((RANGES["i"], RANGES["j"]), identity, np.int64)
    outside = False
    try:
        for i, j, s in product(*(range(extent) for extent in RANGES.values())):
            point = {"i": i, "j": j, "s": s}
            if where is None or met(where, point):
                one = element_at(tree, x, m, point)
                want[i, j] = want[i, j] + one if monoid == "sum" else max(want[i, j], one)
    except Outside:
        outside = True
    try:
        (got,) = outputs_of(f, x=x, m=m)
    except tp.ReadOutOfBounds:
        assert outside or "choose" in str(tree)
        return
    assert not outside
    np.testing.assert_array_equal(got, want)
