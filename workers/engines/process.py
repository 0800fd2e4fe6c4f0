"""One rank of a run of several processes: its tasks on their lanes, messages over the group, results to rank 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from itertools import chain
from threading import Event as Flag
from threading import Thread
from time import perf_counter

from ...errors import TapestryError, UsageError
from ...planner.format import Document, Resolved
from ...planner.format.digest import digests
from ..between import next_step
from ..device import Device, Replay, Runner, in_order, nothing
from ..devices import open_device
from ..faults import TaskError
from ..lanes import HostLanes
from ..rank import Rank
from ..result import Event, RunResult, Step
from ..stores.arrays import Array
from ..stores.inputs import checked_inputs
from ..transport.counting import demand_planned
from ..transport.movement import Movement
from ..transport.transport import Transport
from ..whole import empty_whole, results
from .activity import Activity
from .doing import Doing
from .engine import Settings, resolved
from .group import Group
from .heart import Heart

# The main thread looks this often whether another rank failed.
POLL_S = 0.1


def run_rank(
    document: Document | Resolved,
    inputs: Mapping[str, Array],
    group: Group,
    settings: Settings,
    doing: Doing | None = None,
) -> RunResult:
    """Run this process's rank of a plan; all processes of the group call it with the same plan and inputs. ``doing``:
    where it leaves which task it is in.

    Rank 0 gets the outputs. Processes beyond the plan's ranks only keep company. Raises UsageError, TaskError on the
    rank that fails, PeerFailed on the others; after a failure the group cannot be used again, and the process ends with
    code 1 whatever it does.
    """
    plan = resolved(document)
    group.begin()
    if plan.size > group.size:
        raise UsageError(
            "the plan has more ranks than there are processes",
            sides={"ranks": plan.size, "processes": group.size},
            hint=f"torchrun --nproc-per-node {plan.size}",
        )
    done, failed = Flag(), list[BaseException]()
    worker = _Process(plan, group, settings, Activity(doing))

    def work() -> None:
        try:
            worker.run(inputs)
        except BaseException as error:
            failed.append(_typed(error, group.rank))
        done.set()

    heart = Heart(group, worker.activity, settings.patience_s)
    heart.beat()  # a rank that stops in its first task has been heard of
    thread = Thread(target=work, daemon=True)
    thread.start()
    while not done.wait(POLL_S):
        heart.beat()
        failure = group.failure()
        if failure is not None:
            raise group.heard(failure)
    thread.join()
    if failed:
        failure = group.failure()
        if failure is not None:  # of another rank, or of a watch on this one: what was raised here only followed
            raise group.heard(failure) from None
        group.publish(failed[0])
        raise failed[0]
    return worker.result()


def _typed(error: BaseException, rank: int) -> BaseException:
    """Anything that is not an error of ours, as one that names the rank."""
    if isinstance(error, TapestryError) or not isinstance(error, Exception):
        return error
    found = TaskError(f"{type(error).__name__}: {error}", rank=rank)
    found.__cause__ = error
    return found


def demand_one_plan(plan: Resolved, group: Group) -> None:
    """UsageError where this rank was given another plan than rank 0: both would run, and give other values."""
    ours = digests(plan.document)
    if group.rank == 0:
        group.tell("plan", json.dumps(ours))
        return
    theirs = json.loads(group.heard_from("plan", 0))
    if different := [part for part in ours if ours[part] != theirs[part]]:
        sides = {"different": f"ranks 0 and {group.rank}", "in": ", ".join(different)}
        raise UsageError("ranks were given different plans", sides=sides)


class _Process:
    """One rank, or a spectator if there are fewer ranks than processes."""

    def __init__(self, plan: Resolved, group: Group, settings: Settings, activity: Activity) -> None:
        self.plan, self.group, self.settings, self.activity = plan, group, settings, activity
        self.number = group.rank
        self.steps: list[Step] = []
        self.bytes_moved = 0
        self.baseline_bytes = 0
        self.outputs: dict[str, Array] = {}

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Load, bind, run all lanes, gather."""
        demand_one_plan(self.plan, self.group)
        checked = checked_inputs(self.plan.program, inputs)
        device = open_device(self.settings.device)
        with device.running():
            self._run_on(device, checked)
        device.close()  # not after an error: what the device was asked for may wait for ranks that never come

    def _run_on(self, device: Device, inputs: Mapping[str, Array]) -> None:
        rank = (
            Rank(device, self.plan, self.number, poison=self.settings.poison) if self.number < self.plan.size else None
        )
        transport = self.group.transport(device, self.plan, None if rank is None else rank.memory)
        if rank is not None:
            rank.load(inputs)
            rank.bind(transport)
        replay, again = self._replay(device, rank, inputs)
        counts = True
        for number in range(self.settings.repeat):
            if number:
                again()
            if number == 1:
                counts = not replay.keep(timed=True)
            device.synchronise()
            self.group.barrier()
            transport.received.clear()
            events = replay(perf_counter())
            device.synchronise()
            if counts:
                demand_planned(self.plan, transport.received, {self.number})
                self.bytes_moved = transport.bytes_moved
            wall = self.group.maximum(max((event.end_s for event in events), default=0.0))
            self.steps.append(Step(wall, events))
        self.baseline_bytes = device.baseline_bytes()
        self._gather(device, transport, rank)
        self._collect()
        self.group.barrier()  # nobody leaves while another still listens
        transport.close()
        self.group.barrier()  # and nobody's memory goes while another holds on to it

    def result(self) -> RunResult:
        return RunResult(self.outputs, self.bytes_moved, self.steps, self.number, self.baseline_bytes)

    def _replay(self, device: Device, rank: Rank | None, inputs: Mapping[str, Array]) -> tuple[Replay, Runner]:
        """One step of this rank, and what comes between two of them; nothing for a spectator."""
        if rank is None:
            return HostLanes(()), nothing
        replay = device.replay([self.activity.watched(rank.bound[task.id]) for task in rank.tasks])
        again = next_step(device, self.plan, [rank], inputs) if self.settings.repeat > 1 else []
        return replay, in_order(again)

    def _gather(self, device: Device, transport: Transport, rank: Rank | None) -> None:
        """Outputs and states to rank 0."""
        memories = {} if rank is None else transport.reached(rank.memory)
        for k, (tensor, buffer) in enumerate(results(self.plan)):
            target = empty_whole(self.plan.program.tensor(tensor)) if self.number == 0 else None
            tag = len(self.plan.document.tasks) + k
            transport.bind(Movement.to_rank_0(self.plan, tensor, buffer, memories, target, tag))()
            device.synchronise()
            if target is not None:
                self.outputs[tensor] = target.array

    def _collect(self) -> None:
        """Events and counts of all ranks at rank 0."""
        mine = [self.bytes_moved, self.baseline_bytes, [[astuple(event) for event in s.events] for s in self.steps]]
        parts = [json.loads(part) for part in self.group.gathered(json.dumps(mine).encode())]
        if parts:
            self.bytes_moved = sum(moved for moved, _, _ in parts)
            self.baseline_bytes = max(baseline for _, baseline, _ in parts)
            of_ranks = [[[Event(*event) for event in events] for events in steps] for _, _, steps in parts]
            self.steps = [
                Step(step.wall_s, sorted(chain(*events), key=lambda event: (event.start_s, event.rank)))
                for step, *events in zip(self.steps, *of_ranks, strict=True)
            ]
