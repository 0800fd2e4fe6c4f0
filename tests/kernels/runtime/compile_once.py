"""Run by test_cache.py in many processes: compile the same kernels, and note each that is really compiled."""

from __future__ import annotations

import sys
from pathlib import Path

from tapestry.kernels.runtime import compiler
from tapestry.kernels.runtime.compiler import Build, Compiled, Request, compile_source


def main(count: int, notes: Path) -> None:
    """Compile `count` kernels; append to `notes` the name of each that was not in the cache."""
    really_compile = compiler._compile

    def noted(request: Request, build: Build) -> Compiled:
        with notes.open("a") as file:
            file.write(f"{request.name}\n")
        return really_compile(request, build)

    compiler._compile = noted
    for index in range(count):
        made = compile_source(f'extern "C" __global__ void k{index}(int* y) {{ *y = {index}; }}', name=f"k{index}")
        print(made.entry, made.registers, len(made.cubin))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
