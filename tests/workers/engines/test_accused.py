"""What a rank raises when a failure was published before its own: that one, whoever it is laid to."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tapestry.planner.format import Resolved
from tapestry.workers.engines import process
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.group import Failure, Group
from tapestry.workers.engines.launch import told_to_end
from tapestry.workers.faults import PeerFailed, TaskError

from ..sheets import halo_blur


class Judged(Group):
    """A group of one process, in which a failure is published before anything runs."""

    def __init__(self, failure: Failure | None) -> None:
        self.rank, self.size = 0, 2
        self.found = failure
        self.published: list[BaseException] = []

    def begin(self) -> None: ...

    def tell(self, name: str, value: str) -> None: ...

    def told(self, name: str, rank: int) -> str | None:
        return None

    def failure(self) -> Failure | None:
        return self.found

    def heard(self, failure: Failure) -> PeerFailed:
        return PeerFailed(failure.origin, failure.cause)

    def publish(self, error: BaseException) -> None:
        self.published.append(error)


@pytest.fixture
def torn(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: object, inputs: object) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(process._Process, "run", run)


@pytest.mark.usefixtures("torn")
@pytest.mark.parametrize("origin", [0, 1])
def test_a_connection_lost_after_a_verdict_is_not_the_failure(origin: int) -> None:
    """Ranks that wait for one another are told of it through rank 0, which may lose its connection meanwhile."""
    group = Judged(Failure(origin, {"kind": "Deadlock", "text": "no task has begun or ended for 3 s"}))
    with pytest.raises(PeerFailed, match="no task has begun or ended for 3 s") as caught:
        process.run_rank(Resolved(halo_blur()), {}, group, Settings("numpy"))
    assert caught.value.origin == origin
    assert not group.published


@pytest.mark.usefixtures("torn")
def test_the_first_failure_of_all_is_published() -> None:
    group = Judged(None)
    with pytest.raises(TaskError, match="Connection closed by peer"):
        process.run_rank(Resolved(halo_blur()), {}, group, Settings("numpy"))
    assert [type(error) for error in group.published] == [TaskError]


@pytest.mark.parametrize("failure", [Failure(1, {"kind": "Silent", "text": "the process has not answered"}), None])
def test_a_rank_that_is_told_to_end_says_first_what_failed(
    failure: Failure | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun ends this rank as soon as the one that it accused is gone, which may be before it has written so."""
    sent: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    told_to_end(Judged(failure))
    assert sent == ([] if failure else [signal.SIGTERM])


class Words:
    """A store of which nobody may ask for what is not there: that blocks, and with it whoever else uses the store."""

    def __init__(self, **said: str) -> None:
        self.said = said

    def check(self, keys: list[str]) -> bool:
        return all(key.rpartition("/")[2] in self.said for key in keys)

    def get(self, key: str) -> bytes:
        return self.said[key.rpartition("/")[2]].encode()


def asking(**said: str) -> Group:
    """Rank 0 of a group of which so much was said."""
    found = Group.__new__(Group)
    found.rank, found.size, found.runs, found.store = 0, 2, 1, Words(**said)
    return found


def test_what_another_rank_says_is_heard() -> None:
    assert asking(memory1="here").heard_from("memory", 1) == "here"


def test_a_rank_that_waits_for_word_hears_of_a_failure_instead() -> None:
    """As of one that has no memory, before it can tell the others where that is."""
    cause = {"kind": "TaskError", "text": "no memory for 8 bytes of hbm"}
    with pytest.raises(PeerFailed, match="no memory for 8 bytes") as caught:
        asking(failure=json.dumps([1, cause])).heard_from("memory", 1)
    assert caught.value.origin == 1
