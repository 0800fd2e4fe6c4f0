"""When nothing fits: the binding tensors, at the worst instant, and the least budget that would do."""

from __future__ import annotations

from ..errors import Infeasible, TimeLimit
from .model import Model, memory_at
from .solve import least_memory


def explain_shortage(
    model: Model, capacity: int, budget: int, tier: str, time_limit: float, seed: int, jobs: int
) -> Infeasible | TimeLimit:
    """The error to raise for a model that has no choice within ``budget`` (the capacity less what packing lost)."""
    least = least_memory(model, time_limit=time_limit, seed=seed, jobs=jobs)
    if least is None:
        return TimeLimit(
            f"no plan fits in {size_text(capacity)} of {tier}, and the least budget was not found in time",
            where="solver",
        )
    need, choice = least
    worst = max(model.instants, key=lambda instant: sum(memory_at(model, choice, instant).values()), default=0)
    held = sorted(memory_at(model, choice, worst).items(), key=lambda item: -item[1])
    at = model.program.operations[worst].name if model.program.operations else "the start"
    resident = sum(size for name, size in held if _resident(model, name))
    top = ", ".join(f"{name} {size_text(size)}" for name, size in held[:4])
    return Infeasible(
        f"no sharding fits in {size_text(capacity)} of {tier} on each device",
        where=f"operation {at}",
        sides={
            "needs": f"{size_text(need)} at least, of which {size_text(resident)} params and states; "
            f"{len(held)} tensors alive",
            "allowed": size_text(budget)
            + ("" if budget == capacity else f" ({size_text(capacity)} less what packing loses)"),
            "largest": top,
        },
        hint=f"give --memory {tier}={-(-need // 2**20) + 1}MiB or more, or use more devices",
    )


def _resident(model: Model, name: str) -> bool:
    return not name.endswith(">") and model.program.tensor(name).role in ("param", "state", "const")


def size_text(nbytes: int) -> str:
    """Bytes for people.

    >>> size_text(3 * 2**30), size_text(100), size_text(-1)
    ('3 GiB', '100 B', '-1 B')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} B"
