"""A device is one folder: a second one, made here and named nowhere, runs what the first one runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.planner.format import Document, Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.testing import inputs_for, partitions, programs
from tapestry.workers import device_names, register_device
from tapestry.workers.devices import open_device
from tapestry.workers.engines.engine import Engine, Settings
from tapestry.workers.engines.local import LocalEngine
from tapestry.workers.engines.torchrun import TorchrunEngine

from .sheets import halo_blur, matmul, split_matmul
from .unchecked import run_unchecked

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STRICT = "strict_device:StrictDevice"
RNG = np.random.default_rng(0)
INPUTS = {
    "halo_blur": (halo_blur, {"x": RNG.random(8, np.float32)}),
    "split_matmul": (split_matmul, {"a": RNG.random((6, 8), np.float32), "b": RNG.random((8, 5), np.float32)}),
}


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the strict device, known in this process and importable by the ranks of others."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("strict", STRICT)
    return "strict"


def opened(name: str) -> object:
    """The class behind a name, with the devices that this process opened so far."""
    return type(open_device(name))


def test_devices_are_the_folders_that_have_one(strict: str) -> None:
    assert device_names() == ["cupy", "numpy", "strict"]
    with pytest.raises(UsageError, match="no device 'strct'") as caught:
        open_device("strct")
    assert "did you mean 'strict'" in str(caught.value)


def test_a_class_that_is_no_device_is_refused() -> None:
    with pytest.raises(UsageError, match="'collections:Counter' is no device"):
        open_device("collections:Counter")


@pytest.mark.parametrize("engine", [LocalEngine(), TorchrunEngine()], ids=["local", "torchrun"])
def test_both_engines_run_on_a_device_that_nothing_names(engine: Engine, strict: str) -> None:
    """Partial folds, halos in place: the bits, the bytes and the events of the first device."""
    jobs = [(Resolved(made()), inputs) for made, inputs in INPUTS.values()]
    for (document, inputs), got in zip(jobs, engine.run_each(jobs, Settings(strict, poison=True)), strict=True):
        want = run_unchecked(document, inputs, poison=True)
        assert {k: v.tobytes() for k, v in got.outputs.items()} == {k: v.tobytes() for k, v in want.outputs.items()}
        assert got.bytes_moved == want.bytes_moved
        assert {(e.rank, e.task, e.lane) for e in got.events} == {(e.rank, e.task, e.lane) for e in want.events}
        assert (want.baseline_bytes, got.baseline_bytes) == (0, 12345)


def test_every_arena_is_allocated_once_at_the_planned_size(strict: str) -> None:
    document, inputs = split_matmul(), INPUTS["split_matmul"][1]
    device_class = opened(strict)
    run_unchecked(document, inputs, device=strict)
    device = device_class.opened[-1]  # type: ignore[attr-defined]
    assert device.sizes == planned_sizes(document)
    assert device.closed
    computes = [task for task in document.tasks if type(task).__name__ == "Compute"]
    assert device.counts["compute"] == 2 * len(computes)
    assert device.counts["fold"] > 0


def planned_sizes(document: Document) -> list[tuple[str, int]]:
    """Per rank and tier the end of the last buffer, from the document alone."""
    plan, found = Resolved(document), []
    for rank in range(plan.size):
        ends: dict[str, int] = {}
        for buffer in document.buffers:
            grid = plan.storage(buffer.name)[rank]
            if grid is not None:
                nbytes = grid.size * plan.program.tensor(buffer.tensor).itemsize
                ends[buffer.tier] = max(ends.get(buffer.tier, 0), buffer.offset + nbytes)
        found += list(ends.items())
    return found


@settings(max_examples=30)
@given(st.data())
def test_generated_plans_in_any_order(data: st.DataObject) -> None:
    """Guard bytes around arenas stay as they were, whatever is computed and moved."""
    program = data.draw(programs())
    shards = data.draw(partitions(program, data.draw(st.integers(1, 3))))
    document = plan_partitions(program, load_machine("h200x8"), shards).document
    inputs, order = data.draw(inputs_for(program)), data.draw(st.none() | st.integers(0, 99))
    sys.path.insert(0, str(HERE))
    try:
        got = run_unchecked(document, inputs, device=STRICT, order=order, poison=True)
    finally:
        sys.path.remove(str(HERE))
    want = run_unchecked(document, inputs)
    assert {k: v.tobytes() for k, v in got.outputs.items()} == {k: v.tobytes() for k, v in want.outputs.items()}


def test_the_command_line_finds_it_too(strict: str, tmp_path: Path) -> None:
    made = plan(matmul(), "cpu-4", mesh=(4,), time_limit=5)
    made.save(tmp_path / "plan.json")
    main = "from tapestry.planner.cli import main; main()"
    command = [sys.executable, "-c", main, "run", str(tmp_path / "plan.json"), "--random", "0", "--verify"]
    for device, code in ((STRICT, 0), ("strict_devices:Nothing", 2), ("cupyy", 2)):
        done = subprocess.run([*command, "--device", device], capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stderr
    assert "no device 'cupyy'" in done.stderr


def test_a_planned_example_runs_on_it(strict: str) -> None:
    """The corner detector over four ranks, as the planner cuts it."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import corners  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(ROOT / "examples"))
    made = plan(corners.corners.bind(y=64, x=48), "cpu-4", mesh=(4,), time_limit=10)
    inputs = random_inputs(made.program, 1)
    got, want = made.run(inputs, device=strict, order=5), made.run(inputs)
    assert got.outputs["corners"].tobytes() == want.outputs["corners"].tobytes()
    assert got.bytes_moved == want.bytes_moved == made.document.traffic.bytes_total
