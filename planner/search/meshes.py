"""The meshes that are tried where none was asked for: how many devices, and in which rows.

First one mesh for each number of devices that fills a host or a part of one evenly: a row, and on several hosts a row
of hosts by a row of devices. Of few operations then all devices in one row, and one fewer than the best number
(`pipeline`). Then the best of these with one of their rows as two. Devices of one host are alike, so the order of rows
within it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...program import Program
from ..machine import Machine
from ..strategy.mesh import MAX_RANKS

FEW = 2  # points of a dimension for each rank: one of more is cut nearly evenly into any number of parts


def plain_meshes(machine: Machine, shares: Iterable[int] = ()) -> list[tuple[int, ...]]:
    """One for each number of devices, single rows first, most devices first; two hosts of four: 4, 2, 1, 2x4.

    ``shares``: other numbers of devices of a host, or of hosts, into which something of the program can be divided.
    """
    whole = machine.devices_per_host
    counts = sorted({*_divisors(whole), *(count for count in shares if count < whole)}, reverse=True)
    hosts = sorted({*_divisors(machine.hosts), *(count for count in shares if count < machine.hosts)}, reverse=True)
    found: list[tuple[int, ...]] = [(count,) for count in counts]
    found += [(count, whole) if whole > 1 else (count,) for count in hosts if count > 1]
    return [rows for rows in dict.fromkeys(found) if prod(rows) <= MAX_RANKS]


def shares(program: Program, most: int) -> list[int]:
    """The numbers of ranks, at most so many, that can have equal shares of what cannot be divided well among others:
    of parallel dimensions that are not much longer than there are ranks.
    """
    found: set[int] = set()
    for op in program.operations:
        for dim in op.dims:
            if dim.cut and dim.name in op.parallel_dims and dim.extent < FEW * most:
                found.update(count for count in range(2, most + 1) if dim.extent % count == 0)
    return sorted(found)


def finer_meshes(rows: tuple[int, ...], machine: Machine) -> list[tuple[int, ...]]:
    """A mesh with the longest row of a host's devices as two, and one that crosses hosts as one row of all.

    >>> from tapestry.planner import load_machine
    >>> finer_meshes((8,), load_machine("h200x8")), finer_meshes((2, 8), load_machine("h200x8-2node"))
    ([(4, 2)], [(2, 4, 2), (16,)])
    """
    crossing = len(rows) > 1 and rows[0] <= machine.hosts and rows[0] * rows[1] > machine.devices_per_host
    own = rows[1:] if crossing else rows
    longest = max(own)
    parts = [k for k in _divisors(longest)[1:-1] if k * k >= longest]
    found = []
    if parts:
        at = len(rows) - len(own) + own.index(longest)
        found.append((*rows[:at], parts[0], longest // parts[0], *rows[at + 1 :]))
    if crossing and len(rows) == 2:
        found.append((rows[0] * rows[1],))
    return found


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
