"""Layers of one group on a GPU: first ones of few channels, over blocks of pixels, and dense ones. Beside f32."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.stem import OverBlocks, Stem
from tapestry.kernels.torch import GroupedConv2d, fuse_for_inference, replace_convolutions
from tapestry.kernels.warm_up import warm_up

from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FIRST = {  # channels, out, filter, stride, padding, extents
    "3 x 3, stride 2": (3, 32, 3, 2, 1, (64, 64)),
    "3 x 3, stride 2, odd extents": (3, 16, 3, 2, 1, (33, 51)),
    "7 x 7, stride 2": (3, 64, 7, 2, 3, (64, 64)),
    "4 x 4 patches": (3, 96, 4, 4, 0, (64, 48)),
    "4 x 4 patches, what is left": (3, 40, 4, 4, 0, (63, 50)),
    "7 x 7, stride 4": (3, 64, 7, 4, 2, (64, 64)),
    "3 x 3, stride 1": (3, 64, 3, 1, 1, (40, 40)),
    "one channel": (1, 32, 5, 1, 2, (28, 28)),
    "four channels, 2 x 2 patches": (4, 48, 2, 2, 0, (32, 32)),
    "six channels": (6, 48, 3, 2, 1, (40, 40)),
}
DENSE = {  # channels, out, filter, stride, extent
    "24": (24, 24, 3, 1, 28), "16 to 32": (16, 32, 3, 1, 28), "32 to 64, stride 2": (32, 64, 3, 2, 28),
    "64, 5 x 5": (64, 64, 5, 1, 14), "96": (96, 96, 3, 1, 14), "48 to 24": (48, 24, 3, 1, 28),
}  # fmt: skip


@pytest.fixture(autouse=True)
def exact_reference() -> Any:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def results(model: nn.Module, images: Tensor, autocast: bool, learns: bool = False) -> list[Tensor]:
    """The output, the gradients of parameters, and of the images where those learn."""
    model.zero_grad()
    x = images.clone(memory_format=torch.preserve_format).requires_grad_(learns)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        y = model(x)
    (y.float().square().mean() * 100).backward()
    found = [y, *(parameter.grad for parameter in model.parameters())] + [x.grad] * learns
    return [tensor.detach().float() for tensor in found]


def close(found: list[Tensor], exact: list[Tensor], theirs: list[Tensor] | None = None) -> None:
    """As near to what is exact as cuDNN in halves is, where it is given."""
    for number, (ours, wanted) in enumerate(zip(found, exact, strict=True)):
        allowed = 0.005 + (0.02 if theirs is None else 2 * error(theirs[number], wanted))
        assert error(ours, wanted) < allowed


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).abs().max() / exact.abs().max())


def replaced(layer: nn.Module) -> nn.Sequential:
    model = nn.Sequential(copy.deepcopy(layer))
    assert replace_convolutions(model).taken == ("0",)
    return model


@pytest.mark.parametrize("last", [True, False], ids=["channels last", "channels first"])
@pytest.mark.parametrize("name", list(FIRST))
def test_a_first_layer_and_its_gradients(name: str, last: bool) -> None:
    channels, out, size, stride, padding, extents = FIRST[name]
    torch.manual_seed(len(name))
    layer = nn.Conv2d(channels, out, size, stride, padding, bias=size == 4).cuda()
    model, images = replaced(layer), torch.randn(64, channels, *extents, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    assert isinstance(model[0], OverBlocks)
    made = [results(model, images, True) for _ in range(2)]  # twice: then it is known
    close(made[0], results(layer, images, False), results(layer, images, True))
    assert all(torch.equal(first, again) for first, again in zip(*made, strict=True))
    exact, theirs = (results(layer, images, autocast, learns=True) for autocast in (False, True))
    close(results(model, images, True, learns=True), exact, theirs)
    half, halves, x = copy.deepcopy(model).bfloat16(), copy.deepcopy(layer).bfloat16(), images.bfloat16()
    close(results(half, x, False), results(copy.deepcopy(halves).float(), x.float(), False), results(halves, x, False))


def test_kernels_that_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = replaced(nn.Conv2d(3, 32, 3, 2, 1).cuda())
    x = torch.randn(64, 3, 64, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert {made.entry for made in warm_up(model, x)} >= {"pixel_blocks"}
        expected = model(x)
        monkeypatch.setattr(OverBlocks, "_conv_forward", None)  # torch's own is not asked
        torch.testing.assert_close(model(x), expected)


def test_a_first_layer_in_a_cuda_graph() -> None:
    model = replaced(nn.Conv2d(3, 32, 3, 2, 1).cuda())
    x = torch.randn(64, 3, 64, 64, device="cuda")

    def step() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).float().square().mean()
        (gradient,) = torch.autograd.grad(loss, model[0].weight)
        return gradient

    expected = step()
    graph, found = captured(step)
    graph.replay()
    assert torch.equal(found, expected)


def test_derivatives_of_a_first_layers_gradient() -> None:
    layer = nn.Conv2d(3, 16, 3, 2, 1, bias=False).cuda().bfloat16()
    exact, x = copy.deepcopy(layer).float(), torch.randn(32, 3, 33, 30, device="cuda", dtype=torch.bfloat16)
    found = []
    for of, images in ((replaced(layer)[0], x), (exact, x.float())):
        (first,) = torch.autograd.grad(of(images).float().square().sum(), of.weight, create_graph=True)
        (second,) = torch.autograd.grad(first.float().square().sum().sqrt(), of.weight)
        found.append(second.float())
    assert float((found[0] - found[1]).abs().max() / found[1].abs().max()) < 0.05


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own
def test_compiled_without_graph_breaks() -> None:
    layer = nn.Conv2d(3, 32, 3, 2, 1).cuda()
    model, x = replaced(layer), torch.randn(32, 3, 32, 32, device="cuda")
    compiled = torch.compile(model, fullgraph=True)
    close(results(compiled, x, True), results(layer, x, False))


@pytest.mark.parametrize("name", list(DENSE))
def test_a_dense_layer_and_its_gradients(name: str) -> None:
    channels, out, size, stride, extent = DENSE[name]
    torch.manual_seed(len(name))
    layer = nn.Conv2d(channels, out, size, stride, size // 2).cuda()
    model, images = replaced(layer), torch.randn(32, channels, extent, extent, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    assert type(model[0]) is GroupedConv2d
    made = [results(model, images, True, learns=True) for _ in range(2)]
    close(made[0], results(layer, images, False, learns=True))
    assert all(torch.equal(first, again) for first, again in zip(*made, strict=True))


@pytest.mark.parametrize("name", list(FIRST))
def test_a_first_layer_and_what_follows_it(name: str) -> None:
    channels, out, size, stride, padding, extents = FIRST[name]
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Conv2d(channels, out, size, stride, padding), nn.BatchNorm2d(out), nn.ReLU())
    layers = layers.cuda().eval()
    x = torch.randn(32, channels, *extents, device="cuda").contiguous(memory_format=torch.channels_last)
    fused = fuse_for_inference(layers)
    assert [type(part) for part in fused.children()] == [Stem]
    with torch.no_grad():
        close([fused(x.bfloat16()).float()], [layers(x)])
