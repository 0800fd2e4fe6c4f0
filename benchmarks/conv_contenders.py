"""The three passes of a grouped convolution by cuDNN (through torch), by our kernels, and in f32 as the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpu_timing import Pool  # type: ignore[import-not-found, unused-ignore]
from torch.nn.functional import conv2d as torch_conv2d
from torch.nn.functional import pad

from tapestry.kernels.convolution.problem import ConvolutionProblem

PASSES = ("forward", "input_gradient", "weight_gradient")
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
POOL_ELEMENTS = 1 << 29
EPSILON = {"f16": 2.0**-11, "bf16": 2.0**-8}

Call = Callable[[int], Any]


@dataclass(frozen=True)
class Operands:
    """Tensors of a problem in rotation: x, dy [n, h, w, c] dense, w [k, r, s, c / groups], outputs of each pass."""

    xs: list[torch.Tensor]
    dys: list[torch.Tensor]
    w: torch.Tensor
    outs: dict[str, list[torch.Tensor]]


class Pools:
    """Random operands and room for results, shared by all problems of a run."""

    def __init__(self) -> None:
        self._noise: dict[tuple[str, int], Pool] = {}

    def of(self, dtype: str, which: int) -> Pool:
        key = (dtype, which)
        if key not in self._noise:
            self._noise[key] = Pool(DTYPES[dtype], POOL_ELEMENTS, seed=which)
        return self._noise[key]

    def operands(self, problem: ConvolutionProblem) -> Operands:
        x, dy, out = (self.of(problem.dtype, which) for which in (1, 2, 3))
        shapes = (problem.output_shape, problem.input_shape, problem.weight_shape)
        outs = {what: out.rotation(shape) for what, shape in zip(PASSES, shapes, strict=True)}
        w = torch.randn(problem.weight_shape, device="cuda").to(DTYPES[problem.dtype])
        return Operands(x.rotation(problem.input_shape), dy.rotation(problem.output_shape), w, outs)


def _nchw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(0, 3, 1, 2)


def _backward(
    problem: ConvolutionProblem, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, sides: list[int], what: str
) -> torch.Tensor:
    wanted = [what == "input_gradient", what == "weight_gradient", False]
    steps, gaps = list(problem.stride), list(problem.dilation)
    backward = torch.ops.aten.convolution_backward
    gradients = backward(dy, x, w, None, steps, sides, gaps, False, [0, 0], problem.groups, wanted)
    return gradients[wanted.index(True)]


def cudnn(problem: ConvolutionProblem, operands: Operands) -> dict[str, Call]:
    """cuDNN, channels last. What it cannot pad (left and right not alike) is padded ahead, outside the timing."""
    top, bottom, left, right = problem.padding
    if top == bottom and left == right:
        sides, xs = [top, left], [_nchw(x) for x in operands.xs]
    else:
        sides = [0, 0]
        xs = [_padded(problem, x).contiguous(memory_format=torch.channels_last) for x in operands.xs]
    dys, w = [_nchw(dy) for dy in operands.dys], _nchw(operands.w)

    def forward(i: int) -> torch.Tensor:
        x = xs[i % len(xs)]
        return torch_conv2d(x, w, None, problem.stride, sides, problem.dilation, problem.groups)

    def gradient(what: str) -> Call:
        return lambda i: _backward(problem, dys[i % len(dys)], xs[i % len(xs)], w, sides, what)

    return {"forward": forward, **{what: gradient(what) for what in PASSES[1:]}}


def _padded(problem: ConvolutionProblem, x: torch.Tensor) -> torch.Tensor:
    top, bottom, left, right = problem.padding
    return pad(_nchw(x), (left, right, top, bottom))


def ours(
    problem: ConvolutionProblem, operands: Operands, chosen: Any = None, *, one_output: bool = False
) -> dict[str, Call]:
    """Our kernels; `chosen` is a configuration, by default the cost model's choice.

    Results go into rotating memory, or into one buffer: as cuDNN's do, to which torch's allocator gives the same again.
    """
    from tapestry.kernels import conv2d as kernels

    steps = {
        "groups": problem.groups,
        "stride": problem.stride,
        "padding": problem.padding,
        "dilation": problem.dilation,
        "configuration": chosen,
    }
    xs, dys, w, outs = operands.xs, operands.dys, operands.w, operands.outs

    def out(what: str, i: int) -> torch.Tensor:
        return outs[what][0 if one_output else i % len(outs[what])]

    def stream() -> int:
        return torch.cuda.current_stream().cuda_stream

    def forward(i: int) -> Any:
        return kernels.conv2d(xs[i % len(xs)], w, out=out("forward", i), stream=stream(), **steps)

    def input_gradient(i: int) -> Any:
        shape, place = problem.input_shape, out("input_gradient", i)
        return kernels.conv2d_input_gradient(dys[i % len(dys)], w, shape=shape, out=place, stream=stream(), **steps)

    def weight_gradient(i: int) -> Any:
        size, place = (problem.r, problem.s), out("weight_gradient", i)
        x, dy = xs[i % len(xs)], dys[i % len(dys)]
        return kernels.conv2d_weight_gradient(x, dy, filter=size, out=place, stream=stream(), **steps)

    return {"forward": forward, "input_gradient": input_gradient, "weight_gradient": weight_gradient}


def reference(
    problem: ConvolutionProblem, x: torch.Tensor, dy: torch.Tensor, w: torch.Tensor, what: str
) -> torch.Tensor:
    """A pass in f32 (tf32 off), in our layouts."""
    wide = _padded(problem, x).float()
    if what == "forward":
        y = torch_conv2d(wide, _nchw(w).float(), None, problem.stride, 0, problem.dilation, problem.groups)
        return y.permute(0, 2, 3, 1)
    found = _backward(problem, _nchw(dy).float(), wide, _nchw(w).float(), [0, 0], what)
    if what == "input_gradient":
        top, _, left, _ = problem.padding
        found = found[:, :, top : top + problem.h, left : left + problem.w]
    return found.permute(0, 2, 3, 1)


def terms(problem: ConvolutionProblem, what: str) -> int:
    """Products that are summed in one value: the depth of the sum."""
    if what == "weight_gradient":
        return problem.n * problem.p * problem.q
    return problem.r * problem.s * (problem.width if what == "forward" else problem.width_out)


def exact_weight_gradient(problem: ConvolutionProblem, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The weight gradient in f64, a matrix product for every tap."""
    (dilation_y, dilation_x), (stride_y, stride_x) = problem.dilation, problem.stride
    wide = _padded(problem, x)
    found = torch.empty(problem.weight_shape, dtype=torch.float64, device=x.device)
    apart = (problem.n, problem.groups)
    right = _nchw(dy).double().reshape(*apart, problem.width_out, -1)
    for r in range(problem.r):
        for s in range(problem.s):
            rows = slice(r * dilation_y, r * dilation_y + (problem.p - 1) * stride_y + 1, stride_y)
            columns = slice(s * dilation_x, s * dilation_x + (problem.q - 1) * stride_x + 1, stride_x)
            left = wide[:, :, rows, columns].double().reshape(*apart, problem.width, -1)
            found[:, r, s] = torch.einsum("ngkl,ngcl->gkc", right, left).reshape(problem.k, problem.width)
    return found


def worst_error(problem: ConvolutionProblem, operands: Operands, call: Call, what: str) -> float:
    """Largest |ours - f32| over what is allowed, on operands nobody has seen; unwritten elements are infinitely wrong.

    Allowed: half a unit in the last place of the result, twice, and f32 rounding of operands near 1 in every term.
    A weight gradient that is further off is judged by f64: cuDNN's own in f32 were seen to be 1.09 off where 0.005 is
    allowed (5 x 5 filters, by an algorithm of its choice).
    """
    random = torch.Generator("cuda").manual_seed(terms(problem, what) + problem.c)
    for tensor in (operands.xs[0], operands.dys[0], operands.w):
        tensor.copy_(torch.randn(tensor.shape, device="cuda", generator=random))
    out = operands.outs[what][0]
    out.fill_(float("nan"))
    call(0)
    torch.backends.cudnn.benchmark = False
    expected = reference(problem, operands.xs[0], operands.dys[0], operands.w, what)
    torch.backends.cudnn.benchmark = True
    error = _over_allowed(problem, out, expected, what)
    if error <= 1 or what != "weight_gradient":
        return error
    return _over_allowed(problem, out, exact_weight_gradient(problem, operands.xs[0], operands.dys[0]), what)


def worst_difference(
    problem: ConvolutionProblem, operands: Operands, call: Call, what: str, expected: torch.Tensor
) -> float:
    """The same against a result of the same operands that is known to be right."""
    out = operands.outs[what][0]
    out.fill_(float("nan"))
    call(0)
    return _over_allowed(problem, out, expected.float(), what)


def _over_allowed(problem: ConvolutionProblem, out: torch.Tensor, expected: torch.Tensor, what: str) -> float:
    allowed = 2 * EPSILON[problem.dtype] * expected.abs() + 2.0**-21 * terms(problem, what) + 1e-6
    error = (out.to(expected.dtype) - expected).abs_() / allowed
    return float(error.nan_to_num_(nan=float("inf")).max())
