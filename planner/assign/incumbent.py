"""What the engines of one solve share: the best feasible labels, the best bound and who proved it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from .answer import EngineProof
from .model import HALF, Loads, Model
from .problem import Ints


@dataclass(eq=False)
class Incumbent:
    """Engines offer labels and bounds from their own threads; `finished` is set once nothing is left to find out."""

    model: Model
    loads: Loads
    began: float
    deadline: float
    labels: Ints | None = None
    cost: int = HALF
    bound: int | None = None
    proof: EngineProof | None = None
    infeasible: bool = False
    places: dict[int, None] = field(default_factory=dict)  # memory rows that some engine has needed
    history: list[tuple[float, int]] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def left(self) -> float:
        """Seconds until the deadline, none once finished."""
        return 0.0 if self.finished.is_set() else max(0.0, self.deadline - time.monotonic())

    def offer(self, labels: Ints) -> bool:
        """Takes labels that keep every limit and are cheaper than the best; says whether they were taken."""
        cost = self.model.cost(labels)
        if cost >= self.cost or (self.loads.excess(labels) > 0).any():
            return False
        with self._lock:
            if cost >= self.cost:
                return False
            self.labels, self.cost = labels.copy(), cost
            self.history.append((time.monotonic() - self.began, cost))
            self._close()
        return True

    def prove(self, bound: int, engine: str, status: str) -> None:
        """Takes a lower bound."""
        with self._lock:
            if self.bound is None or bound > self.bound or (status == "optimal" and bound >= self.bound):
                self.bound, self.proof = bound, EngineProof(engine, status, bound)
                self._close()

    def refute(self, engine: str) -> None:
        """Takes a proof that there is no choice at all."""
        with self._lock:
            if self.labels is None:
                self.infeasible, self.proof = True, EngineProof(engine, "infeasible", None)
                self.finished.set()

    def need(self, places: list[int]) -> None:
        """Remembers memory rows worth stating from the start."""
        with self._lock:
            self.places.update(dict.fromkeys(places))

    def _close(self) -> None:
        if self.labels is not None and self.bound is not None and self.bound >= self.cost:
            if self.proof is not None:
                self.proof = replace(self.proof, status="optimal")
            self.finished.set()
