"""How passes are computed, chosen by processes: what they leave, and what happens where there are none."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tapestry.kernels import choosing
from tapestry.kernels.choosing import Call, chosen
from tapestry.kernels.convolution import choices
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES
from tapestry.kernels.cost import cudnn
from tapestry.kernels.cost.gpu import Gpu, tuned_gpu
from tapestry.kernels.runtime.kept import is_kept

from .processes import another_process


@pytest.fixture
def gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """With an empty cache and four processors, and nothing chosen yet."""
    assert not list(folder.iterdir())
    monkeypatch.setattr(choosing, "processors", lambda: 4)
    return tuned_gpu()


def calls(groups: int = 3) -> list[Call]:
    """Of layers that no table has."""
    layers = [ConvolutionProblem(5, 9, 9, 24 * count, count, 3, 3, padding=(1, 1, 1, 1)) for count in range(1, groups)]
    return [Call(problem, what, False, False) for problem in layers for what in PASSES]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are begun."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return found


def patient(shared: choosing._Shared, call: Call) -> bool:
    """Waits until another takes a call, and then for that."""
    while call in shared._left:
        time.sleep(0.01)
    return shared._by_others[call].result()


def test_what_processes_choose_is_found_here(
    gpu: Gpu, begun: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = calls()
    assert not any(is_kept(choices.left_to_cudnn, call.problem, call.what, gpu) for call in wanted)
    with monkeypatch.context() as idle:
        idle.setattr(choosing._Shared, "take", lambda self, call: False)
        idle.setattr(choosing._Shared, "is_chosen", patient)
        assert list(chosen(wanted, gpu)) == wanted
    assert len(begun) == 2
    assert all(process.returncode is not None for process in begun)

    def refused(*_: Any) -> Any:
        raise AssertionError("chosen a second time")

    with monkeypatch.context() as here:
        here.setattr(cudnn, "is_faster", refused)
        here.setattr(choices.wide, "way", refused)
        here.setattr(choices.wide, "gradient_cut", refused)
        left = [choices.left_to_cudnn(call.problem, call.what, gpu) for call in wanted]
        kernels = [call.recipes(gpu) for call, by_cudnn in zip(wanted, left, strict=True) if not by_cudnn]
    assert kernels
    assert left == [cudnn.is_faster(call.problem, call.what, gpu) for call in wanted]
    monkeypatch.setenv("TAPESTRY_CACHE", "off")
    another_process()
    assert kernels == [call.recipes(gpu) for call, by_cudnn in zip(wanted, left, strict=True) if not by_cudnn]
    assert list(chosen(wanted, gpu)) == wanted  # where nothing is kept


def test_what_is_kept_begins_no_process(gpu: Gpu, begun: list[subprocess.Popen[bytes]]) -> None:
    for call in calls():
        choices.left_to_cudnn(call.problem, call.what, gpu)
    assert list(chosen(calls(), gpu)) == calls()
    assert list(chosen(calls(2), gpu)) == calls(2)  # nor do few passes
    assert list(chosen(calls(5), gpu, jobs=1)) == calls(5)  # nor where few are to be begun
    assert not begun


@pytest.mark.parametrize("program", ["/nowhere/python", "", "ends at once", "ends when asked"])
def test_where_processes_do_not_run_this_one_chooses(program: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "PATIENCE_S", 0)
    if program == "ends at once":
        monkeypatch.setattr(choosing, "SERVING", "raise SystemExit")
    elif program == "ends when asked":
        monkeypatch.setattr(choosing, "SERVING", "import sys; print(end='.', flush=True); sys.stdin.buffer.read(1)")
    else:
        monkeypatch.setattr(sys, "executable", program)
    assert list(chosen(calls(5), gpu)) == calls(5)
    kept = {is_kept(choices.left_to_cudnn, call.problem, call.what, gpu) for call in calls(5)}
    assert kept == {program != ""}  # where no other can be begun, who asks chooses


@pytest.mark.parametrize("patience", [60, 0.2])
def test_this_process_chooses_until_others_are_there(
    patience: float, gpu: Gpu, begun: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is chosen soon begins no process, whatever is done then; each call is chosen before it is given."""
    monkeypatch.setattr(choosing, "PATIENCE_S", patience)
    monkeypatch.setattr(choosing, "_choose", lambda call, gpu: choices.left_to_cudnn(call.problem, call.what, gpu))
    wanted = calls(4)
    for call in chosen(wanted, gpu):
        assert is_kept(choices.left_to_cudnn, call.problem, call.what, gpu)
    for number, _ in enumerate(chosen(calls(5), gpu)):
        if number == len(calls(5)) - 1:
            time.sleep(2 * min(patience, 0.2))  # nothing is left
    assert not begun


def test_helpers_are_ended_by_one_alone(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are begun while others are being ended: each is ended by who began it, or by who ends all."""
    monkeypatch.setattr(choosing, "PATIENCE_S", 0)
    there, ending, numbers, ended = threading.Event(), threading.Event(), itertools.count(), list[int]()

    class Slow:
        def __init__(self) -> None:
            self.number = next(numbers)
            if self.number == 0:
                there.set()
            else:
                ending.wait()

        def answers(self) -> bool:
            ending.wait()
            return False

        def end(self) -> None:
            ending.set()
            time.sleep(0.1)
            ended.append(self.number)

    monkeypatch.setattr(choosing, "_Helper", Slow)
    coming = chosen(calls(5), gpu)
    next(coming)
    there.wait()
    time.sleep(0.05)  # until that one is known
    coming.close()  # type: ignore[attr-defined]
    assert 0 in ended
    assert len(ended) == len({*ended})


def test_processes_end_where_nobody_waits_any_more(
    gpu: Gpu, begun: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "PATIENCE_S", 0)
    coming = chosen(calls(5), gpu)
    next(coming)
    while not begun:
        time.sleep(0.01)
    coming.close()  # type: ignore[attr-defined]
    assert begun
    assert all(process.poll() is not None for process in begun)
