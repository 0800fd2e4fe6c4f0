"""Turns of tests on GPUs: any number at once, or one that is alone."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Lock
from types import SimpleNamespace
from typing import Any

import pytest

from . import gpus
from .gpus import Turns, turned


def test_every_process_calls_another_gpu_the_first_and_sees_all() -> None:
    assert [turned(["4", "7"], number) for number in range(3)] == ["4,7", "7,4", "4,7"]


def test_nobody_runs_beside_a_test_that_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five processes with tests of either kind, in every order."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plain, alone = (SimpleNamespace(fixturenames=names) for names in ((), ("alone",)))
    lock, at_work, together, ready = Lock(), list[Any](), list[list[Any]](), Barrier(5)

    def process(number: int) -> None:
        turns: Any = Turns()
        mine = [plain if (number >> k) % 2 else alone for k in range(3)]
        ready.wait()
        for item, following in zip(mine, [*mine[1:], None], strict=True):
            turns.before(item)
            with lock:
                at_work.append(item)
                together.append(list(at_work))
            with lock:
                at_work.remove(item)
            turns.after(item, following)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(process, range(5)))
    assert len(together) == 15
    assert all(len(items) == 1 for items in together if alone in items)


def test_who_waits_compiles_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there is something to compile, and no longer than until its turn comes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first: Any = Turns()
    second: Any = Turns()
    item, alone = (SimpleNamespace(fixturenames=names) for names in ((), ("alone",)))
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        if number == 2:
            first.after(alone, None)

    second.ahead = iter([partial(work, number) for number in range(5)])
    first.before(alone)
    second.before(item)
    assert done == [0, 1, 2]
    second.after(item, None)


@pytest.mark.parametrize(("count", "locks"), [(0, 0), (1, 2)])
def test_only_tests_with_a_gpu_take_turns(
    count: int, locks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(gpus, "gpus", lambda: count)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    turn = gpus.in_turn(SimpleNamespace(fixturenames=("alone",)), None)  # type: ignore[arg-type]
    next(turn)
    assert len(list(tmp_path.iterdir())) == locks
    with pytest.raises(StopIteration):
        next(turn)
