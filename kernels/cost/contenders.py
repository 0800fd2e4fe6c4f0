"""The cuts of a pass that are worth timing, whichever kernel computes it: the one that is chosen without timing first.

They differ in more than how many rows are under way, and are in the order in which they are guessed to be fast; of two
kernels that compute the same, by turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any

from ..convolution import (
    candidates,
    choices,
    paired_candidates,
    weight_gradient_candidates,
    wide,
    wide_gradient_candidates,
)
from ..convolution.depthwise_weight_gradient_configuration import computed, configurations
from ..convolution.launch import ALL, Walk
from ..convolution.problem import ConvolutionProblem
from ..convolution.recipes import walk
from ..convolution.wide_sweep import ways
from . import depthwise, model
from .gpu import Gpu, measured_as
from .model import Pass


def contenders(problem: ConvolutionProblem, what: Pass, gpu: Gpu, most: int, fused: bool = False) -> list[Any]:
    """At most so many cuts: configurations, or of wide forward passes and input gradients ways (`wide.Way`).

    Empty where only the plain kernel computes the pass. `fused`: something follows the sums.
    """
    if what == "weight_gradient":
        found = _gradients(problem, gpu)
    else:
        ways = _ways(problem, what, gpu, fused) if wide.computes(problem, gpu) else iter(())
        walked = _walked(walk(problem, what), what, gpu) if problem.narrow else iter(())
        found = _by_turns(ways, walked) if choices.sweeps(problem, what, gpu, fused) else _by_turns(walked, ways)
    return list(islice(_unlike(cut for cut in found if cut is not None), most))


def _unlike(cuts: Iterable[Any]) -> Iterator[Any]:
    """Those that differ from all before in more than the rows that are under way."""
    seen = set()
    for cut in cuts:
        if (key := _structure(cut)) not in seen:
            seen.add(key)
            yield cut


def _structure(cut: Any) -> Any:
    if isinstance(cut, tuple):
        return cut[0], *(replace(part, stages=0) for part in cut[1])
    return replace(cut, stages=0)


def _by_turns(*lists: Iterable[Any]) -> Iterator[Any]:
    return (cut for row in zip_longest(*lists) for cut in row)


def _gradients(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[Any]:
    yield choices.gradient_cut(problem, gpu)
    by_warpgroups = wide_gradient_candidates.configurations(problem, gpu) if wide.computes(problem, gpu) else []
    usual = [cut for cut in _ranked(problem, "weight_gradient", gpu) if not cut.direct] if problem.narrow else []
    own = configurations(problem, gpu) if computed(problem) else []
    own = sorted(own, key=lambda cut: (depthwise.counted_s(problem, cut, gpu), repr(cut)))
    flat = weight_gradient_candidates.flat_configurations(problem, gpu)
    yield from _by_turns(by_warpgroups, flat, usual, own)


def _walked(walk: Walk, what: Pass, gpu: Gpu) -> Iterator[Any]:
    problem, whole = walk.problem, walk.columns == ALL
    yield choices.cut(problem, what, gpu, whole)
    flat = candidates.flat_configurations(problem, gpu) if whole else []
    yield from _by_turns(flat, _ranked(problem, what, gpu), paired_candidates.configurations(problem, gpu))


def _ranked(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> list[Any]:
    """Cuts of the kernels of whole octets, by the time that the model predicts."""
    gpu = measured_as(gpu)
    options = model.candidates(problem, what, gpu)
    seconds = model.predict_s(problem, what, options, gpu) if options else ()
    return [option for _, option in sorted(zip(seconds, options, strict=True), key=itemgetter(0))]


def _ways(problem: ConvolutionProblem, what: wide.Walked, gpu: Gpu, fused: bool) -> Iterator[wide.Way]:
    """Each way with its sweeps' fastest guesses, its second ones, and so on: the ways by turns."""
    found = choices.sweeps(problem, what, gpu, fused)
    numbers = {parts: number for number, parts in enumerate(ways(problem, what))}
    if found:
        yield numbers[tuple(part for part, _ in found)], tuple(cut for _, cut in found)
    lists = ([(number, cuts) for cuts in wide.options(parts, gpu, fused)] for parts, number in numbers.items())
    yield from _by_turns(*lists)
