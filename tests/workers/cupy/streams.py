"""Streams, events and graphs without a GPU: what is asked of streams is done in a random order that they allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from time import sleep
from types import SimpleNamespace
from typing import Any

from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.cuda import CudaMachine
from tapestry.workers.cupy.lanes import Lanes
from tapestry.workers.cupy.machine import Lines, Meeting, Product, Unit
from tapestry.workers.device import Bound, Replay, Runner

from .host_machine import HostMachine

Op = tuple[str, Any]


class Cuda:
    """One GPU's streams. ``clock`` counts what was done."""

    def __init__(self, seed: int) -> None:
        self.random, self.clock = Random(seed), 0
        self.streams: list[Stream] = []
        self.capture: Capture | None = None
        self.numbers = count(1)

    def synchronise(self) -> None:
        assert self.capture is None, "nothing may be waited for during a capture"
        self.drain([stream.asked for stream in self.streams])

    def drain(self, queues: Sequence[deque[Op]]) -> None:
        """Do what is asked, any stream's next that may be; but moments are taken as soon as they are there."""
        while any(queues):
            ready = [queue for queue in queues if queue and _may(queue[0])]
            if not ready:
                assert any(queue[0][0] == "until" for queue in queues if queue), "streams wait for each other"
                sleep(0.0005)
                continue
            prompt = [queue for queue in ready if _takes_none(queue[0])]
            kind, what = self.random.choice(prompt or ready).popleft()
            self.clock += 1
            if kind == "run":
                what()
            elif kind == "record":
                event, number = what
                event.reached, event.at = max(event.reached, number), self.clock


def _takes_none(op: Op) -> bool:
    """Nothing is done: something was waited for, or a moment is taken."""
    kind, what = op
    return kind == "wait" or (kind == "record" and what[0].timing)


def _may(op: Op) -> bool:
    kind, what = op
    if kind == "until":  # something that others do
        return bool(what())
    return kind != "wait" or bool(what[0].reached >= what[1])


class Capture:
    """What streams were asked since the capture began, for those that came to it."""

    def __init__(self, origin: Stream) -> None:
        self.asked: dict[Stream, list[Op]] = {origin: []}
        self.events: set[Event] = set()
        self.origin = origin


class Stream:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.ptr = cuda, next(cuda.numbers)
        self.asked: deque[Op] = deque()
        cuda.streams.append(self)

    def ask(self, kind: str, what: Any) -> None:
        capture = self.cuda.capture
        if capture is None:
            self.asked.append((kind, what))
        else:
            assert self in capture.asked, "a stream that no capture reached was asked for something"
            capture.asked[self].append((kind, what))

    def wait_event(self, event: Event) -> None:
        capture = self.cuda.capture
        if capture is not None and event in capture.events:
            capture.asked.setdefault(self, [])
        self.ask("wait", (event, event.recorded))

    def begin_capture(self) -> None:
        assert not self.asked
        self.cuda.capture = Capture(self)

    def end_capture(self) -> Graph:
        capture, self.cuda.capture = self.cuda.capture, None
        assert capture is not None
        joined = {id(what[0]) for kind, what in capture.asked[capture.origin] if kind == "wait"}
        for stream, ops in capture.asked.items():
            last = ops[-1] if ops else None
            assert stream is capture.origin or (last and last[0] == "record" and id(last[1][0]) in joined), "not joined"
        return Graph(self.cuda, list(capture.asked.values()))


class Event:
    def __init__(self, cuda: Cuda, disable_timing: bool = False) -> None:
        self.cuda, self.ptr = cuda, next(cuda.numbers)
        self.timing = not disable_timing
        self.recorded = self.reached = 0
        self.at: int | None = None

    def record(self, stream: Stream) -> None:
        self.recorded += 1
        if self.cuda.capture is not None:
            self.cuda.capture.events.add(self)
        stream.ask("record", (self, self.recorded))

    def synchronize(self) -> None:
        self.cuda.synchronise()


class Graph:
    def __init__(self, cuda: Cuda, queues: Sequence[Sequence[Op]]) -> None:
        self.cuda, self.queues = cuda, queues

    def upload(self, stream: Stream) -> None:
        """Nothing."""

    def launch(self, stream: Stream) -> None:
        stream.ask("run", self._run)

    def _run(self) -> None:
        events = {what[0] for ops in self.queues for kind, what in ops if kind in ("record", "wait")}
        for event in events:
            event.reached = 0
        self.cuda.drain([deque(ops) for ops in self.queues])


class StreamedMachine(HostMachine):
    """The host machine, whose kernels and copies are done when their stream comes to them."""

    captured = CudaMachine.captured

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        cuda = self.cuda = Cuda(seed)
        elapsed: Callable[[Event, Event], float] = lambda a, b: float(_at(b) - _at(a))
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(
                Stream=lambda non_blocking, priority=0: Stream(cuda),
                Event=lambda disable_timing=False: Event(cuda, disable_timing),
                get_elapsed_time=elapsed,
            )
        )
        self.api = SimpleNamespace(CUDARuntimeError=AssertionError)
        self.main = Stream(cuda)
        self.stream = self.main.ptr
        self.capturing = False
        self._graphs: set[Any] = set()

    def synchronise(self) -> None:
        self.cuda.synchronise()

    def record_in_graph(self, event: Event, stream: Stream) -> None:
        event.recorded += 1
        stream.ask("record", (event, event.recorded))

    def replay(self, tasks: Sequence[Bound], *, side_by_side: bool) -> Replay:
        return Lanes(self, tasks, side_by_side=side_by_side)  # type: ignore[arg-type]

    def launch(self, unit: Unit, arrays: Sequence[DeviceArray]) -> Runner:
        return self._later(super().launch(unit, arrays))

    def copy(self, lines: Lines, arrays: Sequence[DeviceArray]) -> Runner:
        return self._later(super().copy(lines, arrays))

    def product(self, product: Product, space: DeviceArray) -> Runner | None:
        found = super().product(product, space)
        return None if found is None else self._later(found)

    def attention(self, attentions: Any, scratch: Any) -> Runner | None:
        found = super().attention(attentions, scratch)
        return None if found is None else self._later(found)

    def upload(self, host: bytes, target: DeviceArray) -> None:
        self.synchronise()
        super().upload(host, target)

    def download(self, source: DeviceArray) -> bytes:
        self.synchronise()
        return super().download(source)

    def meet(self, meeting: Meeting) -> Runner:
        tell, heard = self.meeting(meeting)

        def ask() -> None:
            self._current().ask("run", tell)
            self._current().ask("until", heard)

        return ask

    def _current(self) -> Stream:
        return next(stream for stream in self.cuda.streams if stream.ptr == self.stream)

    def _later(self, run: Runner) -> Runner:
        return lambda: self._current().ask("run", run)


def _at(event: Event) -> int:
    assert event.timing, "an event without a time was asked for it"
    assert event.at is not None, "an event that was never reached was asked for its time"
    return event.at
