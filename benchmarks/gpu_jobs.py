"""Processes on GPUs, each measured while nothing else runs on its GPUs, all made ready side by side before.

What takes long is to import, load, compile and capture; what has to be alone is short. So jobs begin together, those of
one GPU spread over all. A job that is ready says so by a file, GATE.ready, and waits for another, GATE.go. When all are
ready, they go in their order: as many side by side as there are GPUs for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.05
PLANNERS = 4  # at once
READY_S = 120.0  # to get ready
LAUNCHER = '  File "<frozen runpy>"'  # from here on torchrun says where it was itself, not what its ranks said


@dataclass(frozen=True)
class Job:
    """A process that prints objects of JSON: the last one counts. It is begun when others have ended, is to be ready in
    `READY_S` if it is on GPUs, and to end in ``limit_s`` from the moment on at which it may go.
    """

    name: str
    gpus: int
    command: tuple[str, ...]
    limit_s: float
    after: tuple[str, ...] = ()


@dataclass
class Running:
    """A job that was begun, on its GPUs. ``went``: when it was let through its gate."""

    job: Job
    gpus: list[int]
    process: subprocess.Popen[bytes]
    folder: Path
    began: float = field(default_factory=monotonic)
    went: float | None = None

    @property
    def ready(self) -> bool:
        return _gate(self.folder, self.job).with_suffix(".ready").exists()

    def go(self) -> None:
        _gate(self.folder, self.job).with_suffix(".go").touch()
        self.went = monotonic()

    def ended(self) -> bool:
        if self.went is None and self.job.gpus:
            late = not self.ready and monotonic() - self.began > READY_S
        else:
            late = monotonic() - (self.went or self.began) > self.job.limit_s
        if late and self.process.poll() is None:
            self.end()
        return self.process.poll() is not None

    def end(self) -> None:
        """The process and all that it began."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def result(self) -> dict[str, Any]:
        """What it printed last; why there is no more, if it failed; seconds in all, and since it went."""
        found: dict[str, Any] = {}
        for line in (self.folder / f"{self.job.name}.out").read_text().splitlines():
            with suppress(json.JSONDecodeError):
                found = json.loads(line)
        if self.process.returncode or not found:
            said = (self.folder / f"{self.job.name}.err").read_text()
            own = said.partition(LAUNCHER)[0].rstrip() or said
            found["failed"] = f"code {self.process.returncode}: {own[-1500:]}"
        now = monotonic()
        return found | {"took_s": round(now - self.began, 1), "went_s": round(now - (self.went or self.began), 1)}


def _gate(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.gate"


def run(jobs: Iterable[Job], gpus: int, found: dict[str, Any], until: float, save: Callable[[str], None]) -> None:
    """All jobs, what they found by name, each saved as it ends; one that did not go in time is said to be so."""
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        todo = list(jobs)
        order = {job.name: number for number, job in enumerate(todo)}
        turns = _Turns(todo, order, gpus, found, until, save, Path(folder))
        try:
            turns.all()
        finally:
            turns.end()


@dataclass
class _Turns:
    waiting: list[Job]
    order: dict[str, int]
    gpus: int
    found: dict[str, Any]
    until: float
    save: Callable[[str], None]
    folder: Path
    going: list[Running] = field(default_factory=list)

    def all(self) -> None:
        while self.waiting or self.going:
            for one in [one for one in self.going if one.ended()]:
                self.going.remove(one)
                self._found(one.job, one.result())
            self._begin()
            self._let_go()
            sleep(POLL_S)

    def end(self) -> None:
        for one in self.going:
            one.end()

    def _found(self, job: Job, result: dict[str, Any]) -> None:
        self.found[job.name] = result
        self.save(job.name)

    def _begin(self) -> None:
        """Whatever need not wait for others any more."""
        for job in list(self.waiting):
            failed = [name for name in job.after if "failed" in self.found.get(name, {})]
            planning = sum(not one.job.gpus for one in self.going)
            if failed or monotonic() > self.until:
                self.waiting.remove(job)
                self._found(job, {"failed": f"{failed[0]} failed" if failed else "the time was over"})
            elif all(name in self.found for name in job.after) and (job.gpus or planning < PLANNERS):
                self.waiting.remove(job)
                self.going.append(_begun(job, self._least_used(job.gpus), self.folder))

    def _least_used(self, count: int) -> list[int]:
        """GPUs for one job more."""
        used = [sum(gpu in one.gpus for one in self.going) for gpu in range(self.gpus)]
        return sorted(sorted(range(self.gpus), key=lambda gpu: used[gpu])[:count])

    def _planned(self) -> bool:
        """Whether nobody has anything to do on the host alone."""
        return all(job.gpus for job in [*self.waiting, *(one.job for one in self.going)])

    def _let_go(self) -> None:
        """When all are ready: the next ones, in their order, whose GPUs are free."""
        held = [one for one in self.going if one.job.gpus and one.went is None]
        if monotonic() > self.until:
            for one in held:
                one.end()
                self.going.remove(one)
                self._found(one.job, {"failed": "the time was over"})
        elif self._planned() and all(one.ready for one in held):
            taken = {gpu for one in self.going if one.went is not None for gpu in one.gpus}
            for one in sorted(held, key=lambda one: self.order[one.job.name]):
                if taken.isdisjoint(one.gpus):
                    one.go()
                taken.update(one.gpus)  # what needs more of them is not overtaken for ever


def _begun(job: Job, gpus: list[int], folder: Path) -> Running:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [seen[k] if k < len(seen) and seen[k] else str(k) for k in gpus]
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(names), "NCCL_NVLS_ENABLE": "0"}
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    gate = ("--gate", str(_gate(folder, job))) if job.gpus else ()
    with (folder / f"{job.name}.out").open("w") as said, (folder / f"{job.name}.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, *job.command, *gate], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=errors,
            env={**os.environ, **visible, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
    return Running(job, gpus, process, folder)


# -- in a job ------------------------------------------------------------------------------------------------------


def passed(gate: Path | None) -> None:
    """Say that all is ready, and wait until it is this job's turn."""
    if gate is not None:
        gate.with_suffix(".ready").touch()
        while not gate.with_suffix(".go").exists():
            sleep(0.02)
