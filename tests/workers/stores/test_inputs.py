"""What a run refuses at the door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry.errors import UsageError
from tapestry.planner import plan
from tapestry.planner.format import Resolved
from tapestry.workers import run

from ..sheets import blur, halo_blur, matmul, split_matmul
from ..unchecked import run_unchecked

A, B = np.zeros((6, 8), np.float32), np.zeros((8, 5), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": A}, ["1 of 2 inputs are missing", "b f32[8, 5]"]),
        ({"a": A, "b": B, "bb": B}, ["has no input 'bb'", "did you mean 'b'"]),
        ({"a": A, "b": B.T}, ["input b", "wrong shape", "f32[5, 8]", "f32[8, 5]"]),
        ({"a": A.astype(np.float64), "b": B}, ["input a", "wrong dtype", "f64[6, 8]", "f32[6, 8]"]),
        ({"a": A.astype(np.complex64), "b": B}, ["complex64[6, 8]"]),
    ],
)
def test_refused_inputs(inputs: dict[str, Any], message: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        run_unchecked(split_matmul(), inputs)
    assert all(part in str(caught.value) for part in message), str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "mpi"}, "unknown engine 'mpi'"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"device": "no_such_module:Device"}, "cannot be loaded"),
        ({"device": "numpyy"}, "did you mean 'numpy'"),
        ({"engine": "torchrun", "order": 3}, "local engine only"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(blur(), "cpu-4", mesh=(4,), time_limit=5).run({"x": np.zeros(8, np.float32)}, **options)


def test_arrays_that_are_views_or_lists_are_taken() -> None:
    b = np.asfortranarray(np.ones((8, 5), np.float32))
    found = run_unchecked(split_matmul(), {"a": np.ones((12, 8), np.float32)[::2], "b": b}).outputs["c"]
    assert (found == 8).all()
    assert matmul().outputs == ("c",)


def test_what_was_not_checked_is_not_run() -> None:
    document = plan(matmul(), "cpu-4", mesh=(4,), time_limit=5).document
    for unchecked in (document, Resolved(document), halo_blur()):
        with pytest.raises(UsageError, match="the plan was not checked") as caught:
            run(unchecked, {"a": A, "b": B})  # type: ignore[arg-type]
        assert "tapestry.planner.check.checked" in str(caught.value)
