"""What is said of the tasks of a plan: what they compute, or move and from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...records import width_of
from ..format import Compute, Copy, Resolved, Task, Transfer
from ..format.events import Event
from .peers import ranks_text

if TYPE_CHECKING:
    from ..format.messages import Message

MOST_APART = 64  # ranks of a plan of which it is said who sends what to whom
US = 1e6


@dataclass(frozen=True)
class Parcel:
    """What a rank gets from, or gives to, each other rank in one transfer: bytes by rank."""

    received: Mapping[int, int]
    sent: Mapping[int, int]


class Sayings:
    """What is said of the tasks of a plan. Who sends what is known of plans for up to `MOST_APART` ranks."""

    def __init__(self, resolved: Resolved, foreseen: Mapping[tuple[int, int], Event]) -> None:
        self.resolved, self.foreseen = resolved, foreseen
        self._parcels: dict[int, dict[int, Parcel]] = {}
        self._kept: list[list[Message]] = []

    @cached_property
    def tasks(self) -> Mapping[int, Task]:
        return {task.id: task for task in self.resolved.document.tasks}

    def of(self, event: Event) -> Mapping[str, Any]:
        """The arguments of an event."""
        task = self.tasks[event.task]
        foreseen = self.foreseen.get((event.rank, event.task))
        time = {} if foreseen in (None, event) else {"predicted_us": (foreseen.end_s - foreseen.start_s) * US}
        match task:
            case Compute():
                return {"operation": task.op, "writes": self._tensor(task.write), **time}
            case Copy():
                tiers = " to ".join(self.resolved.buffers[name].tier for name in (task.source, task.target))
                return {"tensor": task.tensor, "tiers": tiers, **time}
            case Transfer():
                return {"tensor": task.tensor, "kind": task.kind, **self._moved(task, event.rank), **time}

    def _tensor(self, buffer: str) -> str:
        return self.resolved.buffers[buffer].tensor

    def _moved(self, task: Transfer, rank: int) -> Mapping[str, Any]:
        parcel = self.parcels(task).get(rank)
        if parcel is None:
            return {}
        found: dict[str, Any] = {}
        for word, way, bytes_by_rank in (("received", "from", parcel.received), ("sent", "to", parcel.sent)):
            if bytes_by_rank:
                ranks = ranks_text(sorted(bytes_by_rank), MOST_APART)
                found |= {f"bytes_{word}": sum(bytes_by_rank.values()), way: ranks}
        return found

    def parcels(self, task: Transfer) -> Mapping[int, Parcel]:
        """By rank; equal transfers are looked at once."""
        if self.resolved.size > MOST_APART:
            return {}
        messages = self.resolved.messages(task)
        if id(messages) not in self._parcels:
            self._kept.append(messages)
            self._parcels[id(messages)] = self._sorted(task, messages)
        return self._parcels[id(messages)]

    def _sorted(self, task: Transfer, messages: Sequence[Message]) -> dict[int, Parcel]:
        width = width_of(self.resolved.program, task.tensor)
        received: dict[int, dict[int, int]] = {}
        sent: dict[int, dict[int, int]] = {}
        for message in messages:
            if message.remote:
                nbytes = message.moved_bytes(width)
                for side, mine, other in ((received, message.dst, message.src), (sent, message.src, message.dst)):
                    ranks = side.setdefault(mine, {})
                    ranks[other] = ranks.get(other, 0) + nbytes
        return {rank: Parcel(received.get(rank, {}), sent.get(rank, {})) for rank in {*received, *sent}}
