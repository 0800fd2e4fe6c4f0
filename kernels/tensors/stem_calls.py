"""First layers over blocks of pixels as prepared calls (`convolution_calls`): blocks, filter and convolution, one
behind the other; and the gradient of the filter, which alone is asked for.

Images [n, c, h, w] and filters [k, c, r, s] lie anywhere in memory, of any float type that kernels read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..convolution import pixels, prepare
from ..convolution.pixels import OCTET, Blocks, blocks_of
from ..convolution.prepare import NOTHING, Fused
from ..convolution.problem import ConvolutionProblem
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd, convolution_calls, library, native_calls, pixel_blocks
from .convolution_calls import DTYPES, REMEMBERED, Plan, copied, described
from .geometry import Geometry, Ints
from .norm_calls import prepared
from .operands import ALIGNED, Result, wide

NAMES = ("blocks", "taps", "out", "bias")  # operands of the convolution, as errors name them


class Form(NamedTuple):
    """The blocks of a layer, and how their filter is moved over those of images of one extent."""

    blocks: Blocks
    moved: Geometry

    @property
    def taps(self) -> tuple[int, int]:
        """Rows and columns of the filter."""
        return self.blocks.rows.taps, self.blocks.columns.taps

    def filter_shape(self, channels_out: int) -> tuple[int, int, int, int]:
        """Of a filter over blocks, [k, width, rows, columns]."""
        return channels_out, self.blocks.width, *self.blocks.places


def blocks_for(channels: int, taps: Sequence[int], given: Geometry) -> Blocks | None:
    """The blocks of a layer of one group with `taps` (rows, columns), moved as is `given`; None where it has none."""
    few = given.groups == 1 and channels < OCTET and given.dilation == (1, 1)
    return blocks_of(channels, taps, given.stride, given.padding) if few else None


def form_of(channels: int, taps: Sequence[int], given: Geometry, extents: Ints) -> Form | None:
    """The same with how it is moved over images of (rows, columns)."""
    blocks = blocks_for(channels, taps, given)
    if blocks is None:
        return None
    top, bottom = blocks.rows.padding(extents[0])
    left, right = blocks.columns.padding(extents[1])
    return Form(blocks, Geometry(blocks.move, (top, bottom, left, right), (1, 1), 1))


_forms: list[Form] = []
_turn = threading.Lock()


@cache
def number_of(form: Form) -> int:
    """What the extension knows a form by."""
    with _turn:
        _forms.append(form)
        return len(_forms) - 1


@lru_cache(maxsize=1024)
def known_form(
    channels: int, taps: tuple[int, int], given: Geometry, extents: tuple[int, int]
) -> tuple[Form, int] | None:
    """A form and its number."""
    form = form_of(channels, taps, given, extents)
    return None if form is None else (form, number_of(form))


def problem_of(form: Form, shape: Ints, channels_out: int, dtype: torch.dtype) -> ConvolutionProblem:
    """The convolution of the blocks of images of `shape` [n, c, h, w]. Raises `BadConvolution`."""
    blocks, (stride, padding, dilation, groups) = form
    n, _, h, w = shape
    extents = (n, blocks.rows.blocks(h), blocks.columns.blocks(w), blocks.width, groups, *blocks.places)
    return ConvolutionProblem(*extents, stride, dilation, padding, DTYPES[dtype], channels_out=channels_out)


# -- forward -----------------------------------------------------------------------------------------------------------


class _Plan:
    """One kind of call: its problem and what it makes, and its launches without and with a bias."""

    __slots__ = ("device", "images", "launches", "out", "problem", "taps", "told")

    def __init__(self, x: Tensor, w: Tensor, form: Form, dtype: torch.dtype) -> None:
        self.problem = problem_of(form, x.shape, len(w), dtype)
        n, p, q, k = self.problem.output_shape
        self.images, self.taps = self.problem.input_shape, self.problem.weight_shape
        self.out = Result.like(x, (n, k, p, q), dtype)
        self.device: int = x.get_device()
        self.launches: dict[bool, moving.Launches] = {}
        self.told: set[bool] = set()


_plans: dict[tuple[Any, ...], _Plan] = {}


def forward(x: Tensor, w: Tensor, bias: Tensor | None, form: Form, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """conv(x, w) + bias [n, k, p, q] of `dtype`, and the blocks of x."""
    key = (x.shape, x.stride(), x.dtype, x.get_device(), w.shape, w.stride(), w.dtype, form, dtype)
    plan = _plans.get(key)
    if plan is None:
        native_calls.begin()
        if len(_plans) >= REMEMBERED:
            forget()
        plan = _plans[key] = _Plan(x, w, form, dtype)
    images, taps = (x.new_empty(shape, dtype=dtype).permute(0, 3, 1, 2) for shape in (plan.images, plan.taps))
    out = x.new_empty_strided(plan.out.shape, plan.out.strides, dtype=dtype)
    operands = [x, w, images, taps, out] if bias is None else [x, w, images, taps, out, wide(bias, x)]
    addresses = tuple(operand.data_ptr() for operand in operands)
    biased = bias is not None
    launches = plan.launches.get(biased)
    if launches is None:
        launches = _first_launches(plan, operands, form, addresses)
        if launches is None:  # its kernels are being compiled
            return _forward_by_torch(x, w, bias, form, dtype)
        plan.launches[biased] = launches
    launches.run(addresses, torch_stream(plan.device))
    if native_calls.first is not None and biased not in plan.told:
        plan.told.add(biased)
        native_calls.learn_first(x, w, bias, (images, taps, out), number_of(form), launches)
    return out, images


def _first_launches(
    plan: _Plan, operands: Sequence[Tensor], form: Form, addresses: tuple[int, ...]
) -> moving.Launches | None:
    x, w, *made = operands
    given, filters = (x.shape, x.stride()), (w.shape, w.stride())  # not the tensors: launches may outlive them
    arrays = [described(tensor, name) for tensor, name in zip(made, NAMES, strict=False)]
    kinds = pixel_blocks.kinds_of(x.dtype, w.dtype, form.blocks, made[0].dtype)

    def launches(at: moving.Addresses) -> Sequence[Any]:
        images, taps, out, *bias = (array._replace(pointer=to) for array, to in zip(arrays, at[2:], strict=True))
        gathered = pixels.gathered(form.blocks, *given, at[0], at[2])
        filtered = pixels.taps(form.blocks, *filters, at[1], at[3])
        fused = Fused(bias=bias[0]) if bias else NOTHING
        steps = prepare.forward_steps(plan.problem, images, taps, out, fused, None)
        ahead = [prepared(kind, [one], plan.device) for kind, one in zip(kinds, (gathered, filtered), strict=True)]
        return [*ahead[0], *ahead[1], *steps.launches]

    return convolution_calls.launches_of(launches, addresses)


def _forward_by_torch(
    x: Tensor, w: Tensor, bias: Tensor | None, form: Form, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    images = pixel_blocks.gathered_by_torch(x.to(dtype), form.blocks)
    taps = pixel_blocks.filter_by_torch(w, form.blocks).to(dtype)
    return library.forward(images, taps, bias, *form.moved), images


# -- the gradient of the filter ----------------------------------------------------------------------------------------


class _Gradient:
    """One kind of call: the plan of the gradient over blocks, and all launches."""

    __slots__ = ("launches", "plan", "told")

    def __init__(self, plan: Plan) -> None:
        self.plan, self.told = plan, False
        self.launches: moving.Launches | None = None


_gradients: dict[tuple[Any, ...], _Gradient] = {}


def filter_gradient(images: Tensor, dy: Tensor, form: Form, dtype: torch.dtype) -> Tensor:
    """The gradient of the filter [k, c, r, s], f32 or of the type of the blocks."""
    odd = (images.data_ptr() | dy.data_ptr()) & ALIGNED
    layouts = (images.shape, images.stride(), images.dtype, dy.shape, dy.stride(), dy.dtype, dy.get_device())
    key = (odd, layouts, form, dtype)
    known = _gradients.get(key)
    if known is None:
        if len(_gradients) >= REMEMBERED:
            forget()
        shape = form.filter_shape(dy.shape[1])
        known = _gradients[key] = _Gradient(
            convolution_calls.filter_gradient_plan(images, dy, shape, form.moved, dtype)
        )
    plan = known.plan
    if plan.left:
        return _gradient_by_torch(images, dy, form, dtype)
    given, slopes = copied(plan, images, dy)
    to_taps, (r, s) = plan.result.allocated(images), form.taps
    made = images.new_empty((dy.shape[1], r, s, form.blocks.channels), dtype=dtype).permute(0, 3, 1, 2)
    operands = [given, slopes, to_taps, made]
    if plan.workspace:
        operands.append(torch.empty(plan.workspace, dtype=torch.uint8, device=images.device))
    addresses = tuple(operand.data_ptr() for operand in operands)
    if known.launches is None:
        known.launches = _gradient_launches(plan, operands, form, addresses)
        if known.launches is None:
            return _gradient_by_torch(images, dy, form, dtype)
    known.launches.run(addresses, torch_stream(plan.device))
    if native_calls.first is not None and not known.told and given is images and slopes is dy:
        known.told = True
        results, number = (to_taps, made), number_of(form)
        native_calls.learn_first_gradient(images, dy, results, plan.workspace, number, known.launches)
    return made


def _gradient_launches(
    plan: Plan, operands: Sequence[Tensor], form: Form, addresses: tuple[int, ...]
) -> moving.Launches | None:
    images, dy, to_taps, made, *room = operands
    kind = pixel_blocks.kind_of_filters(form.blocks, made.dtype, images.dtype)
    names = ("x", "dy", "out", "workspace")
    arrays = [described(tensor, name) for tensor, name in zip((images, dy, to_taps, *room), names, strict=False)]
    shape = (made.shape[0], made.shape[1], *form.taps)

    def launches(at: moving.Addresses) -> Sequence[Any]:
        placed = zip(arrays, (*at[:3], *at[4:]), strict=True)
        steps = convolution_calls.filter_gradient_steps(plan, *(array._replace(pointer=to) for array, to in placed))
        back = prepared(kind, [pixels.taps_gradient(form.blocks, shape, at[2], at[3])], plan.device)
        return [*steps.launches, *back]

    return convolution_calls.launches_of(launches, addresses)


def _gradient_by_torch(images: Tensor, dy: Tensor, form: Form, dtype: torch.dtype) -> Tensor:
    found = library.weight_gradient(images, dy, form.filter_shape(dy.shape[1]), *form.moved)
    return pixel_blocks.taps_by_torch(found, form.blocks).to(dtype)


def forget() -> None:
    """Every call is planned anew."""
    _plans.clear()
    _gradients.clear()
    native_calls.forget("firsts")


convolution_calls.forget_with(forget)

# -- autograd ----------------------------------------------------------------------------------------------------------


def backward_of(images: Tensor, dy: Tensor, form: Form, dtype: torch.dtype) -> Tensor:
    """The gradient of the filter; differentiable."""
    if not torch.is_grad_enabled() and autograd.plain(images, dy):
        return filter_gradient(images, dy, form, dtype)
    found = autograd.filter_gradient(images, dy, form.filter_shape(dy.shape[1]), form.moved, dtype)
    return pixel_blocks.taps_by_torch(found, form.blocks)


def first_backward_of(images: Tensor, dy: Tensor, number: int, is_f32: bool) -> Tensor:
    """The same as the extension asks for it."""
    return backward_of(images, dy, _forms[number], torch.float32 if is_f32 else images.dtype)


class First(torch.autograd.Function):
    """The layer where images have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, form: Form, dtype: torch.dtype) -> Tensor:
        y, images = forward(x, w, bias, form, dtype)
        ctx.save_for_backward(images)
        ctx.form, ctx.dtype, ctx.bias_dtype = form, w.dtype, None if bias is None else bias.dtype
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (images,), (_, to_w, to_bias, *_) = ctx.saved_tensors, ctx.needs_input_grad
        dw = backward_of(images, dy, ctx.form, ctx.dtype) if to_w else None
        db = autograd.bias_gradient(dy, ctx.bias_dtype) if to_bias else None
        return None, dw, db, None, None
