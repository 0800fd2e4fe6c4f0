"""What a rank is doing, left where its launcher finds it when the process is gone and can say nothing any more.

A file of the job's folder that the rank writes into by way of memory: a number a task begun, no call of the system.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from ...planner.format import Resolved
from ...planner.format.codec import decode
from ..faults import Place
from ..rank import place_of

_BYTES = 8


class Doing:
    """The task that was begun last and has not ended."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _BYTES)

    def begin(self, task: int) -> None:
        self._memory[:] = (task + 1).to_bytes(_BYTES, "little")

    def end(self, task: int) -> None:
        """Unless another lane began one since."""
        if self._memory[:] == (task + 1).to_bytes(_BYTES, "little"):
            self._memory[:] = bytes(_BYTES)


def doing_path(job: Path, rank: int) -> Path:
    """Where a rank says so."""
    return job / f"doing-{rank}"


def last_done(folder: Path, rank: int) -> Place | None:
    """What a rank was doing in the last job of a folder that it came to; None where it was in no task."""
    jobs = [job for job in sorted(folder.glob("job*")) if doing_path(job, rank).exists()]
    number = int.from_bytes(doing_path(jobs[-1], rank).read_bytes(), "little") if jobs else 0
    if not number:
        return None
    plan = Resolved(decode((jobs[-1] / "plan.json").read_bytes()))
    [task] = [task for task in plan.document.tasks if task.id == number - 1]
    return place_of(plan, task, rank)
