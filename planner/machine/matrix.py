"""The table of `nvidia-smi topo -m`: how every two GPUs of a host are connected."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import MachineError
from .nominal import nominal

# From near to far: one PCIe switch, several, a host bridge, the bridges of a processor, several processors.
PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
SWITCHED = ("PIX", "PXB")
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_LANES = 16  # of a GPU's PCIe slot
_PCIE = "16.0 GT/s"  # where nothing says it: PCIe 4.0, of the A100 and of hosts since 2019


@dataclass(frozen=True)
class Fabric:
    """The links of ``count`` GPUs of a host. ``nvlink_island``, ``switch``, ``processor``: how many next to one another
    NVLink joins, share one PCIe switch, hang at one processor; 1 where there is no such equal grouping. ``nvlinks``:
    whether there are any at all."""

    source: str
    count: int
    nvlinks: bool
    nvlink_island: int
    nvlink_gb_per_s: float
    switch: int
    pcie_gb_per_s: float
    processor: int
    processors_gb_per_s: float


def blocks(count: int, together: Callable[[int, int], bool], *, apart: bool = True) -> int:
    """How many GPUs next to one another are a group, where all are in such groups of one size; else 1. ``apart``: and
    none is together with one of another group.

    >>> blocks(4, lambda a, b: a // 2 == b // 2), blocks(4, lambda a, b: abs(a - b) == 2)
    (2, 1)
    >>> blocks(4, lambda a, b: abs(a - b) < 3), blocks(4, lambda a, b: abs(a - b) < 3, apart=False)
    (1, 2)
    """
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    for size in range(count, 1, -1):
        if count % size == 0 and all(
            together(a, b) if a // size == b // size else not (apart and together(a, b)) for a, b in pairs
        ):
            return size
    return 1


def pcie_rate() -> float:
    """GB/s of a GPU's PCIe slot where nothing says it."""
    return nominal().pcie_lane[_PCIE] * _LANES


def nvlink_rate(counts: Sequence[Sequence[int]], island: int, each: float) -> float:
    """GB/s that a GPU of an island receives at once: by all its links to the others, or by those to a switch, which are
    counted to each of the others."""
    row = [n for n in counts[0][:island] if n]
    most = nominal().most_nvlinks
    return each * (sum(row) if sum(row) <= most else max(row)) if row else 0.0


def read_matrix(text: str, file: str) -> Fabric:
    """MachineError where the table is not whole."""
    rows = _rows(text, file)
    count = len(rows)
    joined = [[int(cell[2:]) if cell.startswith("NV") else 0 for cell in row] for row in rows]
    island = blocks(count, lambda a, b: joined[a][b] > 0, apart=False)
    # Behind NVLink nobody sees the PCIe path: such pairs count as near as their island's.
    switch = blocks(count, lambda a, b: rows[a][b] in SWITCHED)
    processor = blocks(count, lambda a, b: rows[a][b] != "SYS")
    figures = nominal()
    return Fabric(
        "nvidia-smi topo -m",
        count,
        any(map(any, joined)),
        island,
        nvlink_rate(joined, island, figures.nvlink_of(None)),
        switch,
        pcie_rate(),
        processor,
        figures.processors["intel"],
    )


def _rows(text: str, file: str) -> list[list[str]]:
    """Per GPU what it has to every GPU: X to itself, NV and a number, or a path."""
    lines = [_CODES.sub("", line).split() for line in text.splitlines()]
    header = next((line for line in lines if line and line[0] == "GPU0" and "X" not in line), [])
    names = [name for name in header if re.fullmatch(r"GPU\d+", name)]
    found = []
    for k, name in enumerate(names):
        row = next((line[1 : len(names) + 1] for line in lines if line and line[0] == name and "X" in line), None)
        if row is None or len(row) < len(names) or row[k] != "X":
            raise MachineError(f"no row of {name} with {len(names)} columns", where=file, hint="paste the whole table")
        for other, cell in zip(names, row, strict=True):
            if cell != "X" and cell not in PATHS and not re.fullmatch(r"NV[1-9]\d?", cell):
                sides = {"expected": f"X, NV and a number, {', '.join(PATHS)}", "got": cell}
                raise MachineError(f"{name} to {other}", where=file, sides=sides)
        found.append(row)
    if not found or any(a != b for k, row in enumerate(found) for a, b in zip(row, [r[k] for r in found], strict=True)):
        raise MachineError("no table of GPUs that says the same both ways", where=file, hint="paste the whole table")
    return found
