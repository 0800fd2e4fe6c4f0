"""Between the GPUs of one host: messages go straight from buffer to buffer, as among ranks of one process.

The processes open each other's arenas (CUDA's memory handles). Whoever sends writes into the receiver's buffer, by the
copy engines where elements lie in rows: without packets, and without a multiprocessor. Parts to be folded are fetched
by whoever folds them, in the plan's order.

Who writes or fetches has to know that the other rank's buffer is ready, and the other when it is done with: ranks meet
before and after. A meeting is a kernel of one block that sets the others' flags and waits for its own, so that a step
may be one graph, and the host has no part in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...planner.format import Message, Resolved, Transfer
from ...space import Region
from ..device import Device, Packed, Runner, Stored, in_order, nothing
from ..memory import Memory, arena_bytes
from ..transport.company import Company
from ..transport.movement import Movement
from ..transport.transport import Transport
from ..whole import results
from .arrays import DeviceArray, of_memory
from .arrays import Memory as Bytes
from .exchange import copied, exchanged
from .machine import PAGE, Machine, Meeting
from .moving import packed_parts

_FLAGS = ""  # beside the names of tiers
FLAG = np.dtype(np.uint32)
MEETINGS = 3  # of a movement: before its messages, between its two phases, after them
MOST = 63  # ranks that one block of flags has bits for

Move = tuple[Stored, Stored, Region]


@dataclass(frozen=True)
class Flags:
    """What ranks tell each other, in a memory of each: for every meeting a flag a rank, then the meetings held.

    ``all``: those memories by rank. A flag holds the number of the last meeting that the other rank came to.
    """

    machine: Machine
    number: int
    meetings: int
    all: tuple[Bytes, ...]
    table: DeviceArray  # their addresses

    def meeting(self, index: int, tell: Iterable[int], hear: Iterable[int]) -> Meeting:
        """Tell some ranks that this one is here, and wait until others are."""
        size = len(self.all)
        held = self.all[self.number].pointer + (self.meetings * size + index) * FLAG.itemsize
        masks = [sum(1 << rank for rank in ranks) for ranks in (tell, hear)]
        return Meeting(held, self.table, index * size * FLAG.itemsize, self.number, *masks)


def flag_bytes(meetings: int, ranks: int) -> int:
    """Bytes of the flags of one rank."""
    return meetings * (ranks + 1) * FLAG.itemsize


class Peers(Transport):
    """The transport of one rank; ``memories`` are those of all."""

    def __init__(self, device: Device, memories: Mapping[int, Memory], flags: Flags, opened: Sequence[Bytes]) -> None:
        super().__init__()
        self.device, self.memories, self.flags, self.opened = device, memories, flags, opened
        self.number = flags.number

    def reached(self, memory: Memory) -> Mapping[int, Memory]:
        assert self.memories[memory.rank] is memory
        return self.memories

    def bind(self, movement: Movement) -> Runner:
        mine = [m for m in movement.messages if self.number in (m.src, m.dst)]
        phases = [[m for m in mine if m.phase == phase] for phase in (0, 1)]
        met = [self._meeting(movement, phases, k) for k in range(MEETINGS)]
        with self.device.temporaries(movement.lane), movement.at(self.number):
            first, fold = self._phase(movement, phases[0])
            second, _ = self._phase(movement, phases[1])
            if phases[1]:
                steps = [self._between(met[0], first, None), fold, self._between(met[1], second, met[2])]
            else:  # what is folded was brought, and nobody waits for what comes of it
                steps = [self._between(met[0], first, met[1]), fold]
        run = in_order(steps)
        received = movement.received([m for m in mine if m.dst == self.number])

        def carry() -> None:
            run()
            self.received.update(received)

        return carry

    def _between(self, before: Meeting | None, moves: Sequence[Move], after: Meeting | None) -> Runner:
        """Moves between two meetings: as one kernel where they are small."""
        copies = [copied(*move) for move in moves]
        one = None if None in copies else exchanged(before, [c for found in copies for c in found or ()], after)
        if one is not None:
            return self.flags.machine.exchange(one)
        met = [nothing if meeting is None else self.flags.machine.meet(meeting) for meeting in (before, after)]
        return in_order([met[0], *(self.device.copy(*move) for move in moves), met[1]])

    def _meeting(self, movement: Movement, phases: Sequence[Sequence[Message]], k: int) -> Meeting | None:
        """After the messages of the phase before, and before those of phase k."""
        tell, hear = set[int](), set[int]()
        for before, messages in ((False, phases[k - 1] if k else ()), (True, phases[k] if k < len(phases) else ())):
            for m in messages:
                acts = _acting(movement, m) == self.number
                if m.remote:
                    (hear if acts == before else tell).add(m.src if m.dst == self.number else m.dst)
        if not tell and not hear:
            return None
        return self.flags.meeting(movement.tag * MEETINGS + k, tell, hear)

    def _phase(self, movement: Movement, messages: Sequence[Message]) -> tuple[list[Move], Runner]:
        """What this rank writes and fetches, each to or from another rank first, so that not all go to one; and what it
        folds of that. What stays here comes last: it is a kernel's to copy, which may have to wait for one that has all
        multiprocessors, and the copy engines go on meanwhile.
        """
        size = len(self.memories)
        mine = [m for m in messages if _acting(movement, m) == self.number]
        mine.sort(key=lambda m: (m.src + m.dst - 2 * self.number - 1) % size)
        copies = [(movement.source(m), movement.target(m.dst), m.region) for m in mine if not movement.folded(m)]
        brought, fold = self._folding(movement, [m for m in mine if movement.folded(m)])
        return [*copies, *brought], fold

    def _folding(self, movement: Movement, messages: Sequence[Message]) -> tuple[list[Move], Runner]:
        """Parts of other ranks are brought here, then all are folded in the order of their numbers."""
        if not messages:
            return [], nothing
        assert movement.monoid is not None
        brought: list[Move] = []
        parts: list[tuple[Message, Stored | Packed]] = []
        for m in messages:
            source = movement.source(m)
            if m.remote:
                beside = Packed(self.device.take(m.region.size, movement.parts, movement.lane), m.region)
                brought += [(source, part, region) for region, part in packed_parts(beside)]
                parts.append((m, beside))
            else:
                parts.append((m, source))
        parts.sort(key=lambda part: part[0].part or 0)
        ordered = [(m.region, held) for m, held in parts]
        fold = self.device.fold(ordered, movement.target(self.number), movement.monoid, movement.lane)
        return brought, fold

    def close(self) -> None:
        for memory in self.opened:
            self.flags.machine.let_go(memory)


def _acting(movement: Movement, message: Message) -> int:
    """The rank that carries a message: the sender, but results on their way out, and parts, are fetched."""
    fetched = movement.place.task is None or movement.folded(message)
    return message.dst if fetched else message.src


# -- coming together ---------------------------------------------------------------------------------------------------


def joined(
    machine: Machine, device: Device, company: Company, plan: Resolved, memory: Memory | None
) -> Transport | None:
    """The transport of a rank where all ranks of the plan can open each other's memories, which they tell each other.

    None on all of them where one cannot: they are on several hosts, or their GPUs have no way to each other.
    """
    ranks = range(plan.size)
    found = None
    if memory is not None:
        found = _offered(machine, device, company, plan, memory)
        company.tell("opened", "yes" if found is not None else "no")
    if all(company.heard_from("opened", rank) == "yes" for rank in ranks):
        return found or _Aside()
    if found is not None:
        found.close()
    return None


class _Aside(Transport):
    """The transport of a process that has no rank: nothing comes to it."""

    def bind(self, movement: Movement) -> Runner:
        del movement
        return nothing


def _offered(machine: Machine, device: Device, company: Company, plan: Resolved, memory: Memory) -> Peers | None:
    """Tell where this rank's memories are, and open those of the others; None where they cannot be opened."""
    meetings = MEETINGS * (len(plan.document.tasks) + sum(1 for _ in results(plan)))
    own = machine.memory("", -(-flag_bytes(meetings, plan.size) // PAGE) * PAGE)
    machine.fill(of_memory(own), 0)
    machine.synchronise()
    arenas = {tier: machine.handle(arena.memory) for tier, arena in memory.tiers.items()}
    word = {"host": _host(), "flags": machine.handle(own), "arenas": arenas, "moved": sorted(_moved(plan))}
    company.tell("memory", json.dumps(word))
    told = [json.loads(company.heard_from("memory", rank)) for rank in range(plan.size)]
    able = all(one["host"] == word["host"] and one["flags"] and _shows(one) for one in told)
    if not able or plan.size > MOST:
        return None
    opened: list[Bytes] = []
    flags, memories = [own] * plan.size, {memory.rank: memory}
    for rank, one in enumerate(told):
        if rank == memory.rank:
            continue
        sizes = {_FLAGS: own.nbytes, **arena_bytes(plan, rank, rooms=device.works_in_plan)}
        handles = {_FLAGS: one["flags"], **one["arenas"]}
        seen = {tier: machine.opened(handle, sizes[tier]) for tier, handle in handles.items() if handle}
        there = {tier: found for tier, found in seen.items() if found is not None}
        opened += there.values()
        if len(there) < len(seen):
            for found in opened:
                machine.let_go(found)
            return None
        flags[rank] = there.pop(_FLAGS)
        memories[rank] = Memory(device, plan, rank, arenas={tier: of_memory(found) for tier, found in there.items()})
    addresses = np.array([one.pointer for one in flags], np.uint64)
    table = DeviceArray(machine.memory("", addresses.nbytes), 0, addresses.shape, addresses.dtype)
    machine.upload(addresses.tobytes(), table)
    return Peers(device, memories, Flags(machine, memory.rank, meetings, tuple(flags), table), opened)


def _shows(told: Mapping[str, Any]) -> bool:
    """Whether others can open all that is moved of a rank."""
    return all(told["arenas"].get(tier, "") is not None for tier in told["moved"])


def _moved(plan: Resolved) -> set[str]:
    """The tiers between which transfers of the plan, or results at its end, go from rank to rank."""
    names = [name for task in plan.document.tasks if isinstance(task, Transfer) for name in (task.source, task.target)]
    return {plan.buffers[name].tier for name in [*names, *(buffer for _, buffer in results(plan))]}


def _host() -> str:
    """What no two computers have in common."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
