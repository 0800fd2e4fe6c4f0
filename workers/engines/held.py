"""The ranks of a plan that a process holds for many steps: all of them, or its own among the processes of torchrun."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import sleep
from typing import Any

from ...errors import TapestryError, UsageError
from ...planner.format import Resolved
from ..device import Device, Replay, Runner, Stored
from ..memory import Memory
from ..rank import Rank
from ..transport.in_process import InProcess
from ..transport.movement import Movement
from ..transport.transport import Transport
from ..whole import empty_whole, results
from .engine import PATIENCE_S
from .replayed import Replayed

# A process that waits for its GPU looks this often whether another rank failed.
LOOK_S = 20e-6


class Held(ABC):
    """Ranks with their tasks bound. ``replay`` is their step, ``transport`` counts what comes to them."""

    ranks: Sequence[Rank]
    replay: Replay
    transport: Transport
    gathers: bool = True  # whether whole tensors come together in this process

    def __init__(self, device: Device, plan: Resolved) -> None:
        self.device, self.plan = device, plan

    @property
    def numbers(self) -> list[int]:
        return [rank.number for rank in self.ranks]

    def gathered(self, tensor: str, buffer: str, *, near: bool) -> tuple[Any | None, Runner]:
        """A tensor of the results in the buffer of all ranks: the whole array, if it comes here, and what fills it.

        near: it is an array of the device, otherwise NumPy's.
        """
        target = empty_whole(self.plan.program.tensor(tensor)) if self.gathers else None
        if near and target is not None:
            mine = self.device.take(target.array.size, target.array.dtype, None)
            target = Stored(mine.reshape(target.array.shape), target.grid)
        tag = len(self.plan.document.tasks) + [name for name, _ in results(self.plan)].index(tensor)
        movement = Movement.to_rank_0(self.plan, tensor, buffer, self.memories(), target, tag)
        return None if target is None else target.array, self.carrier().bind(movement)

    @abstractmethod
    def memories(self) -> Mapping[int, Memory]:
        """Those that a movement can be made over."""

    @abstractmethod
    def carrier(self) -> Transport:
        """What brings results together."""

    def watched(self) -> AbstractContextManager[Any]:
        """Around whatever ranks do together: an error inside is one of all ranks."""
        return nullcontext()

    def settle(self, *, may_fail: bool) -> None:
        """After a step: what went wrong in it is raised, on all ranks if it may fail, which all of them know alike."""
        del may_fail

    def keep(self, *, timed: bool = False) -> bool:
        """From now on a step as the device keeps it: see `Replay.keep`. What goes wrong in that is raised here, and not
        only after a step of which a part is missing."""
        counts = self.replay.keep(timed=timed)
        self.settle(may_fail=False)
        return counts

    @abstractmethod
    def wait(self) -> None:
        """Before anything that cannot be broken off: what was asked for is done. PeerFailed if another rank is gone."""

    @abstractmethod
    def leave(self, *, failed: bool) -> bool:
        """Let go of what belongs to others. Whether the device may be closed: nothing waits there for ever."""


class AllHere(Held):
    """All ranks, one after another."""

    def __init__(self, device: Device, plan: Resolved, *, poison: bool) -> None:
        super().__init__(device, plan)
        lanes = plan.size == 1  # others take turns
        self.ranks = [Rank(device, plan, number, poison=poison, lanes=lanes) for number in range(plan.size)]
        for rank in self.ranks:
            rank.bind()
        order = Replayed(plan, self.ranks)
        self.replay, self.transport = device.in_turn(order.steps), order.transport

    def memories(self) -> Mapping[int, Memory]:
        return {rank.number: rank.memory for rank in self.ranks}

    def carrier(self) -> Transport:
        return InProcess(self.device)

    def wait(self) -> None:
        """There is nobody to wait for."""

    def leave(self, *, failed: bool) -> bool:
        del failed
        return True


class OneOfMany(Held):
    """This process's rank of a torchrun whose processes all do the same. Results come together on rank 0."""

    def __init__(self, device: Device, plan: Resolved, *, poison: bool) -> None:
        from .group import group
        from .process import demand_one_plan
        from .trial import Trial
        from .watch import Watch

        super().__init__(device, plan)
        self.group = group()
        self.group.begin()
        demand_processes(plan, self.group.size)
        self.watch = Watch(self.group, PATIENCE_S)
        self.gathers = self.group.rank == 0
        with self.watch:
            demand_one_plan(plan, self.group)
            rank = Rank(device, plan, self.group.rank, poison=poison)
            self.ranks = [rank]
            self.transport = self.group.transport(device, plan, rank.memory)
            rank.bind(self.transport)
            self.trial = Trial(self.group)
            self.replay = device.replay([self.trial.bound(rank.bound[task.id]) for task in rank.tasks])

    def memories(self) -> Mapping[int, Memory]:
        return self.transport.reached(self.ranks[0].memory)

    def carrier(self) -> Transport:
        return self.transport

    def watched(self) -> AbstractContextManager[Any]:
        return self.watch

    def settle(self, *, may_fail: bool) -> None:
        if not may_fail:
            return self.trial.raised()
        self.wait()
        self.trial.kept(self.device.synchronise)
        try:
            self.trial.settled()
        except TapestryError as error:
            self.watch.settled = error
            raise

    def wait(self) -> None:
        done = self.device.reached()
        while not done():
            self.watch.demand_all()
            sleep(LOOK_S)

    def leave(self, *, failed: bool) -> bool:
        self.watch.close()
        if not failed:
            self.wait()
            self.group.barrier()
            self.transport.close()
            self.group.barrier()  # nobody's memory goes while another holds on to it
        return not failed


def demand_processes(plan: Resolved, processes: int) -> None:
    """UsageError where there is not one process a rank."""
    if plan.size != processes:
        raise UsageError(
            "a plan is compiled for one process a rank",
            sides={"ranks": plan.size, "processes": processes},
            hint=f"torchrun --nproc-per-node {plan.size}",
        )


def held(engine: str, device: Device, plan: Resolved, *, poison: bool) -> Held:
    """The ranks of this process, by how a plan's ranks are run. UsageError for an engine that cannot."""
    if engine == "local":
        return AllHere(device, plan, poison=poison)
    if engine != "torchrun":
        raise UsageError(f"no plan is compiled for the engine {engine!r}", sides={"known": "local, torchrun"})
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        hint = f"start the script with torchrun --nproc-per-node {plan.size}, or compile for the engine local"
        raise UsageError("this process was not started by torchrun", hint=hint)
    return OneOfMany(device, plan, poison=poison)
