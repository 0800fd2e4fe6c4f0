"""The first convolution of a model, of a few channels, as one over blocks of pixels (`convolution/pixels.py`).

In training the layers of `OVER_BLOCKS` compute it: images have no gradient then; where they have one, torch does. In
evaluation `Stem` computes what follows it, too.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from ..convolution.pixels import OCTET
from ..convolution.problem import MOST_WIDTH, BadConvolution
from ..cost.gpu import WARPGROUP_PRODUCTS
from ..tensors import autograd, native_calls
from ..tensors.convolution_calls import DTYPES, forget_with, left_to_cudnn
from ..tensors.geometry import Geometry
from ..tensors.pixel_blocks import FLOATS, filter_over, gathered
from ..tensors.stem_calls import First, Form, blocks_for, form_of, forward, known_form, problem_of
from .fused import FusedConv2d, one_image
from .grouped import Rearranging, computed_here, conv2d


def in_blocks(layer: nn.Conv2d) -> bool:
    """Whether a layer can be computed so: of few channels, and what the kernels take, however it is padded."""
    (down, across), (step, other) = layer.kernel_size, layer.stride
    kind = (layer.groups, layer.padding_mode, layer.out_channels % OCTET, layer.dilation)
    if kind != (1, "zeros", 0, (1, 1)) or layer.out_channels > MOST_WIDTH or max(down, across) == 1:
        return False
    # Padding moves taps among blocks: so many more are met at most.
    most = Geometry((step, other), (0, 0, 0, 0), (1, 1), 1)
    return blocks_for(layer.in_channels, (down + step - 1, across + other - 1), most) is not None


class OverBlocks(Rearranging):
    """A first convolution over blocks of pixels, where its images have no gradient. Mixed into layers of ours."""

    def _convolved(self, x: Tensor, weight: Tensor, bias: Tensor | None, moved: Geometry) -> Tensor:
        made: Tensor | None = None
        if x.dim() == 4 and x.shape[1] == self.in_channels and not (x.requires_grad and torch.is_grad_enabled()):
            compiling = torch.compiler.is_compiling()
            compute = _traced if compiling else _at_once
            made = compute(x, weight, bias, self.in_channels, (weight.shape[2], weight.shape[3]), moved)
        return self._conv_forward(x, weight, bias) if made is None else made


def _at_once(
    x: Tensor, w: Tensor, bias: Tensor | None, channels: int, taps: tuple[int, int], moved: Geometry
) -> Tensor | None:
    """The layer by prepared calls; None where torch is to compute it."""
    given = (x, w) if bias is None else (x, w, bias)
    known = known_form(channels, taps, moved, tuple(x.shape[2:])) if autograd.plain(*given) else None
    if known is None:
        return None
    form, number = known
    if native_calls.first is not None and (made := native_calls.first(x, w, bias, number)) is not None:
        return made
    lowered = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if lowered else x.dtype
    images, filters = (FLOATS, {dtype, torch.float32}) if lowered else ({dtype}, {dtype})
    if dtype not in DTYPES or x.dtype not in images or w.dtype not in filters:
        return None
    fits = w.shape[1] == channels and (bias is None or bias.numel() == len(w)) and x.numel() > 0
    device = x.get_device()
    if not fits or any(one.get_device() != device for one in given) or _left(form, x.shape, len(w), dtype, device):
        return None
    if torch.is_grad_enabled() and any(operand.requires_grad for operand in given):
        recorded: Tensor = First.apply(x, w, bias, form, dtype)  # type: ignore[no-untyped-call]
        return recorded
    return forward(x, w, bias, form, dtype)[0]


@lru_cache(maxsize=1024)
def _left(form: Form, shape: torch.Size, channels_out: int, dtype: torch.dtype, device: int) -> bool:
    """Whether the layer is better left to torch."""
    try:
        return left_to_cudnn(problem_of(form, shape, channels_out, dtype), "forward", device)
    except BadConvolution:
        return True


forget_with(_left.cache_clear)


def _traced(
    x: Tensor, w: Tensor, bias: Tensor | None, channels: int, taps: tuple[int, int], moved: Geometry
) -> Tensor | None:
    """The same by torch's functions and the operator of convolutions, which torch.compile understands."""
    form = form_of(channels, taps, moved, x.shape[2:])
    if form is None or not computed_here(x) or not multiplies_from_shared_memory():
        return None
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    images, filters = gathered(x, form.blocks, dtype), filter_over(w, form.blocks, dtype)
    return conv2d(images, filters, bias, **form.moved._asdict())


def multiplies_from_shared_memory() -> bool:
    """Whether the kernels of wide groups, which compute dense convolutions, run on the GPU here, if there is one."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() == WARPGROUP_PRODUCTS


class Stem(FusedConv2d):
    """Such a convolution and what follows it, in evaluation: activation(conv(x) * scale + bias)."""

    def __init__(
        self, weight: Tensor, scale: Tensor | None, bias: Tensor | None, activation: str, given: Geometry
    ) -> None:
        """`weight` is of a layer of which `in_blocks` holds, and is moved as is `given`."""
        self.given, self.channels, self.taps = given, weight.shape[1], (weight.shape[2], weight.shape[3])
        blocks = blocks_for(self.channels, self.taps, given)
        assert blocks is not None
        super().__init__(filter_over(weight.detach(), blocks, weight.dtype), scale, bias, activation, given)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w] or [c, h, w], and what is added to the result before the activation."""
        if x.dim() == 3:
            return one_image(self, x, residual)
        if x.shape[1] != self.channels:
            raise BadConvolution("channels", where="fused convolution", expected=self.channels, came=x.shape[1])
        if torch.compiler.is_compiling():
            form = form_of(self.channels, self.taps, self.given, x.shape[2:])
        else:
            form, _ = known_form(self.channels, self.taps, self.given, tuple(x.shape[2:])) or (None, 0)
        assert form is not None
        images = gathered(x, form.blocks, x.dtype)
        return self._fused(x, images, residual, form.moved)
