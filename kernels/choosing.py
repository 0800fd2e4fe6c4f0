"""How passes are computed, chosen for many of them at once by processes that do nothing else.

To choose takes a processor 0.1 s a pass and more, and threads of Python take turns. What a process chooses it keeps on
disk (`runtime/kept.py`), where this one finds it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from .convolution import choices
from .convolution.recipes import Pass, recipes
from .runtime.kept import is_kept, keeps
from .runtime.parallel import Workers, processors

if TYPE_CHECKING:
    from .convolution.problem import ConvolutionProblem
    from .cost.gpu import Gpu
    from .runtime.compiler import Recipe

FEWEST = 4  # processes, and passes that are not chosen yet, from which on it is worth beginning them
EACH = 3  # passes of a process at least: it takes a second to begin one where many are begun
PATIENCE_S = 0.25  # what is left to choose after so long is much
SERVING = "from tapestry.kernels.choosing import serve; serve()"


class Call(NamedTuple):
    """A pass that a layer is called for: whether a bias is added, and whether its gradient is left in f32."""

    problem: ConvolutionProblem
    what: Pass
    biased: bool
    wide: bool

    def recipes(self, gpu: Gpu) -> list[Recipe]:
        """Its kernels on a GPU."""
        return recipes(self.problem, self.what, gpu, {"bias": True} if self.biased else None, partial=self.wide)


def chosen(calls: Sequence[Call], gpu: Gpu, jobs: int | None = None) -> Iterator[Call]:
    """The calls in their order, each when it is kept how it is computed.

    This process chooses until others are there to help it: at most `jobs` of them (one a processor unless given); none
    where they or what is missing are few, or where nothing is kept.
    """
    missing = [call for call in calls if not is_kept(choices.left_to_cudnn, call.problem, call.what, gpu)]
    count = min(jobs or processors(), len(missing))
    if count < FEWEST or not keeps() or not sys.executable:
        yield from calls
        return
    shared = _Shared(missing)
    with ThreadPoolExecutor(count) as pool, Workers(_Helper) as helpers:
        for _ in range(min(count, -(-len(missing) // EACH))):
            pool.submit(_help, shared, gpu, helpers)
        try:
            for call in calls:
                if shared.take(call) or not shared.is_chosen(call):
                    _choose(call, gpu)
                yield call
        finally:
            shared.end()


class _Shared:
    """Calls to be chosen, each by who takes it."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._left = dict.fromkeys(calls)
        self._by_others: dict[Call, Future[bool]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def take(self, call: Call) -> bool:
        """Take one that nobody has taken."""
        with self._lock:
            taken = call in self._left
            self._left.pop(call, None)
            return taken

    def take_next(self) -> tuple[Call, Future[bool]] | None:
        """The first that nobody has taken, and what is to be told whether it is chosen."""
        with self._lock:
            call = next(iter(self._left), None)
            if call is None:
                return None
            del self._left[call]
            chosen = self._by_others[call] = Future()
            return call, chosen

    def is_chosen(self, call: Call) -> bool:
        """Whether it needs nobody any more; waits for another who has taken it, and may have ended over it."""
        with self._lock:
            chosen = self._by_others.get(call)
        return chosen is None or chosen.result()

    def end(self) -> None:
        """Nobody takes anything any more."""
        with self._lock:
            self._left.clear()
        self._ended.set()

    def wants_help(self) -> bool:
        """Whether much is left to choose: something after a while."""
        return not self._ended.wait(PATIENCE_S) and bool(self._left)


def _help(shared: _Shared, gpu: Gpu, helpers: Workers[_Helper]) -> None:
    """Have a process choose what is left, one call after the other."""
    if not shared.wants_help():
        return
    with contextlib.suppress(OSError, ValueError), helpers.one() as helper:  # it cannot be begun, or is ended
        there = helper.answers()
        while there and (taken := shared.take_next()) is not None:
            call, chosen = taken
            there = False
            try:
                there = helper.choose(call, gpu)
            finally:
                chosen.set_result(there)


def _choose(call: Call, gpu: Gpu) -> None:
    with contextlib.suppress(Exception):  # who asks next meets it, too
        if not choices.left_to_cudnn(call.problem, call.what, gpu):
            call.recipes(gpu)


class _Helper:
    """A process that chooses."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-c", SERVING]  # -P: not what lies in the current directory
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    def choose(self, call: Call, gpu: Gpu) -> bool:
        """Return when it has, or False when it has ended."""
        assert self._process.stdin is not None
        pickle.dump((call, gpu), self._process.stdin)
        self._process.stdin.flush()
        return self.answers()

    def answers(self) -> bool:
        """Whether the process says that it is there: at first, and when it has chosen."""
        assert self._process.stdout is not None
        return self._process.stdout.read(1) != b""

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


def serve() -> None:
    """What such a process does: say with a byte that it is there, and again whenever it has chosen what it is sent."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError):
        while True:
            answers.write(b".")
            answers.flush()
            call, gpu = pickle.load(given)
            _choose(call, gpu)
