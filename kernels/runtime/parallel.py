"""Many kernels compiled at once, each by a process that does nothing else (`compile_worker.py`)."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from . import cache, compile_worker, compiler
from .bindings import nvrtc
from .compiler import Compiled, Outcome, Recipe, Request


def processors() -> int:
    """How many this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_BROKEN = (OSError, EOFError, pickle.UnpicklingError)  # what is met where a process has ended


def compile_all(
    recipes: Iterable[Recipe],
    arch: str = "sm_90",
    jobs: int | None = None,
    note: Callable[[int, int], None] = lambda *_: None,
) -> list[Compiled]:
    """Compile kernels for an architecture, at most `jobs` at a time (as many as there are processors unless given).

    What the cache holds is not compiled again; the kernels of one source are compiled together, the first ones while
    others are still being listed. `note` is told how many of the recipes, each counted once, are there, and of how
    many. Raises as `compile_source` does, for the first recipe that fails.
    """
    count = jobs or processors()
    with _meeting_place() as folder, Workers(Worker) as workers, ThreadPoolExecutor(count) as pool:
        beside, helped = cache.Cache(folder), workers if count > 1 and sys.executable else None
        try:
            listed = []
            sources: dict[object, tuple[list[Recipe], Future[None] | None]] = {}
            for recipe in recipes:
                listed.append(recipe)
                source = (recipe.source, recipe.options, recipe.feature, recipe.name if "<" in recipe.name else "")
                if source not in sources:
                    there = compiler.is_cached(recipe, arch)
                    sources[source] = ([], None if there else pool.submit(_compile, recipe, arch, beside, helped))
                if recipe not in sources[source][0]:
                    sources[source][0].append(recipe)
            _await(list(sources.values()), note)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [compiler.compile_beside(recipe, arch, beside) for recipe in listed]


def _await(groups: Sequence[tuple[list[Recipe], Future[None] | None]], note: Callable[[int, int], None]) -> None:
    """Wait for what is being compiled, and say how many kernels are there. Raises what the first of them raised."""
    known = sum(len(group) for group, _ in groups)
    sizes = {future: len(group) for group, future in groups if future is not None}
    there = known - sum(sizes.values())
    note(there, known)
    for future in as_completed(sizes):
        there += 0 if future.exception() else sizes[future]
        note(there, known)
    for future in sizes:
        future.result()


def _compile(recipe: Recipe, arch: str, beside: cache.Cache, workers: Workers[Worker] | None) -> None:
    """By one of the processes or, where there are none, by this one."""
    if workers is None:
        compiler.compile_beside(recipe, arch, beside)
        return
    with workers.one() as worker:
        compiler.compile_beside(recipe, arch, beside, worker.build)


@contextlib.contextmanager
def _meeting_place() -> Iterator[Path]:
    """Where kernels are left: the cache or, where there is none, a directory for the while."""
    folder = cache.directory()
    if folder is not None and _writable(folder):
        yield folder
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class Ends(Protocol):
    """A process that somebody ends."""

    def end(self) -> None:
        """End it, whatever it does."""


Begun = TypeVar("Begun", bound=Ends)


class Workers(Generic[Begun]):
    """Processes that work for threads: begun when one asks and none is idle, and ended with the block."""

    def __init__(self, begin: Callable[[], Begun]) -> None:
        self._begin = begin
        self._idle: list[Begun] = []
        self._all: list[Begun] = []
        self._ended = False
        self._lock = threading.Lock()

    def __enter__(self) -> Workers[Begun]:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            begun = list(self._all)
        for worker in begun:
            with contextlib.suppress(Exception):  # the others are ended all the same
                worker.end()

    @contextlib.contextmanager
    def one(self) -> Iterator[Begun]:
        """One that works for the calling thread alone."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is None:
            worker = self._begin()  # many at a time, each of which takes its while
            with self._lock:
                late = self._ended
                if not late:
                    self._all.append(worker)
            if late:  # nobody else ends it
                worker.end()
        try:
            yield worker
        finally:
            with self._lock:
                self._idle.append(worker)


class Worker:
    """A process that compiles one source after the other. Where it cannot, this process does."""

    def __init__(self) -> None:
        major, minor = nvrtc().getVersion()
        command = [sys.executable, "-I", "-S", compile_worker.__file__, str(major), str(minor), *_libraries()]
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        there = False
        with contextlib.suppress(*_BROKEN):
            there = self._answer()
        if not there:
            self.end()

    def build(self, request: Request) -> Outcome:
        """Compile there."""
        if self._process is not None:
            with contextlib.suppress(*_BROKEN):
                assert self._process.stdin is not None
                pickle.dump(_plainly(request), self._process.stdin)
                self._process.stdin.flush()
                return Outcome(*self._answer())
            self.end()
        return compiler.here(request)

    def _answer(self) -> Any:
        if self._process is None or self._process.stdout is None:
            raise EOFError
        return pickle.load(self._process.stdout)

    def end(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _plainly(request: Request) -> tuple[Any, ...]:
    """A request as the worker takes it."""
    texts: Sequence[bytes] = [text.encode() for text in request.headers.values()]
    names = [name.encode() for name in request.headers]
    expression = b"" if request.plain else request.name.encode()
    options = [flag.encode() for flag in request.flags]
    return request.source.encode(), request.file.encode(), texts, names, expression, options, request.portable


def _libraries() -> list[str]:
    """The compiler's library as this process has loaded it, there perhaps beside another version; else by its name."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            path = line.split(maxsplit=5)[-1]
            if Path(path).name.startswith("libnvrtc.so"):
                found[path] = None
    return list(found)
