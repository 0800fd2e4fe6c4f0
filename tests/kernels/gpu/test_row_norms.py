"""Layer norms and global response norms by kernels on a GPU, against the definitions in f64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.layer_norms import FusedLayerNorm
from tapestry.kernels.layers.response_norms import FusedResponseNorm
from tapestry.kernels.torch import fuse_norms

from .closeness import UNITS, close
from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(64, 56, 56, 96), (128, 3136, 40), (5000, 192), (64, 14, 14, 384), (64, 7, 7, 768), (3, 5, 1000), (77, 17)]


def layer(channels: int, **settings: bool) -> FusedLayerNorm:
    norm = nn.LayerNorm(channels, device="cuda", eps=1e-6)
    nn.init.uniform_(norm.weight, -1, 2)
    nn.init.uniform_(norm.bias, -1, 1)
    return FusedLayerNorm(norm, **settings)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> Tensor:
    random = torch.Generator("cuda").manual_seed(seed)
    x = 2 * torch.randn(shape, generator=random, device="cuda")
    return (x + 4 * torch.randn((*shape[:-1], 1), generator=random, device="cuda")).to(dtype)


@pytest.mark.parametrize("autocast", [None, False, True], ids=["as it is", "autocast", "autocast, read lowered"])
@pytest.mark.parametrize("dtype", list(UNITS), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("own", [False, True], ids=["parameters of f32", "of the type of rows"])
def test_values_and_gradients(shape: tuple[int, ...], dtype: torch.dtype, autocast: bool | None, own: bool) -> None:
    if own and dtype is torch.float32:
        pytest.skip("as parameters of f32")
    ours, x = layer(shape[-1], read_lowered=bool(autocast)), drawn(shape, dtype).requires_grad_()
    ours = ours.to(dtype if own else torch.float32)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast is not None):
        y = ours(x)
    assert "Recorded" in y.grad_fn.name()
    assert y.dtype is (dtype if autocast is None else torch.bfloat16 if autocast else torch.float32)
    wide = [t.detach().double().requires_grad_() for t in (x, ours.weight, ours.bias)]
    expected = nn.functional.layer_norm(wide[0], shape[-1:], *wide[1:], eps=ours.eps)
    dy = drawn(shape, y.dtype, 3)
    found = torch.autograd.grad(y, [x, ours.weight, ours.bias], dy)
    close(y, expected, UNITS[y.dtype])
    for one, other in zip(found, torch.autograd.grad(expected, wide, dy.double()), strict=True):
        close(one, other, UNITS[one.dtype])


def test_channels_first_and_gradients_that_are_not_dense() -> None:
    ours = layer(24, first=True)
    x = drawn((4, 9, 11, 24), torch.bfloat16).permute(0, 3, 1, 2).requires_grad_()
    wide = x.detach().double().requires_grad_()
    y, dy = ours(x), drawn((4, 24, 9, 11), torch.bfloat16, 3)
    expected = nn.functional.layer_norm(
        wide.permute(0, 2, 3, 1), (24,), ours.weight.double(), ours.bias.double(), ours.eps
    ).permute(0, 3, 1, 2)
    assert y.stride() == x.stride()
    close(y, expected, UNITS[y.dtype])
    close(*(torch.autograd.grad(a, b, dy.to(a.dtype))[0] for a, b in ((y, x), (expected, wide))), UNITS[y.dtype])


def test_in_a_graph_and_again() -> None:
    ours, x = layer(192), drawn((64, 28, 28, 192), torch.bfloat16).requires_grad_()

    def step() -> Tensor:
        y = ours(x)
        return torch.cat([t.flatten() for t in torch.autograd.grad(y, [x, ours.weight, ours.bias], y.detach())])

    once = step()
    graph, made = captured(step)
    graph.replay()
    torch.testing.assert_close(made, once, rtol=0, atol=0)
    assert torch.equal(step(), once)


def response(norm: nn.Module, x: Tensor) -> Tensor:
    """The definition, of [n, c, h, w]."""
    weight, bias = norm.weight.double(), norm.bias.double()
    g = x.norm(p=2, dim=(2, 3), keepdim=True)
    normal = x * (g / (g.mean(1, keepdim=True) + norm.eps))
    return x + bias[:, None, None] + weight[:, None, None] * normal


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(128, 160, 56, 56), (64, 1280, 7, 7), (70, 17, 9, 5), (8, 160, 56, 56)], ids=str)
@pytest.mark.parametrize("first", [True, False], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("own", [False, True], ids=["parameters of f32", "of the type of images"])
def test_response_norms(first: bool, shape: tuple[int, ...], dtype: torch.dtype, own: bool) -> None:
    norm = pytest.importorskip("timm.layers.grn").GlobalResponseNorm(shape[1], channels_last=not first).cuda()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm = norm.to(dtype if own else torch.float32)
    ours = FusedResponseNorm(norm)
    n, c, h, w = shape
    x, dy = (drawn((n, h, w, c), dtype, seed) for seed in (1, 3))
    x, dy = (t.permute(0, 3, 1, 2) if first else t for t in (x, dy))
    y = ours(x.requires_grad_())
    assert any("Recorded" in node.name() for node in (y.grad_fn, y.grad_fn.next_functions[0][0]))
    wide = x.detach().double().requires_grad_()
    expected = response(norm, wide if first else wide.permute(0, 3, 1, 2))
    expected = expected if first else expected.permute(0, 2, 3, 1)
    close(y, expected, UNITS[dtype])
    found = torch.autograd.grad(y, [x, norm.weight, norm.bias], dy)
    exact = torch.autograd.grad(expected, [wide, norm.weight, norm.bias], dy.double())
    for one, other in zip(found, exact, strict=True):
        close(one, other.double(), UNITS[one.dtype] if one.dtype is dtype else 1e-4)


class Block(nn.Module):
    """As ConvNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm(96), nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(self.act(self.up(self.norm(x))))
        return out


def test_a_model_trains_as_before() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(3))).cuda()
    ours = copy.deepcopy(model)
    assert len(fuse_norms(ours).taken) == 3
    x = drawn((64, 49, 96), torch.float32)
    gradients = []
    for one, enabled in ((model, False), (model, True), (ours, True)):
        with torch.autocast("cuda", torch.bfloat16, enabled=enabled):
            loss = one(x).square().mean()
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(one.parameters()))]))
    exact, theirs, mine = gradients
    assert float((mine - exact).norm()) <= 1.1 * float((theirs - exact).norm())
