"""Results in the place of what they are made of: element for element passes, everything else is told apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry.expr import Affine, Bound
from tapestry.planner.check import Code, check
from tapestry.planner.check.listing import LISTED
from tapestry.planner.format.document import Document
from tapestry.reference import evaluate

from . import writing
from .harm import drawn, harm
from .rewriting import N, folded, laid_out, long, of_dtype, read_later, sent_meanwhile, square, written_over

A, B = Affine.dim("a"), Affine.dim("b")
PAIRS = "0:4,0:1|3:4", "0:4,1:3"

RIGHT: dict[str, Callable[[], Document]] = {
    "each element": lambda: written_over(A),
    "each element twice": lambda: written_over(A, A),
    "some of the elements": lambda: written_over(A, where=(Bound(A, 1, 3),)),
    "an index that wraps nowhere": lambda: written_over(A % N),
    "the digits of an index": lambda: written_over(2 * (A // 2) + A % 2),
    "a square of its elements": lambda: square((A, B), (A, B)),
    "shards as they are held": lambda: laid_out(["0:4,0:2", "0:4,2:4"], ["0:4,0:2", "0:4,2:4"]),
    "runs that touch": lambda: laid_out(["0:4,0:2|2:4", "empty"], ["0:4,0:4", "empty"]),
    "a gather that is over": lambda: sent_meanwhile([0]),
}
NOT_ELEMENT_FOR_ELEMENT: dict[str, Callable[[], Document]] = {
    "the element before": lambda: written_over(A - 1),
    "the element and the next": lambda: written_over(A, A + 1),
    "the next, where there is one to lose": lambda: written_over(A + 1, where=(Bound(A, 2, 3),)),
    "round by one": lambda: written_over((A + 1) % N),
    "backwards": lambda: written_over(N - 1 - A),
    "transposed": lambda: square((A, B), (B, A)),
    "the first of its row": lambda: square((A, B), (A, Affine())),
    "an operand of another width": lambda: of_dtype("int32"),
    "an operand of another dtype": lambda: of_dtype("f64"),
    "elements that are stored elsewhere": lambda: laid_out(["0:4,0:4", "empty"], ["0:4,0:2", "0:4,2:4"]),
    "stored with a gap": lambda: laid_out(PAIRS, ["0:4,0:4", "0:4,1:3"], PAIRS),
    "a fold": folded,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_read_where_it_is_written_passes(name: str) -> None:
    document = RIGHT[name]()
    assert check(document).ok, str(check(document))
    program = writing.read(document)
    inputs = drawn(program)
    assert harm(document, program, inputs, evaluate(program, inputs)) is None


@pytest.mark.parametrize("name", NOT_ELEMENT_FOR_ELEMENT)
def test_everything_else_is_refused(name: str) -> None:
    assert Code.IN_PLACE in check(NOT_ELEMENT_FOR_ELEMENT[name]()).codes


def test_a_read_of_another_task_is_a_race() -> None:
    assert Code.RACE in check(sent_meanwhile([])).codes


def test_what_is_read_afterwards_is_lost() -> None:
    assert check(read_later()).codes == {Code.OVERLAP}


def test_only_what_overlaps_exactly_may_be_named() -> None:
    """One element further on, it is another element's place that is written."""
    document = written_over(A)
    moved = tuple(replace(b, offset=writing.CELL) if b.name == "y" else b for b in document.buffers)
    (verdict,) = (v for v in check(replace(document, buffers=moved)).verdicts if v.code is Code.IN_PLACE)
    assert verdict.message == "f writes over buffer x, which begins at 0 of hbm, and buffer y at 8 of hbm"


def test_the_verdict_shows_a_point() -> None:
    (verdict,) = check(written_over((A + 1) % N)).verdicts
    assert str(verdict) == (
        "in_place: task 0, rank 0, tensor x: f writes over buffer x, of which a point reads another element than it "
        "writes      witness: (0,)"
    )


@pytest.mark.parametrize("shift", [0, 1])
def test_more_points_than_are_listed(shift: int) -> None:
    """Digits of an index, put together again: isl is asked."""
    assert (Code.IN_PLACE in check(long(2 * LISTED, 7 * (A // 7) + A % 7 + shift)).codes) == bool(shift)


@given(
    factors=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 2)), min_size=1, max_size=2),
    low=st.integers(0, 3),
    high=st.integers(0, 4),
)
def test_what_passes_does_no_harm(factors: list[tuple[int, int, int]], low: int, high: int) -> None:
    """Any sums of an index and its digits: in whatever order the points come, the values are right or it is refused."""
    reads = [f * A + g * (A // 2) + c for f, g, c in factors]
    document = written_over(*reads, where=(Bound(A, low, high),))
    stays = all(r.evaluate({"a": a}) in (a, *range(-9, 0), *range(N, 20)) for r in reads for a in range(low, high))
    assert check(document).ok == stays
    program = writing.read(document)
    inputs = drawn(program)
    if stays:
        assert harm(document, program, inputs, evaluate(program, inputs), seeds=5) is None
