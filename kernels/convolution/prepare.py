"""Convolutions ready to be launched: the kernel chosen, compiled and loaded, its arguments packed.

Nothing here is remembered but what does not depend on addresses: callers keep what they launch again, or have it moved
to other addresses (`runtime/moving.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import WrongLayout, WrongValue
from ..runtime.array import DeviceArray, array
from ..runtime.compiler import Recipe
from . import (
    choices,
    direct,
    forward_walk,
    input_gradient,
    launch,
    weight_gradient,
    wide,
    wide_forward,
    wide_weight_gradient,
)
from .choices import GradientConfiguration
from .configuration import ForwardConfiguration, footprint
from .depthwise_weight_gradient_configuration import DepthwiseWeightGradient
from .launch import Rows, Taps, View, uncrowded
from .operands import aligned, apart, dense, fetchable, filters, like, per_channel, room, view
from .problem import ConvolutionProblem
from .recipes import direct_recipe, forward_recipe
from .weight_gradient_configuration import WeightGradientConfiguration, plain
from .wide_weight_gradient import WideWeightGradient

if TYPE_CHECKING:
    from ..cost.gpu import Gpu
    from ..runtime.module import Prepared

REMEMBERED = 1024
ACTIVATIONS = ("relu", "silu", "gelu", "hardswish")


class Fused(NamedTuple):
    """What follows the sum, in this order: scale and bias (f32 a channel), residual, activation."""

    scale: DeviceArray | None = None
    bias: DeviceArray | None = None
    residual: DeviceArray | None = None
    activation: str | None = None

    @property
    def flags(self) -> dict[str, Any]:
        """As the sources take it."""
        return {
            "scale": self.scale is not None,
            "bias": self.bias is not None,
            "residual": self.residual is not None,
            "activation": self.activation,
        }

    @classmethod
    def of(cls, scale: Any, bias: Any, residual: Any, activation: str | None) -> Fused:
        """From arrays of any library, or None."""
        if scale is bias is residual is activation is None:
            return NOTHING
        named = {"scale": scale, "bias": bias, "residual": residual}
        given = {name: None if values is None else array(values, name) for name, values in named.items()}
        return cls(**given, activation=activation)


NOTHING = Fused()


@dataclass(frozen=True)
class Steps:
    """Launches, one after the other on a stream."""

    launches: tuple[Prepared, ...]

    def run(self, stream: int) -> None:
        """Launch them all."""
        for prepared in self.launches:
            prepared.launch(stream)


def forward_steps(
    problem: ConvolutionProblem,
    x: DeviceArray,
    w: DeviceArray,
    out: DeviceArray,
    fused: Fused,
    configuration: ForwardConfiguration | wide.Way | None,
) -> Steps:
    """The forward pass, its operands checked; as is chosen for it, where no configuration or way is given."""
    where, shape = "conv2d", problem.output_shape
    pointers = checked(problem, x, w, fused, where)
    like(x, out, "out", where, shape, x.dtype)
    apart(out, "out", where, ("x", x), ("w", w))
    source, target = view(x, "x", where), view(out, "out", where)
    added = view(fused.residual, "residual", where) if fused.residual else None
    cuts, configuration = _told(problem, "forward", configuration)
    if configuration is None and not cuts:
        cuts = wide_cuts(problem, "forward", x.device, fused, source, target, added)
    if cuts:
        return Steps(by_warpgroups(cuts, source, target, added, pointers, x.device, fused.flags))
    rows, walk = Rows(0, problem.p), forward_walk.walk(problem)
    read = walk.read(source)
    cut = configuration or chosen(walk.problem, "forward", x.device, launch.in_lines(read, target, added))
    if cut is not None and fetchable(read, target, added):
        prepared = by_copy_engine(
            walk.problem, cut, rows, walk.taps, (read, read, read), target, added, pointers, x.device, fused.flags
        )
        return Steps((prepared,))
    _no_configuration(configuration, source)
    recipe, inputs = direct_recipe(problem, fused.flags), (source, source, source)
    return Steps((_plainly(recipe, direct.launch(problem, rows, inputs, target, added, pointers), x.device),))


def input_gradient_steps(
    problem: ConvolutionProblem,
    dy: DeviceArray,
    w: DeviceArray,
    out: DeviceArray,
    configuration: ForwardConfiguration | wide.Way | None,
) -> Steps:
    """The input gradient, its operands checked; likewise."""
    where = "conv2d_input_gradient"
    like(dy, dy, "dy", where, problem.output_shape, problem.dtype)
    like(dy, out, "out", where, problem.input_shape, problem.dtype)
    apart(out, "out", where, ("dy", dy), ("w", w))
    source, target = view(dy, "dy", where), view(out, "out", where)
    inputs, pointers = (source, source, source), (filters(w, dy, problem, where), 0, 0)
    cuts, configuration = _told(problem, "input_gradient", configuration)
    if configuration is None and not cuts:
        cuts = wide_cuts(problem, "input_gradient", dy.device, NOTHING, source, target)
    if cuts:
        return Steps(by_warpgroups(cuts, source, target, None, pointers, dy.device, {}))
    walked, taps = input_gradient.walk(problem).problem, input_gradient.walk(problem).taps
    cut = configuration or chosen(walked, "input_gradient", dy.device, launch.in_lines(source, target))
    if cut is not None and fetchable(source, target):
        rows, flags = Rows(0, walked.p), {"transposed": True}
        prepared = by_copy_engine(walked, cut, rows, taps, inputs, target, None, pointers, dy.device, flags)
        return Steps((prepared,))
    _no_configuration(configuration, source)
    recipe = direct_recipe(problem, {"transposed": True})
    made = direct.launch(problem, Rows(0, problem.h), inputs, target, None, pointers)
    return Steps((_plainly(recipe, made, dy.device),))


def weight_gradient_steps(
    problem: ConvolutionProblem,
    x: DeviceArray,
    dy: DeviceArray,
    out: DeviceArray,
    dtype: str,
    workspace: DeviceArray | None,
    configuration: GradientConfiguration,
) -> Steps:
    """The weight gradient, its operands checked, into `out` of `dtype`; by way of `workspace` where one is needed."""
    where = "conv2d_weight_gradient"
    like(x, dy, "dy", where, problem.output_shape, problem.dtype)
    like(x, out, "out", where, problem.weight_shape, dtype)
    size = workspace_bytes(problem, configuration)
    partials = room(workspace, size, where) if workspace is not None else 0
    if isinstance(configuration, DepthwiseWeightGradient):
        aligned(out, 4 * out.itemsize, "out", where)
    views, target = (view(x, "x", where), view(dy, "dy", where)), dense(out, "out", where)
    if isinstance(configuration, WideWeightGradient):
        found = wide.gradient_recipes(problem, configuration, dtype == "f32")
        kernels = tuple(_loaded(recipe, x.device) for recipe in found)
        made = wide_weight_gradient.launches(problem, configuration, *views, partials, target)
        return Steps(weight_gradient.prepared(kernels, made))
    kernels = weight_gradient.kernels(problem, configuration, dtype == "f32", x.device)
    made = weight_gradient.launches(problem, configuration, *views, partials, target)
    return Steps(weight_gradient.prepared(kernels, made))


def workspace_bytes(problem: ConvolutionProblem, configuration: GradientConfiguration) -> int:
    """Bytes of the workspace of a weight gradient."""
    if isinstance(configuration, WideWeightGradient):
        return wide_weight_gradient.workspace_bytes(problem, configuration)
    return weight_gradient.workspace_bytes(problem, configuration)


@functools.lru_cache(maxsize=4096)
def weight_gradient_choice(problem: ConvolutionProblem, x: DeviceArray, dy: DeviceArray) -> GradientConfiguration:
    """The configuration for these operands: the predicted best, or the plain one for what cannot be fetched."""
    where = "conv2d_weight_gradient"
    views = view(x, "x", where), view(dy, "dy", where)
    if fetchable(*views):
        return choices.gradient_cut(problem, _gpu(x.device), launch.in_lines(*views))
    return shared_weight_gradient_choice(problem, x, dy)


def shared_weight_gradient_choice(
    problem: ConvolutionProblem, x: DeviceArray, dy: DeviceArray
) -> WeightGradientConfiguration:
    """The same among those whose rows may lie in several buffers."""
    where = "conv2d_weight_gradient"
    if fetchable(view(x, "x", where), view(dy, "dy", where)):
        found: WeightGradientConfiguration = chosen(problem, "weight_gradient", x.device, False)
        return found
    from ..runtime.device import properties

    return plain(problem, properties(x.device).sms)


def checked(
    problem: ConvolutionProblem, x: DeviceArray, w: DeviceArray, fused: Fused, where: str
) -> tuple[int, int, int]:
    """The pointers of filter, scale and bias, of operands that fit x and one another."""
    if fused.activation is not None and fused.activation not in ACTIVATIONS:
        raise WrongValue(
            "no such activation", where=where, expected=", ".join(ACTIVATIONS), came=repr(fused.activation)
        )
    if fused.residual is not None:
        like(x, fused.residual, "residual", where, problem.output_shape, x.dtype)
    return (
        filters(w, x, problem, where),
        per_channel(fused.scale, x, problem.k, "scale", where),
        per_channel(fused.bias, x, problem.k, "bias", where),
    )


def by_copy_engine(
    problem: ConvolutionProblem,
    cut: ForwardConfiguration,
    rows: Rows,
    taps: Taps,
    inputs: tuple[View, View, View],
    output: View,
    residual: View | None,
    pointers: tuple[int, int, int],
    device: int,
    flags: Mapping[str, Any],
) -> Prepared:
    """One launch of the forward kernel; the arguments are those of `launch.arguments`, `flags` those of its source.

    It may start while the kernel ahead still runs, unless its rows come from halos, which an event announces.
    """
    from ..runtime.device import properties

    gpu = properties(device)
    cells = launch.grid(problem, cut, rows, gpu.sms)
    taken = footprint(problem, cut)
    # Rows of a shard may lie in several buffers.
    whole = cut.flat and "sharded" not in flags and launch.in_lines(inputs[1], output, residual)
    arguments = launch.arguments(problem, cut, cells, rows, inputs, output, residual, pointers, whole)
    kernel = _forward_kernel(problem, cut, taps, (*flags.items(), ("whole", whole)), device)
    early = not flags.get("sharded", False)
    # Interior and boundary of a shard run side by side.
    shared = taken.shared if "sharded" in flags else uncrowded(taken.shared, cut.blocks, cells.blocks, gpu)
    prepared: Prepared = kernel.prepare(cells.blocks, taken.threads, arguments, shared, programmatic=early)
    return prepared


def wide_cuts(
    problem: ConvolutionProblem, what: wide.Walked, device: int, fused: Fused, source: View, *others: View | None
) -> wide.Cuts:
    """The sweeps of a pass where the kernels of wide groups make it, with these operands; else none."""
    found = choices.sweeps(problem, what, _gpu(device), any(fused.flags.values()))
    return found if found and fetchable(source, *others) and wide.reaches(source, *others) else ()


def by_warpgroups(
    cuts: wide.Cuts,
    source: View,
    output: View,
    residual: View | None,
    pointers: tuple[int, int, int],
    device: int,
    flags: Mapping[str, Any],
) -> tuple[Prepared, ...]:
    """The launches of a pass over wide groups."""
    from ..runtime.device import properties

    made, gpu = [], properties(device)
    for parts, sweeps in wide.launches(cuts, any(flags.values()), launch.in_lines(source, output)):
        outputs = [part.of(output) for part in parts]
        added = [part.of(residual) for part in parts] if residual else []
        blocks, arguments = wide_forward.arguments(sweeps, gpu.sms, source, outputs, added, pointers)
        kernel = _loaded(wide.recipe(sweeps, flags), device)
        shared = uncrowded(sweeps.shared, sweeps.blocks, blocks, gpu)
        made.append(kernel.prepare(blocks, sweeps.threads, arguments, shared, programmatic=True))
    return tuple(made)


def _told(
    problem: ConvolutionProblem, what: wide.Walked, given: ForwardConfiguration | wide.Way | None
) -> tuple[wide.Cuts, ForwardConfiguration | None]:
    """The sweeps of a way that is given, or the configuration that is."""
    if isinstance(given, tuple):
        return wide.sweeps(problem, what, given), None
    return (), given


def chosen(problem: ConvolutionProblem, what: Any, device: int, whole: bool) -> Any:
    """What the cost model takes for a pass on a device; `whole` as in `choices.cut`."""
    return choices.cut(problem, what, _gpu(device), whole)


def _gpu(device: int) -> Gpu:
    from ..cost.gpu import described_gpu
    from ..runtime.device import properties

    return described_gpu(properties(device))


def _plainly(recipe: Recipe, made: direct.DirectLaunch, device: int) -> Prepared:
    prepared: Prepared = _loaded(recipe, device).prepare(made.grid, made.block, (made.argument,))
    return prepared


@functools.lru_cache(maxsize=REMEMBERED)
def _forward_kernel(
    problem: ConvolutionProblem,
    cut: ForwardConfiguration,
    taps: Taps,
    flags: tuple[tuple[str, Any], ...],
    device: int,
) -> Any:
    """Loaded: to write its source again for every new address would take longer than all else of a launch."""
    return _loaded(forward_recipe(problem, cut, {**dict(flags), "taps": taps}), device)


def _loaded(recipe: Recipe, device: int) -> Any:
    from ..runtime.background import obtained
    from ..runtime.device import device_architecture
    from ..runtime.module import load

    return load(obtained(recipe, device_architecture(device)), device)


def _no_configuration(given: ForwardConfiguration | None, source: View) -> None:
    if given is not None:
        raise WrongLayout(
            "a configuration was given for tensors that the copy engine cannot fetch",
            where="conv2d",
            expected="addresses and strides that are multiples of 16 bytes, channels a multiple of 8",
            came=source,
            hint="leave the configuration out",
        )
