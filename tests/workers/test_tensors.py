"""Tensors of torch at the door of compiled plans: no copy on the way in that need not be, and torch's tensors back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor, bf16, f32, param, state
from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.workers import feeding
from tapestry.workers.tensors import host_array, maker, sample

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@tp.program
def step(x: f32[Tensor, "n k"], w: param[f32[Tensor, "k m"]], seen: state[f32[Tensor, "m"]]) -> dict[str, Tensor]:
    y = tp.relu(x @ w)
    tp.update(seen, seen + tp.sum(y, axis=0))
    return {"y": y}


@tp.program
def doubled(x: bf16[Tensor, "n"]) -> Tensor:
    return x + x


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(step.bind(n=16, k=6, m=4), "cpu-4", mesh=(4,), time_limit=20)


def values(kind: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"w": kind(rng.normal(size=(6, 4)).astype(np.float32)), "seen": kind(np.zeros(4, np.float32))}


def batches() -> list[np.ndarray]:
    return [np.random.default_rng(k).normal(size=(16, 6)).astype(np.float32) for k in range(3)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_and_its_array_share_memory(dtype: torch.dtype) -> None:
    tensor = torch.ones(3, 4).to(dtype)
    array = host_array(tensor.t())
    assert (array.shape, array.ctypes.data) == ((4, 3), tensor.data_ptr())
    back = maker(tensor)(array)
    assert (back.dtype, back.data_ptr()) == (dtype, tensor.data_ptr())


def test_arrays_give_arrays() -> None:
    array = np.ones(3)
    assert sample([array, [1.0]]) is None
    assert maker(None)(array) is array
    assert host_array([1.0, 2.0]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("large", [0, 1 << 20], ids=["read in place", "staged"])
def test_torch_in_and_torch_out_are_the_same_values(made: Plan, monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(feeding, "LARGE", large)
    with (
        made.compile(values(np.asarray), device="numpy") as plain,
        made.compile(values(torch.from_numpy), device="numpy") as tensors,
    ):
        for batch in batches():
            want = plain({"x": batch})["y"]
            got = tensors({"x": torch.from_numpy(batch)})["y"]
            assert isinstance(want, np.ndarray)
            assert isinstance(got, torch.Tensor)
            assert got.numpy().tobytes() == want.tobytes()
        assert isinstance(tensors.states["seen"], torch.Tensor)
        assert tensors.states["seen"].numpy().tobytes() == plain.states["seen"].tobytes()


def test_a_large_input_is_read_where_it_lies(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "LARGE", 0)
    x = torch.ones(6, 16).t()  # not dense
    with made.compile(values(torch.from_numpy), device="numpy") as compiled:
        first = compiled({"x": x})["y"].clone()
        feed = compiled._feeds["x"]
        known = feed._known
        x *= 2
        second = compiled({"x": x})["y"]
        assert feed._known is known  # the same memory: nothing is bound again
        assert not feed._whole.array.any()  # and nothing was copied on the way
        assert torch.equal(second, 2 * first)


def test_bf16_goes_through() -> None:
    made = plan(doubled.bind(n=8), "cpu-4", mesh=(2,), time_limit=10)
    with made.compile({}, device="numpy") as compiled:
        (found,) = compiled({"x": torch.arange(8).to(torch.bfloat16)}).values()
    assert found.dtype == torch.bfloat16
    assert found.tolist() == [2.0 * k for k in range(8)]


def test_tensors_that_do_not_fit(made: Plan) -> None:
    with made.compile(values(torch.from_numpy), device="numpy") as compiled:
        with pytest.raises(UsageError, match="wrong dtype") as failed:
            compiled({"x": torch.ones(16, 6, dtype=torch.bfloat16)})
        assert "bf16[16, 6]" in str(failed.value)
        with pytest.raises(UsageError, match="wrong shape"):
            compiled({"x": torch.ones(16, 7)})


class Elsewhere:
    """A tensor on a GPU, as far as anybody looks at it."""

    dtype, shape, device = torch.float32, (16, 6), "cuda:0"

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self) -> object:
        raise AssertionError("it cannot be read here")


def test_a_tensor_on_a_device_that_the_plan_does_not_compute_on(made: Plan) -> None:
    with (
        made.compile(values(torch.from_numpy), device="numpy") as compiled,
        pytest.raises(UsageError, match="lies on a device that the plan does not compute on"),
    ):
        compiled({"x": Elsewhere()})
    with pytest.raises(UsageError, match="cuda:0"):
        made.run({"x": Elsewhere(), **values(np.asarray)}, device="numpy")
