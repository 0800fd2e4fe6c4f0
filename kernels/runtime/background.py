"""Kernels compiled by threads beside the caller, who does without them until they are there (`not_waiting`)."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from .compiler import Compiled, Recipe, is_cached
from .parallel import Worker, processors

Wanted = tuple[Recipe, str]


class Coming(Exception):
    """A kernel is being compiled: ask again later."""


class Workers:
    """Threads that have processes compile, as many as there are processors, begun when there is something to do."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Wanted, Future[Compiled]]] = queue.SimpleQueue()
        self._known: dict[Wanted, Future[Compiled]] = {}
        self._lock = threading.Lock()
        self._threads = 0

    def ask(self, recipe: Recipe, arch: str) -> Future[Compiled]:
        """The kernel to be, asked for once."""
        wanted = (recipe, arch)
        with self._lock:
            found = self._known.get(wanted)
            if found is None:
                found = self._known[wanted] = Future()
                self._waiting.put((wanted, found))
                if self._threads < min(len(self._known), processors()):
                    self._threads += 1
                    # A daemon: a program that ends does not wait for kernels that nobody will launch.
                    threading.Thread(target=self._work, name="tapestry-compiles", daemon=True).start()
        return found

    def _work(self) -> None:
        worker: Worker | None = None
        while True:
            (recipe, arch), made = self._waiting.get()
            try:
                worker = worker or Worker()
                made.set_result(recipe.compile(arch, worker.build))
            except BaseException as error:
                made.set_exception(error)
            if worker is not None and self._waiting.empty():
                worker.end()
                worker = None


_workers = Workers()
_here = threading.local()


@contextlib.contextmanager
def not_waiting() -> Iterator[None]:
    """In this block the calling thread waits for no compiler: it gets `Coming` where a kernel is not there yet."""
    before, _here.waits_not = getattr(_here, "waits_not", False), True
    try:
        yield
    finally:
        _here.waits_not = before


def obtained(recipe: Recipe, arch: str) -> Compiled:
    """The compiled kernel, waited for, or in a block of `not_waiting` begun beside. Errors are `Recipe.compile`'s."""
    if not getattr(_here, "waits_not", False) or is_cached(recipe, arch):
        return recipe.compile(arch)
    made = _workers.ask(recipe, arch)
    if not made.done():
        raise Coming(recipe.name)
    return made.result()


def begin(recipes: Sequence[Recipe], arch: str) -> None:
    """Compile kernels beside the caller."""
    for recipe in recipes:
        _workers.ask(recipe, arch)
