"""How passes are computed, chosen for many of them at once by processes that do nothing else.

To choose takes a processor 0.1 s to 1 s a pass, and threads of Python take turns. What a process chooses it keeps on
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
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from .convolution import choices
from .convolution.recipes import Pass, recipes
from .runtime.kept import is_kept, keeps
from .runtime.parallel import processors

if TYPE_CHECKING:
    from .convolution.problem import ConvolutionProblem
    from .cost.gpu import Gpu
    from .runtime.compiler import Recipe

FEWEST = 4  # processes, and passes that are not chosen yet, from which on it is worth beginning them
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

    At most `jobs` processes choose (one a processor unless given); none where they or what is missing are few, or where
    nothing is kept.
    """
    missing = [call for call in calls if not is_kept(choices.left_to_cudnn, call.problem, call.what, gpu)]
    count = min(jobs or processors(), len(missing))
    if count < FEWEST or not keeps():
        yield from calls
        return
    with _Helpers(gpu) as helpers, ThreadPoolExecutor(count) as pool:
        coming = {call: pool.submit(helpers.choose, call) for call in missing}
        try:
            for call in calls:
                if call in coming:
                    coming[call].result()
                yield call
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            helpers.end()


class _Helpers:
    """Processes that choose for a GPU, one for each thread that asks."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._own = gpu, threading.local()
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> _Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def choose(self, call: Call) -> None:
        """Have a process choose, and wait for it. Where there is none, nothing happens: who asks next chooses."""
        with contextlib.suppress(OSError):
            process = self._process()
            assert process.stdin is not None
            assert process.stdout is not None
            pickle.dump((call, self._gpu), process.stdin)
            process.stdin.flush()
            process.stdout.read(1)

    def _process(self) -> subprocess.Popen[bytes]:
        found: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if found is None:
            command = [sys.executable, "-P", "-c", SERVING]  # -P: not what lies in the current directory
            found = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
            self._own.process = found
            self._all.append(found)
        return found

    def end(self) -> None:
        """End them, whatever they do."""
        while self._all:
            process = self._all.pop()
            process.kill()
            process.communicate()


def serve() -> None:
    """What such a process does: choose for what it is sent, and answer with a byte, until nothing more comes."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError):
        while True:
            call, gpu = pickle.load(given)
            with contextlib.suppress(Exception):  # who asks next meets it, too
                if not choices.left_to_cudnn(call.problem, call.what, gpu):
                    call.recipes(gpu)
            answers.write(b".")
            answers.flush()
