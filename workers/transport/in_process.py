"""All ranks in one process: messages go straight from buffer to buffer."""

from __future__ import annotations

from ..device import Device, Runner, in_order
from .movement import Movement
from .transport import Transport


class InProcess(Transport):
    """The transport of the local engine; every rank's buffers are of the one device."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def bind(self, movement: Movement) -> Runner:
        """All messages, folds first, then what they are sent on to, then complete elements."""
        runners = [self.fold(movement, root) for root in folding_ranks(movement)]
        for m in movement.messages:
            if not movement.folded(m):
                with movement.at(m.dst):
                    runners.append(self.device.copy(movement.source(m), movement.target(m.dst), m.region))
        run, received = in_order(runners), movement.received(movement.messages)

        def carry() -> None:
            run()
            self.received.update(received)

        return carry

    def fold(self, movement: Movement, root: int) -> Runner:
        """The fold of what a rank gets, straight from the senders' buffers."""
        assert movement.monoid is not None
        with movement.at(root):
            parts = [(m.region, movement.source(m)) for m in movement.contributions(root)]
            return self.device.fold(parts, movement.target(root), movement.monoid, "")


def folding_ranks(movement: Movement) -> list[int]:
    """The ranks that fold parts, in the order of their first message."""
    return list(dict.fromkeys(m.dst for m in movement.messages if movement.folded(m)))
