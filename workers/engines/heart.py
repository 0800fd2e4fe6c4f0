"""Whether a run still goes on: every process leaves word of itself again and again, and looks at that of the others."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from time import monotonic
from typing import Any

from ..faults import Deadlock, Silent
from .activity import Activity
from .group import Group

BEAT_S = 1.0


class Heart:
    """Beats while a run lasts.

    A rank of which nothing is heard for ``patience_s`` seconds is accused, and, on this machine, ended: one that was
    stopped would keep its launcher waiting. Where no rank has begun, ended or computed anything for as long, and some
    wait in transfers, they wait for one another.
    """

    def __init__(self, group: Group, activity: Activity, patience_s: float) -> None:
        self.group, self.activity, self.patience_s = group, activity, patience_s
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
        self.group.tell("beat", self._sign())
        signs = {rank: self.group.told("beat", rank) for rank in range(self.group.size)}
        for rank, said in signs.items():
            before, since = self.heard.get(rank, (None, now))
            if late or said is None or said != before:  # none: it has not come to this run yet
                self.heard[rank] = (said, now)
            elif now - since > self.patience_s and rank != self.group.rank:
                self._accuse(rank, json.loads(said))
        self._look_for_deadlock({rank: json.loads(said) for rank, said in signs.items() if said is not None})

    def _sign(self) -> str:
        still = self.activity.stillness()
        word = {"count": self.count, "pid": os.getpid(), "host": socket.gethostname()}
        return json.dumps({**word, "still_s": still.seconds, "waiting": still.waiting})

    def _accuse(self, rank: int, said: dict[str, Any]) -> None:
        self.group.accuse(Silent(f"the process has not answered for {self.patience_s:g} s", rank=rank), rank)
        if said["host"] == socket.gethostname():
            with suppress(OSError):
                os.kill(said["pid"], signal.SIGKILL)

    def _look_for_deadlock(self, signs: dict[int, dict[str, Any]]) -> None:
        waiting = {f"rank {rank}": ", ".join(said["waiting"]) for rank, said in signs.items() if said["waiting"]}
        if len(signs) < self.group.size or not waiting:
            return
        if all(said["still_s"] > self.patience_s for said in signs.values()):
            what = f"no task has begun or ended for {self.patience_s:g} s"
            self.group.accuse(Deadlock(what, sides={rank: f"waits in {tasks}" for rank, tasks in waiting.items()}), 0)
