"""The CuPy device, failing in one way each: WHEN says which. Ranks of other processes load it, "faulty_gpu:Faulty"."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from delayed import SPIN

from tapestry.planner.format import Transfer
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.machine import Unit
from tapestry.workers.device import Bound, Replay, Runner, in_order
from tapestry.workers.result import Event

WHEN = os.environ["WHEN"]
# What the GPU is busy with while the process ends, and how long into it that is.
BUSY_US, INTO_S = 20_000_000, 0.5


def end(how: int) -> None:
    """Leave the time behind, and go."""
    Path(os.environ["SEEN"], "ended").write_text(str(time.time()))
    os.kill(os.getpid(), how)


class Faulty(CupyDevice):
    """Rank 1 is killed or stopped: while it starts ("start"), before its first task ("idle"), while it computes
    ("compute"), or while the others wait for it in a transfer ("transfer"). With "late" all are only busy for long.
    """

    def __init__(self) -> None:
        Path(os.environ["SEEN"], f"pid-{os.getpid()}").touch()
        if self._mine("start"):
            end(signal.SIGKILL)
        super().__init__()

    def _mine(self, *when: str) -> bool:
        return os.environ["RANK"] == "1" and WHEN in when

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        busy = self._mine("compute", "transfer", "stopped") or WHEN == "late"
        replay = super().replay([self._busy(bound) if busy else bound for bound in tasks])

        def step(began: float) -> list[Event]:
            if self._mine("idle"):
                end(signal.SIGKILL)
            if self._mine("compute", "transfer", "stopped"):
                how = signal.SIGSTOP if WHEN == "stopped" else signal.SIGKILL
                threading.Timer(INTO_S, end, (how,)).start()
            if WHEN == "late":
                Path(os.environ["SEEN"], f"busy-{os.getpid()}").touch()
            return replay(began)

        return step

    def _busy(self, bound: Bound) -> Bound:
        """Ahead of a task, on its lane."""
        if isinstance(bound.task, Transfer) != (WHEN in ("transfer", "stopped")):
            return bound
        return replace(bound, run=in_order([self._spin(), bound.run]))

    def _spin(self) -> Runner:
        return self.machine.launch(Unit(SPIN.format(name="busy", us=BUSY_US), "busy", 1, 1), [])
