"""The examples and benchmarks, as modules."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tapestry.imports import run_file

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def example(name: str) -> ModuleType:
    return run_file(EXAMPLES / f"{name}.py")


def benchmark(name: str) -> ModuleType:
    return run_file(ROOT / "benchmarks" / f"{name}.py")
