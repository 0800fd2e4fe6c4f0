"""Whether the other processes of a run still answer: each leaves a growing number, and looks at those of the others."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from time import monotonic

from ..faults import TaskError
from .group import Group

BEAT_S = 1.0


class Heart:
    """Beats while a run lasts. A rank of which nothing is heard for ``patience_s`` seconds is accused, and, on this
    machine, ended: one that was stopped would keep its launcher waiting.
    """

    def __init__(self, group: Group, patience_s: float) -> None:
        self.group, self.patience_s = group, patience_s
        self.beat_s = min(BEAT_S, patience_s / 4)
        self.count = 0
        self.next = monotonic()
        self.heard: dict[int, tuple[str | None, float]] = {}

    def beat(self) -> None:
        """Give a sign if it is time to, and look for those of the others."""
        now = monotonic()
        if now < self.next:
            return
        # A process that was stopped itself has heard nobody meanwhile, which says nothing of them.
        late, self.next = now - self.next > self.beat_s, now + self.beat_s
        self.count += 1
        self.group.tell("beat", f"{self.count} {os.getpid()} {socket.gethostname()}")
        for rank in range(self.group.size):
            said = self.group.told("beat", rank)
            before, since = self.heard.get(rank, (None, now))
            if late or said is None or said != before:  # none: it has not come to this run yet
                self.heard[rank] = (said, now)
            elif now - since > self.patience_s and rank != self.group.rank:
                self._accuse(rank, said)

    def _accuse(self, rank: int, said: str) -> None:
        self.group.accuse(TaskError(f"the process has not answered for {self.patience_s:g} s", rank=rank))
        _, pid, host = said.split(" ", 2)
        if host == socket.gethostname():
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
