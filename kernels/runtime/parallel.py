"""Many kernels compiled at once, by processes of their own: the compiler runs one thing at a time in each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import KernelError
from . import cache, compiler
from .compiler import Compiled, Recipe

# The parent's path, so that it makes no difference how the package was found.
_WORKER = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path'];"
    " from tapestry.kernels.runtime.parallel import serve; serve(job['recipes'], job['arch'])"
)


def compile_all(recipes: Sequence[Recipe], arch: str = "sm_90", jobs: int | None = None) -> list[Compiled]:
    """Compile kernels for an architecture, at most `jobs` at a time (as many as there are processors unless given).

    What the cache holds is not compiled again. Raises as `compile_source` does, for the first recipe that fails.
    """
    wanted = list(dict.fromkeys(recipes))
    missing = [recipe for recipe in wanted if not compiler.is_cached(recipe, arch)]
    count = min(jobs or os.cpu_count() or 1, len(missing))
    with _meeting_place() as folder:
        if count > 1:
            _compile_in_processes([missing[start::count] for start in range(count)], arch, folder)
        for recipe in missing:
            compiler.compile_beside(recipe, arch, cache.Cache(folder))
    return [recipe.compile(arch) for recipe in recipes]


def serve(recipes: Sequence[Sequence[str | list[str]]], arch: str) -> None:
    """What a worker does: leave kernels in the cache. What fails is left to the parent, which fails the same way."""
    for name, source, options in recipes:
        with contextlib.suppress(KernelError):
            Recipe(str(name), str(source), tuple(options)).compile(arch)


def _compile_in_processes(shares: Sequence[Sequence[Recipe]], arch: str, folder: Path) -> None:
    running = [_start(share, arch, folder) for share in shares]
    try:
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()


def _start(share: Sequence[Recipe], arch: str, folder: Path) -> subprocess.Popen[str]:
    recipes = [[recipe.name, recipe.source, list(recipe.options)] for recipe in share]
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
