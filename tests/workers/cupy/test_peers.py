"""Ranks that write into each other's memories: a thread a rank, each with its own streams, in any order they allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from threading import Barrier, Condition, Thread, local
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.planner import load_machine
from tapestry.planner.format import Document, Resolved, Workspace
from tapestry.planner.format.checked import Checked
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json
from tapestry.testing import assert_close, inputs_for, partitions, programs
from tapestry.workers import Compiled, register_device
from tapestry.workers.cupy import exchange
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.peers import Peers
from tapestry.workers.engines.activity import Activity
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.group import Group
from tapestry.workers.engines.process import _Process
from tapestry.workers.result import RunResult
from tapestry.workers.transport.transport import Transport

from ..sheets import Sheet, halo_blur, matmul, split_matmul, zeros_padded_blur
from .streams import StreamedMachine

SEEDS = count()
MACHINE = load_machine("h200x8")
NAMED = {"device": {"name": "any"}}


class Streamed(CupyDevice):
    """Every one opened has another order."""

    def __init__(self) -> None:
        super().__init__(StreamedMachine(next(SEEDS)))


class Words:
    """What the threads of one run tell each other."""

    def __init__(self, size: int) -> None:
        self.size, self.said, self.changed, self.together = (
            size,
            dict[tuple[str, int], Any](),
            Condition(),
            Barrier(size),
        )


class Company(Group):
    """One thread of them."""

    def __init__(self, words: Words, rank: int) -> None:
        self.words, self.rank, self.size = words, rank, words.size
        self.ways: list[Transport] = []

    def tell(self, name: str, value: Any) -> None:
        with self.words.changed:
            self.words.said[name, self.rank] = value
            self.words.changed.notify_all()

    def heard_from(self, name: str, rank: int) -> Any:
        with self.words.changed:
            assert self.words.changed.wait_for(lambda: (name, rank) in self.words.said, 60)
            return self.words.said[name, rank]

    def begin(self) -> None:
        """There is but one run."""

    def told(self, name: str, rank: int) -> Any:
        return self.words.said.get((name, rank))

    def failure(self) -> None:
        return None

    def publish(self, error: BaseException) -> None:
        self.words.together.abort()

    def transport(self, *given: Any) -> Transport:
        self.ways.append(super().transport(*given))
        return self.ways[-1]

    def barrier(self) -> None:
        self.words.together.wait(60)

    def _all(self, value: Any) -> list[Any]:
        self.barrier()
        self.tell("each", value)
        self.barrier()
        return [self.heard_from("each", rank) for rank in range(self.size)]

    def maximum(self, value: float) -> float:
        return float(max(self._all(value)))

    def gathered(self, data: bytes) -> list[bytes]:
        parts = self._all(data)
        return [] if self.rank else parts


def side_by_side(works: Sequence[Callable[[], None]], words: Words) -> None:
    """A thread each, all of which have to end."""
    failed: list[BaseException] = []

    def safely(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            words.together.abort()

    threads = [Thread(target=safely, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failed:
        raise failed[0]
    assert not any(thread.is_alive() for thread in threads), "ranks wait for each other"


def run(plan: Resolved, inputs: Mapping[str, Any], repeat: int = 1, spare: int = 0) -> RunResult:
    """A process a rank, and some without one, as threads; what rank 0 has in the end."""
    words = Words(plan.size + spare)
    company = [Company(words, rank) for rank in range(words.size)]
    ranks = [_Process(plan, one, Settings("streamed", repeat=repeat, poison=True), Activity()) for one in company]
    side_by_side([partial(rank.run, inputs) for rank in ranks], words)
    assert all(isinstance(one.ways[0], Peers) for one in company[: plan.size])
    return ranks[0].result()


@pytest.fixture(autouse=True)
def _streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SMALL", exchange.SMALL)
    monkeypatch.setattr("tapestry.workers.devices._registered", {})
    register_device("streamed", f"{Streamed.__module__}:Streamed")


def operands(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"a": rng.integers(-4, 5, (6, 8)).astype("f"), "b": rng.integers(-4, 5, (8, 5)).astype("f")}


def everywhere() -> Document:
    """Each of three ranks folds a row of parts that all have, and every rank gets every row."""
    sheet = Sheet(matmul(), 3)
    cuts = [(0, 3), (3, 6), (6, 8)]
    a = sheet.buffer("a", [f"0:6,{lo}:{hi}" for lo, hi in cuts], initial=True)
    b = sheet.buffer("b", [f"{lo}:{hi},0:5" for lo, hi in cuts], initial=True)
    part, c = sheet.buffer("c", "0:6,0:5"), sheet.buffer("c", "0:6,0:5")
    product = sheet.compute("product", [f"0:6,0:5,{lo}:{hi}" for lo, hi in cuts], [a, b], part)
    sheet.transfer("c", part, c, "0:6,0:5", "0:6,0:5", [product], parts=(0, 1, 2), monoid="sum")
    return sheet.document({"c": c})


WAYS = [(1, 0), (3, 0), (3, exchange.SMALL)]  # repeated so often, by one kernel up to so many bytes


@pytest.mark.parametrize(("repeat", "small"), WAYS)
def test_halos_are_written_by_the_neighbour(monkeypatch: pytest.MonkeyPatch, repeat: int, small: int) -> None:
    monkeypatch.setattr(exchange, "SMALL", small)
    x = np.arange(8, dtype=np.float32)
    found = run(Resolved(halo_blur()), {"x": x}, repeat, spare=1)
    np.testing.assert_array_equal(found.outputs["z"], zeros_padded_blur(zeros_padded_blur(x)))
    assert found.bytes_moved == 4 * 4
    assert [len(step.events) for step in found.steps] == [8] * repeat


def test_memory_that_holds_nothing_but_room_for_kernels_is_opened_too() -> None:
    """Where a rank stores nothing it has no buffers to tell the others how large its memory is."""
    document = halo_blur()
    (tier,) = {buffer.tier for buffer in document.buffers}
    other = "host" if tier == "hbm" else "hbm"
    x = np.arange(8, dtype=np.float32)
    found = run(Resolved(msgspec.structs.replace(document, workspaces={"compute": Workspace(other, 0, 256)})), {"x": x})
    np.testing.assert_array_equal(found.outputs["z"], zeros_padded_blur(zeros_padded_blur(x)))


@pytest.mark.parametrize(("repeat", "small"), WAYS)
@pytest.mark.parametrize("document", [split_matmul, everywhere])
def test_parts_are_fetched_and_folded_and_what_is_folded_goes_on(
    monkeypatch: pytest.MonkeyPatch, document: Any, repeat: int, small: int
) -> None:
    monkeypatch.setattr(exchange, "SMALL", small)
    given = operands()
    found = run(Resolved(document()), given, repeat)
    np.testing.assert_array_equal(found.outputs["c"], given["a"] @ given["b"])


def test_a_rank_whose_buffer_is_ready_late_is_waited_for() -> None:
    """Without its wait the transfer takes what was there before the product: some order shows it."""
    document = split_matmul()
    tasks = tuple(msgspec.structs.replace(task, waits=()) for task in document.tasks)
    wrong = Resolved(msgspec.structs.replace(document, tasks=tasks))
    given = operands()
    assert any((run(wrong, given).outputs["c"] != given["a"] @ given["b"]).any() for _ in range(150))


def test_ranks_of_several_hosts_take_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, and nothing stays open."""
    hosts = iter("ab")
    monkeypatch.setattr("tapestry.workers.cupy.peers._host", lambda: next(hosts))
    asked: list[str] = []

    def post(_: Company, backend: str) -> Any:
        asked.append(backend)
        raise LookupError

    monkeypatch.setattr(Company, "post", post)
    with pytest.raises(LookupError):
        run(Resolved(halo_blur()), {"x": np.arange(8, dtype=np.float32)})
    assert asked == ["nccl", "nccl"]


def test_compiled_steps_of_a_process_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """States go on, outputs and states come to rank 0."""
    document = halo_blur()
    program = program_from_json(document.program)
    x, y, z = program.tensors
    program = replace(program, tensors=(replace(x, role="state"), y, z), states=(("x", "z"),))
    document = msgspec.structs.replace(
        document, program=program_to_json(program), states={"x": document.outputs["z"]}, machine=NAMED
    )
    words, here, found = Words(2), local(), list[Any]()
    monkeypatch.setenv("RANK", "any")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("tapestry.workers.engines.group.group", lambda: here.company)

    def work(rank: int) -> None:
        here.company = Company(words, rank)
        plan, start = Checked(Resolved(document)), np.arange(8, dtype=np.float32)
        with Compiled(plan, {"x": start}, device="streamed", engine="torchrun") as step:
            for _ in range(3):
                found.append((rank, step({}), step.states))

    side_by_side([partial(work, rank) for rank in range(2)], words)
    blurred = np.arange(8, dtype=np.float32)
    for _, outputs, states in [one for one in found if one[0] == 0]:
        blurred = zeros_padded_blur(zeros_padded_blur(blurred))
        np.testing.assert_array_equal(outputs["z"], blurred)
        np.testing.assert_array_equal(states["x"], blurred)
    assert [one[1:] for one in found if one[0] == 1] == [({}, {})] * 3


def test_a_plan_is_compiled_for_torchrun_inside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Checked(Resolved(msgspec.structs.replace(halo_blur(), machine=NAMED)))
    with pytest.raises(UsageError, match="not started by torchrun"):
        Compiled(plan, {}, device="numpy", engine="torchrun")
    words, here = Words(1), local()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    here.company = Company(words, 0)
    monkeypatch.setattr("tapestry.workers.engines.group.group", lambda: here.company)
    with pytest.raises(UsageError, match="one process a rank"):
        Compiled(plan, {}, device="numpy", engine="torchrun")


@settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_generated_programs(data: st.DataObject) -> None:
    """Integers exactly, floats as close as roundings leave them, twice over."""
    exchange.SMALL = data.draw(st.sampled_from([0, 64, 1 << 21]))
    program = data.draw(programs())
    shards = data.draw(partitions(program, data.draw(st.integers(2, 4))))
    inputs = data.draw(inputs_for(program))
    plan = Resolved(plan_partitions(program, MACHINE, shards).document, program)
    repeat = 1 if plan.document.states else 2
    assert_close(program, inputs, run(plan, inputs, repeat).outputs, evaluate(program, inputs))
