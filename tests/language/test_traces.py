"""Handles belong to one trace: a tensor of another program is refused, and both places are named."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import program_of

KEPT: dict[str, Any] = {}


@tp.program
def maker(a: f32[Tensor, "n"], b: param[f32[Tensor, "n"]]) -> Tensor:
    n = tp.indices("n")
    made = a * 3
    KEPT.update(input=a, param=b, value=made, view=a[::-1], constant=tp.constant([5.0, 6.0], name="table"))
    KEPT.update(element=a[n], guarded=a.get(n - 1))
    return made


@tp.op
def half(x: f32[Tensor, "n"], *, other: Any = 0) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n] / 2 + (other[n] if isinstance(other, Tensor) and other.is_tensor else other)  # type: ignore[no-any-return]


def keep() -> None:
    maker.bind(n=2)


def user(use: Callable[[Tensor], Any]) -> Program:
    return program_of(use, x=np.zeros(2, np.float32))


USES: dict[str, Callable[[Tensor, Any], Any]] = {
    "arithmetic": lambda x, y: x + y,
    "view": lambda x, y: tp.concat([x, y[::-1]]),
    "output": lambda x, y: y,
    "named": lambda x, y: y.named("q"),
    "pin": lambda x, y: tp.replicate(y),
    "matmul": lambda x, y: x @ y,
    "operation": lambda x, y: half(x, other=y),
    "composite": lambda x, y: tp.rms_norm(x, y),
    "sum": lambda x, y: tp.sum(y),
    "update": lambda x, y: (tp.update(tp.state("s", "f32", (2,)), y), x)[1],
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("what", ["input", "param", "value", "constant", "view"])
def test_a_handle_of_another_trace_is_refused_with_both_places(use: str, what: str) -> None:
    keep()
    with pytest.raises(tp.UsageError) as caught:
        user(lambda x: USES[use](x, KEPT[what]))
    text = str(caught.value)
    assert "belongs to another program" in text
    assert " in maker (test_traces.py:" in text
    # The line that made it, its program, and the line that uses it; an output is used where the program ends.
    assert text.count("test_traces.py:") >= (3 if use != "output" else 2)
    assert "%" not in text


def test_the_lines_are_those_of_the_two_expressions() -> None:
    keep()
    with pytest.raises(tp.UsageError) as caught:
        user(lambda x: x + KEPT["value"])
    made = maker.function.__code__.co_firstlineno + 3
    used = test_the_lines_are_those_of_the_two_expressions.__code__.co_firstlineno + 3
    assert str(caught.value).splitlines()[:3] == [
        f"add (test_traces.py:{used}): the value made belongs to another program",
        f"  made   at test_traces.py:{made} in maker (test_traces.py:{made - 3})",
        f"  used   at add (test_traces.py:{used}) in applied (functions.py:24)",
    ]


@pytest.mark.parametrize("what", ["element", "guarded"])
def test_an_element_of_another_trace_is_refused(what: str) -> None:
    keep()
    with pytest.raises(tp.UsageError, match="belongs to another program"):
        user(lambda x: half(x, other=KEPT[what]))


def test_a_cache_that_outlives_a_binding_is_refused_by_the_next() -> None:
    @cache
    def table(size: int) -> Tensor:
        return tp.constant([1.0] * size)

    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        return x + table(2)

    net.bind(n=2)
    with pytest.raises(tp.UsageError, match="the const const belongs to another binding of the program"):
        net.bind(n=2)


def test_a_program_bound_while_another_is_traced_takes_nothing_from_it() -> None:
    @tp.program
    def outer(x: f32[Tensor, "n"]) -> Tensor:
        @tp.program
        def inner(y: f32[Tensor, "n"]) -> Tensor:
            return x + y

        inner.bind(n=2)
        return x

    with pytest.raises(tp.UsageError, match="the input x belongs to another program"):
        outer.bind(n=2)


def test_a_handle_whose_trace_is_gone_is_refused_too() -> None:
    def fragment() -> Any:
        kept: list[Any] = []

        @tp.program
        def short(a: f32[Tensor, "n"]) -> Tensor:
            n = tp.indices("n")
            kept.append(a.get(n - 1))
            return a + 1

        short.bind(n=2)
        return kept[0]

    element = fragment()
    gc.collect()
    with pytest.raises(tp.UsageError, match="another program"):
        user(lambda x: half(x, other=element))


def test_handles_print_after_their_program_is_bound() -> None:
    keep()
    assert repr(KEPT["value"]) == "<made f32[n=2]>"
    assert repr(KEPT["view"]) == "<view of a f32[n=2]>"


def test_a_helper_that_makes_its_own_tensors_serves_every_program() -> None:
    def table() -> Tensor:
        return tp.constant([5.0, 6.0])

    for _ in range(2):
        built = user(lambda x: x + table())
        np.testing.assert_array_equal(evaluate(built, {"x": np.ones(2, np.float32)})["out"], [6, 7])
