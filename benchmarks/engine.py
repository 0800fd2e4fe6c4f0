"""The in-process engine against the same NumPy calls per shard written by hand, ranks one after another.

    python benchmarks/engine.py [--size 4096] [--ranks 4] [--repeat 5]

Program: `examples/corners.py` on a random square image, cut into blocks of rows. By hand: every rank has padded
arrays allocated beforehand, halo rows are copied between them, and each operation is its NumPy calls with ``out=``.
Prints both times (best of the repeats), their ratio, and the time of binding the tasks to memory, which comes before
the run and is in neither; the results must be equal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import corners  # type: ignore[import-not-found]

from tapestry.planner.format import Document, Resolved
from tapestry.planner.machine import load_machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.space import Box, Region
from tapestry.workers import run
from tapestry.workers.devices import open_device
from tapestry.workers.rank import Rank

Array = NDArray[np.float32]
R = corners.RADIUS
THRESHOLD = 0.5


class Shard:
    """One block of rows and all that a rank computes, padded by zeros (peaks: by zeros as well) on each side."""

    def __init__(self, photo: Array) -> None:
        h, w, _ = photo.shape
        self.photo = photo
        self.grey = np.zeros((h + 2, w + 2), np.float32)
        self.gx, self.gy = np.empty((h, w), np.float32), np.empty((h, w), np.float32)
        self.products = [np.zeros((h + 2 * R, w), np.float32) for _ in range(3)]
        self.tall = [np.zeros((h, w + 2 * R), np.float32) for _ in range(3)]
        self.blurred = [np.empty((h, w), np.float32) for _ in range(3)]
        self.response = np.zeros((h + 2, w + 2), np.float32)
        self.peaks = np.empty((h, w), np.float32)
        self.a, self.b = np.empty((h, w), np.float32), np.empty((h, w), np.float32)
        self.yes, self.also = np.empty((h, w), np.bool_), np.empty((h, w), np.bool_)

    def luma(self) -> None:
        out = self.grey[1:-1, 1:-1]
        np.multiply(self.photo[..., 0], 0.299, out=out)
        for channel, weight in ((1, 0.587), (2, 0.114)):
            np.multiply(self.photo[..., channel], weight, out=self.a)
            np.add(out, self.a, out=out)
        np.multiply(out, 1 / 255, out=out)

    def sobel(self) -> None:
        g = self.grey
        for out, plus, minus in (
            (self.gx, (g[:-2, 2:], g[1:-1, 2:], g[2:, 2:]), (g[:-2, :-2], g[1:-1, :-2], g[2:, :-2])),
            (self.gy, (g[2:, :-2], g[2:, 1:-1], g[2:, 2:]), (g[:-2, :-2], g[:-2, 1:-1], g[:-2, 2:])),
        ):
            self._smooth(plus, out)
            self._smooth(minus, self.b)
            np.subtract(out, self.b, out=out)

    def _smooth(self, taps: tuple[Array, Array, Array], out: Array) -> None:
        np.multiply(taps[1], 2, out=self.a)
        np.add(taps[0], self.a, out=out)
        np.add(out, taps[2], out=out)

    def multiply(self, k: int) -> None:
        factors = ((self.gx, self.gx), (self.gy, self.gy), (self.gx, self.gy))[k]
        np.multiply(*factors, out=self.products[k][R:-R])

    def blur(self, k: int) -> None:
        h, w = self.gx.shape
        self._blur(lambda t: self.products[k][R + t : R + t + h], self.tall[k][:, R:-R])
        self._blur(lambda t: self.tall[k][:, R + t : R + t + w], self.blurred[k])

    def _blur(self, tap: Callable[[int], Array], out: Array) -> None:
        np.multiply(tap(0), corners.WEIGHTS[R], out=out)
        for t in range(1, R + 1):
            np.add(tap(-t), tap(t), out=self.a)
            np.multiply(self.a, corners.WEIGHTS[R + t], out=self.a)
            np.add(out, self.a, out=out)

    def harris(self) -> None:
        (xx, yy, xy), out = self.blurred, self.response[1:-1, 1:-1]
        np.add(xx, yy, out=self.a)
        np.multiply(xx, yy, out=out)
        np.multiply(xy, xy, out=self.b)
        np.subtract(out, self.b, out=out)
        np.multiply(self.a, corners.K, out=self.b)
        np.multiply(self.b, self.a, out=self.b)
        np.subtract(out, self.b, out=out)

    def suppress(self) -> None:
        h, w = self.gx.shape
        r, centre = self.response, self.response[1:-1, 1:-1]
        np.copyto(self.a, centre)
        for dy, dx in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2)):
            np.maximum(self.a, r[dy : dy + h, dx : dx + w], out=self.a)
        np.greater_equal(centre, self.a, out=self.yes)
        np.greater(centre, THRESHOLD, out=self.also)
        np.logical_and(self.yes, self.also, out=self.yes)
        self.peaks[...] = 0
        np.copyto(self.peaks, centre, where=self.yes)


def exchange(arrays: list[Array], width: int) -> None:
    """Copy the halo rows between neighbours."""
    for upper, lower in pairwise(arrays):
        upper[-width:] = lower[width : 2 * width]
        lower[:width] = upper[-2 * width : -width]


def by_hand(shards: list[Shard]) -> None:
    """The whole pipeline, operation after operation, ranks in turn."""
    for shard in shards:
        shard.luma()
    exchange([shard.grey for shard in shards], 1)
    for shard in shards:
        shard.sobel()
        for k in range(3):
            shard.multiply(k)
    for k in range(3):
        exchange([shard.products[k] for shard in shards], R)
    for shard in shards:
        for k in range(3):
            shard.blur(k)
        shard.harris()
    exchange([shard.response for shard in shards], 1)
    for shard in shards:
        shard.suppress()


def planned(size: int, ranks: int) -> Any:
    """The plan in which every operation is cut into blocks of rows."""
    program = corners.corners.bind(y=size, x=size)
    bounds = [r * size // ranks for r in range(ranks + 1)]

    def rows(*extents: int) -> list[Region]:
        found = pairwise(bounds)
        return [Box((lo, *(0 for _ in extents)), (hi, *extents)).region() for lo, hi in found]

    cuts = {op.name: rows(*(dim.extent for dim in op.dims[1:])) for op in program.operations}
    machine = load_machine("cpu-4")
    return plan_partitions(program, machine, cuts, homes={"photo": rows(size, 3)})


def measure(size: int, ranks: int, repeat: int) -> dict[str, float]:
    """Best times of both, alternating, in seconds."""
    photo = np.random.default_rng(0).uniform(0, 255, (size, size, 3)).astype(np.float32)
    made = planned(size, ranks)
    bounds = [r * size // ranks for r in range(ranks + 1)]
    shards = [Shard(photo[lo:hi].copy()) for lo, hi in pairwise(bounds)]
    hand, engine = [], []
    for _ in range(repeat):
        started = perf_counter()
        by_hand(shards)
        hand.append(perf_counter() - started)
        result = run(made.checked, {"photo": photo})
        engine.append(result.wall_s)
    np.testing.assert_allclose(result.outputs["corners"], np.concatenate([shard.peaks for shard in shards]), rtol=1e-5)
    figures = {"by_hand_s": min(hand), "engine_s": min(engine), "ratio": min(engine) / min(hand)}
    return figures | {"binding_s": binding(made.document)}


def binding(document: Document) -> float:
    """Seconds to bind all tasks to memory, once a plan."""
    resolved = Resolved(document)
    device = open_device("numpy")
    ranks = [Rank(device, resolved, number, lanes=False) for number in range(resolved.size)]
    started = perf_counter()
    for rank in ranks:
        rank.bind()
    return perf_counter() - started


def main() -> None:
    """Measure and print one object of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.size, options.ranks, options.repeat)))


if __name__ == "__main__":
    main()
