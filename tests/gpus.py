"""Tests on GPUs in many processes: each begins on a GPU of its own number, those that need all of them are alone there,
and what was found is written as it is found.

`make test-gpu` loads this as a plugin of pytest; the hooks that take turns stand in the conftest.py of the folders
whose tests need GPUs.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from tapestry.kernels.errors import KernelError
from tapestry.kernels.runtime.device import device_count

A_GPU = 15  # processes: each takes about 1 GiB of its memory, and most of a core of the host
FOUND = Path("build") / "test-gpu.jsonl"


def gpus() -> int:
    """How many this process can use."""
    try:
        return device_count()
    except KernelError:
        return 0


# -- one process of several --------------------------------------------------------------------------------------------


def pytest_configure() -> None:
    """Before anything asks for a GPU: the one that this process calls the first is of its own number."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and (names := visible()):
        os.environ["CUDA_VISIBLE_DEVICES"] = turned(names, int(worker.removeprefix("gw")))
    if not worker:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process: there are as many of them as cores
        FOUND.parent.mkdir(exist_ok=True)
        FOUND.write_text("")


def visible() -> list[str]:
    """The GPUs of this process, by what the driver calls them; no context is made for the question."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return said.split(",")
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(number) for number, _ in enumerate(listed.splitlines())]


def turned(names: list[str], number: int) -> str:
    """The same GPUs, another one first: all of them can still be used.

    >>> turned(["0", "1", "2"], 4)
    '1,2,0'
    """
    first = number % len(names)
    return ",".join([*names[first:], *names[:first]])


def pytest_xdist_auto_num_workers() -> int:
    """As many processes as keep the GPUs, or the cores, busy."""
    return max(1, min(os.cpu_count() or 1, A_GPU * len(visible())))


# -- in which order ----------------------------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that are to be alone come first, while the other processes are still collecting; then the long ones."""
    items.sort(key=lambda item: (not is_alone(item), item.get_closest_marker("long") is None))


def is_alone(item: pytest.Item | None) -> bool:
    """Whether no other test may run meanwhile."""
    return item is not None and "alone" in getattr(item, "fixturenames", ())


Work = Callable[[], object]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Kernels that tests say they need (`compiles`) are compiled while a process waits, each by one of every second."""
    number, count = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]), _processes()
    if gpus() and number % 2 == 0:  # the others leave cores to who is alone
        wanted = [(item, item.get_closest_marker("compiles")) for item in session.items]
        works = [partial(marker.args[0], **item.callspec.params) for item, marker in wanted if marker]  # type: ignore[attr-defined]
        _turns.ahead = iter(works[number // 2 :: -(-count // 2)])


def _processes() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


class Turns:
    """Locks of files, which go with their process: either any number of tests at once, or one that is alone.

    Whoever wants to be alone holds ``wanted`` together with others who do. Who does not comes by only while nobody
    holds it: so all that are to be alone run one after another, and wait for nobody who came later.
    """

    def __init__(self) -> None:
        self._held = False
        self.ahead: Iterator[Work] = iter(())  # what may be done while others are alone

    def before(self, item: pytest.Item) -> None:
        """Wait until the test may run."""
        if self._held:
            return
        folder = Path(tempfile.gettempdir())
        self._wanted, self._running = (
            (folder / f"tapestry-gpu-tests-{os.getuid()}-{name}").open("a") for name in ("wanted", "running")
        )
        alone = is_alone(item)
        if alone:
            fcntl.flock(self._wanted, fcntl.LOCK_SH)
            fcntl.flock(self._running, fcntl.LOCK_EX)
        else:
            self._take(self._wanted, fcntl.LOCK_EX)
            self._take(self._running, fcntl.LOCK_SH)
            fcntl.flock(self._wanted, fcntl.LOCK_UN)
        self._held = True

    def _take(self, lock: IO[str], how: int) -> None:
        """Do what there is to do meanwhile."""
        while True:
            with suppress(BlockingIOError):
                return fcntl.flock(lock, how | fcntl.LOCK_NB)
            work = next(self.ahead, None)
            if work is None:
                return fcntl.flock(lock, how)
            with suppress(Exception):  # the test that needs it says so
                work()

    def after(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Let others run; not between two tests that are alone."""
        if not (is_alone(item) and is_alone(following)):
            self._running.close()
            self._wanted.close()
            self._held = False


_turns = Turns()


def in_turn(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """What `pytest_runtest_protocol` is wrapped in. A process that lost its GPU ends: pytest-xdist begins another.

    Where there is no GPU nobody waits: all these tests are skipped, or need none.
    """
    if not gpus():
        return (yield)
    _turns.before(item)
    try:
        return (yield)
    finally:
        _turns.after(item, nextitem)
        if "PYTEST_XDIST_WORKER" in os.environ and not _can_be_used():
            os._exit(70)


def _can_be_used() -> bool:
    """Whether the GPU answers this process, or was never asked, and no context is to be made for the question."""
    from cupy.cuda import driver, runtime

    try:
        if not driver.ctxGetCurrent():
            return True
    except driver.CUDADriverError:  # nothing was initialised
        return True
    try:
        runtime.deviceSynchronize()
    except runtime.CUDARuntimeError:
        return False
    return True


# -- what was found ----------------------------------------------------------------------------------------------------


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A line for each test, with what went wrong: there whatever ends the run."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.outcome == "passed"):
        return
    line = {"test": report.nodeid, "found": report.outcome, "took_s": round(report.duration, 2)}
    line["by"] = getattr(report, "worker_id", "")
    if report.failed:
        line["why"] = report.longreprtext[-4000:]
    with FOUND.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
