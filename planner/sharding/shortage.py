"""When nothing fits: the binding tensors, at the worst instant, and the least budget that would do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from ...errors import Infeasible
from ...records import width_of
from ..strategy.rooms import Room
from .model import Flow, Model, memory_at
from .nodes import OperationNode


class Shortage(Infeasible):
    """Nothing fits. ``need``: a budget in bytes that is enough."""

    need: int = 0


def least_held(model: Model) -> int:
    """Bytes that some rank holds at some instant under any choice, by adding up what each tensor takes where it takes
    least: its home, or what an operation needs of it while that runs. Of a rank that has spare bytes so many less.
    """
    return max(_least_in(model, room) - (0 if room is None else room.spare) for room in model.rooms or (None,))


def _least_in(model: Model, room: Room | None) -> int:
    homes = {(flow.home, flow.width): flow for flow in model.flows}  # those of tied tensors are the same
    smallest = {key: _least_home(model, flow, room) for key, flow in homes.items()}
    least = {flow.tensor: smallest[flow.home, flow.width] for flow in model.flows}
    ends = [(flow.first, flow.last, least[flow.tensor]) for flow in model.flows if flow.tensor not in model.over]
    change = [0] * (len(model.program.operations) + 2)
    for first, last, size in ends:
        change[max(first, 0)] += size
        change[max(last, 0) + 1] -= size
    alive = list(accumulate(change))
    at = {op.name: k for k, op in enumerate(model.program.operations)}
    known: dict[tuple[int, tuple[int, ...]], int] = {}  # and so is what tied operations need of such tensors
    most = alive[-1:]
    for k, node in enumerate(model.nodes):
        if isinstance(node, OperationNode):
            names = dict.fromkeys((*node.op.operands, node.op.output))
            taken = {name: least[name] for name in names if name not in model.over}
            key = model.tied_to[k], tuple(taken.get(name, -1) for name in names)
            if key not in known:
                known[key] = _more(model, node, taken, room)
            most.append(alive[at[node.name]] + known[key])
    return max(most, default=0)


def _least_home(model: Model, flow: Flow, room: Room | None) -> int:
    return min(model.stored(home, flow.width, room) for home in model.homes(flow))


def _more(model: Model, node: OperationNode, least: Mapping[str, int], room: Room | None) -> int:
    """Bytes that an operation needs of some of its operands, and leaves of its result, beyond the least that these
    take.
    """
    beyond = []
    for k in range(len(node.labels)):
        taken = {node.op.output: node.homes[k]} | dict(zip(node.op.operands, node.needs[k], strict=True))
        stored = {name: model.stored(taken[name], width_of(model.program, name), room) for name in least}
        beyond.append(sum(max(0, stored[name] - least[name]) for name in least) + node.workspace[k])
    return min(beyond, default=0)


def shortage(model: Model, choice: Mapping[int, int], need: int, least: int, capacity: int, tier: str) -> Shortage:
    """The error for a budget below ``need``, the bytes that the leanest choice takes once packed.

    ``least``: what every choice takes in the model, as far as that is proved; what is packed may take less.
    """
    usage = {instant: memory_at(model, choice, instant) for instant in model.instants}
    worst = max(usage, key=lambda instant: sum(usage[instant].values()), default=0)
    held = sorted(usage.get(worst, {}).items(), key=lambda item: -item[1])
    ops = model.program.operations
    at = f"operation {ops[worst].name}" if worst < len(ops) else "the end" if ops else "the start"
    staying = {tensor.name for tensor in model.program.of_role("param", "state", "const")}
    resident = sum(size for name, size in held if name in staying)
    top = ", ".join(f"{name} {size_text(size)}" for name, size in held[:4])
    found = Shortage(
        f"no sharding fits in {size_text(capacity)} of {tier} on each device",
        where=at,
        sides={
            "needs": f"{size_text(need)} where it is least, {size_text(min(least, need))} in any; "
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


def size_text(nbytes: int) -> str:
    """Bytes for people.

    >>> size_text(3 * 2**30), size_text(100), size_text(-1)
    ('3 GiB', '100 B', '-1 B')
    """
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} B"
