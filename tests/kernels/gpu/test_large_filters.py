"""Depthwise layers with large filters on a GPU, over blocks of pixels: as near to f32 as cuDNN is."""

import copy

import pytest
import torch
from torch import nn

from tapestry.kernels.layers.large_filters import LargeFilters
from tapestry.kernels.torch import replace_convolutions
from tapestry.kernels.warm_up import warm_up

from .test_first_layers import close, exact_reference, results

pytestmark = [pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
__all__ = ["exact_reference"]  # a fixture that is used by itself
LAYERS = {  # images, channels, extents, filter
    "9 x 9 on 8 x 8": (64, 304, (8, 8), (9, 9)),
    "9 x 9, odd extents": (32, 64, (29, 31), (9, 9)),
    "11 x 11": (32, 48, (28, 28), (11, 11)),
    "8 x 12": (32, 48, (28, 28), (8, 12)),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_layer_and_its_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n, channels, extents, size = LAYERS[name]
    torch.manual_seed(len(name))
    layer = nn.Conv2d(channels, channels, size, padding=(size[0] // 2, size[1] // 2), groups=channels).cuda()
    layer = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = nn.Sequential(copy.deepcopy(layer))
    assert replace_convolutions(model).taken == ("0",)
    images = torch.randn(n, channels, *extents, device="cuda").contiguous(memory_format=torch.channels_last)
    exact, theirs = (results(layer, images, autocast, learns=True) for autocast in (False, True))
    monkeypatch.setattr(LargeFilters, "_conv_forward", None)  # torch's own is not asked
    with torch.autocast("cuda", torch.bfloat16):
        assert warm_up(model, images)
    made = [results(model, images, True, learns=True) for _ in range(2)]
    close(made[0], exact, theirs)
    assert all(torch.equal(first, again) for first, again in zip(*made, strict=True))
