"""One rank a process: messages as packets of torch.distributed, one to and from every other rank a phase.

All sends and receives of a phase are posted together and told apart by tags, so no number of them can block one
another. (NCCL has no tags: it matches packets by their order, which is the same on all ranks of a lane.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...planner.format import Message
from ..device import Device, Packed, Runner, Stored, in_order, nothing, packets
from .company import Post
from .counting import Key
from .movement import Movement
from .transport import Transport


def poster(handle: Any) -> Post:
    """Packets through a process group of torch.distributed (None: the default one)."""
    import torch.distributed as dist

    def post(sends: list[tuple[Any, int]], receives: list[tuple[Any, int]], tag: int) -> Callable[[], None]:
        found = [dist.P2POp(dist.irecv, tensor, peer, handle, tag) for tensor, peer in receives]
        found += [dist.P2POp(dist.isend, tensor, peer, handle, tag) for tensor, peer in sends]
        works = dist.batch_isend_irecv(found) if found else []

        def wait() -> None:
            for work in works:
                work.wait()

        return wait

    return post


class TorchDistributed(Transport):
    """The transport of rank ``number``."""

    def __init__(self, device: Device, number: int, post: Post) -> None:
        super().__init__()
        self.device, self.number, self.post = device, number, post

    def bind(self, movement: Movement) -> Runner:
        with self.device.temporaries(movement.lane):
            phases = [self._phase(movement, phase) for phase in (0, 1)]
        return in_order([run for run in phases if run is not None])

    def _phase(self, movement: Movement, phase: int) -> Runner | None:
        messages = [m for m in movement.messages if m.phase == phase]
        mine = [m for m in messages if m.src == m.dst == self.number]
        to = _by_peer([m for m in messages if m.src == self.number], lambda m: m.dst, self.number)
        of = _by_peer([m for m in messages if m.dst == self.number], lambda m: m.src, self.number)
        if not (mine or to or of):
            return None
        with movement.at(self.number):
            sends = [
                (dst, self.device.outgoing(movement.source(ms[0]), [m.region for m in ms], movement.lane))
                for dst, ms in to.items()
            ]
            received, receives, after = self._landing(movement, mine, of)
        ready = in_order([payload.run for _, payload in sends])
        outgoing = [(self.device.tensor(payload.array), dst) for dst, payload in sends]
        incoming = [(self.device.tensor(array), src) for src, array in receives]
        landed = Counter({Key(movement.place.task, src, self.number): t.numel() for t, src in incoming})
        tag, post, device = 2 * movement.tag + phase, self.post, self.device

        def carry() -> None:
            ready()
            with device.before_torch():
                wait = post(outgoing, incoming, tag)
                received()
                wait()
            after()
            self.received.update(landed)

        return carry

    def _landing(
        self, movement: Movement, mine: Sequence[Message], of: dict[int, list[Message]]
    ) -> tuple[Runner, list[tuple[int, Any]], Runner]:
        """What to do while packets travel, where they land, and what to do once they are here."""
        here = [*mine, *(m for messages in of.values() for m in messages)]
        if not here:
            return nothing, [], nothing
        if movement.folded(here[0]):
            return self._folding(movement, mine, of)
        target = movement.target(self.number)
        local = [self.device.copy(movement.source(m), target, m.region) for m in mine]
        landing = {src: self.device.incoming(target, [m.region for m in ms], movement.lane) for src, ms in of.items()}
        arrays = [(src, payload.array) for src, payload in landing.items()]
        return in_order(local), arrays, in_order([payload.run for payload in landing.values()])

    def _folding(
        self, movement: Movement, mine: Sequence[Message], of: dict[int, list[Message]]
    ) -> tuple[Runner, list[tuple[int, Any]], Runner]:
        assert movement.monoid is not None
        parts: list[tuple[Message, Stored | Packed]] = [(m, movement.source(m)) for m in mine]
        arrays = []
        for src, messages in of.items():
            regions = [m.region for m in messages]
            array = self.device.take(sum(region.size for region in regions), movement.parts, movement.lane)
            parts += zip(messages, packets(array, regions), strict=True)
            arrays.append((src, array))
        parts.sort(key=lambda part: part[0].part or 0)
        target = movement.target(self.number)
        ordered = [(m.region, held) for m, held in parts]
        return nothing, arrays, self.device.fold(ordered, target, movement.monoid, movement.lane)


def _by_peer(messages: Sequence[Message], peer: Callable[[Message], int], number: int) -> dict[int, list[Message]]:
    """Remote messages by the other rank."""
    found: dict[int, list[Message]] = {}
    for m in messages:
        if peer(m) != number:
            found.setdefault(peer(m), []).append(m)
    return found
