"""The in-process engine: all ranks in one process, in a fixed order or in a seeded adversarial one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from time import perf_counter

from ...planner.format import Document, Resolved
from ..between import next_step
from ..device import Device, in_order, nothing
from ..devices import open_device
from ..rank import Rank
from ..result import RunResult, Step
from ..stores.arrays import Array
from ..stores.inputs import checked_inputs
from ..transport.counting import demand_planned
from ..transport.in_process import InProcess
from ..transport.movement import Movement
from ..transport.transport import Transport
from ..whole import empty_whole, results
from .adversary import Shuffled
from .alone import measured_alone
from .engine import Engine, Settings, resolved
from .replayed import Replayed


class LocalEngine(Engine):
    """Without an order it runs one rank as far as it gets, then the next; with one it runs tasks, and reads and writes
    of messages, in a random order that the lanes and waits allow.
    """

    def run(self, document: Document | Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
        plan = resolved(document)
        checked = checked_inputs(plan.program, inputs)
        device = open_device(settings.device)
        try:
            ranks = _loaded(device, plan, checked, settings)
            again = in_order(next_step(device, plan, ranks, checked)) if settings.repeat > 1 else nothing
            steps = _InOrder(plan, ranks) if settings.order is None else _Shuffled(plan, ranks, settings.order)
            found = []
            for number in range(settings.repeat):
                with device.running():
                    if number:
                        again()
                    if number == 1:
                        steps.keep()
                    device.synchronise()
                    found.append(steps.step())
            outputs = gather(plan, ranks)
            if settings.alone:  # values pile up
                with device.running():
                    found.append(measured_alone(device, plan, ranks))
            return RunResult(outputs, steps.bytes_moved, found, baseline_bytes=device.baseline_bytes())
        finally:
            device.close()


def _loaded(device: Device, plan: Resolved, inputs: Mapping[str, Array], settings: Settings) -> list[Rank]:
    """All ranks of a plan, inputs in place. One alone has its lanes: no other takes turns with it."""
    settled = {"poison": settings.poison, "lanes": plan.size == 1, "joins": settings.joins}
    ranks = [Rank(device, plan, number, **settled) for number in range(plan.size)]
    for rank in ranks:
        rank.load(inputs)
        rank.bind()
    return ranks


class _Steps(ABC):
    """One step of a plan after another. ``bytes_moved``: what ranks received in the last that was counted."""

    def __init__(self, plan: Resolved, ranks: list[Rank]) -> None:
        self.plan, self.ranks = plan, ranks
        self.bytes_moved = 0

    @abstractmethod
    def step(self) -> Step:
        """Run the tasks once."""

    @abstractmethod
    def keep(self) -> None:
        """Many steps are to come like the first."""

    def count(self, transport: Transport) -> None:
        """BytesDiffer where something else was moved than is planned."""
        demand_planned(self.plan, transport.received, range(self.plan.size))
        self.bytes_moved = transport.bytes_moved


class _InOrder(_Steps):
    """In the fixed order, which is found once."""

    def __init__(self, plan: Resolved, ranks: list[Rank]) -> None:
        super().__init__(plan, ranks)
        self.order = Replayed(plan, ranks)
        self.replay = ranks[0].device.in_turn(self.order.steps)
        self.counts = True

    def keep(self) -> None:
        self.counts = not self.replay.keep(timed=True)

    def step(self) -> Step:
        transport = self.order.transport
        transport.received.clear()
        events = self.order.of_all(self.replay(perf_counter()))
        self.ranks[0].device.synchronise()
        if self.counts:
            self.count(transport)
        return Step(max((event.end_s for event in events), default=0.0), events)


class _Shuffled(_Steps):
    """In an adversarial order."""

    def __init__(self, plan: Resolved, ranks: list[Rank], seed: int) -> None:
        super().__init__(plan, ranks)
        self.seed = seed

    def keep(self) -> None:
        """The order is found anew."""

    def step(self) -> Step:
        order = Shuffled(self.plan, self.ranks, self.seed)
        order.run_all()
        self.ranks[0].device.synchronise()
        self.count(order.transport)
        return Step(order.elapsed(), sorted(order.events, key=lambda event: event.start_s))


def gather(plan: Resolved, ranks: list[Rank]) -> dict[str, Array]:
    """Whole outputs and states from the memories of all ranks."""
    memories = {rank.number: rank.memory for rank in ranks}
    found: dict[str, Array] = {}
    for tensor, buffer in results(plan):
        target = empty_whole(plan.program.tensor(tensor))
        InProcess(ranks[0].device).bind(Movement.to_rank_0(plan, tensor, buffer, memories, target, 0))()
        found[tensor] = target.array
    ranks[0].device.synchronise()
    return found
