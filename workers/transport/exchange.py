"""One transfer among ranks of this process, at once or message by message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...planner.format import Message, Resolved, Transfer
from ..numpy.folding import Array
from ..numpy.transfer import demand, fold_parts, move, pack, received, unpack
from ..numpy.views import Stored
from ..rank import Rank

Action = Callable[[], None]


class Exchange:
    """The messages of one transfer and the buffers that they join."""

    def __init__(self, resolved: Resolved, ranks: list[Rank], task: Transfer) -> None:
        self.ranks, self.task = ranks, task
        self.members = resolved.participants(task)
        self.messages = resolved.messages(task)
        self.partial = resolved.layout(task.have).parts is not None
        self.nbytes = remote_bytes(resolved, task)

    def at_once(self) -> None:
        """All messages, straight from buffer to buffer."""
        for root in dict.fromkeys(m.dst for m in self.messages if self.contributes(m)):
            self.fold(root, [(m.region, self.source(m)) for m in self.contributions(root)])
        for m in self.messages:
            if not self.contributes(m):
                with self.ranks[m.dst].failing(self.task):
                    move(self.source(m), self.target(m.dst), m.region)

    def contributes(self, m: Message) -> bool:
        """Whether a message carries a part to be folded, rather than complete elements."""
        return self.partial and m.phase == 0

    def contributions(self, root: int) -> list[Message]:
        """What a root folds, in the order of part numbers."""
        return sorted((m for m in self.messages if m.dst == root and self.contributes(m)), key=lambda m: m.part or 0)

    def fold(self, root: int, parts: list[tuple[object, Stored]]) -> None:
        with self.ranks[root].failing(self.task):
            fold_parts(parts, self.target(root), self.task.monoid or "sum")  # type: ignore[arg-type]

    def source(self, m: Message) -> Stored:
        """Where a message is read: folded results come from the root's target."""
        name = self.task.target if m.phase else self.task.source
        return demand(self.ranks[m.src].arena[name], f"buffer {name}", rank=m.src)

    def target(self, rank: int) -> Stored:
        return demand(self.ranks[rank].arena[self.task.target], f"buffer {self.task.target}", rank=rank)


def remote_bytes(resolved: Resolved, task: Transfer) -> int:
    """Payload bytes that ranks receive from other ranks."""
    itemsize = resolved.program.tensor(task.tensor).itemsize
    return sum(m.region.size for m in resolved.messages(task) if m.remote) * itemsize


class Piecewise:
    """The same transfer in single steps, each of which may happen at any time that the plan's semantics allow.

    A message is read any time after its rank arrived (folded results: after the fold) and written any time after that;
    a rank leaves the transfer when what it sends is read and what it gets is written.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.unread = list(exchange.messages)
        self.flying: list[tuple[Message, Array]] = []
        self.parts: dict[int, list[tuple[Message, Array]]] = {}
        self.unfolded = {m.dst for m in exchange.messages if exchange.contributes(m)}

    def actions(self) -> list[Action]:
        """What may happen next."""
        ready = [m for m in self.unread if m.phase == 0 or not self.exchange.partial or m.src not in self.unfolded]
        found: list[Action] = [partial(self._read, m) for m in ready]
        found += [partial(self._write, flight) for flight in self.flying]
        found += [partial(self._fold, root) for root in sorted(self.unfolded) if self._complete(root)]
        return found

    def left_by(self, rank: int) -> bool:
        """Whether a rank has nothing more to do in it."""
        busy = [*self.unread, *(m for m, _ in self.flying)]
        return rank not in self.unfolded and not any(
            m.dst == rank or (m.src == rank and m in self.unread) for m in busy
        )

    def _read(self, m: Message) -> None:
        with self.exchange.ranks[m.src].failing(self.exchange.task):
            payload = pack(self.exchange.source(m), m.region)
        self.unread.remove(m)
        if self.exchange.contributes(m):
            self.parts.setdefault(m.dst, []).append((m, payload))
        else:
            self.flying.append((m, payload))

    def _write(self, flight: tuple[Message, Array]) -> None:
        m, payload = flight
        self.flying = [other for other in self.flying if other is not flight]
        with self.exchange.ranks[m.dst].failing(self.exchange.task):
            unpack(payload, self.exchange.target(m.dst), m.region)

    def _complete(self, root: int) -> bool:
        return len(self.parts.get(root, ())) == len(self.exchange.contributions(root))

    def _fold(self, root: int) -> None:
        parts = sorted(self.parts.pop(root), key=lambda part: part[0].part or 0)
        self.exchange.fold(root, [(m.region, received(payload, m.region)) for m, payload in parts])
        self.unfolded.remove(root)
