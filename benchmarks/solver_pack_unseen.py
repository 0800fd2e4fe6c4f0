"""Packing problems that nobody has seen: a square of time and memory, cut at random into buffers (`solver_pack.py` has
those of MiniMalloc).

    python benchmarks/solver_pack_unseen.py --time-limit 60 --seeds 8

Every problem fits: it was cut out of its packing. Pieces are left out, or live for a part of their time only, so that
there is room, but mostly where it is of no use. Seconds are of CPU and one thread: the machine may do other things, and
a limit by the clock leaves less of it. One problem is packed before, so that compiled loops are there.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from math import inf
from statistics import median

import numpy as np

from tapestry.planner.solvers.pack import Buffer, pack
from tapestry.planner.solvers.pack.check import check_packing

SIDE, UNIT = 1024, 1024


@dataclass(frozen=True)
class Kind:
    """So many pieces; with which power of its area a piece is cut again; shares that are left out, and shortened."""

    pieces: int
    power: float
    out: float = 0.0
    short: float = 0.0


KINDS = {
    "whole 150": Kind(150, 1.0),
    "whole 300": Kind(300, 1.0),
    "whole 450": Kind(450, 0.7),
    "gaps 200": Kind(200, 1.0, out=0.05),
    "gaps 350": Kind(350, 0.7, out=0.05),
    "short 150": Kind(150, 1.0, short=0.1),
    "short 250": Kind(250, 1.0, short=0.1),
    "short 350": Kind(350, 1.0, out=0.02, short=0.1),
    "short 450": Kind(450, 0.7, short=0.1),
    "even 300": Kind(300, 2.0, out=0.1, short=0.2),
    "even 450": Kind(450, 2.0, out=0.05, short=0.1),
}


def cut(kind: Kind, rng: np.random.Generator) -> list[tuple[int, int, int, int]]:
    """The square in two, again and again: (from, until, low, high) each."""
    pieces = [(0, SIDE, 0, SIDE)]
    while len(pieces) < kind.pieces:
        areas = np.array([(b - a) * (d - c) for a, b, c, d in pieces], float) ** kind.power
        a, b, c, d = pieces.pop(int(rng.choice(len(pieces), p=areas / areas.sum())))
        if b - a > 1 and rng.random() < (b - a) / (b - a + d - c):
            at = int(rng.integers(a + 1, b))
            pieces += [(a, at, c, d), (at, b, c, d)]
        elif d - c > 1:
            at = int(rng.integers(c + 1, d))
            pieces += [(a, b, c, at), (a, b, at, d)]
        else:
            pieces.append((a, b, c, d))
    return pieces


def made(name: str, seed: int) -> list[Buffer]:
    """The same for the same name and seed."""
    kind, rng = KINDS[name], np.random.default_rng((seed, *name.encode()))
    found = []
    for start, stop, low, high in cut(kind, rng):
        if rng.random() < kind.out:
            continue
        first, last = start, stop
        if rng.random() < kind.short:
            first, last = sorted(rng.integers(start, stop + 1, 2).tolist())
        if first < last:
            found.append(Buffer(str(len(found)), first, last, (high - low) * UNIT))
    return found


def solved(name: str, seed: int, time_limit: float) -> float | None:
    """Seconds of CPU; None where it was not packed."""
    buffers = made(name, seed)
    began = time.process_time()
    found = pack(buffers, SIDE * UNIT, time_limit=time_limit, jobs=1)
    took = time.process_time() - began
    assert found.status != "packed" or not check_packing(buffers, found.offsets, SIDE * UNIT)
    return took if found.status == "packed" else None


def main() -> None:
    """One line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    arguments = parser.parse_args()
    solved("whole 300", 0, time_limit=inf)
    print("| kind | packed | median CPU s | most | not packed |\n| --- | ---: | ---: | ---: | --- |")
    for name in arguments.only:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        seconds = {seed: solved(name, seed, arguments.time_limit) for seed in seeds}
        packed = [took for took in seconds.values() if took is not None]
        times = [f"{median(packed):.1f}", f"{max(packed):.1f}"] if packed else ["–", "–"]
        missing = ", ".join(str(seed) for seed, took in seconds.items() if took is None)
        print(f"| {' | '.join([name, f'{len(packed)} of {len(seeds)}', *times, missing or '–'])} |", flush=True)


if __name__ == "__main__":
    main()
