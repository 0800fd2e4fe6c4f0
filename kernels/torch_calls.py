"""Convolutions of torch tensors on CUDA as prepared calls: what was worked out once is looked up by one key.

A plan is what follows from shapes, strides and types: checked operands, the result's shape, the configuration. A plan
holds its launches by the addresses they were made for, of which torch's allocator hands out the same again and again.
What is left for a call is to allocate the result and to launch.

Tensors have torch's shapes, x [n, c, h, w] and w [k, c / groups, r, s]. Results are channels-last in memory; operands
that are not are copied. Nothing here is differentiable, and nothing passes through torch's dispatcher.

Passes that cuDNN is predicted to be faster at are left to it (`cost/cudnn.py`), and in the background
(`compile_in_background`) those whose kernel is not compiled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import torch_library
from .convolution import prepare
from .convolution.prepare import NOTHING, Fused, Steps
from .convolution.problem import BadConvolution, ConvolutionProblem
from .convolution.recipes import Pass
from .runtime.array import array
from .runtime.background import Coming, not_waiting
from .runtime.stream import torch_stream
from .torch_geometry import Geometry, Ints

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
REMEMBERED = 4096  # plans, and launches of one plan
ALIGNED = 15  # the bits of addresses that have to be 0 for the copy engine

Addresses = tuple[int | str | None, ...]
_empty: Any = torch.empty_strided
_background = False


def compile_in_background(on: bool = True) -> None:
    """Whether kernels are compiled by threads of their own from now on, while cuDNN computes in their place."""
    global _background
    _background = on


class _Result(NamedTuple):
    """What to allocate: the arguments of `torch.empty_strided`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def like(cls, tensor: Tensor, shape: Ints, dtype: torch.dtype | None = None) -> _Result:
        """Channels-last, on the device of `tensor` and, unless another is given, of its type."""
        a, b, y, x = (int(extent) for extent in shape)
        return cls((a, b, y, x), (b * y * x, 1, x * b, b), dtype or tensor.dtype, tensor.device)

    def allocated(self) -> Tensor:
        found: Tensor = _empty(self.shape, self.strides, dtype=self.dtype, device=self.device)
        return found


class _Plan:
    """One kind of call: its problem, its result, which operands are copied first, and its launches by address."""

    __slots__ = ("choice", "copied", "device", "left", "problem", "result", "steps", "workspace")

    def __init__(self, problem: ConvolutionProblem, what: Pass, result: _Result, operands: Sequence[Tensor]) -> None:
        self.problem, self.result = problem, result
        self.copied = [not _rows(tensor).is_contiguous() for tensor in operands]
        self.device: int = operands[0].get_device()
        self.steps: dict[Addresses, Steps] = {}
        self.left = left_to_cudnn(problem, what, operands[0])
        self.choice: Any = None
        self.workspace = 0

    def remember(self, addresses: Addresses, steps: Steps) -> None:
        """Keep the launches for these addresses, at the cost of the oldest where there are many."""
        if len(self.steps) >= REMEMBERED:
            self.steps.pop(next(iter(self.steps)), None)
        self.steps[addresses] = steps


_plans: dict[tuple[Any, ...], _Plan] = {}


def _planned(key: tuple[Any, ...], make: Callable[[], _Plan]) -> _Plan:
    """The plan of a key that is not known yet."""
    if len(_plans) >= REMEMBERED:
        _plans.clear()
    made = _plans[key] = make()
    return made


def forward(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """conv(x, w) + bias [n, k, p, q]; the bias is added in f32. Raises `BadConvolution` for what is not computed."""
    key = ("forward", x.shape, x.stride(), x.dtype, x.get_device(), w.shape, w.stride(), w.dtype, geometry)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: _forward_plan(x, w, geometry))
    if plan.left:
        return _forward_by_cudnn(x, w, bias, geometry)
    if True in plan.copied:
        x, w = _copied(plan, x, w)
    wide = None if bias is None else _wide(bias, x)
    out = plan.result.allocated()
    addresses = (x.data_ptr(), w.data_ptr(), out.data_ptr(), 0 if wide is None else wide.data_ptr())
    steps = plan.steps.get(addresses)
    if steps is None:
        fused = NOTHING if wide is None else Fused(bias=array(wide, "bias"))
        operands = [array(_rows(tensor), name) for tensor, name in ((x, "x"), (w, "w"), (out, "out"))]
        steps = _prepared(lambda: prepare.forward_steps(plan.problem, *operands, fused, None))
        if steps is None:
            return _forward_by_cudnn(x, w, bias, geometry)
        plan.remember(addresses, steps)
    steps.run(torch_stream(plan.device))
    return out


class Following(NamedTuple):
    """What follows a convolution: activation(y * scale + bias + residual)."""

    scale: Tensor | None
    bias: Tensor | None
    residual: Tensor | None
    activation: str


def fused(x: Tensor, w: Tensor, then: Following, geometry: Geometry) -> Tensor | None:
    """activation(conv(x, w) * scale + bias + residual) in one launch; None where torch is to compute it in steps."""
    key = ("fused", x.shape, x.stride(), x.dtype, x.get_device(), w.shape, w.stride(), w.dtype, geometry)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: _forward_plan(x, w, geometry))
    if plan.left:
        return None
    x, w = _copied(plan, x, w)
    added = [None if values is None else _wide(values, x) for values in (then.scale, then.bias)]
    residual, activation = then.residual, then.activation or None
    if residual is not None:
        residual = residual.to(x.dtype).contiguous(memory_format=torch.channels_last)
    out = plan.result.allocated()
    extras = (*added, None if residual is None else _rows(residual))
    addresses = (x.data_ptr(), w.data_ptr(), out.data_ptr(), *(0 if t is None else t.data_ptr() for t in extras))
    steps = plan.steps.get((*addresses, activation))
    if steps is None:
        operands = [array(_rows(tensor), name) for tensor, name in ((x, "x"), (w, "w"), (out, "out"))]
        scaled, shifted, rows = extras
        follows = Fused.of(scaled, shifted, rows, activation)
        steps = _prepared(lambda: prepare.forward_steps(plan.problem, *operands, follows, None))
        if steps is None:
            return None
        plan.remember((*addresses, activation), steps)
    steps.run(torch_stream(plan.device))
    return out


def input_gradient(dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> Tensor:
    """The gradient of x of `shape` [n, c, h, w]. Raises `BadConvolution`."""
    key = ("input", dy.shape, dy.stride(), dy.dtype, dy.get_device(), w.shape, w.stride(), w.dtype, shape, geometry)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: _input_gradient_plan(dy, w, shape, geometry))
    if plan.left:
        return torch_library.input_gradient(dy, w, shape, *geometry)
    if True in plan.copied:
        dy, w = _copied(plan, dy, w)
    out = plan.result.allocated()
    addresses = (dy.data_ptr(), w.data_ptr(), out.data_ptr())
    steps = plan.steps.get(addresses)
    if steps is None:
        operands = [array(_rows(tensor), name) for tensor, name in ((dy, "dy"), (w, "w"), (out, "out"))]
        steps = _prepared(lambda: prepare.input_gradient_steps(plan.problem, *operands, None))
        if steps is None:
            return torch_library.input_gradient(dy, w, shape, *geometry)
        plan.remember(addresses, steps)
    steps.run(torch_stream(plan.device))
    return out


def filter_gradient(x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry, dtype: torch.dtype | None = None) -> Tensor:
    """The gradient of w of `shape` [k, c / groups, r, s], f32 or (None) of the type of x. Raises `BadConvolution`."""
    odd = (x.data_ptr() | dy.data_ptr()) & ALIGNED
    layouts = (x.shape, x.stride(), x.dtype, x.get_device(), dy.shape, dy.stride(), dy.dtype)
    key = ("filter", layouts, shape, geometry, dtype, odd)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: _filter_gradient_plan(x, dy, shape, geometry, dtype))
    if plan.left:
        return torch_library.weight_gradient(x, dy, shape, *geometry).to(plan.result.dtype)
    if True in plan.copied:
        x, dy = _copied(plan, x, dy)
    out = plan.result.allocated()
    room = None
    if plan.workspace:
        room = torch.empty(plan.workspace, dtype=torch.uint8, device=plan.result.device)
    addresses = (x.data_ptr(), dy.data_ptr(), out.data_ptr(), 0 if room is None else room.data_ptr())
    steps = plan.steps.get(addresses)
    if steps is None:
        given, other, target = [array(_rows(t), name) for t, name in ((x, "x"), (dy, "dy"), (out, "out"))]
        space = None if room is None else array(room, "workspace")
        operands = (given, other, target, target.dtype, space)
        steps = _prepared(lambda: prepare.weight_gradient_steps(plan.problem, *operands, plan.choice))
        if steps is None:
            return torch_library.weight_gradient(x, dy, shape, *geometry).to(plan.result.dtype)
        plan.remember(addresses, steps)
    steps.run(torch_stream(plan.device))
    return out


# -- by cuDNN ----------------------------------------------------------------------------------------------------------


def left_to_cudnn(problem: ConvolutionProblem, what: Pass, operand: Tensor) -> bool:
    """Whether cuDNN is predicted to be faster at a pass, on the GPU that an operand lies on."""
    from .cost.cudnn import is_faster
    from .cost.gpu import described_gpu
    from .runtime.device import properties

    return is_faster(problem, what, described_gpu(properties(operand.get_device())))


def _prepared(prepare_steps: Callable[[], Steps]) -> Steps | None:
    """Launches, or None where their kernels are being compiled in the background."""
    if not _background:
        return prepare_steps()
    try:
        with not_waiting():
            return prepare_steps()
    except Coming:
        return None


def _forward_by_cudnn(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    return torch_library.forward(x, w, None if bias is None else bias.detach().to(x.dtype), *geometry)


# -- plans -------------------------------------------------------------------------------------------------------------


def _forward_plan(x: Tensor, w: Tensor, geometry: Geometry) -> _Plan:
    problem = _problem(x.shape, w.shape, geometry, x, w)
    n, p, q, k = problem.output_shape
    return _Plan(problem, "forward", _Result.like(x, (n, k, p, q)), (x, w))


def _input_gradient_plan(dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> _Plan:
    problem = _problem(shape, w.shape, geometry, dy, w)
    return _Plan(problem, "input_gradient", _Result.like(dy, shape), (dy, w))


def _filter_gradient_plan(x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry, dtype: torch.dtype | None) -> _Plan:
    if dtype not in (None, x.dtype, torch.float32):
        expected = f"{x.dtype} or torch.float32"
        raise BadConvolution("the type of a filter's gradient", where="conv2d", expected=expected, came=str(dtype))
    problem = _problem(x.shape, shape, geometry, x, dy)
    plan = _Plan(problem, "weight_gradient", _Result.like(x, shape, dtype), (x, dy))
    if plan.left:
        return plan
    given, other = _copied(plan, x, dy)
    plan.choice = prepare.weight_gradient_choice(plan.problem, array(_rows(given), "x"), array(_rows(other), "dy"))
    plan.workspace = prepare.workspace_bytes(plan.problem, plan.choice)
    return plan


def _problem(x: Ints, w: Ints, geometry: Geometry, *used: Tensor) -> ConvolutionProblem:
    """The convolution of an input and a filter of these shapes; refused where the kernels do not compute it."""
    devices, dtypes = {str(tensor.device) for tensor in used}, {tensor.dtype for tensor in used}
    if len(devices) > 1:
        came = ", ".join(sorted(devices))
        raise BadConvolution("operands on different devices", where="conv2d", expected="one device", came=came)
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        expected = "all torch.float16 or all torch.bfloat16 (try autocast)"
        came = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise BadConvolution("operand types on CUDA", where="conv2d", expected=expected, came=came)
    n, c, h, width = (int(extent) for extent in x)
    r, s = int(w[2]), int(w[3])
    stride, padding, dilation, groups = geometry
    dtype = DTYPES[dtypes.pop()]
    problem = ConvolutionProblem(n, h, width, c, groups, r, s, stride, dilation, padding, dtype)
    if tuple(w) != (c, problem.width, r, s):
        expected = f"[{c}, {problem.width}, r, s] for {groups} groups"
        raise BadConvolution("weights", where="conv2d", expected=expected, came=list(w))
    return problem


# -- operands ----------------------------------------------------------------------------------------------------------


def _rows(tensor: Tensor) -> Tensor:
    """[a, b, y, x] as [a, y, x, b]: the same memory."""
    return tensor.detach().permute(0, 2, 3, 1)


def _copied(plan: _Plan, *operands: Tensor) -> list[Tensor]:
    """Operands as they are, or dense and channels-last where the plan copies them."""
    return [
        _rows(tensor).contiguous().permute(0, 3, 1, 2) if copied else tensor
        for tensor, copied in zip(operands, plan.copied, strict=True)
    ]


def _wide(bias: Tensor, x: Tensor) -> Tensor:
    """A bias as the kernels add it: f32, dense, on the device of x."""
    if bias.device != x.device:
        came = f"{x.device}, {bias.device}"
        raise BadConvolution("operands on different devices", where="conv2d", expected="one device", came=came)
    if bias.dtype not in (torch.float32, *DTYPES):
        expected = "torch.float32, torch.float16 or torch.bfloat16"
        raise BadConvolution("the type of the bias on CUDA", where="conv2d", expected=expected, came=str(bias.dtype))
    return bias.detach().float().contiguous()
