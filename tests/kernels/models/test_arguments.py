"""What is no model, no example or no type is refused by its name before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapestry.kernels.torch as tk
from tapestry.errors import TapestryError
from tapestry.kernels.errors import WrongDtype, WrongType, WrongValue
from tapestry.kernels.warm_up import warm_up

OF_MODELS = (
    tk.fuse_for_training, tk.replace_convolutions, tk.fuse_norms, tk.fuse_excitations, tk.fuse_layer_scales,
    tk.fuse_biases, tk.fuse_resampling, tk.fuse_for_inference,
)  # fmt: skip
WITH_EXAMPLES = (tk.fuse_for_training, tk.replace_convolutions, tk.tune, warm_up)


def grouped() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8))


@pytest.mark.parametrize("function", OF_MODELS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("given", [3, None, "model", nn.ReLU, torch.zeros(2)], ids=repr)
def test_no_model(function: Callable[..., Any], given: Any) -> None:
    with pytest.raises(WrongType, match=rf"{function.__name__}: not a model\n[\s\S]*torch.nn.Module") as refused:
        function(given)
    assert isinstance(refused.value, TapestryError)
    assert ("make one first" in str(refused.value)) is (given is nn.ReLU)


@pytest.mark.parametrize("function", WITH_EXAMPLES, ids=lambda function: function.__name__)
def test_no_example(function: Callable[..., Any]) -> None:
    model = grouped()
    with pytest.raises(WrongType, match=r"no tensor in the example[\s\S]*'images'"):
        function(model, "images")
    assert [type(layer) for layer in model] == [nn.Conv2d, nn.BatchNorm2d]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64, "bf16", None], ids=repr)
def test_no_type_of_models(dtype: Any) -> None:
    with pytest.raises(WrongDtype, match=r"fuse_for_inference[\s\S]*torch.bfloat16"):
        tk.fuse_for_inference(grouped(), dtype)


@pytest.mark.parametrize("function", [tk.fuse_for_training, tk.replace_convolutions])
def test_an_example_that_the_model_does_not_take(function: Callable[..., Any]) -> None:
    """Both sides are said, and what torch says; nothing has been swapped."""
    model = grouped()
    with pytest.raises(WrongValue, match=r"cannot be called[\s\S]*float32 \(2, 3, 9, 9\)[\s\S]*8 channels"):
        function(model, torch.zeros(2, 3, 9, 9))
    assert [type(layer) for layer in model] == [nn.Conv2d, nn.BatchNorm2d]  # type: ignore[attr-defined]


def test_an_example_among_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = grouped()

        def forward(self, x: Tensor, scale: float) -> Tensor:
            y: Tensor = self.layers(x) * scale
            return y

    assert tk.replace_convolutions(Two(), (torch.zeros(2, 8, 9, 9), 2.0)).taken == ("layers.0",)
