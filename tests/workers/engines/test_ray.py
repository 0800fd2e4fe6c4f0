"""Ranks that Ray starts: the same bits as in one process, and one error for all, whatever happens to them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapestry.errors import UsageError
from tapestry.workers import Deadlock, TaskError

from ..sheets import halo_blur, split_matmul
from ..unchecked import run_unchecked

ray = pytest.importorskip("ray", reason="Ray is an extra")

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]
X = {"x": np.arange(8, dtype=np.float32)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of this machine alone, whose processes find the devices of `faulty`; one is killed in a transfer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("WHEN", "transfer")
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # processes that no test would use
        patch.syspath_prepend(str(HERE))
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        yield
        ray.shutdown()


def run_by_ray(document: Any, inputs: dict[str, Any], device: str = "numpy", **settings: Any) -> Any:
    return run_unchecked(document, inputs, engine="ray", device=device, **settings)


@pytest.mark.usefixtures("cluster")
def test_the_same_bits_as_in_one_process() -> None:
    rng = np.random.default_rng(0)
    matmul = {"a": rng.random((6, 8), np.float32), "b": rng.random((8, 5), np.float32)}
    for document, inputs in ((halo_blur(), X), (split_matmul(), matmul)):
        got, want = run_by_ray(document, inputs, poison=True), run_unchecked(document, inputs, poison=True)
        assert got.bytes_moved == want.bytes_moved
        assert {name: value.tobytes() for name, value in got.outputs.items()} == {
            name: value.tobytes() for name, value in want.outputs.items()
        }
        assert {(e.rank, e.task, e.lane) for e in got.events} == {(e.rank, e.task, e.lane) for e in want.events}


@pytest.mark.usefixtures("cluster")
def test_a_rank_that_was_killed_is_named() -> None:
    with pytest.raises(TaskError, match="the process was ended") as caught:
        run_by_ray(halo_blur(), X, device="faulty:Killed")
    assert caught.value.rank == 1


@pytest.mark.usefixtures("cluster")
def test_ranks_that_wait_for_one_another_end_the_run() -> None:
    with pytest.raises(Deadlock, match="no task has begun or ended for 3 s"):
        run_by_ray(halo_blur(), X, device="faulty:Hanging", patience_s=3)


@pytest.mark.usefixtures("cluster")
def test_gpus_that_the_cluster_does_not_have() -> None:
    with pytest.raises(UsageError, match="more ranks than the cluster has GPUs") as caught:
        run_by_ray(halo_blur(), X, device="cupy")
    assert caught.value.sides == {"ranks": 2, "GPUs": 0}


def test_inputs_and_settings_are_checked_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="1 of 1 inputs are missing"):
        run_by_ray(halo_blur(), {})
    with pytest.raises(UsageError, match="local engine only"):
        run_by_ray(halo_blur(), X, order=3)
