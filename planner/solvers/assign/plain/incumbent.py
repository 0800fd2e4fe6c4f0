"""What the engines of one solve share: the best feasible labels, the best bound and whose word it is."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

import numpy as np

from ..answer import EngineClaim
from ..problem import Ints
from .reduced import HALF, Loads, Reduced


class Tally:
    """The exact cost of labels from joined arrays: what `Reduced.cost` says, in milliseconds for 65,000 groups."""

    def __init__(self, model: Reduced) -> None:
        pairs = sorted(model.edges)
        counts = model.label_counts
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self._low, self._high = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
        self._cols = counts[self._high]
        sizes = counts[self._low] * self._cols
        self._unary_first, self._matrix_first = np.cumsum(counts) - counts, np.cumsum(sizes) - sizes
        self._unary = np.concatenate([np.zeros(0, dtype=np.int64), *model.unary])
        self._matrix = np.concatenate([np.zeros(0, dtype=np.int64), *(model.edges[pair].reshape(-1) for pair in pairs)])

    def least(self) -> int:
        """What nothing can cost less than: the least of every group and of every pair."""
        of_groups, of_pairs = (
            np.minimum.reduceat(values, first).sum() if len(first) else 0
            for values, first in ((self._unary, self._unary_first), (self._matrix, self._matrix_first))
        )
        return int(of_groups) + int(of_pairs)

    def parts(self, labels: Ints) -> tuple[int, int]:
        """(how many forbidden strategies and pairs are chosen, the cost of all others)."""
        alone = self._unary[self._unary_first + labels]
        paired = self._matrix[self._matrix_first + labels[self._low] * self._cols + labels[self._high]]
        chosen = np.concatenate([alone, paired])
        allowed = chosen < HALF
        return len(chosen) - int(allowed.sum()), int(chosen[allowed].sum())

    def cost(self, labels: Ints) -> int:
        """Exact; `HALF` where something forbidden is chosen."""
        forbidden, cost = self.parts(labels)
        return HALF if forbidden else cost


@dataclass(eq=False)
class Incumbent:
    """Engines offer labels and bounds from their own threads; `finished` is set once nothing is left to find out."""

    model: Reduced
    loads: Loads
    began: float
    deadline: float
    labels: Ints | None = None
    cost: int = HALF
    bound: int | None = None  # the best that anybody names; engines end where it meets the cost
    claim: EngineClaim | None = None  # the best that an exact solver names
    infeasible: bool = False
    places: dict[int, None] = field(default_factory=dict)  # memory rows that some engine has needed
    history: list[tuple[float, int]] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)
    closed: bool = False  # the answer is being written: what comes too late is not taken
    tally: Tally = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.tally = Tally(self.model)

    @property
    def left(self) -> float:
        """Seconds until the deadline, none once finished."""
        return 0.0 if self.finished.is_set() else max(0.0, self.deadline - time.monotonic())

    def offer(self, labels: Ints) -> bool:
        """Takes labels that keep every limit and are cheaper than the best; says whether they were taken."""
        cost = self.tally.cost(labels)
        if cost >= self.cost or (self.loads.excess(labels) > 0).any():
            return False
        with self._lock:
            if cost >= self.cost or self.closed:
                return False
            self.labels, self.cost = labels.copy(), cost
            self.history.append((time.monotonic() - self.began, cost))
            self._finish()
        return True

    def trust(self, bound: int, engine: str, status: str) -> None:
        """Takes an exact solver's word for a lower bound."""
        with self._lock:
            known = self.claim.bound if self.claim is not None else None
            if not self.closed and (known is None or bound > known or (status == "optimal" and bound == known)):
                self.claim = EngineClaim(engine, status, bound)
                self.bound = bound if self.bound is None else max(bound, self.bound)
                self._finish()

    def raise_bound(self, bound: int) -> bool:
        """Takes a lower bound that the caller can certify; says whether it was news."""
        with self._lock:
            if self.closed or (self.bound is not None and bound <= self.bound):
                return False
            self.bound = bound
            self._finish()
        return True

    def close(self) -> None:
        """From here on nothing changes."""
        with self._lock:
            self.closed = True
        self.finished.set()

    def refute(self, engine: str) -> None:
        """Takes an exact solver's word that there is no choice at all."""
        with self._lock:
            if self.labels is None and not self.closed:
                self.infeasible, self.claim = True, EngineClaim(engine, "infeasible", None)
                self.finished.set()

    def need(self, places: list[int]) -> None:
        """Remembers memory rows worth stating from the start."""
        with self._lock:
            self.places.update(dict.fromkeys(places))

    def again(self, seconds: float) -> Incumbent:
        """The same labels for engines that begin when all others have ended, without their word."""
        until = min(self.deadline, time.monotonic() + seconds)
        return replace(self, deadline=until, bound=None, claim=None, finished=threading.Event(), _lock=threading.Lock())

    def _finish(self) -> None:
        if self.labels is not None and self.bound is not None and self.bound >= self.cost:
            if self.claim is not None and self.claim.bound is not None and self.claim.bound >= self.cost:
                self.claim = replace(self.claim, status="optimal")
            self.finished.set()
