"""timm's own kinds of convolutions on a GPU: the kernels beside its layers in f32. Skipped where either is missing."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.models.tuning import tune
from tapestry.kernels.torch import fuse_for_inference, replace_convolutions
from tapestry.kernels.warm_up import warm_up

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
layers: Any = pytest.importorskip("timm.layers")

DEPTHWISE = {
    "3 x 3, stride 2": ("Conv2dSame", 96, 3, 2, 96, 28),
    "5 x 5, stride 2": ("Conv2dSame", 144, 5, 2, 144, 14),
    "5 x 5, odd extent": ("Conv2dSame", 64, 5, 2, 64, 13),
    "standardized": ("ScaledStdConv2d", 128, 3, 1, 2, 14),
    "standardized, stride 2": ("ScaledStdConv2dSame", 96, 3, 2, 6, 15),
}


@pytest.fixture(autouse=True)
def exact_reference() -> Any:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("name", list(DEPTHWISE))
def test_a_layer_and_its_gradients(name: str) -> None:
    kind, channels, size, stride, groups, extent = DEPTHWISE[name]
    torch.manual_seed(len(name))
    layer = getattr(layers, kind)(channels, channels, size, stride=stride, groups=groups).cuda()
    model, reference = nn.Sequential(copy.deepcopy(layer)), nn.Sequential(layer)
    assert replace_convolutions(model).taken == ("0",)
    images = torch.randn(32, channels, extent, extent, device="cuda").contiguous(memory_format=torch.channels_last)
    made = []
    for of, autocast in ((model, True), (reference, False), (model, True)):  # ours twice: then it is known
        x = images.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            y = of(x)
        (y.float().square().mean() * 100).backward()
        made.append((y, x.grad, *(parameter.grad.clone() for parameter in of.parameters())))
        of.zero_grad()
    for ours, exact, again in zip(*made, strict=True):
        ours, exact, again = (tensor.detach().float() for tensor in (ours, exact, again))
        scale = exact.abs().max()
        assert float((ours - exact).abs().max() / scale) < 0.02
        assert torch.equal(ours, again)


@pytest.mark.parametrize("name", ["tf_efficientnet_b0", "eca_nfnet_l0"])
def test_a_model(name: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(name).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(8, 3, 96, 96, device="cuda").contiguous(memory_format=torch.channels_last)
    ours = copy.deepcopy(model)
    assert replace_convolutions(ours).taken
    with torch.autocast("cuda", torch.bfloat16):
        assert len(warm_up(ours, x)) > 0
        assert not [row for row in tune(ours.eval(), x, cuts=2).passes if row.refused]
    model.eval()
    with torch.no_grad():
        exact = model(x)
        with torch.autocast("cuda", torch.bfloat16):
            theirs, found = model(x), ours(x)
        fused = fuse_for_inference(model)(x.bfloat16())
    for result in (found, fused):
        assert error(result, exact) < 3 * error(theirs, exact) + 0.005


def error(result: Tensor, exact: Tensor) -> float:
    return float((result.float() - exact).abs().max() / exact.abs().max())
