"""The `Transport` interface: movements bound to a device's memory and to a way between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping

from ..device import Runner
from ..memory import Memory
from .counting import Key
from .movement import Movement


class Transport(ABC):
    """Carries movements. ``received`` counts the bytes that ranks of this process received from other ranks so far, by
    task and pair of ranks: from what was sent and received, not from what was planned.
    """

    def __init__(self) -> None:
        self.received: Counter[Key] = Counter()

    @property
    def bytes_moved(self) -> int:
        return self.received.total()

    def reached(self, memory: Memory) -> Mapping[int, Memory]:
        """The memories that movements are made over, by rank: this rank's, and those of others that it can read."""
        return {memory.rank: memory}

    def close(self) -> None:
        """Let go of what belongs to other processes, which are still there."""
        return

    @abstractmethod
    def bind(self, movement: Movement) -> Runner:
        """A runner that carries the messages of the movement, each time it is called.

        What is bound runs in the same order on all ranks of a lane. TaskError for a buffer that is not there.
        """
