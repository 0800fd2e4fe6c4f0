"""Tensors on the GPU at the door of compiled plans: read where they lie, when they are there, and given back there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tapestry.planner import Plan, plan
from tapestry.workers import feeding

from ...test_tensors import doubled, step
from .executed import needs_gpu

pytestmark = needs_gpu


N, K, M = 512, 96, 64


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(step.bind(n=N, k=K, m=M), "h200", time_limit=20)


def cupy_array(array: np.ndarray[Any, Any]) -> Any:
    import cupy

    return cupy.asarray(array)


def cuda_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(array).cuda()


def values(kind: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"w": kind(rng.normal(size=(K, M)).astype(np.float32)), "seen": kind(np.zeros(M, np.float32))}


@pytest.mark.parametrize("large", [0, 1 << 30], ids=["read in place", "as small ones are"])
@pytest.mark.parametrize("kind", [cupy_array, cuda_tensor])
def test_what_comes_in_comes_out(made: Plan, monkeypatch: pytest.MonkeyPatch, kind: Any, large: int) -> None:
    """Values, kind and device, over steps that are replayed; states as well."""
    monkeypatch.setattr(feeding, "LARGE", large)
    batches = [np.random.default_rng(k).normal(size=(N, K)).astype(np.float32) for k in range(3)]
    like = kind(batches[0])
    with (
        made.compile(values(np.asarray), device="cupy") as plain,
        made.compile(values(kind), device="cupy") as tensors,
    ):
        for batch in batches:
            want, got = plain({"x": batch})["y"], tensors({"x": kind(batch)})["y"]
            assert isinstance(want, np.ndarray)
            assert (type(got), got.device) == (type(like), like.device)
            assert host(got).tobytes() == want.tobytes()
        assert type(tensors.states["seen"]) is type(like)
        assert host(tensors.states["seen"]).tobytes() == plain.states["seen"].tobytes()


def host(value: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = value.cpu().numpy() if isinstance(value, torch.Tensor) else value.get()
    return found


@pytest.mark.parametrize("dense", [True, False])
def test_the_same_memory_again_is_read_anew(made: Plan, monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    monkeypatch.setattr(feeding, "LARGE", 0)
    x = torch.ones(N, K).cuda() if dense else torch.ones(K, N).cuda().t()
    with made.compile(values(cuda_tensor), device="cupy") as compiled:
        first = compiled({"x": x})["y"].clone()
        x *= 2
        assert torch.equal(compiled({"x": x})["y"], 2 * first)
        assert not compiled._feeds["x"]._whole.array.any()  # nothing came by way of the host


@pytest.mark.parametrize("dense", [True, False])
def test_a_tensor_that_is_still_being_computed_is_waited_for(
    made: Plan, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    monkeypatch.setattr(feeding, "LARGE", 0)
    x = torch.zeros(N, K).cuda() if dense else torch.zeros(K, N).cuda().t()
    with made.compile(values(cuda_tensor), device="cupy") as compiled:
        compiled({"x": x})
        for number in (1.0, 2.0, 3.0):
            torch.cuda._sleep(50_000_000)  # of the clock: tens of milliseconds
            x.fill_(number)
            found = compiled({"x": x})["y"]
            wanted = torch.relu(torch.full((N, K), number).cuda() @ values(cuda_tensor)["w"])
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


def test_an_array_of_cupy_s_own_stream_is_waited_for(made: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    monkeypatch.setattr(feeding, "LARGE", 0)
    x, busy = cupy.zeros((N, K), np.float32), cupy.ones((4096, 4096), np.float32)
    with made.compile(values(cupy_array), device="cupy") as compiled, cupy.cuda.Stream(non_blocking=True):
        compiled({"x": x})
        for number in (1.0, 2.0):
            for _ in range(20):
                busy @ busy
            x.fill(number)
            found = compiled({"x": x})["y"]
            wanted = np.maximum(number * values(np.asarray)["w"].sum(axis=0), 0)
            np.testing.assert_allclose(found.get(), np.broadcast_to(wanted, (N, M)), rtol=1e-4, atol=1e-4)


def test_bf16_goes_through() -> None:
    with plan(doubled.bind(n=8), "h200", time_limit=10).compile({}, device="cupy") as compiled:
        (found,) = compiled({"x": torch.arange(8).to(torch.bfloat16).cuda()}).values()
    assert (found.dtype, found.device.type) == (torch.bfloat16, "cuda")
    assert found.tolist() == [2.0 * k for k in range(8)]
