"""A movement in single steps, each of which may happen at any time that the plan's semantics allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from ...planner.format import Message
from ..device import Device, Packed
from .counting import Key
from .in_process import folding_ranks
from .movement import Movement

Action = Callable[[], None]
Flight = tuple[Message, Packed]


class Piecewise:
    """Among ranks of this process.

    A message is read any time after its rank arrived (folded results: after the fold) and written any time after that;
    a rank leaves the transfer when what it sends is read and what it gets is written.
    """

    def __init__(self, device: Device, movement: Movement) -> None:
        self.device, self.movement = device, movement
        self.unread = list(movement.messages)
        self.flying: list[Flight] = []
        self.parts: dict[int, list[Flight]] = {}
        self.unfolded = set(folding_ranks(movement))
        self.received: Counter[Key] = Counter()

    def actions(self) -> list[Action]:
        """What may happen next."""
        ready = [m for m in self.unread if m.phase == 0 or m.src not in self.unfolded]
        found: list[Action] = [partial(self._read, m) for m in ready]
        found += [partial(self._write, flight) for flight in self.flying]
        found += [partial(self._fold, root) for root in sorted(self.unfolded) if self._complete(root)]
        return found

    def left_by(self, rank: int) -> bool:
        """Whether a rank has nothing more to do in it."""
        busy = any(rank in (m.src, m.dst) for m in self.unread) or any(m.dst == rank for m, _ in self.flying)
        return rank not in self.unfolded and not busy

    def _read(self, m: Message) -> None:
        with self.movement.at(m.src):
            packed = Packed(self.device.take(m.region.size, self.movement.dtype_of(m), None), m.region)
            self.device.pack(self.movement.source(m), packed)()
        self.unread.remove(m)
        self.received.update(self.movement.received([m]))
        if self.movement.folded(m):
            self.parts.setdefault(m.dst, []).append((m, packed))
        else:
            self.flying.append((m, packed))

    def _write(self, flight: Flight) -> None:
        m, packed = flight
        self.flying = [other for other in self.flying if other is not flight]
        with self.movement.at(m.dst):
            self.device.unpack(packed, self.movement.target(m.dst))()

    def _complete(self, root: int) -> bool:
        return len(self.parts.get(root, ())) == len(self.movement.contributions(root))

    def _fold(self, root: int) -> None:
        flights = sorted(self.parts.pop(root), key=lambda flight: flight[0].part or 0)
        with self.movement.at(root):
            assert self.movement.monoid is not None
            parts = [(m.region, packed) for m, packed in flights]
            self.device.fold(parts, self.movement.target(root), self.movement.monoid, "")()
        self.unfolded.remove(root)
