"""Watching over the other processes while this one computes on a thread of its own choice."""

from __future__ import annotations

import os
import sys
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep

from ..faults import PeerFailed
from .activity import Activity
from .group import FAREWELL_S, Group
from .heart import Heart

POLL_S = 0.1


class Watch:
    """Gives signs of this process from now on, and looks for the failures of others.

    Inside of a step, whoever waits asks `demand_all` again and again. Who cannot, because a library waits for a rank
    that is gone, is ended, once there was time to hear of it.
    """

    def __init__(self, group: Group, patience_s: float) -> None:
        self.group, self.heart = group, Heart(group, Activity(), patience_s)
        self.failure: PeerFailed | None = None
        self.settled: BaseException | None = None  # an error that all ranks know of, after which they go on
        self.inside = False
        self.ended = Flag()
        Thread(target=self._look, daemon=True).start()

    def demand_all(self) -> None:
        """PeerFailed once another rank has failed."""
        if self.failure is not None:
            self.inside = False
            raise self.failure

    def __enter__(self) -> None:
        self.demand_all()
        self.inside = True

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        self.inside = False
        if error is not None and error is not self.settled and not isinstance(error, PeerFailed):
            self.group.publish(error)

    def close(self) -> None:
        """Look no longer."""
        self.ended.set()

    def _look(self) -> None:
        while not self.ended.wait(POLL_S):
            try:
                self.heart.beat()
                found = self.group.failure()
            except RuntimeError:  # the launcher is gone, and with it what ranks tell each other by
                return
            if found is not None and found.origin != self.group.rank:
                self.failure = self.group.heard(found)
                self._farewell()
                return

    def _farewell(self) -> None:
        until = monotonic() + FAREWELL_S
        while self.inside and monotonic() < until:
            sleep(POLL_S)
        if self.inside:
            print(f"PeerFailed: {self.failure}", file=sys.stderr, flush=True)
            os._exit(1)
