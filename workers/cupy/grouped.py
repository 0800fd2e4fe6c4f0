"""Convolutions of groups of channels by the kernels of `tapestry.kernels.convolution`, where they have the shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...dtypes import name_of
from ...kernels.convolution import prepare
from ...kernels.convolution.problem import DTYPES, BadConvolution, ConvolutionProblem
from ...kernels.errors import WrongLayout
from ...kernels.runtime import array as runtime
from ..device import Runner, in_order
from .arrays import DeviceArray
from .dense import CHANNELS_LAST, Asked
from .machine import Convolution, Strided

if TYPE_CHECKING:
    from .cuda import CudaMachine


def grouped(machine: CudaMachine, convolution: Convolution, take: Callable[[int], DeviceArray]) -> Runner | None:
    """Ask for a convolution, on the stream that is current then; None for one that the kernels do not compute."""
    problem = _problem(convolution)
    if problem is None:
        return None
    asked = Asked(machine, convolution, take, CHANNELS_LAST, uneven=True)
    try:
        steps = _steps(machine, problem, asked.convolution, take)
    except WrongLayout:
        return None
    return in_order([*asked.before, _Prepared(machine, steps, asked), *asked.after])


@dataclass(frozen=True)
class _Prepared:
    """Launches on the stream that is current then; what was asked for keeps the arrays alive."""

    machine: CudaMachine
    steps: prepare.Steps
    asked: Asked

    def __call__(self) -> None:
        self.steps.run(self.machine.stream)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The project's own, by what they compute."""
        return (f"grouped convolution, {self.asked.convolution.computed}",)


def _problem(c: Convolution) -> ConvolutionProblem | None:
    """The kernels' own description; None where they have none for it."""
    dtype = name_of(c.x.array.dtype if c.computed != "x" else c.y.array.dtype)
    (n, channels, *rows), (out, _, *taps) = c.x.extents, c.w.extents
    if len(c.windows) != 2 or dtype not in DTYPES or channels != out or (c.x.steps[1], c.y.steps[1]) != (1, 1):
        return None
    (first, second), (h, w), (r, s) = c.windows, rows, taps
    padding = (first.before, first.after, second.before, second.after)
    steps, gaps = (first.stride, second.stride), (first.dilation, second.dilation)
    try:
        problem = ConvolutionProblem(n, h, w, channels, c.groups, r, s, steps, gaps, padding, dtype)
    except BadConvolution:
        return None
    return problem if problem.tiled else None


def _steps(
    machine: CudaMachine, problem: ConvolutionProblem, c: Convolution, take: Callable[[int], DeviceArray]
) -> prepare.Steps:
    x, w, y = (_last(one, machine.device) for one in (c.x, c.w, c.y))
    if c.computed == "y":
        return prepare.forward_steps(problem, x, w, y, prepare.NOTHING, None)
    if c.computed == "x":
        return prepare.input_gradient_steps(problem, y, w, x, None)
    chosen = prepare.weight_gradient_choice(problem, x, y)
    size = prepare.workspace_bytes(problem, chosen)
    space = runtime.DeviceArray(take(size).pointer, (size,), (1,), "uint8", machine.device) if size else None
    return prepare.weight_gradient_steps(problem, x, y, w, w.dtype, space, chosen)


def _last(one: Strided, device: int) -> runtime.DeviceArray:
    """The array as the kernels see it, channels behind the directions."""
    size, order = one.array.dtype.itemsize, (0, 2, 3, 1)
    shape, steps = ([given[axis] for axis in order] for given in (one.extents, one.steps))
    pointer = one.array.pointer + one.offset * size
    return runtime.DeviceArray(
        pointer, tuple(shape), tuple(step * size for step in steps), name_of(one.array.dtype), device
    )
