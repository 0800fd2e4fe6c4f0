"""Gradients of biases by kernels on a GPU, against sums in f64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.tensors import channel_sums as sums
from tapestry.kernels.tensors import native_calls
from tapestry.kernels.tensors.channel_sums import channel_sums
from tapestry.kernels.torch import fuse_biases, replace_convolutions

from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [
    (64, 96, 56, 56), (64, 768, 7, 7), (128, 40, 56, 56), (1, 8, 7, 7), (2, 17, 9, 11), (3, 1000, 1, 1),
    (1, 4, 224, 224), (16, 2048, 7, 7),
]  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 1) -> Tensor:
    random = torch.Generator("cuda").manual_seed(seed)
    made = torch.randn(shape, generator=random, device="cuda") + torch.rand((1, shape[1], 1, 1), device="cuda")
    return made.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = drawn(shape, dtype)
    found = channel_sums(x, torch.float32)
    exact, size = x.double().sum((0, 2, 3)), x.double().abs().sum((0, 2, 3))
    assert bool(((found.double() - exact).abs() <= 1e-6 * size).all())
    assert torch.equal(channel_sums(x, torch.float32), found)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(96, 96, 7, padding=3, groups=96), nn.Conv2d(64, 64, 3, padding=1, groups=8),
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.Conv2d(64, 64, 9, padding=4, groups=64),
    ],
    ids=["depthwise", "grouped", "first", "large"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers(layer: nn.Conv2d, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(copy.deepcopy(layer)).cuda().to(dtype)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    replace_convolutions(model)
    x = drawn((16, layer.in_channels, 64, 64))
    if layer.in_channels > 3:
        x.requires_grad_()
    asked = []

    def noted(of: Tensor, dtype: torch.dtype, last: bool = False) -> Tensor:
        asked.append(of.shape)
        return channel_sums(of, dtype, last)

    monkeypatch.setattr(sums, "channel_sums", noted)
    sums.forget()
    for _ in range(3):  # the last ones by the extension, if it is there
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype is torch.float32):
            y = model(x)
        dy = drawn(tuple(y.shape), seed=2)
        bias = model[0].bias
        assert isinstance(bias, Tensor)
        (found,) = torch.autograd.grad(y, [bias], dy)
        assert found.dtype is dtype
        exact, size = dy.double().sum((0, 2, 3)), dy.double().abs().sum((0, 2, 3))
        rounded = 0 if dtype is torch.float32 else 2.0**-8 * exact.abs()
        assert bool(((found.double() - exact).abs() <= 1e-6 * size + rounded).all())
    assert asked


# Torch's own products say so where they are the first that a thread of autograd does.
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(96, 384), (8, 28, 28, 96)), (nn.Linear(768, 16), (50, 768)), (nn.Linear(64, 8), (64,)),
        (nn.Conv2d(96, 192, 2, 2), (8, 96, 28, 28)), (nn.Conv2d(96, 4, 1), (64, 96, 1, 1)),
        (nn.Conv2d(96, 384, 1), (8, 96, 28, 28)), (nn.Conv2d(40, 195, 1), (8, 40, 14, 14)),
    ],
    ids=["linear", "short rows", "one row", "patches", "gate", "one tap", "odd channels"],
)  # fmt: skip
def test_layers_that_torch_computes(
    layer: nn.Module, shape: tuple[int, ...], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own gradients have the bits that torch gives, but where a layer is a product, whose matrix has an f32
    gradient; those of biases are sums in f32.
    """
    if native_calls.wait() != "ready" and native:  # what came while it is set aside would be taken away with it
        pytest.skip(native_calls.state())
    if not native:
        for name in ("linked", "biased_linear", "biased_convolution"):
            monkeypatch.setattr(native_calls, name, None)
    theirs = nn.Sequential(layer).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ours = copy.deepcopy(theirs)
    assert fuse_biases(ours) == ["0"]
    x = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    if isinstance(layer, nn.Conv2d):
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    product = layer.kernel_size == (1, 1) if isinstance(layer, nn.Conv2d) else len(shape) > 1
    for _ in range(2):
        found = []
        for model in (theirs, ours):
            with torch.autocast("cuda", torch.bfloat16):
                y = model(x)
            dy = torch.randn(y.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(2)).to(y)
            if y.dim() == 4:
                dy = torch.empty_like(y).copy_(dy)
            found.append([y, *torch.autograd.grad(y, [x, *model.parameters()], dy)])
        for one, other in zip(found[0][:3], found[1][:3], strict=True):
            if product:
                assert float((one - other).detach().float().norm()) <= 5e-3 * float(one.detach().float().norm())
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
            else:
                assert torch.equal(one, other)
        if product:
            last = 1 if isinstance(layer, nn.Conv2d) else -1
            slopes, rows = (one.detach().double().movedim(last, -1).flatten(0, -2) for one in (dy, x.bfloat16()))
            exact = (slopes.T @ rows).view_as(found[1][2])
            assert float((found[1][2] - exact).norm()) <= 1e-5 * float(exact.norm())
        over = (0, 2, 3) if isinstance(layer, nn.Conv2d) else tuple(range(dy.dim() - 1))
        exact, size = (one.sum(over) if over else one for one in (dy.double(), dy.double().abs()))
        assert found[1][3].dtype is torch.float32
        assert bool(((found[1][3].double() - exact).abs() <= 1e-6 * size).all())
        assert y.grad_fn is not None
        assert ("Product" if product else "Linked") in y.grad_fn.name()


def test_in_a_graph_and_again() -> None:
    x = drawn((64, 96, 28, 28))
    once = channel_sums(x, torch.float32)
    graph, made = captured(lambda: channel_sums(x, torch.float32))
    for _ in range(2):
        made.zero_()
        graph.replay()
        assert torch.equal(made, once)
