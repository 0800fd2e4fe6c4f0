"""The examples and benchmarks, as modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tapestry.imports import run_file

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
BENCHMARKS = ROOT / "benchmarks"


def example(name: str) -> ModuleType:
    return run_file(EXAMPLES / f"{name}.py")


def benchmark(name: str) -> ModuleType:
    return run_file(BENCHMARKS / f"{name}.py")


@contextmanager
def benchmarks(*names: str) -> Iterator[dict[str, ModuleType]]:
    """Scripts that import one another and the examples, which are on the path meanwhile."""
    before = list(sys.path)
    sys.path[:0] = [str(BENCHMARKS), str(EXAMPLES)]
    try:
        yield {name: import_module(name) for name in names}
    finally:
        sys.path[:] = before
