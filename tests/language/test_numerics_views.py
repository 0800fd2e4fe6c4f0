"""Views against NumPy, alone and composed at random; they must compute nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.testing import outputs_of, program_of

View = Callable[[Any], Any]


def check(mine: View, numpys: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> None:
    """The view of x + 0 is NumPy's, and only the output is copied."""
    (got,) = outputs_of(mine, x=x)
    np.testing.assert_array_equal(got, numpys(x))


def around(x: np.ndarray, value: int) -> np.ndarray:
    return np.pad(x, 1, constant_values=value)


SIMPLE: list[tuple[View, Callable[[np.ndarray], np.ndarray]]] = [
    (lambda x: x.T, lambda x: x.T),
    (lambda x: tp.transpose(x, (1, 2, 0)), lambda x: x.transpose(1, 2, 0)),
    (lambda x: tp.transpose(x, ("d2", "d0", "d1")), lambda x: x.transpose(2, 0, 1)),
    (lambda x: x[1], lambda x: x[1]),
    (lambda x: x[..., -1], lambda x: x[..., -1]),
    (lambda x: x[:, 1:4:2], lambda x: x[:, 1:4:2]),
    (lambda x: x[::-1, :, ::-2], lambda x: x[::-1, :, ::-2]),
    (lambda x: x[0, None, ..., 2:], lambda x: x[0, None, ..., 2:]),
    (lambda x: x.reshape(4, 15), lambda x: x.reshape(4, 15)),
    (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
    (lambda x: x.reshape((15, 4)), lambda x: x.reshape((15, 4))),
    (lambda x: x.reshape(2, -1, 3), lambda x: x.reshape(2, -1, 3)),
    (lambda x: x.reshape(5, 12), lambda x: x.reshape(5, 12)),
    (lambda x: tp.pad(x, 1, value=7), lambda x: np.pad(x, 1, constant_values=7)),
    (lambda x: tp.pad(x, [0, (2, 0), (0, 1)]), lambda x: np.pad(x, [(0, 0), (2, 0), (0, 1)])),
    (lambda x: tp.pad(x, d1=(-1, 2)), lambda x: np.pad(x[:, 1:], [(0, 0), (0, 2), (0, 0)])),
    (lambda x: tp.concat([x, x[:, :2], x], 1), lambda x: np.concatenate([x, x[:, :2], x], 1)),
    (lambda x: tp.concat([x, tp.reverse(x, 0)], "d0"), lambda x: np.concatenate([x, x[::-1]], 0)),
    (lambda x: tp.reverse(x, 2), lambda x: x[:, :, ::-1]),
    (lambda x: tp.broadcast_to(x[:, :1], (2, 3, 4, 5)), lambda x: np.broadcast_to(x[:, :1], (2, 3, 4, 5))),
    (lambda x: tp.pad(tp.pad(x, 1, value=7), 1, value=9), lambda x: around(around(x, 7), 9)),
    (lambda x: tp.pad(x, 1, value=7)[::2, 1:].reshape(-1)[::-1], lambda x: around(x, 7)[::2, 1:].reshape(-1)[::-1]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(SIMPLE)))
def test_views_are_numpys(case: int) -> None:
    check(*SIMPLE[case], np.arange(60, dtype=np.int32).reshape(3, 4, 5))


@pytest.mark.parametrize("case", range(len(SIMPLE)))
def test_views_compose_into_their_reader(case: int) -> None:
    """Arithmetic on a view is one operation that reads the input itself."""
    mine, numpys = SIMPLE[case]
    x = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    assert [op.operands for op in program_of(lambda x: mine(x) * 3, x=x).operations] == [("x",)]
    (got,) = outputs_of(lambda x: mine(x) * 3, x=x)
    np.testing.assert_array_equal(got, numpys(x) * 3)


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Views that fit one after another, from shape (3, 4, 5)."""
    x = np.zeros((3, 4, 5))
    chain: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(["transpose", "slice", "reshape", "pad", "concat", "reverse"]))
        axis = draw(st.integers(0, x.ndim - 1))
        extent = x.shape[axis]
        argument: Any = axis
        if name == "transpose":
            argument = draw(st.permutations(range(x.ndim)))
        elif name == "slice":
            lo = draw(st.integers(0, extent - 1))
            argument = (*[slice(None)] * axis, slice(lo, draw(st.integers(lo + 1, extent)), draw(st.integers(1, 3))))
        elif name == "reshape":
            first = draw(st.sampled_from([k for k in range(1, x.size + 1) if x.size % k == 0]))
            argument = (first, x.size // first)
        elif name == "pad":
            argument = [(draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in range(x.ndim)]
        following = apply_numpy(x, name, argument)
        if following.size <= 400:
            x = following
            chain.append((name, argument))
    return chain


def apply_numpy(x: np.ndarray, name: str, argument: Any) -> np.ndarray:
    if name == "slice":
        return x[argument]
    if name == "pad":
        return np.pad(x, argument, constant_values=-1)
    if name == "concat":
        return np.concatenate([x, np.flip(x, argument)], argument)
    if name == "reverse":
        return np.flip(x, argument)
    return x.transpose(argument) if name == "transpose" else x.reshape(argument)


def apply_mine(x: Any, name: str, argument: Any) -> Any:
    if name == "slice":
        return x[argument]
    if name == "pad":
        return tp.pad(x, argument, value=-1)
    if name == "concat":
        return tp.concat([x, tp.reverse(x, argument)], argument)
    if name == "reverse":
        return tp.reverse(x, argument)
    return tp.transpose(x, argument) if name == "transpose" else tp.reshape(x, argument)


@settings(max_examples=200)
@given(chains())
def test_chains_of_views_are_numpys(chain: list[tuple[str, Any]]) -> None:
    def mine(x: Any) -> Any:
        for name, argument in chain:
            x = apply_mine(x, name, argument)
        return x + 0

    want = x = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    for name, argument in chain:
        want = apply_numpy(want, name, argument)
    (got,) = outputs_of(mine, x=x)
    np.testing.assert_array_equal(got, want)
    assert len(program_of(mine, x=x).operations) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.reshape(7, 9), lambda x: x[5], lambda x: x[0.5:], lambda x: tp.transpose(x, (0, 0, 1)),
        lambda x: tp.concat([x, x[:, :, 1:]], 0), lambda x: tp.broadcast_to(x, (3, 4, 6)), lambda x: tp.pad(x, [1, 2]),
        lambda x: tp.pad(x, d0=-4), lambda x: x[0, 0, 0, 0],
    ],
)  # fmt: skip
def test_impossible_views_are_refused(wrong: View) -> None:
    with pytest.raises(tp.UsageError):
        outputs_of(wrong, x=np.zeros((3, 4, 5), np.float32))
