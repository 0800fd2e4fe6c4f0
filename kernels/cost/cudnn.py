"""How long cuDNN takes for a pass of a grouped convolution, and whether that is less than our kernel takes.

    log(time / roofline) = boosted trees of extents, width, filter, steps

The trees are fitted to times measured through torch (`benchmarks/cudnn_times.py`) by `python -m
tapestry.kernels.cost.cudnn_train` and hold for the GPU those were measured on. A layer that is itself among the
measured ones has its own time. On other GPUs, and for dilated convolutions, nothing is known: who asks for an H100 asks
for the H200 that was measured (`gpu.measured_as`).
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from math import exp, log2
from typing import Any, NamedTuple

from ..convolution import wide
from ..convolution.problem import ConvolutionProblem
from ..convolution.recipes import PASSES, walk
from .depthwise import predicted_s as weight_gradient_s
from .gpu import Gpu
from .model import Pass, forest_of, predicted_s
from .trees import Forest

FEATURES = ("roofline", "n", "extent", "channels", "width", "filter", "stride", "intensity")
DATA = "data/cudnn.json"
CLEARLY = 0.97  # of our time, that cuDNN has to stay below else: two gradients by two ways cost the host 0.1 ms
DOUBT = 1.17  # times that kernels of wide groups took longer than guessed, at most, where cuDNN is as fast


class Layer(NamedTuple):
    """What cuDNN's time depends on: images, rows = columns, channels, those of a group, the filter's side, stride.

    `channels_out` is given where it is not `channels`.
    """

    n: int
    extent: int
    channels: int
    width: int
    size: int
    stride: int = 1
    channels_out: int | None = None

    @classmethod
    def of(cls, problem: ConvolutionProblem) -> Layer | None:
        """The measured kind of layer nearest to a problem; None of one that is of another kind."""
        if problem.dilation != (1, 1) or problem.stride[0] != problem.stride[1]:
            return None
        extent, size = round((problem.h * problem.w) ** 0.5), round((problem.r * problem.s) ** 0.5)
        return cls(problem.n, extent, problem.c, problem.width, size, problem.stride[0], problem.channels_out)

    @property
    def bytes_moved(self) -> int:
        """Input, output and filter, once."""
        out = -(-self.extent // self.stride)
        written = self.channels_out or self.channels
        places = self.n * (self.extent**2 * self.channels + out**2 * written)
        return 2 * (places + written * self.width * self.size**2)

    @property
    def products(self) -> int:
        out = -(-self.extent // self.stride)
        return self.n * out**2 * (self.channels_out or self.channels) * self.width * self.size**2

    def features(self) -> list[float]:
        """Logarithms, so that a tree cuts where things double."""
        values = (
            self.bytes_moved, self.n, self.extent, self.channels, self.width, self.size, self.stride,
            self.products / self.bytes_moved,
        )  # fmt: skip
        return [log2(value) for value in values]


@cache
def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files(__package__).joinpath(DATA).read_text(encoding="utf-8"))
    return found


@cache
def _forests() -> dict[str, Forest]:
    trees = _document()["forests"]
    return {what: forest_of(found, len(FEATURES)) for what, found in trees.items()}


@cache
def _measured_us() -> dict[Layer, tuple[float, ...]]:
    return {Layer(*layer): tuple(times) for layer, times in _document()["measured"]}


@lru_cache(maxsize=16384)
def cudnn_s(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> float | None:
    """Seconds that cuDNN takes for a pass on a GPU; None where nothing is known."""
    layer = Layer.of(problem)
    if layer is None or not gpu.tuned:
        return None
    if known := _measured_us().get(layer):
        return known[PASSES.index(what)] * 1e-6
    forest = _forests().get(what)
    return None if forest is None else gpu.roofline_s(layer.bytes_moved) * exp(forest.one(layer.features()))


def ours_s(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> float:
    """Seconds that our kernel is predicted to take."""
    by_warpgroups = wide.predicted_s(problem, what, gpu)
    if by_warpgroups is not None:
        return by_warpgroups
    if what == "weight_gradient":
        return weight_gradient_s(problem, gpu)
    return predicted_s(walk(problem, what).problem, what, gpu)


def is_faster(problem: ConvolutionProblem, what: Pass, gpu: Gpu, followed: bool = False) -> bool:
    """Whether a pass is better left to cuDNN: also where none but the plain kernel computes it.

    What it is `followed` by takes torch steps of its own, of which three in f32 are counted.
    """
    if not problem.octets or (not problem.narrow and wide.predicted_s(problem, what, gpu) is None):
        return True
    theirs = cudnn_s(problem, what, gpu)
    if theirs is None:
        return False
    steps = gpu.roofline_s(3 * 2 * 4 * problem.output_elements) if followed else 0.0
    doubt = DOUBT if wide.takes(problem, what, gpu) else CLEARLY
    return theirs + steps < doubt * ours_s(problem, what, gpu)
