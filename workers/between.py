"""Between two steps of a plan: inputs are put back where a step finds them, states go to where the next one begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..planner.format import Buffer, Resolved
from .device import Device, Packed, Runner, Stored
from .rank import Rank
from .stores.arrays import Array
from .whole import whole_array


def first_buffers(plan: Resolved, *roles: str) -> list[Buffer]:
    """The buffers in which tensors of some roles are before a step."""
    initial = [buffer for buffer in plan.document.buffers if buffer.initial is not None]
    return [buffer for buffer in initial if plan.program.tensor(buffer.tensor).role in roles]


def filling(ranks: Iterable[Rank], buffers: Iterable[Buffer], wholes: Mapping[str, Stored]) -> list[Runner]:
    """Whole arrays into the buffers that begin with them, on every rank."""
    buffers = list(buffers)
    return [rank.filling(buffer, wholes[buffer.tensor]) for rank in ranks for buffer in buffers]


def carrying(device: Device, plan: Resolved, rank: Rank) -> list[Runner]:
    """States from where a step leaves them to where the next one finds them.

    All are set aside before any is put down: the memory in which one begins may be that in which another ends.
    """
    starts = {buffer.tensor: buffer for buffer in first_buffers(plan, "state")}
    aside, put = [], []
    for name, end in plan.document.states.items():
        start, last = starts[name], plan.buffers[end]
        source, target = rank.memory[end], rank.memory[start.name]
        if source is None or target is None or start.initial is None:
            continue
        kind = plan.kinds[rank.number]
        places = [(buffer.tier, buffer.place(kind).offset) for buffer in (start, last)]
        if places[0] == places[1] and target.grid == source.grid:
            continue  # it is there: the state is one that the program leaves as it is, or updates in its place
        region = plan.regions(start.initial)[rank.number]
        packed = Packed(device.take(region.size, source.array.dtype, None), region)
        aside.append(device.pack(source, packed))
        put.append(device.unpack(packed, target))
    return [*aside, *put]


def next_step(device: Device, plan: Resolved, ranks: Sequence[Rank], inputs: Mapping[str, Array]) -> list[Runner]:
    """What has to be done after a step before the next one with the same inputs."""
    fed = first_buffers(plan, "input")
    wholes = {buffer.tensor: whole_array(plan.program.tensor(buffer.tensor), inputs) for buffer in fed}
    return [*(run for rank in ranks for run in carrying(device, plan, rank)), *filling(ranks, fed, wholes)]
