"""What models of other people do around layers that are fused for inference: they compute what they did."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers.followed import FollowedConv2d
from tapestry.kernels.layers.fused import FusedConv2d
from tapestry.kernels.layers.stem import Stem
from tapestry.kernels.models.fusion import FusedSequential
from tapestry.kernels.torch import fuse_for_inference

from .test_fusion import IMAGES, seen

F32, BF16 = torch.float32, torch.bfloat16


class ConvNorm(nn.Module):
    """A grouped convolution, with what is computed around it."""

    def __init__(self, does: Callable[[ConvNorm, Tensor], Tensor], groups: int = 8) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=groups), nn.BatchNorm2d(8)
        self.does, self.row = does, nn.Parameter(torch.linspace(-2, 2, 8).view(1, 8, 1, 1))

    def once(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x))
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.does(self, x)


def padded(model: ConvNorm, x: Tensor) -> Tensor:
    made = torch.zeros(2, 8, 11, 12)
    made[:, :, 1:-1, 1:-1] = model.once(x)
    return made


def gathered(model: ConvNorm, x: Tensor) -> Tensor:
    total, y = torch.zeros(8, 9, 10), model.once(x)
    total += y[0]
    total += y[1]
    return total.view(8, 90)


SUMS: dict[str, Callable[[ConvNorm, Tensor], Tensor]] = {
    "a number": lambda model, x: torch.relu(model.once(x) + 0.5),
    "a size": lambda model, x: torch.relu(model.once(x) + x.size(0)),
    "a row": lambda model, x: torch.relu(model.once(x) + model.row),
    "a number of its own": lambda model, x: torch.relu(model.once(x) + model.row[0, 0, 0, 0]),
    "fewer dimensions": lambda model, x: torch.relu(model.once(x) + x[0]),
    "more images": lambda model, x: torch.relu(model.once(x[:1]) + x),
    "written by hand": padded,
    "gathered": gathered,
    "viewed": lambda model, x: torch.relu(model.once(x)).view(x.size(0), -1),
    "returned": lambda model, x: torch.relu(model.once(x)),
}  # fmt: skip


@pytest.mark.parametrize("groups", [8, 1])
@pytest.mark.parametrize("what", SUMS)
def test_what_is_around_a_layer(what: str, groups: int) -> None:
    """In f32, once and again, and compiled."""
    model = seen(ConvNorm(SUMS[what], groups))
    fused = fuse_for_inference(model, F32)
    for x in (IMAGES, -IMAGES, IMAGES):
        expected = model(x)
        made = fused(x)
        torch.testing.assert_close(made, expected)
        assert what != "returned" or made.is_contiguous()
        made += 1  # what the next call does not know of
    torch._dynamo.reset()
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES))
    torch._dynamo.reset()


@pytest.mark.parametrize("wide", [8, 160])
def test_a_summand_of_a_wider_type(wide: int) -> None:
    """As a stream of residuals is, that is kept in f32."""
    conv = nn.Conv2d(8, wide, 1, groups=8 if wide == 8 else 1)
    model = nn.Sequential(conv, nn.BatchNorm2d(wide)).eval()

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor, stream: Tensor) -> Tensor:
            return torch.relu(self.inner(x) + stream)

    fused = fuse_for_inference(Sum().eval())
    stream = torch.randn(2, wide, 9, 10)
    made = fused(IMAGES.to(BF16), stream)
    assert made.dtype is F32
    torch.testing.assert_close(made, torch.relu(model(IMAGES) + stream), rtol=2e-2, atol=2e-2)


class Names(nn.Module):
    """Which ours would have, too; one of a layer that is called twice, once for a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.fused_0, self.fused_proj = nn.Tanh(), nn.Conv2d(8, 160, 1)
        self.other, self.norm = nn.Conv2d(8, 160, 1), nn.BatchNorm2d(160)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.other(self.fused_0(x))) + self.fused_proj(x))
        out: Tensor = y + self.fused_proj(x + 1)
        return out


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_names_of_the_models_own(dtype: torch.dtype) -> None:
    model = seen(Names())
    made, near = fuse_for_inference(model, dtype), 1e-5 if dtype is F32 else 5e-2
    torch.testing.assert_close(made(IMAGES.to(dtype)).float(), model(IMAGES), rtol=near, atol=near)


class Volumes(nn.Module):
    """A gate of means over two of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Conv3d(8, 8, 1), nn.Conv3d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))


def test_means_over_some_dimensions() -> None:
    model, x = nn.Sequential(Volumes(), nn.Conv3d(8, 4, 1)).eval(), torch.randn(2, 8, 3, 4, 5)
    torch.testing.assert_close(fuse_for_inference(model, F32)(x), model(x))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_images_without_a_batch(dtype: torch.dtype) -> None:
    """Of a first layer, a grouped and a dense one, with a sum."""

    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.grouped = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.dense = nn.Conv2d(16, 160, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.first(x))
            return torch.relu(self.dense(torch.relu(self.grouped(y) + y)))

    model, x, near = Some().eval(), torch.randn(3, 12, 14), 1e-5 if dtype is F32 else 5e-2
    fused = fuse_for_inference(model, dtype)
    kinds = {type(part) for part in fused.modules()}
    assert kinds >= ({Stem, FusedConv2d, FollowedConv2d} if dtype is BF16 else {FusedConv2d})
    torch.testing.assert_close(fused(x.to(dtype)).float(), model(x), rtol=near, atol=near)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("groups", [8, 1])
def test_gradients_of_images_under_transforms_and_compiled(groups: int) -> None:
    model = nn.Sequential(nn.Conv2d(8, 160, 3, padding=1, groups=groups), nn.BatchNorm2d(160), nn.ReLU())
    seen(model)
    fused = fuse_for_inference(model, F32)

    def slope(of: nn.Module) -> Callable[[Tensor], Tensor]:
        return torch.func.vmap(torch.func.grad(lambda x: of(x[None]).square().sum()))

    near = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(slope(fused)(IMAGES), slope(model)(IMAGES), **near)
    torch._dynamo.reset()
    x, found = IMAGES.clone().requires_grad_(), []
    for one in (model, torch.compile(fused, backend="aot_eager")):
        found.append(torch.autograd.grad((one(x) + 2 * x.mean()).square().sum(), x)[0])
    torch.testing.assert_close(*found, **near)
    torch._dynamo.reset()


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_compiled_under_autocast(activation: Callable[[], nn.Module]) -> None:
    """Of a model in f32, whose convolutions autocast lowers."""
    model = seen(nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 160, 1), nn.BatchNorm2d(160), activation()))
    fused = fuse_for_inference(model, F32)
    fused.fused_layer = FollowedConv2d(torch.randn(16, 160, 1, 1), torch.randn(16), "relu", nn.Conv2d(160, 16, 1))
    whole = nn.Sequential(fused, fused.fused_layer)
    torch._dynamo.reset()
    with torch.no_grad(), torch.autocast("cpu", BF16):
        expected, made = whole(IMAGES), torch.compile(whole, backend="aot_eager", fullgraph=True)(IMAGES)
    torch._dynamo.reset()
    assert made.dtype is expected.dtype is BF16
    torch.testing.assert_close(made, expected, rtol=5e-2, atol=5e-1)


class Layers(nn.Sequential):
    """A sequence of a class of its own."""

    extra = 3


class Goes(nn.Module):
    """Through layers one by one, in one of several ways, after a control flow that no trace can tell."""

    def __init__(self, how: str) -> None:
        super().__init__()
        layers = [nn.Conv2d(8, 160, 1), nn.BatchNorm2d(160), nn.ReLU(), nn.Conv2d(160, 8, 1)]
        self.layers, self.how = Layers(*layers) if how == "own" else nn.Sequential(*layers), how

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            return x
        return self._through(x)

    def _through(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.layers[-1](self.layers[:3](self.layers(x)))
        return out


class Asks(Goes):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            return x
        for layer in self.layers.children():
            x = layer(x)
        return x


@pytest.mark.parametrize(("kind", "how"), [(Goes, "own"), (Goes, "torch's"), (Asks, "own"), (Asks, "torch's")])
def test_layers_that_are_gone_through(kind: type[Goes], how: str) -> None:
    model = seen(nn.Sequential(kind(how), nn.Sequential(nn.Conv2d(8, 160, 1), nn.ReLU())))
    fused = fuse_for_inference(model)
    layers: Any = fused[0].layers
    assert isinstance(layers, FusedSequential) == (kind is Goes)
    for made in (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert isinstance(made[0].layers, Layers) == (how == "own")
        torch.testing.assert_close(made(IMAGES.to(BF16)).float(), model(IMAGES), rtol=0.1, atol=0.1)


def test_replicas_compute_with_their_own() -> None:
    """As nn.DataParallel makes them, of parts that have graphs."""
    model = seen(nn.Sequential(Goes("torch's"), nn.Identity()))
    part = fuse_for_inference(model)[0].layers
    replica = part._replicate_for_data_parallel()
    assert vars(replica)["forward"].part is replica


def test_hooks_on_parts_are_given_values() -> None:
    found: list[Any] = []
    model = seen(nn.Sequential(nn.Sequential(nn.Conv2d(8, 160, 1), nn.ReLU()), nn.Conv2d(160, 160, 1), nn.ReLU()))
    model[0].register_forward_hook(lambda part, given, made: found.append(made))
    fused = fuse_for_inference(model, F32)
    assert found == []
    expected = model(IMAGES)
    torch.testing.assert_close(fused(IMAGES), expected)
    assert [type(one) for one in found] == [Tensor, Tensor]


class Defaults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor, steps: Any = (1, 2)) -> Tensor:
        out: Tensor = self.conv(x) * sum(steps)
        return out


def test_defaults_that_no_graph_has_are_refused() -> None:
    with pytest.raises(WrongValue, match="cannot trace"):
        fuse_for_inference(Defaults())


def test_a_graph_that_is_traced_again() -> None:
    model = seen(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 160, 1), nn.ReLU()))
    fused = fuse_for_inference(model, F32)
    again = fx.symbolic_trace(fused)
    torch.testing.assert_close(again(IMAGES), functional.relu(model(IMAGES)))
