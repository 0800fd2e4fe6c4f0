"""What follows dense convolutions and linear layers in inference on a GPU, beside f64. Skipped where there is none."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.followed import FollowedConv2d, FollowedLinear, FollowedNorm
from tapestry.kernels.tensors import native_calls
from tapestry.kernels.tensors.excitations import excited
from tapestry.kernels.torch import fuse_for_inference
from tapestry.kernels.warm_up import warm_up

from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BF16, F16 = torch.bfloat16, torch.float16
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True), "silu": nn.SiLU, "gelu": nn.GELU, "hardswish": nn.Hardswish,
    "none": nn.Identity,
}  # fmt: skip


class Block(nn.Module):
    """A bottleneck as residual networks have it, of so many channels, with a squeeze-and-excitation in it."""

    def __init__(self, channels: int, wide: int, stride: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.one = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.second, self.two = nn.Conv2d(wide, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide)
        self.squeeze, self.expand = nn.Conv2d(wide, 16, 1), nn.Conv2d(16, wide, 1)
        self.third, self.three = nn.Conv2d(wide, 2 * channels, 1, bias=False), nn.BatchNorm2d(2 * channels)
        self.shortcut = nn.Conv2d(channels, 2 * channels, 1, stride, bias=False)
        self.four = nn.BatchNorm2d(2 * channels)
        self.act = activation()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.two(self.second(self.act(self.one(self.first(x))))))
        y = y * torch.sigmoid(self.expand(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        made: Tensor = self.act(self.three(self.third(y)) + self.four(self.shortcut(x)))
        return made


def seen(model: nn.Module) -> nn.Module:
    """With statistics and parameters as after training."""
    random = torch.Generator("cuda").manual_seed(3)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            lows = {"running_mean": -0.3, "running_var": 0.5, "weight": 0.5, "bias": -0.3}
            for values, low in ((getattr(part, what), low) for what, low in lows.items()):
                values.data.uniform_(low, low + 0.8, generator=random)
    return model


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda").to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


def close(found: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    error = (found.double() - exact).norm() / exact.norm()
    assert float(error) < (2e-2 if dtype is BF16 else 3e-3)


def agree(fused: nn.Module, model: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
    """Eager by Python and by the extension, and captured."""
    exact = copy.deepcopy(model).double()(x.double())
    with torch.no_grad():
        first = fused(x)
        close(first, exact, dtype)
        native_calls.wait()
        for _ in range(3):
            assert torch.equal(fused(x), first)
        graph, made = captured(lambda: fused(x))
        made.zero_()
        graph.replay()
        assert torch.equal(made, first)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_residual_blocks(name: str, stride: int, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    block = Block(136, 152, stride, ACTIVATIONS[name]).cuda()
    model = seen(nn.Sequential(block, nn.Conv2d(272, 40, 1).cuda())).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = fuse_for_inference(model, dtype)
    kinds = [part.activation for part in fused.modules() if isinstance(part, FollowedConv2d)]
    named = "" if name == "none" else name
    assert kinds.count(named) == (1 if name == "none" else 3 + (name == "relu"))
    assert len(fused.graph.find_nodes(op="call_function", target=excited)) == 1
    agree(fused, model, drawn((16, 136, 14, 13), dtype), dtype)


@pytest.mark.parametrize("shape", [(3, 136, 9, 7), (1, 136, 1, 1), (2, 136, 1, 5)], ids=str)
def test_other_extents(shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    model = seen(Block(136, 152, 1, nn.SiLU).cuda()).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = fuse_for_inference(model)
    x = drawn(shape, BF16)
    with torch.no_grad():
        close(fused(x), copy.deepcopy(model).double()(x.double()), BF16)
        close(fused(x.contiguous()), copy.deepcopy(model).double()(x.double()), BF16)
        assert fused(x[:0]).shape == (0, 272, *shape[2:])


class Rows(nn.Module):
    """A block of a transformer without its attention."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(192, 768), activation, nn.Linear(768, 192)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.down(self.act(self.up(x)))
        return made


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU(), nn.SiLU(), nn.GELU("tanh")], ids=str)
@pytest.mark.parametrize("shape", [(64, 197, 192), (7, 192), (2, 3, 5, 192)], ids=str)
def test_linear_layers(shape: tuple[int, ...], activation: nn.Module, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(Rows(activation)).cuda().eval()
    fused = fuse_for_inference(model, dtype)
    count = sum(isinstance(part, FollowedLinear) for part in fused.modules())
    assert count == 2 - (getattr(activation, "approximate", "none") != "none")
    agree(fused, model, drawn(shape, dtype), dtype)


class Dense(nn.Module):
    """Norms in front of convolutions, as dense networks have them, and one of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(136), nn.BatchNorm2d(168), nn.BatchNorm2d(168)])
        self.first, self.second = nn.Conv2d(136, 32, 3, padding=1), nn.Conv2d(168, 168, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([x, self.first(torch.relu(self.norms[0](x)))], 1)
        made: Tensor = nn.functional.silu(self.norms[2](self.second(torch.relu(self.norms[1](y))) * 2) + y)
        return made


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("shape", [(16, 136, 14, 13), (3, 136, 5, 1)], ids=str)
def test_norms_in_front(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    model = seen(Dense().cuda()).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = fuse_for_inference(model, dtype)
    assert [part.activation for part in fused.modules() if isinstance(part, FollowedNorm)] == ["relu", "relu", "silu"]
    agree(fused, model, drawn(shape, dtype), dtype)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("name", ["relu", "silu"])
def test_compiled(name: str) -> None:
    torch.manual_seed(2)
    model = seen(Block(136, 152, 2, ACTIVATIONS[name]).cuda()).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused = fuse_for_inference(nn.Sequential(model, nn.Conv2d(272, 40, 1).cuda()).eval())
    x = drawn((16, 136, 14, 13), BF16)
    with torch.no_grad():
        expected = fused(x)
        found = torch.compile(fused, fullgraph=True)(x)
    torch.testing.assert_close(found.float(), expected.float(), rtol=2e-2, atol=2e-2 * float(expected.abs().max()))


def test_all_kernels_are_there_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seen(Block(136, 152, 1, nn.SiLU).cuda()).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fused, x = fuse_for_inference(nn.Sequential(model, Flat())), drawn((16, 136, 14, 13), BF16)
    names = {recipe.name for recipe in warm_up(fused, x)}
    assert {"followed", "image_map"} <= names


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2)
