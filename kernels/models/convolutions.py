"""Which convolutions a model makes of an example input: found without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_leaves, tree_map_only

from ..convolution.pixels import PixelKind
from ..convolution.problem import BadConvolution, ConvolutionProblem
from ..convolution.recipes import PASSES, Pass
from ..errors import WrongValue
from ..layers.large_filters import FEWEST, is_large, large_for
from ..layers.large_filters import problem_of as large_problem
from ..layers.stem import in_blocks
from ..layers.timm import moved
from ..tensors.convolution_calls import DTYPES, left_on
from ..tensors.pixel_blocks import FLOATS, kinds_of
from ..tensors.stem_calls import form_of, problem_of
from .kept import unchanged

if TYPE_CHECKING:
    from ..cost.gpu import Gpu


class Met(NamedTuple):
    """A convolution that a layer of a model is called for, and what makes the blocks of pixels that it is one of."""

    name: str
    layer: nn.Conv2d
    problem: ConvolutionProblem
    kinds: tuple[PixelKind, ...] = ()

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Those that may be called: images have no gradient where their blocks are computed with."""
        return ("forward", "weight_gradient") if self.kinds else PASSES

    def left(self, gpu: Gpu) -> tuple[Pass, ...]:
        """Passes that cuDNN makes on a GPU. Without its forward pass a layer over blocks is torch's as a whole."""
        found = tuple(what for what in self.passes if left_on(self.problem, what, gpu))
        return self.passes if self.kinds and "forward" in found else found


def convolutions(model: nn.Module, example: Any, kind: type[nn.Conv2d] = nn.Conv2d) -> list[Met]:
    """The convolutions that the layers of `kind` make when `model` is called with `example`, in order.

    `example` is a tensor, or a tuple of positional arguments. What autocast, where it is on, lowers an input to is what
    counts; layers the kernels do not compute, by their type or shape, are left out. The model stays as it is. Raises
    `WrongValue` for an example that the model does not take.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    first = next((given for given in tree_iter(arguments) if isinstance(given, Tensor)), None)
    found: list[Met] = []

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(layer: nn.Module, given: tuple[Any, ...]) -> None:
            assert isinstance(layer, nn.Conv2d)
            met = _met(name, layer, given[0], given[0].device.type if first is None else first.device.type)
            if met is not None:
                found.append(met)

        return hook

    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}
    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad(), _evaluating(model):
            try:
                with unchanged(model):
                    _call_without_memory(model, arguments)
            except Exception:  # whatever the model says of tensors that are nowhere
                found.clear()
                with unchanged(model):
                    _call_without_computing(model, arguments)
    except Exception as error:
        raise WrongValue(
            "a model cannot be called with its example", where=type(model).__name__, expected="what its forward takes",
            came=", ".join(map(_said, tree_leaves(arguments))), hint=f"torch says: {str(error).splitlines()[0]:.300}",
        ) from error  # fmt: skip
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _said(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.40}"


def _call_without_memory(model: nn.Module, arguments: Sequence[Any]) -> None:
    """On the device "meta", in a tenth of the time that fake tensors take; not for models that ask where they are."""
    state = {name: value.to("meta") for name, value in (*model.named_parameters(), *model.named_buffers())}
    torch.func.functional_call(model, state, tree_map_only(Tensor, lambda given: given.to("meta"), tuple(arguments)))


def _call_without_computing(model: nn.Module, arguments: Sequence[Any]) -> None:
    """On fake tensors, which know a device, and a type under autocast."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        model(*tree_map_only(Tensor, mode.from_tensor, tuple(arguments)))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation, so that no batch norm counts what is not computed.

    Its flags alone: what else a layer does when it is told, as to merge its weights, is not undone by telling it again.
    """
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _met(name: str, layer: nn.Conv2d, x: Tensor, device: str) -> Met | None:
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    if dtype not in DTYPES or layer.padding_mode != "zeros":
        return None
    shape = tuple(x.shape) if x.dim() == 4 else (1, *x.shape)
    n, c, h, w = shape
    try:
        made, (r, s) = moved(layer, (h, w)), layer.kernel_size
        if in_blocks(layer):
            form = form_of(c, (r, s), made, (h, w))
            if form is None or x.dim() != 4 or not {x.dtype, layer.weight.dtype} <= FLOATS:
                return None
            kinds = kinds_of(x.dtype, layer.weight.dtype, form.blocks, dtype)
            return Met(name, layer, problem_of(form, shape, layer.out_channels, dtype), kinds)
        if is_large(layer):
            large = large_for((r, s), made.padding)
            there = x.dim() == 4 and x.numel() >= FEWEST and large.fits
            return Met(name, layer, large_problem(large, shape, dtype)) if there else None
        problem = ConvolutionProblem(
            n, h, w, c, layer.groups, r, s, made.stride, made.dilation, made.padding, DTYPES[dtype],
            channels_out=layer.out_channels,
        )  # fmt: skip
        return Met(name, layer, problem)
    except BadConvolution:
        return None
