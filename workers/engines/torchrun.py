"""The engine of several processes: each runs the tasks of its rank, one thread a lane, messages over the group.

Messages of a transfer from one rank to another travel as one packet a phase. Receives are posted before anything is
waited for and packets are told apart by tags, so no number of them can block one another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from threading import Event as Flag
from threading import Thread
from time import perf_counter

import numpy as np

from ...dtypes import numpy_dtype
from ...errors import TapestryError, UsageError
from ...planner.format import Document, Message, Resolved, Task, Transfer
from ...planner.format.messages import complete_messages
from ...space import Box, Region
from ..faults import TaskError
from ..numpy.blas import single_threaded
from ..numpy.folding import Array
from ..numpy.transfer import demand, fold_parts, move, pack, received, unpack
from ..numpy.views import Stored
from ..rank import Rank, empty_whole, final_regions, name_of, results
from ..result import Event, RunResult
from ..stores.inputs import checked_inputs
from .group import Group, wait_all

# The main thread looks this often whether another rank failed.
POLL_S = 0.1


def run_distributed(
    document: Document | Resolved, inputs: Mapping[str, Array], group: Group, *, poison: bool = False
) -> RunResult:
    """Run this process's rank of a plan; all processes of the group call it with the same plan and inputs.

    Rank 0 gets the outputs. Processes beyond the plan's ranks only keep company. Raises UsageError, TaskError on the
    rank that fails, PeerFailed on the others; after a failure the group cannot be used again, and the process ends with
    code 1 whatever it does.
    """
    resolved = document if isinstance(document, Resolved) else Resolved(document)
    group.begin()
    if resolved.size > group.size:
        raise UsageError(
            "the plan has more ranks than there are processes",
            sides={"ranks": resolved.size, "processes": group.size},
            hint=f"torchrun --nproc-per-node {resolved.size}",
        )
    done, failed = Flag(), list[BaseException]()
    worker = _Process(resolved, group, poison)

    def work() -> None:
        try:
            with single_threaded():
                worker.run(inputs)
        except BaseException as error:
            failed.append(_typed(error, group.rank))
        done.set()

    thread = Thread(target=work, daemon=True)
    thread.start()
    while not done.wait(POLL_S):
        failure = group.failure()
        if failure is not None:
            raise group.heard(failure)
    thread.join()
    if failed:
        failure = group.failure()
        if failure is not None and failure.origin != group.rank:
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


class _Process:
    """One rank, or a spectator if there are fewer ranks than processes."""

    def __init__(self, resolved: Resolved, group: Group, poison: bool) -> None:
        self.resolved, self.group, self.poison = resolved, group, poison
        self.number = group.rank
        self.events: list[Event] = []
        self.bytes_moved = 0
        self.outputs: dict[str, Array] = {}
        self.wall_s = 0.0
        self.order = {task.id: k for k, task in enumerate(resolved.document.tasks)}
        self.stop = Flag()

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Load, bind, run all lanes, gather."""
        rank = self._prepared(inputs) if self.number < self.resolved.size else None
        self.group.barrier()
        self.began = perf_counter()
        if rank is not None:
            self._run_lanes(rank)
        self.wall_s = self.group.maximum(max((event.end_s for event in self.events), default=0.0))
        self._gather(rank)
        self._collect()
        self.group.barrier()  # nobody leaves while another still listens

    def result(self) -> RunResult:
        events = sorted(self.events, key=lambda event: (event.start_s, event.rank))
        return RunResult(self.outputs, self.bytes_moved, self.wall_s, events, self.number)

    def _prepared(self, inputs: Mapping[str, Array]) -> Rank:
        checked = checked_inputs(self.resolved.program, inputs)
        rank = Rank(self.resolved, self.number, poison=self.poison)
        rank.load(checked)
        rank.bind()
        return rank

    # -- lanes -----------------------------------------------------------------------------------------------------

    def _run_lanes(self, rank: Rank) -> None:
        """One thread a lane; the first error stops them all."""
        finished = {task.id: Flag() for task in rank.tasks}
        lanes: dict[str, list[Task]] = {}
        for task in rank.tasks:
            lanes.setdefault(task.lane, []).append(task)
        errors: list[BaseException] = []
        threads = [
            Thread(target=self._lane, args=(rank, tasks, finished, errors), daemon=True) for tasks in lanes.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not errors:
                thread.join(POLL_S)
        if errors:
            raise errors[0]

    def _lane(
        self, rank: Rank, tasks: Sequence[Task], finished: Mapping[int, Flag], errors: list[BaseException]
    ) -> None:
        try:
            for task in tasks:
                for wait in task.waits:
                    if wait in finished:
                        finished[wait].wait()
                start = perf_counter() - self.began
                self._run_task(rank, task)
                end = perf_counter() - self.began
                self.events.append(Event(self.number, task.lane, task.id, name_of(task), start, end))
                finished[task.id].set()
        except BaseException as error:
            errors.append(error)

    def _run_task(self, rank: Rank, task: Task) -> None:
        if not isinstance(task, Transfer):
            rank.run(task)
            return
        with rank.failing(task), np.errstate(all="ignore"):
            _Meeting(self, rank, task).run()

    # -- results ---------------------------------------------------------------------------------------------------

    def _gather(self, rank: Rank | None) -> None:
        """Outputs and states to rank 0, every element from one rank that holds it."""
        for k, (tensor, buffer) in enumerate(results(self.resolved)):
            described = self.resolved.program.tensor(tensor)
            held = final_regions(self.resolved, tensor, buffer)
            whole = Box.of_shape(described.shape).region()
            messages = complete_messages(held, [whole, *(Region() for _ in held[1:])])
            target = empty_whole(described) if self.number == 0 else None
            source = rank.arena[buffer] if rank is not None else None
            packets = _Packets(self.group, self.number, messages, numpy_dtype(described.dtype), 2 * len(self.order) + k)
            works = packets.post(source)
            if source is not None and target is not None:
                for m in messages:
                    if m.src == 0:
                        move(source, target, m.region)
            for m, payload in packets.arrived():
                unpack(payload, demand(target, "rank 0"), m.region)
            wait_all(works)
            if target is not None:
                self.outputs[tensor] = target.array

    def _collect(self) -> None:
        """Events and counts of all ranks at rank 0."""
        mine = json.dumps([self.bytes_moved, [asdict(event) for event in self.events]]).encode()
        parts = [json.loads(part) for part in self.group.gathered(mine)]
        if parts:
            self.bytes_moved = sum(moved for moved, _ in parts)
            self.events = [Event(**event) for _, events in parts for event in events]


class _Meeting:
    """One transfer, as this rank takes part in it."""

    def __init__(self, process: _Process, rank: Rank, task: Transfer) -> None:
        self.process, self.rank, self.task = process, rank, task
        self.number = rank.number
        resolved = rank.resolved
        self.messages = [m for m in resolved.messages(task) if self.number in (m.src, m.dst)]
        self.partial = resolved.layout(task.have).parts is not None
        self.dtype = numpy_dtype(resolved.program.tensor(task.tensor).dtype)

    def run(self) -> None:
        for phase in (0, 1):
            messages = [m for m in self.messages if m.phase == phase]
            if messages:
                self._phase(phase, messages)

    def _phase(self, phase: int, messages: list[Message]) -> None:
        tag = 2 * self.process.order[self.task.id] + phase
        packets = _Packets(self.process.group, self.number, messages, self.dtype, tag)
        source = self.task.target if phase else self.task.source
        sent = packets.post(self.rank.arena[source])
        local = [(m, self._buffer(source)) for m in messages if m.src == m.dst]
        if self.partial and phase == 0:
            self._fold([*local, *((m, received(payload, m.region)) for m, payload in packets.arrived())])
        else:
            for m, stored in local:
                move(stored, self._buffer(self.task.target), m.region)
            for m, payload in packets.arrived():
                unpack(payload, self._buffer(self.task.target), m.region)
        wait_all(sent)
        self.process.bytes_moved += packets.nbytes

    def _fold(self, parts: list[tuple[Message, Stored]]) -> None:
        if parts:
            parts.sort(key=lambda part: part[0].part or 0)
            target = self._buffer(self.task.target)
            fold_parts([(m.region, stored) for m, stored in parts], target, self.task.monoid or "sum")

    def _buffer(self, name: str) -> Stored:
        return demand(self.rank.arena[name], f"buffer {name}", rank=self.number)


class _Packets:
    """Messages of one rank under one tag: one packet to and from every other rank."""

    def __init__(
        self, group: Group, number: int, messages: Sequence[Message], dtype: np.dtype[np.generic], tag: int
    ) -> None:
        self.group, self.tag, self.dtype = group, tag, dtype
        self.outgoing = _by(messages, number, outgoing=True)
        self.incoming = _by(messages, number, outgoing=False)
        self.buffers = {src: np.empty(sum(m.region.size for m in ms), dtype) for src, ms in self.incoming.items()}
        self.nbytes = sum(buffer.nbytes for buffer in self.buffers.values())

    def post(self, source: Stored | None) -> list[object]:
        """Start every receive, and every send from ``source``; returns the sends."""
        self.receives = {src: self.group.receive(buffer, src, self.tag) for src, buffer in self.buffers.items()}
        sends = []
        for dst, messages in self.outgoing.items():
            payloads = [pack(demand(source, "the source"), m.region) for m in messages]
            payload = payloads[0] if len(payloads) == 1 else np.concatenate(payloads)
            sends.append(self.group.send(payload, dst, self.tag))
        return sends

    def arrived(self) -> list[tuple[Message, Array]]:
        """Every message from other ranks with its payload, once all are here."""
        wait_all(self.receives.values())
        found = []
        for src, messages in self.incoming.items():
            start = 0
            for m in messages:
                found.append((m, self.buffers[src][start : start + m.region.size]))
                start += m.region.size
        return found


def _by(messages: Sequence[Message], number: int, *, outgoing: bool) -> dict[int, list[Message]]:
    """Remote messages from or to a rank, by the other rank."""
    found: dict[int, list[Message]] = {}
    for m in messages:
        mine, other = (m.src, m.dst) if outgoing else (m.dst, m.src)
        if mine == number and other != number:
            found.setdefault(other, []).append(m)
    return found
