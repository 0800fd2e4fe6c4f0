"""What the assembler says of a kernel's resources, read from its log."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+) bytes smem")
_BARRIERS = re.compile(r"used (\d+) barriers")


@dataclass(frozen=True)
class Resources:
    """What one kernel uses: registers a thread; in bytes, spills and stack a thread, static shared memory a block."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    barriers: int = 0


def read_report(log: str) -> dict[str, Resources]:
    """Kernel name -> resources, from the log of `--ptxas-options=-v`.

    Functions that were not inlined have a stack line of their own between an entry's lines; theirs do not count.
    """
    found: dict[str, Resources] = {}
    entry = function = ""
    stack = (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack = match[1], (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _STACK.search(line)) and function == entry:
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and entry:
            found[entry] = _resources(int(match[1]), match[2], stack)
    return found


def _resources(registers: int, rest: str, stack: tuple[int, int, int]) -> Resources:
    frame, stores, loads = stack
    shared, barriers = _SHARED.search(rest), _BARRIERS.search(rest)
    return Resources(
        registers, stores, loads, frame, int(shared[1]) if shared else 0, int(barriers[1]) if barriers else 0
    )
