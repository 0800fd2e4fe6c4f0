"""Which convolutions a model makes of an example input: found without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map_only

from .convolution.problem import BadConvolution, ConvolutionProblem
from .torch_timm import moved

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}


class Met(NamedTuple):
    """A convolution that a layer of a model is called for."""

    name: str
    layer: nn.Conv2d
    problem: ConvolutionProblem


def convolutions(model: nn.Module, example: Any, kind: type[nn.Conv2d] = nn.Conv2d) -> list[Met]:
    """The grouped convolutions that the layers of `kind` make when `model` is called with `example`, in order.

    `example` is a tensor, or a tuple of positional arguments. What autocast, where it is on, lowers an input to is what
    counts; layers the kernels do not compute, by their type or shape, are left out. The model stays as it is.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    first = next((given for given in tree_iter(arguments) if isinstance(given, Tensor)), None)
    found: list[Met] = []

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(layer: nn.Module, given: tuple[Any, ...]) -> None:
            assert isinstance(layer, nn.Conv2d)
            problem = _problem(layer, given[0], given[0].device.type if first is None else first.device.type)
            if problem is not None:
                found.append(Met(name, layer, problem))

        return hook

    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, kind)}
    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    try:
        with torch.no_grad(), _evaluating(model):
            try:
                _call_without_memory(model, arguments)
            except Exception:  # whatever the model says of tensors that are nowhere
                found.clear()
                _call_without_computing(model, arguments)
    finally:
        for hook in hooks:
            hook.remove()
    return found


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
    """A model in evaluation, so that no batch norm counts what is not computed."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _problem(layer: nn.Conv2d, x: Tensor, device: str) -> ConvolutionProblem | None:
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    dense = layer.groups == 1 and layer.in_channels != layer.out_channels
    if dtype not in DTYPES or layer.padding_mode != "zeros" or dense:
        return None
    n, c, h, w = x.shape if x.dim() == 4 else (1, *x.shape)
    try:
        made, (r, s) = moved(layer, (h, w)), layer.kernel_size
        return ConvolutionProblem(
            n, h, w, c, layer.groups, r, s, made.stride, made.dilation, made.padding, DTYPES[dtype],
            channels_out=layer.out_channels,
        )  # fmt: skip
    except BadConvolution:
        return None
