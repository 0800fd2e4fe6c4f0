"""When nothing fits: the binding tensors, at the worst instant, and the least budget that would do."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import Infeasible
from .model import Model, memory_at


class Shortage(Infeasible):
    """Nothing fits. ``need``: a budget in bytes that is enough."""

    need: int = 0


def shortage(model: Model, choice: Mapping[int, int], need: int, least: int, capacity: int, tier: str) -> Shortage:
    """The error for a budget below ``need``, the bytes that the leanest choice takes once packed.

    ``least``: what every choice takes, as far as that is proved.
    """
    usage = {instant: memory_at(model, choice, instant) for instant in model.instants}
    worst = max(usage, key=lambda instant: sum(usage[instant].values()), default=0)
    held = sorted(usage.get(worst, {}).items(), key=lambda item: -item[1])
    at = model.program.operations[worst].name if model.program.operations else "the start"
    resident = sum(size for name, size in held if _resident(model, name))
    top = ", ".join(f"{name} {size_text(size)}" for name, size in held[:4])
    found = Shortage(
        f"no sharding fits in {size_text(capacity)} of {tier} on each device",
        where=f"operation {at}",
        sides={
            "needs": f"{size_text(need)} where it is least, {size_text(least)} in any; "
            f"{len(held)} tensors are alive here, {size_text(resident)} of them "
            "params and states",
            "allowed": size_text(capacity),
            "largest": top,
        },
        hint=f"give --memory {tier}={_budget(need)} or more, or use more devices",
    )
    found.need = need
    return found


def _budget(need: int) -> str:
    """A budget that is enough, in the unit a person would write it in."""
    unit, factor = ("MiB", 2**20) if need >= 64 * 2**20 else ("KiB", 2**10)
    return f"{-(-need // factor)}{unit}"


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
