"""Folding of repeated stretches is lossless, whatever is in the list, and reading a folded list is strict."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry.planner.format.fold import MOST_BYTES, fold, unfold

# Texts that numbers could be mistaken in: zeros in front, digits of other scripts, points, exponents, too many digits.
TEXTS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        ["007", "L0", "L-1", "1.0", "1e5", "0x10", "٣1", "1٣", "²", "9" * 40, "repeat", '"', "\\u0041", "\n1"]
    ),
    st.builds("{}{}".format, st.sampled_from(["L", "layers.", "-", "0", "1."]), st.integers(-3, 120)),
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 12), st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def normal(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


@given(st.lists(JSON, max_size=12))
@example([{"repeat": 2, "items": [1], "step": [[1]]}])
@example([f"x{k:03}" for k in range(95, 105)])
@example([0.5 * k for k in range(10)])
@example([k - 5 for k in range(10)])
@example([True, True, True, True, True, True])
def test_unfolding_undoes_folding(items: list[Any]) -> None:
    assert unfold(fold(items)) == normal(items)


@given(
    st.lists(JSON, min_size=1, max_size=3), st.lists(JSON, max_size=2), st.integers(1, 9), st.lists(JSON, max_size=2)
)
def test_repeated_stretches_survive(period: list[Any], before: list[Any], count: int, after: list[Any]) -> None:
    items = [*before, *period * count, *after]
    assert unfold(fold(items)) == normal(items)


@given(
    first=st.lists(st.integers(-50, 50), min_size=1, max_size=3),
    step=st.integers(-20, 20),
    count=st.integers(1, 12),
    name=TEXTS,
)
def test_growing_numbers_survive(first: list[int], step: int, count: int, name: str) -> None:
    items = [{"name": f"{name}{a + step * k}", "at": a + step * k, "of": [k, -k]} for k in range(count) for a in first]
    assert unfold(fold(items)) == normal(items)


def layer(k: int) -> list[Any]:
    """Two tasks of one layer: ids, a name and an offset that grow by a constant; one number that does not grow."""
    return [{"id": 2 * k, "op": f"layers.{k}.q", "waits": [7]}, {"id": 2 * k + 1, "offset": 4096 * k, "scale": 0.125}]


def test_layers_are_written_once() -> None:
    items = [task for k in range(80) for task in layer(k)]
    assert fold(items) == [{"repeat": 80, "items": layer(0), "step": [[2, 1], [2, 4096]]}]


def test_a_number_that_breaks_the_step_ends_the_stretch() -> None:
    items: list[Any] = [{"id": k} for k in (0, 1, 2, 3, 4, 5, 60, 61, 62, 63, 64)]
    assert fold(items) == [
        {"repeat": 6, "items": [{"id": 0}], "step": [[1]]},
        {"repeat": 5, "items": [{"id": 60}], "step": [[1]]},
    ]


def test_what_is_written_does_not_grow_with_depth() -> None:
    sizes = [len(json.dumps(fold([task for k in range(n) for task in layer(k)]))) for n in (10, 90)]
    assert sizes[0] == sizes[1]


GOOD = {"repeat": 3, "items": [{"id": 1}], "step": [[1]]}


@pytest.mark.parametrize(
    "change",
    [
        {"repeat": 0},
        {"repeat": -1},
        {"repeat": True},
        {"repeat": 1.5},
        {"repeat": "3"},
        {"items": []},
        {"items": {"id": 1}},
        {"step": []},
        {"step": [[1], [1]]},
        {"step": [[1, 1]]},
        {"step": [1]},
        {"step": [[0.5]]},
        {"step": [["1"]]},
        {"step": [[True]]},
        {"more": 1},
    ],
    ids=str,
)
def test_malformed_stretches_are_refused(change: dict[str, Any]) -> None:
    assert unfold([GOOD]) == [{"id": 1}, {"id": 2}, {"id": 3}]
    with pytest.raises(ValueError, match=r"repeated stretch|step"):
        unfold([{**GOOD, **change}])


@pytest.mark.parametrize("missing", ["items", "step"])
def test_incomplete_stretches_are_refused(missing: str) -> None:
    with pytest.raises(ValueError, match="repeated stretch"):
        unfold([{key: value for key, value in GOOD.items() if key != missing}])


@pytest.mark.parametrize("count", [MOST_BYTES, 10**18])
def test_a_bomb_is_refused_before_it_goes_off(count: int) -> None:
    with pytest.raises(ValueError, match="expand to more than"):
        unfold([{**GOOD, "repeat": count}])


def test_many_small_bombs_are_one() -> None:
    stretch = {**GOOD, "repeat": MOST_BYTES // 300}
    with pytest.raises(ValueError, match="expand to more than"):
        unfold([stretch] * 5)


def test_a_step_that_leaves_json_behind_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        unfold([{"repeat": 3, "items": [{"id": -1}], "step": [[-1]]}])
