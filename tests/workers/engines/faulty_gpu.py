"""The CuPy device, failing in one way each, on rank 1. Ranks of other processes load it, "faulty_gpu:KilledIdle"."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from delayed import SPIN

from tapestry.planner.format import Copy, Transfer
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.machine import Unit
from tapestry.workers.device import Bound, Replay, in_order

# What the GPU is busy with while the process ends, and how long into it that is.
BUSY_US, INTO_S = 20_000_000, 0.5


class Faulty(CupyDevice):
    """``how``: the signal that ends it. ``ahead``: the tasks ahead of which its GPU is busy for long."""

    how: ClassVar[int] = signal.SIGKILL
    ahead: ClassVar[tuple[type, ...]] = ()

    def __init__(self) -> None:
        self.concerned = os.environ["RANK"] == "1"
        self.leave("pid", str(os.getpid()))
        self.starting()
        super().__init__()

    def leave(self, what: str, text: str) -> None:
        """A word for the test."""
        Path(os.environ["SEEN"], f"{type(self).__name__}-{what}-{os.environ['RANK']}").write_text(text)

    def end(self) -> None:
        self.leave("ended", str(time.time()))
        os.kill(os.getpid(), self.how)

    def starting(self) -> None: ...

    def before_the_first_task(self) -> None:
        """By default the end comes a while into what the GPU is busy with."""
        threading.Timer(INTO_S, self.end).start()

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        if not self.concerned:
            return super().replay(tasks)
        first, *others = (self._busy(bound) for bound in tasks)
        return super().replay([replace(first, run=in_order([self.before_the_first_task, first.run])), *others])

    def _busy(self, bound: Bound) -> Bound:
        """The lane is busy ahead of the task."""
        if not isinstance(bound.task, self.ahead):
            return bound
        spin = self.machine.launch(Unit(SPIN.format(name="busy", us=BUSY_US), "busy", 1, 1), [])
        return replace(bound, run=in_order([spin, bound.run]))


class KilledAtStart(Faulty):
    def starting(self) -> None:
        if self.concerned:
            self.end()


class KilledIdle(Faulty):
    def before_the_first_task(self) -> None:
        self.end()


class KilledInAKernel(Faulty):
    ahead = (object,)


class KilledInACopy(Faulty):
    """Between memories of one rank."""

    ahead = (Copy,)


class KilledInATransfer(Faulty):
    """The other rank waits for it in a kernel of the transfer, which has no end of its own."""

    ahead = (Transfer,)


class Stopped(KilledInATransfer):
    how = signal.SIGSTOP


class Busy(Faulty):
    """Both ranks are, and nobody ends."""

    ahead = (object,)

    def __init__(self) -> None:
        super().__init__()
        self.concerned = True

    def before_the_first_task(self) -> None:
        self.leave("busy", "")
