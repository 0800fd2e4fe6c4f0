"""Which configuration a convolution runs with, and how long it takes: the question kernels and planner ask alike.

    log(time / roofline) = log(time by counting / roofline) + trees(features)

The trees were fitted to the measurements of `data/measurements.json` (`kernels/cost/train.py`) and hold for the GPU
those were made on; for other GPUs the counting stands alone. A problem that was itself measured there gets what was
fastest among what is still legal, listed among its candidates or not; where only few were measured, these compete with
the predictions of the others. Nothing here needs a GPU; equal questions give equal answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from math import exp
from typing import Any, Literal, overload

import numpy as np

from ..convolution import candidates as forward_cuts
from ..convolution import paired_candidates, weight_gradient_candidates, wide
from ..convolution.candidates import FLAT_SHARE
from ..convolution.configuration import ForwardConfiguration
from ..convolution.configuration import legal as forward_legal
from ..convolution.problem import ConvolutionProblem
from ..convolution.weight_gradient_configuration import Cut, WeightGradientConfiguration
from ..convolution.weight_gradient_configuration import legal as legal_weight_gradient
from .columns import columns
from .facts import COUNTED, FEATURES, Facts, forward_facts, weight_gradient_facts
from .gpu import Gpu
from .trees import Forest, Tree, Vector

Pass = Literal["forward", "input_gradient", "weight_gradient"]
Configuration = ForwardConfiguration | WeightGradientConfiguration

# So many measured configurations of a problem decide without the model.
ENOUGH = 8
# Where fewer were measured, a prediction has to promise so much less: the least of many predictions is one too low.
DOUBT = 1.07
# By these three the choices of forward passes of timm's layers lost least, of the values that were tried: what times
# between events, as those of octets are, have beyond those of a chain (0.5 to 2.5 us); what is moved at least where
# pairs walk rows one by one; and times that octets take what is predicted of them where there are strides.
EVENTS_S, LEAST_BYTES, STRIDED = 2.5e-6, 20e6, 1.1
PAIRS = "pairs"  # the trees of kernels of channel pairs, that walk rows one by one
# The same kernel walks an input gradient, so it learns from both.
FAMILY = {"forward": "forward", "input_gradient": "forward", "weight_gradient": "weight_gradient"}


@overload
def choose(
    problem: ConvolutionProblem, what: Literal["forward", "input_gradient"], gpu: Gpu, whole: bool = True
) -> ForwardConfiguration | None: ...
@overload
def choose(
    problem: ConvolutionProblem, what: Literal["weight_gradient"], gpu: Gpu, whole: bool = True
) -> WeightGradientConfiguration: ...
def choose(problem: ConvolutionProblem, what: Pass, gpu: Gpu, whole: bool = True) -> Configuration | None:
    """The configuration predicted to be fastest, or None where only the plain kernel computes the problem.

    For "forward" and "input_gradient", `problem` is the convolution that the forward kernel walks (`recipes.walk`).
    `whole`: the tensors' rows may be copied whole, by flat ones.
    """
    return _chosen(problem, what, gpu, whole)[0]


def predicted_s(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> float:
    """Seconds that a pass takes with the configuration `choose` gives, its launch included."""
    return _chosen(problem, what, gpu, True)[1]


@lru_cache(maxsize=16384)
def _chosen(problem: ConvolutionProblem, what: Pass, gpu: Gpu, whole: bool) -> tuple[Configuration | None, float]:
    if whole and gpu.tuned and (flat := _flat(problem, what, gpu)):
        return flat, FLAT_SHARE[problem.c] * _chosen(problem, what, gpu, False)[1]
    if FAMILY[what] == "forward" and (timed := paired_candidates.measured(problem, gpu)):
        return timed
    times = _measured(problem, what, gpu)
    found: tuple[Configuration | None, float]
    if len(times) >= ENOUGH and any(map(_in_pairs, times)):
        fastest = min(times, key=times.__getitem__)
        found, known = (fastest, _one_s(problem, what, fastest, gpu)), True
    else:
        found, known = _of_octets(problem, what, gpu), False
    if FAMILY[what] == "forward" and (by_pairs := _by_pairs(problem, what, found[1], gpu)):
        # Those that were timed are of before rows were summed up together.
        return by_pairs if not known or by_pairs[0].leaving > 1 else found
    return found


def _flat(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> Configuration | None:
    """The cut whose rows are copied whole, where those are the faster ones."""
    found: Sequence[Configuration] = (
        forward_cuts.flat_configurations(problem, gpu)
        if FAMILY[what] == "forward"
        else weight_gradient_candidates.flat_configurations(problem, gpu)
    )
    return found[0] if found else None


def _by_pairs(
    problem: ConvolutionProblem, what: Pass, others_s: float, gpu: Gpu
) -> tuple[ForwardConfiguration, float] | None:
    """The cut of channel pairs that is guessed to be fastest and its seconds, where those are less than others'."""
    options = paired_candidates.configurations(problem, gpu) if gpu.tuned else []
    if not options:
        return None
    if options[0].leaving == 1 and problem.bytes_moved < LEAST_BYTES:
        return None
    seconds, promised = _one_s(problem, what, options[0], gpu), STRIDED if problem.stride[0] > 1 else 1.0
    return (options[0], seconds) if seconds < promised * others_s else None


def _in_pairs(cut: Configuration) -> bool:
    return isinstance(cut, ForwardConfiguration) and cut.pairs > 0


def _one_s(problem: ConvolutionProblem, what: Pass, cut: Configuration, gpu: Gpu) -> float:
    """Seconds of one configuration; what sums up rows together was timed in chains, and has a guess of its own."""
    if isinstance(cut, ForwardConfiguration) and cut.leaving > 1:
        return 1e-9 * paired_candidates.guess(problem, cut, gpu.sms) + EVENTS_S
    return predict_one_s(problem, what, cut, gpu)


def _of_octets(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> tuple[Configuration | None, float]:
    """The same without the kernels of channel pairs."""
    options = candidates(problem, what, gpu)
    if not options:
        by_warpgroups = wide.predicted_s(problem, what, gpu)
        if by_warpgroups is not None:
            return None, by_warpgroups
        return None, gpu.launch_s + max(
            gpu.roofline_s(problem.bytes_moved), problem.flops / (gpu.sms * COUNTED.plain_flops)
        )
    times = {cut: us for cut, us in _measured(problem, what, gpu).items() if not _in_pairs(cut)}
    if times and len(times) >= min(ENOUGH, len(options)):
        fastest = min(times, key=times.__getitem__)
        return fastest, predict_one_s(problem, what, fastest, gpu)
    pool = list(dict.fromkeys((*options, *times)))
    seconds = predict_s(problem, what, pool, gpu) * (DOUBT if times else 1.0)
    for cut, us in times.items():
        seconds[pool.index(cut)] = us * 1e-6
    best = int(np.argmin(seconds))
    return pool[best], float(seconds[best])


def _measured(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> dict[Configuration, float]:
    """Microseconds of the legal configurations that were measured, of whichever half precision."""
    found = measured_us(problem, what) if gpu.tuned else {}
    return {cut: us for cut, us in found.items() if _legal(problem, cut, gpu)}


def _legal(problem: ConvolutionProblem, cut: Configuration, gpu: Gpu) -> bool:
    if isinstance(cut, ForwardConfiguration):
        return bool(forward_legal(problem, cut, gpu.shared_per_block))
    return not cut.direct and bool(legal_weight_gradient(Cut(problem, cut), gpu.shared_per_block))


def measured_us(problem: ConvolutionProblem, what: Pass) -> dict[Configuration, float]:
    """Microseconds by configuration of a problem that was measured: there nothing has to be predicted."""
    from .measurements import microseconds

    return microseconds(problem, what)


def candidates(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> Sequence[Configuration]:
    """All configurations of a pass, the analytic guess first. Empty where only the plain kernel will do."""
    if what == "weight_gradient":
        found = weight_gradient_candidates.configurations(problem, gpu)
        # The plain kernel is never the faster one.
        return [cut for cut in found if not cut.direct] or found
    return forward_cuts.configurations(problem, gpu)


def predict_s(problem: ConvolutionProblem, what: Pass, options: Sequence[Any], gpu: Gpu) -> Vector:
    """Seconds of each of `options`, [len(options)]."""
    seconds, kinds = np.empty(len(options)), [_kind(option) for option in options]
    for kind in dict.fromkeys(kinds):
        alike = [number for number, found in enumerate(kinds) if found == kind]
        many = columns([options[number] for number in alike]) if isinstance(kind, bool) else kind
        seconds[alike] = _predict_alike_s(problem, what, many, gpu)
    return seconds


def _kind(option: Configuration) -> object:
    """What is alike for configurations whose facts are counted together; each plain kernel is counted by itself."""
    if isinstance(option, ForwardConfiguration):
        return option.pairs > 0
    return option if option.direct else False


def _predict_alike_s(problem: ConvolutionProblem, what: Pass, options: Any, gpu: Gpu) -> Vector:
    found, roofline = facts(problem, what, options, gpu), gpu.roofline_s(problem.bytes_moved)
    family = family_of(what, options)
    if not gpu.tuned or family not in forests():
        return np.asarray(roofline * found.counted_time)
    features = np.stack(np.broadcast_arrays(*map(np.atleast_1d, found.features())), axis=1)
    logarithms = features[:, 0] + forests()[family].many(features)
    return np.array([roofline * exp(value) for value in logarithms])


def predict_one_s(problem: ConvolutionProblem, what: Pass, option: Configuration, gpu: Gpu) -> float:
    """Seconds of one configuration; the same as `predict_s` without arrays."""
    row, roofline = facts(problem, what, option, gpu), gpu.roofline_s(problem.bytes_moved)
    family = family_of(what, option)
    if not gpu.tuned or family not in forests():
        return roofline * float(row.counted_time)
    features = row.features()
    return roofline * exp(features[0] + forests()[family].one(features))


def family_of(what: Pass, option: Any) -> str:
    """Whose trees say how long a configuration takes, or all of some in columns, which are of one kernel."""
    return PAIRS if np.any(getattr(option, "pairs", 0)) else FAMILY[what]


def facts(problem: ConvolutionProblem, what: Pass, option: Any, gpu: Gpu) -> Facts:
    """What `option` makes the GPU do."""
    if what == "weight_gradient":
        return weight_gradient_facts(problem, option, gpu)
    return forward_facts(problem, option, gpu, transposed=what == "input_gradient")


@cache
def forests() -> dict[str, Forest]:
    """The trees of each kernel, as shipped. Raises ValueError where they were fitted to other features."""
    document = json.loads(files(__package__).joinpath("data/model.json").read_text(encoding="utf-8"))
    if tuple(document["features"]) != FEATURES:
        raise ValueError("data/model.json was fitted to other features: run python -m tapestry.kernels.cost.train")
    return {family: forest_of(entry, len(FEATURES)) for family, entry in document["forests"].items()}


def forest_of(entry: dict[str, Any], features: int) -> Forest:
    """A forest over so many features from its JSON."""
    trees = [
        Tree(*(tuple(tree[part]) for part in ("feature", "threshold", "left", "right", "value")))
        for tree in entry["trees"]
    ]
    return Forest(entry["base"], trees, features)
