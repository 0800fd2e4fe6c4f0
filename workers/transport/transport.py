"""The `Transport` interface: movements bound to a device's memory and to a way between ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..device import Runner
from .movement import Movement


class Transport(ABC):
    """Carries movements. ``bytes_moved`` is what the ranks of this process received from other ranks so far: counted
    from what was sent and received, not from what was planned.
    """

    bytes_moved: int = 0

    @abstractmethod
    def bind(self, movement: Movement) -> Runner:
        """A runner that carries the messages of the movement, each time it is called.

        What is bound runs in the same order on all ranks of a lane. TaskError for a buffer that is not there.
        """
