"""Lanes on streams, asked for one by one and as one graph, in any order that streams and events allow."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pytest

from tapestry.planner.format import Document, Resolved
from tapestry.planner.format.checked import Checked
from tapestry.program import Program
from tapestry.workers import Compiled, register_device
from tapestry.workers.cupy.device import CupyDevice

from ..sheets import Sheet, blur, split_matmul, zeros_padded_blur
from ..unchecked import run_unchecked
from .host_arrays import host_bytes
from .streams import StreamedMachine

X = np.arange(8, dtype=np.float32)
SEEDS = count()


class Streamed(CupyDevice):
    """Every one opened has another order."""

    def __init__(self) -> None:
        super().__init__(StreamedMachine(next(SEEDS)))


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the device whose streams run in random orders."""
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("streamed", f"{Streamed.__module__}:Streamed")
    return "streamed"


def blurred_twice() -> Document:
    """One rank, a state that is blurred twice a step. Its operands are copied by another lane."""
    given = blur()
    x, y, z = given.tensors
    program = Program("steps", (replace(x, role="state"), y, z), given.operations, (), (("x", "z"),))
    sheet = Sheet(program, 1)
    start = sheet.buffer("x", "0:8", initial=True)
    x2, y1, y2, z1 = (sheet.buffer(tensor, "0:8") for tensor in "xyyz")
    brought = sheet.copy("x", start, x2, "0:8")
    first = sheet.compute("first", "0:8", [x2], y1, [brought])
    moved = sheet.copy("y", y1, y2, "0:8", [first])
    sheet.compute("second", "0:8", [y2], z1, [moved])
    return sheet.document({}, {"x": z1})


def after(steps: int) -> np.ndarray:
    x = X
    for _ in range(2 * steps):
        x = zeros_padded_blur(x)
    return x


@pytest.mark.parametrize("repeat", [1, 2, 4])
def test_steps_of_a_rank_on_its_lanes(streamed: str, repeat: int) -> None:
    for _ in range(4):
        found = run_unchecked(blurred_twice(), {"x": X}, device=streamed, repeat=repeat)
        np.testing.assert_array_equal(found.outputs["x"], after(repeat))


def test_every_step_has_its_times(streamed: str) -> None:
    """Those of a graph are of that launch, and in the order that the plan demands."""
    found = run_unchecked(blurred_twice(), {"x": X}, device=streamed, repeat=3)
    for step in found.steps:
        times = {event.task: (event.start_s, event.end_s) for event in step.events}
        assert sorted(times) == [0, 1, 2, 3]
        assert all(times[k][1] <= times[k + 1][0] <= times[k + 1][1] for k in range(3))
    assert found.steps[0].events[0].start_s != found.steps[1].events[0].start_s


def test_a_wait_that_is_missing_shows_in_a_graph(streamed: str) -> None:
    """What the streams here may do wrong they do at some time: the test above could fail."""
    document = blurred_twice()
    tasks = tuple(msgspec.structs.replace(task, waits=()) for task in document.tasks)
    wrong = msgspec.structs.replace(document, tasks=tasks)
    found = [run_unchecked(wrong, {"x": X}, device=streamed, repeat=3).outputs["x"] for _ in range(10)]
    assert any((values != after(3)).any() for values in found)


def test_ranks_that_take_turns_share_a_stream(streamed: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (6, 8)).astype(np.float32), rng.integers(-4, 5, (8, 5)).astype(np.float32)
    for repeat in (1, 3):
        found = run_unchecked(split_matmul(), {"a": a, "b": b}, device=streamed, repeat=repeat)
        np.testing.assert_array_equal(found.outputs["c"], a @ b)
        assert [len(step.events) for step in found.steps] == [4] * repeat
        assert found.bytes_moved == 2 * 3 * 5 * 4


@pytest.mark.parametrize("timed", [True, False])
def test_a_rank_without_tasks_has_steps_too(timed: bool) -> None:
    """Of a plan in which others do all the work."""
    replay = Streamed().replay([])
    assert replay(0.0) == []
    assert replay.keep(timed=timed)
    assert replay(0.0) == []


def test_compiled_steps_are_graphs(streamed: str) -> None:
    document = msgspec.structs.replace(blurred_twice(), machine={"device": {"name": "any"}})
    with Compiled(Checked(Resolved(document)), {"x": X}, device=streamed) as step:
        for k in range(4):
            step({})
            np.testing.assert_array_equal(step.states["x"], after(k + 1))


class Elsewhere:
    """A tensor that lies on the GPU, as far as anyone is told."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self) -> None:
        raise AssertionError("nobody but the device reads it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


class Owning(Streamed):
    def adopt(self, value: Any, dtype: np.dtype[Any]) -> Any:
        return value.array if isinstance(value, Elsewhere) else super().adopt(value, dtype)

    def near(self, value: Any, dtype: np.dtype[Any]) -> bool:
        return isinstance(value, Elsewhere)

    def given(self, array: Any, like: Any) -> Any:
        return Elsewhere(host_bytes(array).view(array.dtype).reshape(array.shape).copy())


def test_what_comes_from_the_gpu_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of a result goes by way of the host."""
    monkeypatch.setattr("tapestry.workers.devices._registered", {"owning": f"{Owning.__module__}:Owning"})
    monkeypatch.setattr(StreamedMachine, "download", None)
    document = msgspec.structs.replace(blurred_twice(), machine={"device": {"name": "any"}})
    with Compiled(Checked(Resolved(document)), {"x": Elsewhere(X)}, device="owning") as step:
        for k in range(3):
            step({})
            found = step.states["x"]
            assert isinstance(found, Elsewhere)
            np.testing.assert_array_equal(found.array, after(k + 1))
