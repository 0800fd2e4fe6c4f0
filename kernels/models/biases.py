"""A swap of a model's layers with biases for those whose gradients kernels sum, and of the gelus behind them."""

from __future__ import annotations

from torch import nn

from ..layers.activations import activation_name
from ..layers.biases import BIASED, BiasedConv2d, BiasedLinear
from ..layers.gelu import SummedGELU
from ..layers.grouped import GroupedConv2d
from ..layers.inherited import inherit, like
from ..layers.timm import kind_of
from .arguments import check_model
from .hooks import swapped


def fuse_biases(model: nn.Module) -> list[str]:
    """Have kernels sum the gradients of biases in `model`, in place: the names of the layers whose biases those are.

    Taken are nn.Linear, nn.Conv2d and timm's ScaledStdConv2d, not what else is derived from them, that have a bias and
    nothing that hangs on them; and exact gelus, which may stand behind them (`layers/gelu`) and are not named.
    Parameters are shared with the old layers and keep their names. What is no plain CUDA tensor torch sums, and so it
    does under torch.compile.

    Raises `WrongType` for what is no model.
    """
    check_model(model, "fuse_biases")
    return [name for name, made in swapped(model, _made).items() if not isinstance(made, SummedGELU)]


def _made(layer: nn.Module) -> nn.Module | None:
    """What takes its place; None where it stays."""
    kind = _kind(layer)
    if kind is None:
        return _summed(layer)
    return None if layer.bias is None else like(layer, kind)


def _kind(layer: nn.Module) -> type[nn.Module] | None:
    if type(layer) is nn.Linear:
        return BiasedLinear
    if not isinstance(layer, nn.Conv2d) or isinstance(layer, (GroupedConv2d, BiasedConv2d)):  # which have it anyway
        return None
    kind = kind_of(layer)
    return None if kind is None else BIASED.get(kind)


def _summed(layer: nn.Module) -> SummedGELU | None:
    """The same of torch's or timm's gelu; None of other layers."""
    if isinstance(layer, SummedGELU) or activation_name(layer) != "gelu":
        return None
    return inherit(SummedGELU().train(layer.training), layer)
