"""A program called in a program: its annotations hold for what it gets and for what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32, param, state
from tapestry.reference import evaluate
from tapestry.testing import program_of


@tp.program
def layer(
    x: f32[Tensor, "n d"],
    w: param[f32[Tensor, "d h=2*d"]],
    b: f32[Tensor, "h"] | None = None,
    *,
    d: int = 8,
    k: int = 1,
) -> f32[Tensor, "n h"]:
    assert x.shape[1] == d  # a setting that names an extent follows the shapes
    y = x @ w * k
    return y if b is None else y + b


@tp.program
def counted(count: state[f32[Tensor, ""]], x: f32[Tensor, "n"]) -> tuple[f32[Tensor, "n"], f32[Tensor, ""]]:
    tp.update(count, count + 1)
    return x * 2, count * 1


def outer(use: Callable[..., Any]) -> Any:
    arrays = {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 6), np.float32), "i": np.ones((2, 3), np.int32)}
    (found,) = evaluate(program_of(use, **arrays), arrays).values()
    return found


def test_settings_that_name_extents_follow_the_shapes() -> None:
    assert outer(lambda x, w, i: layer(x, w, k=np.int64(2))).tolist() == [[6.0] * 6] * 2
    assert outer(lambda x, w, i: layer(x, w, tp.sum(w, axis=0))).tolist() == [[6.0] * 6] * 2


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x, w, i: layer(i, w), ["x has another dtype", "f32[n d]", "int32[d0=2, d1=3]"]),
        (lambda x, w, i: layer(x[0], w), ["x has 1 axes, declared are 2"]),
        (lambda x, w, i: layer(x, w[:, :5]), ["w has extent 5 along h=2*d, which is 6"]),
        (lambda x, w, i: layer(x, w.T), ["w has extent 6 along d, which is 3"]),
        (lambda x, w, i: layer(x), ["the call lacks w", "program layer(x: f32[n d]"]),
        (lambda x, w, i: layer(x, w, x, x), ["too many positional arguments"]),
        (lambda x, w, i: layer(x, w, q=3), ["unexpected keyword argument 'q'"]),
        (lambda x, w, i: layer(x, np.ones((3, 6))), ["w is a NumPy array (3, 6) of float64, not a tensor"]),
        (lambda x, w, i: layer(x, w, d=4), ["the setting d contradicts the shapes", "given    4", "shapes   3"]),
        (lambda x, w, i: layer(x, w, k="2"), ["k='2' is not an integer"]),
        (lambda x, w, i: layer(x, w, k=x), ["the setting k is <x f32[d0=2, d1=3]>"]),
        (lambda x, w, i: counted(x[0, 0], x[0])[0], ["count is", "not a state", "tp.state"]),
    ],
)
def test_what_contradicts_the_annotations_is_refused(use: Callable[..., Any], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        outer(use)
    for words in [*said, "(test_inner_programs.py:"]:
        assert words in str(caught.value)


def test_states_are_handed_over() -> None:
    @tp.program
    def net(seen: state[f32[Tensor, ""]], x: f32[Tensor, "n"]) -> Tensor:
        return counted(seen, x)[0]  # type: ignore[no-any-return]

    assert net.bind(n=2).states == (("seen", "add"),)


def test_results_are_checked_at_both_doors() -> None:
    @tp.program
    def wrong(x: f32[Tensor, "n"]) -> int32[Tensor, "n"]:
        return x + 1

    @tp.program
    def longer(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
        return tp.pad(x, 1)

    @tp.program
    def pair(x: f32[Tensor, "n"]) -> tuple[f32[Tensor, "n"], f32[Tensor, "n"]]:
        return x, x, x  # type: ignore[return-value]

    @tp.program
    def named(x: f32[Tensor, "n"]) -> dict[str, f32[Tensor, "n"]]:
        return {"a": x + 1, "b": x[1:]}

    for bad, said in [
        (wrong, "the result has another dtype"),
        (longer, "the result has extent 6 along n, which is 4"),
        (pair, "another number of tensors"),
        (named, "the output b has extent 3 along n, which is 4"),
    ]:
        with pytest.raises(tp.UsageError, match=said):
            bad.bind(n=4)

        with pytest.raises(tp.UsageError, match=said):
            program_of(lambda x, bad=bad: bad(x), x=np.zeros(4, np.float32))


def test_expressions_of_names_bound_later_are_checked() -> None:
    @tp.op
    def late(a: f32[Tensor, "2*k"], b: f32[Tensor, "k"]) -> f32[Tensor, "k"]:
        k = tp.indices("k")
        return a[2 * k] + b[k]

    with pytest.raises(tp.UsageError, match=r"a has extent 7 along 2\*k, which is 6"):
        program_of(lambda a, b: late(a, b), a=np.zeros(7, np.float32), b=np.zeros(3, np.float32))


def test_recursion_ends_or_is_refused() -> None:
    @tp.program
    def halves(x: f32[Tensor, "n"], *, depth: int = 3) -> Tensor:
        return x if depth == 0 else halves(x * 0.5, depth=depth - 1)  # type: ignore[no-any-return]

    @tp.program
    def endless(x: f32[Tensor, "n"]) -> Tensor:
        return endless(x + 1)  # type: ignore[no-any-return]

    @tp.program
    def growing(x: f32[Tensor, "n"], *, depth: int = 0) -> Tensor:
        return growing(x, depth=depth + 1)  # type: ignore[no-any-return]

    assert len(halves.bind(n=2).operations) == 3
    with pytest.raises(tp.UsageError, match="calls itself with the same shapes and settings"):
        endless.bind(n=2)
    with pytest.raises(tp.UsageError, match="call themselves without end"):
        growing.bind(n=2)


def test_a_program_called_outside_of_one_says_so() -> None:
    with pytest.raises(tp.UsageError, match=r"test_inner_programs.py:\d+: layer is called outside of a program"):
        layer(np.ones((2, 3)), np.ones((3, 6)))


def test_tensors_without_axes_are_for_calls_only() -> None:
    @tp.program
    def twice(x: Tensor) -> Tensor:
        return x * 2

    assert outer(lambda x, w, i: twice(x)).tolist() == [[2.0] * 3] * 2
    with pytest.raises(tp.UsageError, match="x is annotated without dtype and axes"):
        twice.bind()
    with pytest.raises(tp.UsageError, match="x is 3, not a tensor"):
        outer(lambda x, w, i: twice(3))
