"""When a run agrees with the reference: right ones do, and every wrong one is seen, at every dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapestry.closeness import Difference, Yardstick
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Program, Tensor
from tapestry.reference import evaluate
from tapestry.reference.rounding import Rounding

from .. import files

Array = NDArray[Any]
FLOATS = ["bf16", "f16", "f32", "f64"]
INF, NAN = float("inf"), float("nan")
EXAMPLES: dict[str, tuple[str, str, dict[str, int]]] = {
    "mlp": ("mlp", "forward", {"n": 16, "d": 32, "hidden": 32}),
    "convnet": ("convnet", "forward", {"n": 2, "y": 16, "x": 16, "channels": 8, "blocks": 2}),
    "corners": ("corners", "corners", {"y": 24, "x": 20}),
    "llama": ("llama", "forward", {"layers": 1, "d": 32, "heads": 4, "kv_heads": 2, "ffn": 48, "tokens": 16}),
}


@cache
def example(name: str, dtype: str) -> Program:
    """A small example with every float of it in one dtype."""
    file, program, settings = EXAMPLES[name]
    bound: Program = getattr(files.example(file), program).bind(**settings)
    return replace(bound, tensors=tuple(_in(tensor, dtype) for tensor in bound.tensors))


def _in(tensor: Tensor, dtype: str) -> Tensor:
    return replace(tensor, dtype=dtype) if DTYPES[tensor.dtype].kind == "float" else tensor


@cache
def measured(name: str, dtype: str) -> tuple[Program, dict[str, Array], Yardstick]:
    program = example(name, dtype)
    inputs = random_inputs(program, 1)
    if name == "corners":  # rows unlike one another, so that swapping them shows
        inputs["photo"] = (inputs["photo"] * np.arange(1, 25).reshape(-1, 1, 1)).astype(inputs["photo"].dtype)
    return program, inputs, Yardstick.of(program, inputs)


every = pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in EXAMPLES for dtype in FLOATS])


def wrong(found: list[Difference]) -> bool:
    return not all(difference.ok for difference in found)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*(("mlp", dtype) for dtype in FLOATS), ("llama", "bf16"), ("convnet", "f16"), ("corners", "f32")],
)
def test_right_runs_pass(name: str, dtype: str) -> None:
    program, inputs, yardstick = measured(name, dtype)
    made = plan(program, "cpu-4", mesh=(4,), time_limit=3)
    found = yardstick.differences(made.run(inputs, device="numpy").outputs)
    assert not wrong(found), [str(difference) for difference in found]


@every
def test_outputs_of_another_program_fail(name: str, dtype: str) -> None:
    """Zeros, the rows in reverse, and the same values in any order."""
    _, _, yardstick = measured(name, dtype)
    random = np.random.default_rng(0)
    others: list[Callable[[Array], Array]] = [np.zeros_like, np.flip, lambda a: random.permuted(a.view(), axis=None)]
    for other in others:
        assert wrong(yardstick.differences({name: other(value) for name, value in yardstick.want.items()}))


@every
def test_an_operand_of_zeros_fails(name: str, dtype: str) -> None:
    program, inputs, yardstick = measured(name, dtype)
    passed = [
        changed
        for changed, value in inputs.items()
        if not wrong(yardstick.differences(evaluate(program, {**inputs, changed: np.zeros_like(value)})))
    ]
    assert passed == []


class Swapping(Rounding):
    """Two halves of one operation's result change places; ``at`` counts the operations."""

    def __init__(self, at: int) -> None:
        self.left = at

    def stored(self, value: Array, share: float) -> Array:
        self.left -= 1
        return np.roll(value, max(1, len(value) // 2), axis=0) if self.left == -1 and value.ndim else value


class Skipping(Rounding):
    """One of two halves of what enters a fold is left out; ``at`` counts what enters folds and comes out of them."""

    def __init__(self, at: int) -> None:
        self.left = at

    def terms(self, value: Array, share: float) -> Array:
        self.left -= 1
        if self.left != -1 or value.size < 2:
            return value
        axis = max(k for k, extent in enumerate(value.shape) if extent > 1)
        kept = np.arange(value.shape[axis]) < value.shape[axis] // 2
        return value * kept.reshape([-1 if k == axis else 1 for k in range(value.ndim)])


@cache
def places(kind: type[Swapping] | type[Skipping], name: str) -> list[int]:
    """A dozen places for a mistake, spread over an example. Some mistakes are none: a softmax may subtract any number,
    and so gives the same but for roundings, of which f64 has next to none.
    """
    program, inputs, yardstick = measured(name, "f64")
    counter = kind(-1)
    evaluate(program, inputs, rounding=counter)
    count = -1 - counter.left
    found = []
    for at in sorted({round(k * (count - 1) / 11) for k in range(12)}) if count else ():
        off = yardstick.differences(evaluate(program, inputs, rounding=kind(at)))
        found += [at] if max(difference.relative_error for difference in off) > 1e-9 else []
    return found


@every
@pytest.mark.parametrize("kind", [Swapping, Skipping])
def test_one_mistake_anywhere_fails(kind: type[Swapping] | type[Skipping], name: str, dtype: str) -> None:
    program, inputs, yardstick = measured(name, dtype)
    passed = [
        at
        for at in places(kind, name)
        if not wrong(yardstick.differences(evaluate(program, inputs, rounding=kind(at))))
    ]
    assert passed == []
    assert places(kind, name) or kind is Skipping


def single(dtype: str, want: list[float], shaken: list[float]) -> Yardstick:
    narrow = numpy_dtype(dtype)
    return Yardstick({"y": np.array(want).astype(narrow)}, [{"y": np.array(shaken).astype(narrow)}])


@pytest.mark.parametrize(
    ("got", "want", "absolute", "relative", "used"),
    [
        ([1, 2, 3], [1, 2, 3], 0.0, 0.0, 0.0),
        ([3, 4, 4], [3, 4, 0], 4.0, 0.8, 1.0),
        ([0, 0, 2.5], [0, 0, 0], 2.5, INF, 0.625),
        ([INF, NAN, 1], [INF, NAN, 1], 0.0, 0.0, 0.0),
        ([INF, 0, 0], [-INF, 0, 0], INF, INF, INF),
        ([NAN, 0, 0], [1, 0, 0], INF, INF, INF),
        ([1, 0, 0], [INF, 0, 0], INF, INF, INF),
    ],
)
def test_figures(got: list[float], want: list[float], absolute: float, relative: float, used: float) -> None:
    """The one shaken execution is 1 away in the last element: of three elements the limit is four times as much."""
    shaken = [*want[:2], want[2] + 1]
    (found,) = single("f32", want, shaken).differences({"y": np.float32(got)})
    assert (found.max_abs_error, found.relative_error, found.limit_used) == (absolute, relative, used)


def test_integers_must_be_equal_as_integers() -> None:
    large = Yardstick({"y": np.int64([2**60 + 1, 0, 0])}, [])
    (found,) = large.differences({"y": np.int64([2**60, 0, 0])})
    assert (found.max_abs_error, found.ok) == (1.0, False)
    assert large.differences({"y": np.int64([2**60 + 1, 0, 0])})[0].ok


def test_empty_arrays_agree() -> None:
    (found,) = Yardstick({"y": np.zeros(0, np.float32)}, []).differences({"y": np.zeros(0, np.float32)})
    assert (str(found), found.ok) == ("y: error 0, relative 0, exact", True)
