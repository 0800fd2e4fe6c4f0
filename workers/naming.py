"""What would compute the tasks of a plan: the names of a device's kernels, whether or not it is here."""

from __future__ import annotations

from ..errors import UsageError
from ..planner.format import Compute, Resolved
from .devices import device_class, device_names
from .rank import Rank


def kernels_of_plan(plan: Resolved, device: str) -> dict[str, tuple[str, ...]]:
    """For every operation what computes its tasks on the first rank that has some. UsageError for a device that does
    not say.
    """
    on_paper = device_class(device).on_paper()
    if on_paper is None:
        named = [name for name in device_names() if device_class(name).on_paper() is not None]
        raise UsageError(f"the device {device} does not name its kernels", hint=f"these do: {', '.join(named)}")
    found: dict[str, tuple[str, ...]] = {}
    for number in range(plan.size):
        wanted = {task.op for task in plan.tasks_of(number) if isinstance(task, Compute)} - {*found}
        if not wanted:
            continue
        rank = Rank(on_paper, plan, number)
        rank.bind()
        for bound in rank.bound.values():
            if isinstance(bound.task, Compute) and bound.kernels and bound.task.op in wanted:
                found.setdefault(bound.task.op, bound.kernels)
    return found
