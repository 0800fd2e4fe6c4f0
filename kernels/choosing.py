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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    if count < FEWEST or not keeps() or not sys.executable:
        yield from calls
        return
    with Workers(_Helper) as helpers, ThreadPoolExecutor(count) as pool:
        coming = {call: pool.submit(_choose, call, gpu, helpers) for call in missing}
        try:
            for call in calls:
                if call in coming:
                    coming[call].result()
                yield call
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _choose(call: Call, gpu: Gpu, helpers: Workers[_Helper]) -> None:
    """Have a process choose, and wait for it. Where none can, nothing happens: who asks next chooses."""
    with contextlib.suppress(OSError), helpers.one() as helper:
        helper.choose(call, gpu)


class _Helper:
    """A process that chooses."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-c", SERVING]  # -P: not what lies in the current directory
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    def choose(self, call: Call, gpu: Gpu) -> None:
        """Return when it has, or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((call, gpu), self._process.stdin)
        self._process.stdin.flush()
        self._process.stdout.read(1)

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


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
