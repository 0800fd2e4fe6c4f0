"""Many kernels compiled at once: by threads, or by processes where the compiler may run one thing at a time in each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ..errors import KernelError
from . import cache, compiler
from .bindings import nvrtc
from .compiler import Compiled, Recipe

# The parent's path, so that it makes no difference how the package was found.
_WORKER = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path'];"
    " from tapestry.kernels.runtime.parallel import serve; serve(job['recipes'], job['arch'])"
)


def compile_all(
    recipes: Sequence[Recipe],
    arch: str = "sm_90",
    jobs: int | None = None,
    note: Callable[[int], None] = lambda _: None,
) -> list[Compiled]:
    """Compile kernels for an architecture, at most `jobs` at a time (as many as there are processors unless given).

    What the cache holds is not compiled again; the kernels of one source are compiled together. `note` is told how many
    of the recipes, each counted once, are there. Raises as `compile_source` does, for the first recipe that fails.
    """
    wanted = list(dict.fromkeys(recipes))
    missing = [recipe for recipe in wanted if not compiler.is_cached(recipe, arch)]
    note(len(wanted) - len(missing))
    sources: dict[object, list[Recipe]] = {}
    for recipe in missing:
        sources.setdefault((recipe.source, recipe.options), []).append(recipe)
    count = min(jobs or os.cpu_count() or 1, len(sources))
    with _meeting_place() as folder:
        if count > 1 and not _runs_in_threads():
            first = [group[0] for group in sources.values()]
            _compile_in_processes([first[start::count] for start in range(count)], arch, folder)

        def compile_group(group: list[Recipe]) -> int:
            for recipe in group:
                compiler.compile_beside(recipe, arch, cache.Cache(folder))
            return len(group)

        there = len(wanted) - len(missing)
        with ThreadPoolExecutor(max(1, count)) as pool:
            futures = [pool.submit(compile_group, group) for group in sources.values()]
            for future in as_completed(futures):
                there += 0 if future.exception() else future.result()
                note(there)
        for future in futures:
            future.result()
    return [recipe.compile(arch) for recipe in recipes]


def _runs_in_threads() -> bool:
    """Whether the compiler works for several threads at once; of earlier ones it is not known."""
    return tuple(nvrtc().getVersion()) >= (13, 0)


def serve(recipes: Sequence[Sequence[str | list[str]]], arch: str) -> None:
    """What a worker does: leave kernels in the cache. What fails is left to the parent, which fails the same way."""
    for name, source, options, feature in recipes:
        with contextlib.suppress(KernelError):
            Recipe(str(name), str(source), tuple(options), str(feature)).compile(arch)


def _compile_in_processes(shares: Sequence[Sequence[Recipe]], arch: str, folder: Path) -> None:
    running = [_start(share, arch, folder) for share in shares]
    try:
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()


def _start(share: Sequence[Recipe], arch: str, folder: Path) -> subprocess.Popen[str]:
    recipes = [[recipe.name, recipe.source, list(recipe.options), recipe.feature] for recipe in share]
    surroundings = {**os.environ, cache.VARIABLE: str(folder)}
    process = subprocess.Popen([sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, text=True, env=surroundings)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        json.dump({"path": sys.path, "recipes": recipes, "arch": arch}, pipe)
    return process


@contextlib.contextmanager
def _meeting_place() -> Iterator[Path]:
    """Where workers leave what they made: the cache or, where there is none, a directory for the while."""
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
