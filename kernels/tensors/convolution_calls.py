"""Convolutions of torch tensors on CUDA as prepared calls: what was worked out once is looked up by one key.

A plan is what follows from shapes, strides and types: checked operands, the result's shape, the configuration, and the
launches, which are told the tensors' addresses as they run (`runtime/moving.py`). What is left for a call is to
allocate the result and to launch.

Tensors have torch's shapes, x [n, c, h, w] and w [k, c / groups, r, s]. Results are channels-last in memory; operands
that are not are copied. Nothing here is differentiable, and nothing passes through torch's dispatcher.

Passes that cuDNN is predicted to be faster at (`cost/cudnn.py`), or was where both were timed (`models/tuning.py`), are
left to it, and in the background (`compile_in_background`) those whose kernel is not compiled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..convolution import choices, prepare, tuned
from ..convolution.prepare import NOTHING, Fused, Steps
from ..convolution.problem import BadConvolution, ConvolutionProblem
from ..convolution.recipes import PASSES, Pass
from ..runtime import moving
from ..runtime.array import DeviceArray, array
from ..runtime.background import Coming, not_waiting
from ..runtime.stream import torch_stream
from . import library, native_calls
from .geometry import Geometry, Ints
from .operands import ALIGNED, Result, dense, is_wide, rows, walked, wide

if TYPE_CHECKING:
    from ..cost.gpu import Gpu

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
REMEMBERED = 4096  # plans

_background = False


def compile_in_background(on: bool = True) -> None:
    """Whether kernels are compiled by threads of their own from now on, while cuDNN computes in their place."""
    global _background
    _background = on


class Plan:
    """One kind of call: its problem, its result, which operands are copied first, and its launches.

    There is one entry of `launches` for each choice of what follows the sum; a forward pass's has the calls of its
    gradients by `pairs`.
    """

    __slots__ = (
        "_backward", "_told", "choice", "copied", "device", "launches", "left", "pairs", "problem", "result",
        "workspace",
    )  # fmt: skip

    def __init__(self, problem: ConvolutionProblem, what: Pass, result: Result, operands: Sequence[Tensor]) -> None:
        self.problem, self.result = problem, result
        first, second = operands  # images, and images or a filter
        taken = walked(second) if what == "weight_gradient" else rows(second).is_contiguous()
        copied = (not walked(first), not taken)
        self.copied = copied if any(copied) else ()
        self.device: int = operands[0].get_device()
        self.launches: dict[Hashable, moving.Launches] = {}
        self.left = left_to_cudnn(problem, what, self.device)
        self.choice: Any = None
        self.workspace = 0
        self.pairs: dict[Hashable, _Pair] = {}
        self._backward: bool | None = None
        self._told: set[Hashable] = set()

    def tell(self, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor, geometry: Geometry) -> None:
        """Have the extension make forward passes of such operands from here on, if it is there."""
        if self.is_news((bias is not None, w.data_ptr() & ALIGNED)):
            native_calls.learn_forward(x, w, bias, out, geometry, self.launches[bias is not None])

    def is_news(self, call: Hashable) -> bool:
        """Whether the extension is there and was not told of a kind of call yet; from here on it was."""
        if native_calls.convolve is None or call in self._told:
            return False
        self._told.add(call)
        return True

    def left_entirely(self, operand: Tensor, recorded: bool) -> bool:
        """Whether cuDNN makes a forward pass, of `operand` and others, and where it is `recorded` both gradients."""
        if not (self.left and recorded):
            return self.left
        if self._backward is None:
            self._backward = all(left_to_cudnn(self.problem, what, operand.get_device()) for what in PASSES[1:])
        return self._backward

    def run(
        self, kind: Hashable, operands: Sequence[Tensor], names: Sequence[str], steps: Callable[..., Steps]
    ) -> bool:
        """Launch, and prepare that where it is the first of its kind; whether its kernels are there."""
        addresses = tuple([tensor.data_ptr() for tensor in operands])
        found = self.launches.get(kind)
        if found is None:
            arrays = [described(tensor, name) for tensor, name in zip(operands, names, strict=True)]
            made = launches_of(_maker(arrays, steps), addresses)
            if made is None:
                return False
            found = self.launches[kind] = made
        found.run(addresses, torch_stream(self.device))
        return True


def described(tensor: Tensor, name: str) -> DeviceArray:
    """An operand as the kernels take it: images by their rows."""
    return array(rows(tensor) if tensor.dim() == 4 else tensor, name)


def _maker(operands: Sequence[DeviceArray], steps: Callable[..., Steps]) -> moving.Make:
    """What prepares launches for operands like these at any addresses."""

    def make(addresses: moving.Addresses) -> Sequence[Any]:
        placed = zip(operands, addresses, strict=True)
        return steps(*[operand._replace(pointer=address) for operand, address in placed]).launches

    return make


_plans: dict[tuple[Any, ...], Plan] = {}


def _planned(key: tuple[Any, ...], make: Callable[[], Plan]) -> Plan:
    """The plan of a key that is not known yet."""
    native_calls.begin()
    if len(_plans) >= REMEMBERED:
        _plans.clear()
        native_calls.forget()
    made = _plans[key] = make()
    return made


def planned(x: Tensor, w: Tensor, geometry: Geometry, dtype: torch.dtype | None = None) -> Plan:
    """What is known of forward passes like this one; of x and w brought to `dtype` first where one is given.

    Raises `BadConvolution` for what is not computed.
    """
    odd = x.data_ptr() & ALIGNED
    key = (odd, x.shape, x.stride(), x.dtype, x.get_device(), w.shape, w.stride(), w.dtype, geometry, dtype)
    plan = _plans.get(key)
    if plan is None:
        given, taps = (x, w) if dtype is None else (x.to(dtype), w.to(dtype))
        plan = _planned(key, lambda: _forward_plan(given, taps, geometry))
    return plan


def forward(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, plan: Plan | None = None) -> Tensor:
    """conv(x, w) + bias [n, k, p, q]; the bias is added in f32. Raises `BadConvolution` for what is not computed.

    `plan` is what is `planned` for x and w, where that was asked for before.
    """
    if plan is None:
        plan = planned(x, w, geometry)
    if plan.left:
        return library.forward(x, w, bias, *geometry)
    out = x.new_empty_strided(plan.result.shape, plan.result.strides)
    if not plan.copied and (known := plan.launches.get(bias is not None)) is not None:
        if bias is None:
            known.run((x.data_ptr(), w.data_ptr(), out.data_ptr()), torch_stream(plan.device))
            plan.tell(x, w, bias, out, geometry)
            return out
        if bias.get_device() == plan.device and is_wide(bias):
            addresses = (x.data_ptr(), w.data_ptr(), out.data_ptr(), bias.data_ptr())
            known.run(addresses, torch_stream(plan.device))
            plan.tell(x, w, bias, out, geometry)
            return out
    given = copied(plan, x, w)
    if bias is None:
        ready = plan.run(False, (*given, out), ("x", "w", "out"), lambda *a: _forward_steps(plan, *a))
    else:
        operands = (*given, out, wide(bias, x))
        ready = plan.run(True, operands, ("x", "w", "out", "bias"), lambda *a: _forward_steps(plan, *a))
    if not ready:
        return library.forward(x, w, bias, *geometry)
    plan.tell(x, w, bias, out, geometry)
    return out


def _forward_steps(plan: Plan, x: DeviceArray, w: DeviceArray, out: DeviceArray, *bias: DeviceArray) -> Steps:
    return prepare.forward_steps(plan.problem, x, w, out, Fused(bias=bias[0]) if bias else NOTHING, None)


def input_gradient(dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> Tensor:
    """The gradient of x of `shape` [n, c, h, w]. Raises `BadConvolution`."""
    odd = dy.data_ptr() & ALIGNED
    layouts = (dy.shape, dy.stride(), dy.dtype, dy.get_device(), w.shape, w.stride(), w.dtype)
    key = ("input", odd, layouts, shape, geometry)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: _input_gradient_plan(dy, w, shape, geometry))
    if plan.left:
        return library.input_gradient(dy, w, shape, *geometry)
    given = copied(plan, dy, w)
    out = plan.result.allocated(dy)

    def steps(dy: DeviceArray, w: DeviceArray, out: DeviceArray) -> Steps:
        return prepare.input_gradient_steps(plan.problem, dy, w, out, None)

    if plan.run(None, (*given, out), ("dy", "w", "out"), steps):
        return out
    return library.input_gradient(dy, w, shape, *geometry)


def filter_gradient(x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry, dtype: torch.dtype | None = None) -> Tensor:
    """The gradient of w of `shape` [k, c / groups, r, s], f32 or (None) of the type of x. Raises `BadConvolution`."""
    odd = (x.data_ptr() | dy.data_ptr()) & ALIGNED
    layouts = (x.shape, x.stride(), x.dtype, x.get_device(), dy.shape, dy.stride(), dy.dtype)
    key = ("filter", layouts, shape, geometry, dtype, odd)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(key, lambda: filter_gradient_plan(x, dy, shape, geometry, dtype))
    if plan.left:
        return library.weight_gradient(x, dy, shape, *geometry).to(plan.result.dtype)
    given = copied(plan, x, dy)
    out = plan.result.allocated(x)
    operands: tuple[Tensor, ...] = (*given, out)
    if plan.workspace:
        operands = (*operands, torch.empty(plan.workspace, dtype=torch.uint8, device=plan.result.device))
    names = ("x", "dy", "out", "workspace")[: len(operands)]
    if plan.run(None, operands, names, lambda *a: filter_gradient_steps(plan, *a)):
        return out
    return library.weight_gradient(x, dy, shape, *geometry).to(plan.result.dtype)


def gradients(
    x: Tensor, dy: Tensor, w: Tensor, geometry: Geometry, dtype: torch.dtype, plan: Plan | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of x and, of `dtype`, of w: one call, prepared where neither is left to cuDNN.

    `plan` is that of the forward pass, where it is at hand.
    """
    if plan is None:
        plan = planned(x, w, geometry)
    key = (dy.data_ptr() & ALIGNED, dy.shape, dy.stride(), dy.dtype, dy.get_device(), w.dtype, dtype)
    pair = plan.pairs.get(key)
    if pair is None:
        pair = plan.pairs[key] = _Pair(x, dy, w, geometry, dtype)
    if pair.left:
        dx, dw = library.gradients(x, dy, w, *geometry)
        return dx, dw.to(dtype)
    made = pair.run(x, dy, w)
    if made is not None:
        pair.tell((x, dy, w), made, geometry)
        return made
    return input_gradient(dy, w, x.shape, geometry), filter_gradient(x, dy, w.shape, geometry, dtype)


class _Pair:
    """Both gradients of one kind of call: their launches, one behind the other, are told addresses at once."""

    __slots__ = ("_told", "apart", "device", "launches", "left", "to_w", "to_x")

    def __init__(self, x: Tensor, dy: Tensor, w: Tensor, geometry: Geometry, dtype: torch.dtype) -> None:
        self.to_x = _input_gradient_plan(dy, w, x.shape, geometry)
        self.to_w = filter_gradient_plan(x, dy, w.shape, geometry, dtype)
        self.left = self.to_x.left and self.to_w.left
        self.apart = self.to_x.left or self.to_w.left
        self.device: int = x.get_device()
        self.launches: moving.Launches | None = None
        self._told: set[int] = set()

    def tell(self, operands: tuple[Tensor, Tensor, Tensor], made: tuple[Tensor, Tensor], geometry: Geometry) -> None:
        """Have the extension make such calls of x, dy, w from here on, if it is there."""
        told = operands[2].data_ptr() & ALIGNED
        if native_calls.convolve is not None and told not in self._told and self.launches is not None:
            self._told.add(told)
            native_calls.learn_gradients(operands, made, self.to_w.workspace, geometry, self.launches)

    def run(self, x: Tensor, dy: Tensor, w: Tensor) -> tuple[Tensor, Tensor] | None:
        """The gradients; None where each is to be computed by itself."""
        if self.apart:
            return None
        x, dy = copied(self.to_w, x, dy)
        dy, w = copied(self.to_x, dy, w)
        given = self.to_x.result
        dx = dy.new_empty_strided(given.shape, given.strides)
        dw, size = self.to_w.result.allocated(x), self.to_w.workspace
        operands: tuple[Tensor, ...] = (x, dy, w, dx, dw)
        addresses: tuple[int, ...] = (x.data_ptr(), dy.data_ptr(), w.data_ptr(), dx.data_ptr(), dw.data_ptr())
        if size:
            room = torch.empty(size, dtype=torch.uint8, device=self.to_w.result.device)
            operands, addresses = (*operands, room), (*addresses, room.data_ptr())
        if self.launches is None:
            names = ("x", "dy", "w", "out", "out", "workspace")[: len(operands)]
            arrays = [described(tensor, name) for tensor, name in zip(operands, names, strict=True)]
            self.launches = launches_of(_maker(arrays, self._steps), addresses)
            if self.launches is None:
                return None
        self.launches.run(addresses, torch_stream(self.device))
        return dx, dw

    def _steps(self, x: DeviceArray, dy: DeviceArray, w: DeviceArray, *out: DeviceArray) -> Steps:
        dx, *rest = out
        first = prepare.input_gradient_steps(self.to_x.problem, dy, w, dx, None)
        return Steps(first.launches + filter_gradient_steps(self.to_w, x, dy, *rest).launches)


def filter_gradient_steps(
    plan: Plan, x: DeviceArray, dy: DeviceArray, out: DeviceArray, room: DeviceArray | None = None
) -> Steps:
    return prepare.weight_gradient_steps(plan.problem, x, dy, out, out.dtype, room, plan.choice)


# -- by cuDNN ----------------------------------------------------------------------------------------------------------


def left_to_cudnn(problem: ConvolutionProblem, what: Pass, device: int) -> bool:
    """Whether cuDNN is the faster one at a pass, on a GPU by its number."""
    from ..cost.gpu import described_gpu
    from ..runtime.device import properties

    return left_on(problem, what, described_gpu(properties(device)))


def left_on(problem: ConvolutionProblem, what: Pass, gpu: Gpu) -> bool:
    """Whether cuDNN is the faster one at a pass: as it was when both were timed, else as is predicted."""
    known = tuned.left(problem, what, gpu, library.setting())
    return choices.left_to_cudnn(problem, what, gpu) if known is None else known


_others: list[Callable[[], None]] = []  # what calls of other modules are planned by


def forget_with(forgotten: Callable[[], None]) -> None:
    """Have `forget` call this, too."""
    _others.append(forgotten)


def forget() -> None:
    """Every call is planned anew: what is chosen has changed."""
    _plans.clear()
    prepare.weight_gradient_choice.cache_clear()
    native_calls.forget()
    for forgotten in _others:
        forgotten()


def launches_of(make: moving.Make, addresses: moving.Addresses) -> moving.Launches | None:
    """Launches of operands at any addresses, or None where their kernels are being compiled in the background."""
    if not _background:
        return moving.launches(make, addresses)
    try:
        with not_waiting():
            return moving.launches(make, addresses)
    except Coming:
        return None


# -- plans -------------------------------------------------------------------------------------------------------------


def _forward_plan(x: Tensor, w: Tensor, geometry: Geometry) -> Plan:
    problem = _problem(x.shape, w.shape, geometry, x, w)
    n, p, q, k = problem.output_shape
    return Plan(problem, "forward", Result.like(x, (n, k, p, q)), (x, w))


def _input_gradient_plan(dy: Tensor, w: Tensor, shape: Ints, geometry: Geometry) -> Plan:
    problem = _problem(shape, w.shape, geometry, dy, w)
    return Plan(problem, "input_gradient", Result.like(dy, shape), (dy, w))


def filter_gradient_plan(x: Tensor, dy: Tensor, shape: Ints, geometry: Geometry, dtype: torch.dtype | None) -> Plan:
    if dtype not in (None, x.dtype, torch.float32):
        expected = f"{x.dtype} or torch.float32"
        raise BadConvolution("the type of a filter's gradient", where="conv2d", expected=expected, came=str(dtype))
    problem = _problem(x.shape, shape, geometry, x, dy)
    plan = Plan(problem, "weight_gradient", Result.like(x, shape, dtype), (x, dy))
    if plan.left:
        return plan
    given, other = copied(plan, x, dy)
    plan.choice = prepare.weight_gradient_choice(plan.problem, array(rows(given), "x"), array(rows(other), "dy"))
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
    return _problem_of(x, w, geometry, dtypes.pop())


def _problem_of(x: Ints, w: Ints, geometry: Geometry, dtype: torch.dtype) -> ConvolutionProblem:
    n, c, h, width = (int(extent) for extent in x)
    r, s = int(w[2]), int(w[3])
    stride, padding, dilation, groups = geometry
    extents, k = (n, h, width, c, groups, r, s), int(w[0])
    problem = ConvolutionProblem(*extents, stride, dilation, padding, DTYPES[dtype], channels_out=k)
    if tuple(w) != (k, problem.width, r, s):
        expected = f"[k, {problem.width}, r, s] for {groups} groups"
        raise BadConvolution("weights", where="conv2d", expected=expected, came=list(w))
    return problem


def copied(plan: Plan, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Operands as they are, or dense and channels-last where the plan copies them."""
    if not plan.copied:
        return first, second
    one, other = plan.copied
    return dense(first) if one else first, dense(second) if other else second
