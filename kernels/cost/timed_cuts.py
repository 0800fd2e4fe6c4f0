"""What was measured of groups of any width and of depthwise convolutions: the fastest cut of a problem that was decides
in the place of the guess.

`data/cuts.json` holds the GPU, the dates, and for each problem and pass some cuts with their times in a chain of
launches. A cut of forward and input gradient is a way of computing it (wide_sweep.py) with one for each of its sweeps;
of depthwise convolutions, whose input gradients of stride 1 are such forward passes, there is one way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from ..convolution.problem import ConvolutionProblem

What = Literal["forward", "input_gradient", "weight_gradient"]
Numbers = tuple[Any, ...]  # of a configuration, as its fields stand


@dataclass(frozen=True)
class Timed:
    """A cut: which way, the numbers of each sweep's configuration, and microseconds."""

    way: int
    cuts: tuple[Numbers, ...]
    microseconds: float


def timed(problem: ConvolutionProblem, what: What) -> Sequence[Timed]:
    """What was measured of a problem and pass, the fastest first. Both precisions take as long."""
    return _table().get((replace(problem, dtype="f16"), what), ())


@cache
def _table() -> dict[tuple[ConvolutionProblem, What], tuple[Timed, ...]]:
    document = json.loads(files(__package__).joinpath("data/cuts.json").read_text(encoding="utf-8"))
    return {(_problem(entry["problem"]), entry["pass"]): _timed(entry["rows"]) for entry in document["measured"]}


def _problem(numbers: Sequence[Any]) -> ConvolutionProblem:
    n, h, w, c, groups, r, s, stride, dilation, padding = numbers
    return ConvolutionProblem(n, h, w, c, groups, r, s, tuple(stride), tuple(dilation), tuple(padding), "f16")


def _timed(rows: Sequence[Sequence[Any]]) -> tuple[Timed, ...]:
    found = [Timed(way, tuple(map(tuple, cuts)), microseconds) for way, cuts, microseconds in rows]
    return tuple(sorted(found, key=lambda each: each.microseconds))
