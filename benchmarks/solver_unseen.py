"""Sharding problems that nobody has seen: made from the contest's, then solved like them (`solver_assign.py`).

Three ways to make one, each of the contest's character:

- `tight`: the limit is 2 % above the largest total of least usages, where the contest has 10 %;
- `free`: forbidden strategies and pairs are allowed at more than the dearest of their table, so that little reduces;
- `twice`: one after the other in time, the second with costs scaled at random, and random edges between the two.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from solver_assign import PROBLEMS, measure

HALF = 10**18 // 2
MOST_NODES = 65_000
Problem = dict[str, Any]


def least_peak(problem: Problem) -> int:
    """The largest total, over time, of what every node holds at the least."""
    nodes = problem["nodes"]
    change = np.zeros(2 + max(stop for _, stop in nodes["intervals"]), dtype=np.int64)
    for (start, stop), usages, costs in zip(nodes["intervals"], nodes["usages"], nodes["costs"], strict=True):
        least = min(use for use, cost in zip(usages, costs, strict=True) if cost < HALF)
        change[[start, stop]] += (least, -least) if start < stop else (0, 0)
    return int(change.cumsum().max())


def tight(problem: Problem, _: np.random.Generator) -> Problem:
    return problem | {"usage_limit": int(1.02 * least_peak(problem))}


def free(problem: Problem, rng: np.random.Generator) -> Problem:
    nodes, edges = problem["nodes"], problem["edges"]
    given = zip(nodes["costs"], nodes["usages"], strict=True)
    return problem | {
        "nodes": nodes | {"costs": [_allowed(costs, max(usages), rng) for costs, usages in given]},
        "edges": edges | {"costs": [_allowed(costs, 1024, rng) for costs in edges["costs"]]},
    }


def _allowed(costs: list[int], least: int, rng: np.random.Generator) -> list[int]:
    dear = max([least, *(cost for cost in costs if cost < HALF)])
    return [cost if cost < HALF else int(dear * (1.0 + rng.random())) for cost in costs]


def twice(problem: Problem, rng: np.random.Generator) -> Problem:
    nodes, edges = problem["nodes"], problem["edges"]
    count, length = len(nodes["costs"]), 1 + max(stop for _, stop in nodes["intervals"])
    extra = min(count, MOST_NODES - count)
    later = [[u + count, v + count] for u, v in edges["nodes"] if max(u, v) < extra]
    inner = [e for e, (u, v) in enumerate(edges["nodes"]) if max(u, v) < extra]
    across = [(int(rng.integers(count)), count + int(rng.integers(extra))) for _ in range(count // 20)]
    costs = nodes["costs"] + [_scaled(c, rng) for c in nodes["costs"][:extra]]
    made = {
        "nodes": {
            "intervals": nodes["intervals"] + [[a + length, b + length] for a, b in nodes["intervals"][:extra]],
            "costs": costs,
            "usages": nodes["usages"] + nodes["usages"][:extra],
        },
        "edges": {
            "nodes": [*edges["nodes"], *later, *across],
            "costs": [
                *edges["costs"],
                *(_scaled(edges["costs"][e], rng) for e in inner),
                *(rng.integers(0, 2**22, len(costs[u]) * len(costs[v])).tolist() for u, v in across),
            ],
        },
    }
    return problem | made | {"usage_limit": int(1.1 * least_peak(made))}


def _scaled(costs: list[int], rng: np.random.Generator) -> list[int]:
    factor = float(np.exp(rng.normal(0.0, 0.5)))
    return [cost if cost >= HALF else int(cost * factor) for cost in costs]


WAYS: dict[str, Callable[[Problem, np.random.Generator], Problem]] = {"tight": tight, "free": free, "twice": twice}


def main() -> None:
    """Make and solve them, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["A", "K", "V"], help="names of the contest's problems")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each, reading included")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            given = msgspec.json.decode(gzip.decompress((PROBLEMS / f"{name}.json.gz").read_bytes()))["problem"]
            for way in arguments.ways:
                made = WAYS[way](given, np.random.default_rng(arguments.seed))
                file = Path(folder) / f"{name}-{way}.json.gz"
                file.write_bytes(gzip.compress(msgspec.json.encode({"problem": made}), compresslevel=3))
                busy = sum(os.times()[:4])
                row = measure(file, {"contest_timeout_s": arguments.time_limit}, arguments.seed, 2)
                load = f"{sum(os.times()[:4]) - busy:.0f} s of CPU, load {os.getloadavg()[0]:.1f}"
                print(*row.cells(), load, sep="\t", file=sys.stdout, flush=True)
                file.unlink()


if __name__ == "__main__":
    main()
