"""The in-process engine: all ranks in one process, in a fixed order or in a seeded adversarial one."""

from __future__ import annotations

from collections.abc import Mapping

from ...planner.format import Document, Resolved
from ..between import next_step
from ..device import in_order, nothing
from ..devices import open_device
from ..rank import Rank
from ..result import RunResult, Step
from ..stores.arrays import Array
from ..stores.inputs import checked_inputs
from ..transport.counting import demand_planned
from ..transport.in_process import InProcess
from ..transport.movement import Movement
from ..whole import empty_whole, results
from .adversary import Shuffled
from .alone import measured_alone
from .engine import Engine, Settings, resolved
from .order import Ordered


class LocalEngine(Engine):
    """Without an order it runs one rank as far as it gets, then the next; with one it runs tasks, and reads and writes
    of messages, in a random order that the lanes and waits allow.
    """

    def run(self, document: Document | Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
        plan = resolved(document)
        checked = checked_inputs(plan.program, inputs)
        device = open_device(settings.device)
        try:
            numbers = range(plan.size)
            settled = {"poison": settings.poison, "lanes": False, "joins": not settings.alone}
            ranks = [Rank(device, plan, number, **settled) for number in numbers]
            for rank in ranks:
                rank.load(checked)
                rank.bind()
            again = in_order(next_step(device, plan, ranks, checked)) if settings.repeat > 1 else nothing
            steps, bytes_moved = [], 0
            for number in range(settings.repeat):
                order = Ordered(plan, ranks) if settings.order is None else Shuffled(plan, ranks, settings.order)
                with device.running():
                    if number:
                        again()
                    order.run_all()
                    device.synchronise()
                demand_planned(plan, order.transport.received, numbers)
                steps.append(Step(order.elapsed(), sorted(order.events, key=lambda event: event.start_s)))
                bytes_moved = order.bytes_moved
            outputs = gather(plan, ranks)
            if settings.alone:  # values pile up
                with device.running():
                    steps.append(measured_alone(device, plan, ranks))
            return RunResult(outputs, bytes_moved, steps, baseline_bytes=device.baseline_bytes())
        finally:
            device.close()


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
