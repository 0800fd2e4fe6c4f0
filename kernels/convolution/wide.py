"""Groups of other widths than the narrow kernels', and of 32 channels: how they are cut, and their launches.

Everything here is for channels-last tensors that the copy engine takes, on a GPU with warpgroup products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ..cost import timed_cuts
from ..runtime.compiler import Recipe
from . import wide_candidates, wide_forward, wide_gradient_candidates, wide_launch, wide_weight_gradient
from .launch import View
from .problem import ConvolutionProblem
from .wide_forward_configuration import WideConfiguration, WideCut, legal
from .wide_launch import WideLaunch, side_by_side
from .wide_sweep import Part, ways
from .wide_weight_gradient import WideGradientCut, WideWeightGradient

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

Walked = Literal["forward", "input_gradient"]
Cuts = tuple[tuple[Part, WideConfiguration], ...]
Way = tuple[int, tuple[WideConfiguration, ...]]  # which of `ways`, and the cut of each of its sweeps
FEATURE = "a"  # of sm_90: warpgroup products are of that very architecture
# Channels of narrow groups that these kernels compute sooner, where so much is moved, but for strided input gradients.
BOTH, MOVED = 32, 8e6
REACH = 2**32  # elements that a block addresses from its first row


def computes(problem: ConvolutionProblem, gpu: Gpu) -> bool:
    """Whether these kernels compute a problem on a GPU."""
    return (problem.width == BOTH or not problem.narrow) and problem.octets and gpu.warpgroup_products


def takes(problem: ConvolutionProblem, what: str, gpu: Gpu) -> bool:
    """Whether they are the ones for a pass of it, where it was not timed."""
    later = problem.bytes_moved < MOVED or (what == "input_gradient" and problem.stride != (1, 1))
    return computes(problem, gpu) and not (problem.narrow and later)


def cuts(problem: ConvolutionProblem, what: Walked, gpu: Gpu, fused: bool = False) -> Cuts:
    """The sweeps of a pass, each with its cut: which was fastest, else is guessed to be. None where one has none.

    `fused`: something is done with the sums before they leave.
    """
    return sweeps(problem, what, way(problem, what, gpu, fused)) if takes(problem, what, gpu) else ()


def sweeps(problem: ConvolutionProblem, what: Walked, chosen: Way | None) -> Cuts:
    """The sweeps of a way, each with its cut; none where there is no way."""
    return _dealt(ways(problem, what), chosen) if chosen else ()


@lru_cache(maxsize=4096)
def way(problem: ConvolutionProblem, what: Walked, gpu: Gpu, fused: bool) -> Way | None:
    """Which of `ways` a pass goes, and the cut of each of its sweeps: as it was fastest, else is guessed to be."""
    found = ways(problem, what)
    measured = timed_cuts.timed(problem, what) if gpu.tuned else ()
    known = ((timed.way, tuple(WideConfiguration(*cut) for cut in timed.cuts)) for timed in measured)
    legal = (chosen for chosen in known if _legal(_dealt(found, chosen), gpu, fused))
    return next(legal, None) or _guessed_way(found, gpu, fused)


def _guessed_way(found: Sequence[tuple[Part, ...]], gpu: Gpu, fused: bool) -> Way | None:
    guessed = ((number, cuts) for number, parts in enumerate(found) for cuts in options(parts, gpu, fused)[:1])
    return min(guessed, key=lambda chosen: _seconds(_dealt(found, chosen), gpu), default=None)


def _dealt(found: Sequence[tuple[Part, ...]], chosen: Way) -> Cuts:
    number, cuts = chosen
    return tuple(zip(found[number], cuts, strict=True))


def _legal(found: Cuts, gpu: Gpu, fused: bool) -> bool:
    return all(legal(WideCut(part.sweep, cut, fused), gpu.shared_per_block) for part, cut in found)


def options(parts: tuple[Part, ...], gpu: Gpu, fused: bool) -> list[tuple[WideConfiguration, ...]]:
    """The cuts of the sweeps of a way that are worth trying, those guessed to be fastest first.

    Those of several sweeps are of one launch, where there are such. None where one of them has none.
    """
    if len(parts) > 1 and (at_once := wide_launch.configurations([part.sweep for part in parts], gpu, fused)):
        return at_once
    found = [wide_candidates.configurations(part.sweep, gpu, fused, whole=len(parts) == 1) for part in parts]
    most = max(map(len, found)) if all(found) else 0
    return [tuple(cuts[min(number, len(cuts) - 1)] for cuts in found) for number in range(most)]


def _seconds(found: Cuts, gpu: Gpu) -> float:
    return sum(launch.clocks(gpu) for _, launch in launches(found)) / gpu.sustained_clock_hz


@lru_cache(maxsize=4096)
def gradient_cut(problem: ConvolutionProblem, gpu: Gpu) -> WideWeightGradient | None:
    """The cut of a weight gradient that was fastest, else is guessed to be, or None."""
    if not takes(problem, "weight_gradient", gpu):
        return None
    measured = timed_cuts.timed(problem, "weight_gradient") if gpu.tuned else ()
    known = (WideWeightGradient(*timed.cuts[0]) for timed in measured)
    legal = (cut for cut in known if wide_weight_gradient.legal(WideGradientCut(problem, cut), gpu.shared_per_block))
    return next(legal, None) or _guessed(problem, gpu)


def _guessed(problem: ConvolutionProblem, gpu: Gpu) -> WideWeightGradient | None:
    options = wide_gradient_candidates.configurations(problem, gpu)
    return options[0] if options else None


def predicted_s(problem: ConvolutionProblem, what: str, gpu: Gpu) -> float | None:
    """Seconds of a pass by these kernels, or None where they do not compute it."""
    if what == "weight_gradient":
        chosen = gradient_cut(problem, gpu)
        if chosen is None:
            return None
        return wide_gradient_candidates.clocks(WideGradientCut(problem, chosen), gpu) / gpu.sustained_clock_hz
    found = cuts(problem, "forward" if what == "forward" else "input_gradient", gpu)
    if not found:
        return None
    return _seconds(found, gpu)


def reaches(*views: View | None) -> bool:
    """Whether the rows of tensors are addressed in the 32 bits that the kernels spend on it."""
    return all(
        sum((extent - 1) * step for extent, step in zip(view.shape[:3], view.strides, strict=True)) < REACH
        for view in views
        if view is not None
    )


def launches(found: Cuts, fused: bool = False, whole: bool = True) -> list[tuple[tuple[Part, ...], WideLaunch]]:
    """What is launched for the sweeps of a pass: all of them at once where they can be, else one after the other.

    `whole`: rows of the tensors are stretches of memory. Those of the parities of an output are not.
    """
    parts = tuple(part for part, _ in found)
    alone = len(found) == 1
    cuts = tuple(WideCut(part.sweep, cut, fused, beside=not alone, whole=whole and alone) for part, cut in found)
    if side_by_side(cuts):
        return [(parts, WideLaunch(cuts))]
    return [((part,), WideLaunch((replace(cut, beside=False),))) for part, cut in zip(parts, cuts, strict=True)]


def recipe(launch: WideLaunch, flags: Mapping[str, Any]) -> Recipe:
    """The kernel of a launch; `flags` say what is fused into it."""
    return Recipe(wide_forward.NAME, wide_forward.source(launch, flags), feature=FEATURE)


def recipes(found: Cuts, flags: Mapping[str, Any]) -> list[Recipe]:
    """The kernels of the sweeps of a pass."""
    return [recipe(launch, flags) for _, launch in launches(found, any(flags.values()))]


def gradient_recipes(problem: ConvolutionProblem, chosen: WideWeightGradient, partial: bool) -> list[Recipe]:
    """The kernel that leaves sums for every split, and the one that adds them where the first does not."""
    source = wide_weight_gradient.source(problem, chosen, partial)
    names = wide_weight_gradient.names(problem, chosen, partial)
    return [Recipe(name, source, feature=FEATURE) for name in names]
