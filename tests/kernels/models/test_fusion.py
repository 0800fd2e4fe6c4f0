"""What follows a convolution, in one launch: models and compiled graphs. On CPU tensors torch does it in steps."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, fx, nn

from tapestry.kernels.convolution.problem import BadConvolution
from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers import followed
from tapestry.kernels.layers.followed import Constant, FollowedConv2d, FollowedLinear, FollowedNorm
from tapestry.kernels.layers.fused import FusedConv2d, Pointwise
from tapestry.kernels.layers.fused import _on_cuda as on_cuda
from tapestry.kernels.layers.fused import operator as fused_operator
from tapestry.kernels.layers.layer_norms import FusedLayerNorm
from tapestry.kernels.layers.pools import ChannelsLastMaxPool2d
from tapestry.kernels.layers.stem import Stem, in_blocks
from tapestry.kernels.layers.timm import moved
from tapestry.kernels.models import fusion
from tapestry.kernels.models.compiled import fuse_graph
from tapestry.kernels.models.fusion import PART
from tapestry.kernels.tensors import fused_calls
from tapestry.kernels.tensors.excitations import excited, squeezed
from tapestry.kernels.tensors.fused_calls import Following
from tapestry.kernels.tensors.geometry import Geometry
from tapestry.kernels.torch import fuse_compiled, fuse_for_inference, fuse_for_training, replace_convolutions


class NormAct(nn.BatchNorm2d):
    """As in libraries of models: a batch norm with an activation, which calls torch's function."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        torch._assert(x.ndim == 4, "images")
        y = nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1, self.eps
        )
        out: Tensor = self.act(self.drop(y))
        return out


class Block(nn.Module):
    """An inverted bottleneck: expand, depthwise, squeeze and excite, project, and a grouped layer with a residual."""

    def __init__(self, activation: Callable[[], nn.Module] = nn.Hardswish) -> None:
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(8, 16, 1, bias=False), NormAct(16)
        self.depthwise, self.norm2 = nn.Conv2d(16, 16, 3, 2, 1, groups=16, bias=False), NormAct(16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.grouped, self.norm3 = nn.Conv2d(16, 16, (3, 5), padding="same", groups=4), nn.BatchNorm2d(16)
        self.activation = activation()
        self.project, self.norm4 = nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.depthwise(self.norm1(self.expand(x))))
        y = y * torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        y = self.activation(self.norm3(self.grouped(y)) + y)
        out: Tensor = self.norm4(self.project(y))
        return out


def seen(model: nn.Module) -> nn.Module:
    """With statistics and parameters as after training."""
    random = torch.Generator().manual_seed(1)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            for values, low in (
                (part.running_mean, -1.0),
                (part.running_var, 0.5),
                (part.weight, 0.5),
                (part.bias, -1.0),
            ):
                assert values is not None
                values.data = torch.rand(values.shape, generator=random) + low
    return model.eval()


IMAGES = torch.randn(2, 8, 9, 10, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.Tanh])
def test_a_model_computes_what_it_did(activation: Callable[[], nn.Module]) -> None:
    model = seen(Block(activation))
    fused = fuse_for_inference(model, torch.float32)
    torch.testing.assert_close(fused(IMAGES), model(IMAGES))


def test_what_is_in_one_launch() -> None:
    model = seen(Block())
    fused = fuse_for_inference(model, torch.float32)
    launches = [part for part in fused.modules() if isinstance(part, FusedConv2d)]
    assert [part.activation for part in launches] == ["silu", "hardswish"]
    assert [part.scale is not None for part in launches] == [True, True]
    calls = {node.target: node for node in fused.graph.nodes if node.op == "call_module"}
    assert [len(calls[name].args) for name in calls if isinstance(fused.get_submodule(name), FusedConv2d)] == [1, 2]
    assert [part.activation for part in fused.modules() if isinstance(part, FollowedConv2d)] == ["silu"]
    assert sum(isinstance(part, Pointwise) for part in fused.modules()) == 1
    assert not any(isinstance(part, nn.BatchNorm2d) for part in fused.modules())


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_what_follows_a_dense_convolution(activation: Callable[[], nn.Module]) -> None:
    layers = seen(
        nn.Sequential(
            nn.Conv2d(8, 40, 1), nn.BatchNorm2d(40), activation(), nn.Conv2d(40, 16, 1, 2), nn.BatchNorm2d(16),
            activation(), nn.Conv2d(16, 40, 1), nn.BatchNorm2d(40), nn.Tanh(),
        )
    )  # fmt: skip
    fused = fuse_for_inference(layers, torch.float32)
    assert [type(part) for part in fused.modules() if type(part).__module__.startswith("tapestry.kernels")] == [
        FollowedConv2d, FollowedConv2d, Pointwise,
    ]  # fmt: skip
    torch.testing.assert_close(fused(IMAGES), layers(IMAGES))
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES), layers(IMAGES))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, None])
def test_biases_without_a_norm(activation: Callable[[], nn.Module] | None) -> None:
    """Of halves; f32's products would be exact where convolutions are TF32."""
    then = [activation()] if activation else []
    few, strided, plain = nn.Conv2d(8, 40, 3), nn.Conv2d(48, 40, 1, stride=2), nn.Conv2d(40, 48, 1, bias=False)
    model = nn.Sequential(few, nn.Conv2d(40, 48, 1), *then, strided, plain).eval()
    for dtype in (torch.bfloat16, torch.float32):
        fused = fuse_for_inference(model, dtype)
        made = [type(part) for part in fused.modules() if isinstance(part, (Pointwise, FollowedConv2d))]
        assert made == ([] if dtype is torch.float32 else [FollowedConv2d if activation else Pointwise])
        found, expected = fused(IMAGES.to(dtype)), model(IMAGES)
        assert found.dtype is dtype
        near = {"rtol": 3e-2, "atol": 3e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(found.float(), expected, **near)


class Residual(nn.Module):
    """A block as residual networks have it, with a shortcut that convolves, or without."""

    def __init__(self, shortcut: nn.Module, activation: nn.Module, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 16, 3, 2, 1, bias=False), norm(16)
        self.shortcut, self.act = shortcut, activation

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.act(self.norm(self.first(x)) + self.shortcut(x))
        return made


SHORTCUTS = {
    "strided": lambda: nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16), nn.Identity()),
    "pooled": lambda: nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)),
    "activated": lambda: nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16), nn.Hardswish()),
}


@pytest.mark.parametrize("kind", SHORTCUTS)
@pytest.mark.parametrize("activation", [nn.ReLU(inplace=True), nn.SiLU(), nn.Identity()], ids=str)
def test_a_residuals_bias_is_added_by_what_it_is_added_to(kind: str, activation: nn.Module) -> None:
    model, images = seen(Residual(SHORTCUTS[kind](), activation, nn.BatchNorm2d)), IMAGES[:, :, :8]
    fused = fuse_for_inference(model, torch.float32)
    made = [part for part in fused.modules() if isinstance(part, FollowedConv2d)]
    others = [part for part in fused.modules() if type(part) in (Pointwise, nn.Conv2d)]
    assert [part.bias for part in others] == ([] if kind == "activated" else [None])
    known = {nn.ReLU: "relu", nn.SiLU: "silu"}.get(type(activation), "")
    assert {part.activation for part in made} == ({known, "hardswish"} if kind == "activated" else {known})
    torch.testing.assert_close(fused(images), model(images))
    torch.testing.assert_close(pickle.loads(pickle.dumps(fused))(images), model(images))


class Itself(nn.Module):
    """What is convolved is added, and nobody else reads it."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=groups)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(16)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](self.first(x))
        return x + self.norms[1](self.second(x))


@pytest.mark.parametrize("groups", [1, 16])
def test_a_bias_of_what_is_convolved_as_well_stays(groups: int) -> None:
    model = seen(Itself(groups))
    fused = fuse_for_inference(model, torch.float32)
    torch.testing.assert_close(fused(IMAGES), model(IMAGES))
    (call,) = (node for node in fused.graph.nodes if node.op == "call_module" and len(node.args) == 2)
    assert call.args[0] is call.args[1]


class Shared(nn.Module):
    """A shortcut that somebody else reads, too: its bias is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 16, 3, 1, 1), nn.Conv2d(8, 16, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(16), nn.BatchNorm2d(16)])

    def forward(self, x: Tensor) -> Tensor:
        other = self.norms[1](self.second(x))
        return torch.relu(self.norms[0](self.first(x)) + other) * other


def test_a_bias_that_others_read_stays() -> None:
    model = seen(Shared())
    fused = fuse_for_inference(model, torch.float32)
    (product,) = (part for part in fused.modules() if isinstance(part, Pointwise))
    assert product.bias is not None
    torch.testing.assert_close(fused(IMAGES), model(IMAGES))


class Rowwise(nn.Module):
    """Linear layers and what follows them: an activation, and a sum."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down, self.last = nn.Linear(8, 24), activation, nn.Linear(24, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 3, 1)
        made: Tensor = self.last(rows + self.down(self.act(self.up(rows))))
        return made


@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU(), nn.GELU("tanh"), nn.Hardswish()], ids=str)
def test_what_follows_linear_layers(activation: nn.Module) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4), Rowwise(activation)).eval()
    fused = fuse_for_inference(model)
    made = [part.activation for part in fused.modules() if isinstance(part, FollowedLinear)]
    known = {"GELU": "gelu", "ReLU": "relu", "Hardswish": "hardswish"}[type(activation).__name__]
    assert made == ([known, ""] if getattr(activation, "approximate", "none") == "none" else [""])
    near = {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(fused(IMAGES.to(torch.bfloat16)).float(), model(IMAGES), **near)
    again = pickle.loads(pickle.dumps(fused))
    assert torch.equal(again(IMAGES.to(torch.bfloat16)), fused(IMAGES.to(torch.bfloat16)))
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES.to(torch.bfloat16)).float(), model(IMAGES), **near)


class Before(nn.Module):
    """Norms in front of convolutions, as dense networks have them, and two behind one another."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(4)])
        self.convs = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.convs[0](torch.relu(self.norms[0](x)))
        y = self.convs[1](nn.functional.silu(self.norms[1](y * 2) + x))
        made: Tensor = self.norms[3](self.norms[2](y + x))
        return made


def test_norms_in_front_of_convolutions() -> None:
    model = seen(Before())
    fused = fuse_for_inference(model)
    made = [part.activation for part in fused.modules() if isinstance(part, FollowedNorm)]
    assert made == ["relu", "silu", ""]
    assert sum(isinstance(part, nn.BatchNorm2d) for part in fused.modules()) == 1  # the first of two
    found, images = fused(IMAGES.to(torch.bfloat16)), IMAGES.to(torch.bfloat16)
    torch.testing.assert_close(found.float(), model(IMAGES), rtol=5e-2, atol=5e-2)
    assert torch.equal(pickle.loads(pickle.dumps(fused))(images), found)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(images), found)
    assert not any(isinstance(part, FollowedNorm) for part in fuse_for_inference(model, torch.float32).modules())


class Masked(nn.Module):
    """What a mask is added to, of five dimensions as transformers over windows have it, made of a buffer in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(8, 8, 1), nn.Linear(10, 10)
        self.register_buffer("mask", torch.arange(90.0).view(9, 10) / 90)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).view(1, 2, 8, 9, 10) + self.mask.view(1, 1, 1, 9, 10)
        made: Tensor = self.last(y * self.mask.view(1, 1, 1, 9, 10))
        return made


def test_a_model_is_told_how_images_lie() -> None:
    """torch takes constants of five dimensions for volumes then."""
    model = nn.Sequential(Masked()).eval()
    fused = fuse_for_inference(model, torch.bfloat16)
    assert any(isinstance(part, Constant) for part in fused.modules())
    images = IMAGES.to(torch.bfloat16)
    before = fused(images)
    assert torch.equal(pickle.loads(pickle.dumps(fused))(images), before)
    assert torch.equal(fuse_for_inference(fused)(images), before)
    assert torch.equal(fused.to(memory_format=torch.channels_last)(images), before)  # type: ignore[call-overload]
    torch.testing.assert_close(before.float(), model(IMAGES), rtol=3e-2, atol=3e-2)


class Excited(nn.Module):
    """A squeeze-and-excitation in a model, and products that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.squeeze, self.expand = nn.Conv2d(8, 16, 3), nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.last = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x * torch.sigmoid(self.expand(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        other = self.last(x)
        made: Tensor = other * (other.mean((2, 3), keepdim=True) + x[:, :8])  # of more than its mean
        return made


def test_squeeze_and_excitations_are_two_calls() -> None:
    torch.manual_seed(5)
    model = Excited().eval()
    for made in (
        fuse_for_inference(model, torch.float32),
        pickle.loads(pickle.dumps(fuse_for_inference(model, torch.float32))),
    ):
        assert [len(made.graph.find_nodes(op="call_function", target=each)) for each in (squeezed, excited)] == [1, 1]
        torch.testing.assert_close(made(IMAGES), model(IMAGES))
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES))


class Products(nn.Module):
    """Of one tap, with a bias, and what may stand behind: a sum, a view."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.first, self.second, self.flat = nn.Conv2d(8, 40, 3, padding=1), nn.Conv2d(40, 40, 1), flat

    def forward(self, x: Tensor) -> Tensor:
        if self.flat:  # of channels-first images
            flat: Tensor = self.second(x.repeat(1, 5, 1, 1)).view(x.shape[0], -1)
            return flat
        y = self.first(x)
        return nn.functional.relu(self.second(y) + y)


@pytest.mark.parametrize("flat", [False, True])
def test_what_follows_a_product(flat: bool) -> None:
    """Results lie as images do, and may have no batch."""
    torch.manual_seed(3)
    model = Products(flat).eval()
    made = fuse_for_inference(model)
    assert [type(part) for part in made.modules() if isinstance(part, (Pointwise, FollowedConv2d))] == [
        Pointwise if flat else FollowedConv2d
    ]
    near = {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(made(IMAGES.to(torch.bfloat16)).float(), model(IMAGES), **near)
    if not flat:
        alone = fuse_for_inference(nn.Sequential(nn.Conv2d(40, 40, 1), nn.ReLU(), nn.Conv2d(40, 48, 1)))
        x = torch.randn(40, 5, 6).to(torch.bfloat16)
        assert alone(x).shape == (48, 5, 6)
        torch.testing.assert_close(alone(x), alone(x[None])[0])


class Rows(nn.Module):
    """A block as ConvNeXt has them, whose norms are of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.LayerNorm(8)
        self.wide, self.narrow, self.last = nn.Linear(8, 24), nn.Linear(24, 8), nn.LayerNorm((9, 10))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        out: Tensor = self.last(self.narrow(nn.functional.gelu(self.wide(y))).permute(0, 3, 1, 2) + x)
        return out


def test_norms_of_rows_are_kernels_in_inference() -> None:
    model = Rows().eval()
    made = fuse_for_inference(model, torch.float32)
    kinds = [type(part) for part in made.modules()]
    assert kinds.count(FusedLayerNorm) == kinds.count(nn.LayerNorm) == 1  # one is over more than channels
    for one in (made, pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(one(IMAGES), model(IMAGES))
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(IMAGES), model(IMAGES))
    assert type(model.norm) is nn.LayerNorm


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_few_channels_are_computed_over_blocks_of_pixels(data: st.DataObject) -> None:
    extents, sides = st.tuples(st.integers(2, 7), st.integers(2, 7)), st.tuples(st.integers(0, 4), st.integers(0, 4))
    channels, out = data.draw(st.integers(1, 4)), data.draw(st.sampled_from((8, 16, 24)))
    stride = data.draw(st.integers(1, 4))
    layer = nn.Conv2d(channels, out, data.draw(extents), stride, data.draw(sides), bias=False, dtype=torch.float64)
    assert in_blocks(layer)
    x = torch.randn(2, channels, data.draw(st.integers(7, 17)), data.draw(st.integers(7, 17)), dtype=torch.float64)
    x = x.contiguous(memory_format=data.draw(st.sampled_from((torch.contiguous_format, torch.channels_last))))
    bias = torch.randn(out)
    made = Stem(layer.weight, None, bias, "relu", moved(layer, ())).double()
    torch.testing.assert_close(made(x), torch.relu(layer(x) + bias.double()[:, None, None]))


def test_what_the_kernels_refuse_is_computed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise BadConvolution("too many", where="conv2d", expected="fewer", came="more")

    monkeypatch.setattr(fused_calls, "fused", refuse)
    x, w, bias = torch.randn(2, 8, 5, 5), torch.randn(8, 1, 3, 3), torch.randn(8)
    made = on_cuda(x, w, Following(None, bias, None, "relu"), Geometry((1, 1), (1,) * 4, (1, 1), 8))
    torch.testing.assert_close(made, torch.relu(nn.functional.conv2d(x, w, bias, padding=1, groups=8)))


def test_the_first_layer_of_a_model_in_halves_is_one_launch() -> None:
    layers = seen(nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 1)))
    images = torch.randn(2, 3, 21, 22, generator=torch.Generator().manual_seed(3))
    fused = fuse_for_inference(layers)
    (stem,) = [part for part in fused.modules() if isinstance(part, FusedConv2d)]
    assert isinstance(stem, Stem)
    assert stem.activation == "silu"
    torch.testing.assert_close(fused(images.bfloat16()).float(), layers(images), atol=0.05, rtol=0.05)
    assert not any(isinstance(part, Stem) for part in fuse_for_inference(layers, torch.float32).modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_of_one_group_that_were_replaced_before(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no kernel computes them, norms go into their filters, as into torch's own."""
    monkeypatch.setattr(fusion, "multiplies_from_shared_memory", lambda: False)
    first, dense = nn.Conv2d(3, 24, 3, 2, 1), nn.Conv2d(24, 40, 3, padding=1)
    layers = seen(nn.Sequential(first, nn.BatchNorm2d(24), nn.ReLU(), dense, nn.BatchNorm2d(40), nn.ReLU()))
    images, expected = torch.randn(2, 3, 12, 12), None
    with torch.no_grad():
        expected = layers(images)
        assert len(replace_convolutions(layers).taken) == 2
        fused = fuse_for_inference(layers, dtype)
        torch.testing.assert_close(fused(images.to(dtype)).float(), expected, atol=0.05, rtol=0.05)
    assert not any(isinstance(part, FusedConv2d | nn.BatchNorm2d) for part in fused.modules())


def test_the_model_stays_as_it_is() -> None:
    model = seen(Block()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fused = fuse_for_inference(model)
    assert model.training
    assert not fused.training
    assert type(model.depthwise) is nn.Conv2d
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in fused.parameters())


def test_what_a_channel_has_stays_in_f32() -> None:
    model = seen(Block())
    fused = fuse_for_inference(model, torch.bfloat16)
    launches = [part for part in fused.modules() if isinstance(part, FusedConv2d)]
    assert [(part.weight.dtype, part.scale.dtype, part.bias.dtype) for part in launches if part.scale is not None] == [
        (torch.bfloat16, torch.float32, torch.float32)
    ] * 3
    torch.testing.assert_close(fused(IMAGES.bfloat16()).float(), model(IMAGES), atol=0.1, rtol=0.1)


def test_values_with_two_readers_are_not_hidden() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return torch.relu(self.norm(y)) + y

    model = seen(Twice())
    torch.testing.assert_close(fuse_for_inference(model, torch.float32)(IMAGES), model(IMAGES))


class Turn(nn.Module):
    """Turns its input by its values."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Optional(nn.Module):
    """A layer whose second operand may be there."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        y: Tensor = self.layers(x)
        return y if scale is None else y * scale


class Turned(nn.Module):
    """Blocks, one of them in two places, between what cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.turn, self.last = Block(), Turn(), nn.Sequential(Block(nn.SiLU), nn.Conv2d(8, 8, 1))
        self.again, self.optional = self.first, Optional()

    def forward(self, x: Tensor) -> Tensor:
        y = self.turn(self.first(x))
        y = self.turn(nn.functional.interpolate(y, scale_factor=2))
        y = self.optional(self.again(y), torch.full((1,), 3.0))
        y = self.optional(nn.functional.interpolate(y, scale_factor=2))
        made: Tensor = self.last(y)
        return made


def launched(model: nn.Module) -> list[FusedConv2d]:
    return [part for part in model.modules() if isinstance(part, FusedConv2d)]


def test_parts_of_what_cannot_be_traced() -> None:
    model = seen(Turned())
    fused = fuse_for_inference(model, torch.float32)
    assert [name for name, _ in fused.named_modules() if name.endswith(PART)] == [
        f"first.{PART}", f"last.{PART}", f"optional.layers.{PART}"
    ]  # fmt: skip
    launches = [len(launched(part)) for part in (fused.first, fused.optional, fused.last)]
    assert launches == [2, 1, 3]  # depthwise and grouped; the layer; and the last one, which is taken, too
    assert type(fused.first) is Block
    others = (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused)))
    for made in others:
        torch.testing.assert_close(made(IMAGES), model(IMAGES))
        torch.testing.assert_close(made(-IMAGES), model(-IMAGES))
    with torch.no_grad():
        for part in launched(others[1]):
            part.weight.zero_()
    assert not torch.allclose(others[1](IMAGES), others[2](IMAGES))  # each computes with its own


def test_parts_in_halves_are_fused_with_their_layers_of_one_group() -> None:
    model = seen(Turned())
    fused = fuse_for_inference(model)
    parts = ("first", "optional", "last")
    launches = {name: launched(fused.get_submodule(name)) for name in parts}
    assert [len(launches[name]) for name in parts] == [3, 1, 4]  # what expands a block, too, and the last one
    assert [tuple(part.weight.shape) for part in launches["last"]] == [
        (16, 8, 1, 1), (16, 1, 3, 3), (16, 4, 3, 5), (8, 8, 1, 1)
    ]  # fmt: skip
    for name in parts:
        expected = model.get_submodule(name)(IMAGES)
        torch.testing.assert_close(fused.get_submodule(name)(IMAGES.bfloat16()).float(), expected, atol=0.1, rtol=0.1)


def test_what_cannot_be_traced_is_refused_with_what_to_do() -> None:
    for model in (Turn(), nn.Sequential(Turn(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))):
        with pytest.raises(WrongValue, match=r"cannot trace[\s\S]*fuse_compiled"):
            fuse_for_inference(model)


class OneByOne(nn.Module):
    """Goes through a sequence by itself, and keeps what comes out of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.blocks = Turn(), nn.Sequential(Block(), nn.Sequential(Block()), Block())

    def forward(self, x: Tensor) -> Tensor:
        x = self.turn(x)
        shapes = []
        for block in self.blocks:
            x = block(nn.functional.interpolate(x, scale_factor=2.0))
            shapes.append(x.shape[2])
        assert len(shapes) == len(self.blocks) == 3
        x = self.blocks[-1](nn.functional.interpolate(x, scale_factor=2.0))
        out: Tensor = self.blocks[1:](nn.functional.interpolate(x, scale_factor=4.0))
        return out


def test_sequences_of_parts_are_gone_through_as_before() -> None:
    """As timm's models do that give what comes out of their stages: the graph of a sequence is no layer of it."""
    model = seen(OneByOne())
    made = fuse_for_inference(model, torch.float32)
    assert launched(made.blocks)
    for one in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        torch.testing.assert_close(one(IMAGES), model(IMAGES))
        torch.testing.assert_close(one.blocks(IMAGES), model.blocks(IMAGES))
    with pytest.raises(IndexError):
        made.blocks[3]


def test_layers_that_are_kernels_alone_are_worth_it_without_a_graph() -> None:
    """Norms and pools of a model that cannot be traced, fused for training before or not."""
    model = nn.Sequential(Turn(), nn.Sequential(nn.Linear(10, 10), nn.LayerNorm(10)), nn.MaxPool2d(2)).eval()
    trained = copy.deepcopy(model)
    fuse_for_training(trained)
    for one in (model, trained):
        made = fuse_for_inference(one, torch.float32)
        assert [type(part) for part in (made[1][1], made[2])] == [FusedLayerNorm, ChannelsLastMaxPool2d]
        torch.testing.assert_close(made(IMAGES), model(IMAGES))


# -- compiled graphs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fx.GraphModule]]:
    """The graphs that torch.compile hands over, fused; CPU tensors are computed by the operators, as CUDA's are."""
    from tapestry.kernels.layers import grouped

    monkeypatch.setattr(grouped, "computed_here", lambda x: True)
    found: list[fx.GraphModule] = []
    torch.compiler.reset()
    yield found
    torch.compiler.reset()


def backend(found: list[fx.GraphModule]) -> Callable[..., Any]:
    def compiled(graph: fx.GraphModule, example: Any) -> Any:
        fuse_graph(graph.graph)
        graph.recompile()
        found.append(graph)
        return graph

    return compiled


def calls(graph: fx.GraphModule) -> list[Any]:
    return [node for node in graph.graph.nodes if node.target is fused_operator.default]


def test_a_compiled_graph_is_fused_and_computes_what_it_did(graphs: list[fx.GraphModule]) -> None:
    model = seen(Block())
    expected = model(IMAGES)
    replace_convolutions(model)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend(graphs), fullgraph=True)(IMAGES), expected)
    (graph,) = graphs
    assert [node.args[5] for node in calls(graph)] == ["silu", "hardswish"]
    assert [node.args[4] is not None for node in calls(graph)] == [False, True]


def test_under_autocast(graphs: list[fx.GraphModule]) -> None:
    model = seen(Block())
    expected = model(IMAGES)
    replace_convolutions(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = torch.compile(model, backend=backend(graphs))(IMAGES)
    assert len(calls(graphs[0])) == 2
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_and_batch_statistics_are_left_alone(graphs: list[fx.GraphModule], training: bool) -> None:
    model = seen(Block()).train(training)
    replace_convolutions(model)
    torch.compile(model, backend=backend(graphs))(IMAGES).sum().backward()
    assert [calls(graph) for graph in graphs] == [[]]


def test_one_line_switches_it_on() -> None:
    from torch._inductor import config

    fuse_compiled()
    assert config.pre_grad_custom_pass is fuse_graph
    fuse_compiled(False)
    assert config.pre_grad_custom_pass is None


def test_the_operator() -> None:
    x, w = torch.randn(2, 8, 6, 5), torch.randn(8, 4, 3, 2)
    scale, bias = torch.rand(8), torch.rand(8)
    steps = ([2, 1], [1, 2, 0, 1], [1, 2], 2)
    y = torch.ops.tapestry.grouped_conv2d(x, w, None, *steps)
    arguments = (x, w, scale, bias, torch.randn(y.shape), "gelu", *steps)
    assert torch.library.opcheck(fused_operator.default, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.fixture
def by_cudnn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors go where a GPU's do: stand-ins for cuDNN's functions, and the names of those that were called."""
    called: list[str] = []

    def relu(x: Tensor, w: Tensor, bias: Tensor, *moved: Any) -> Tensor:
        if x.shape[2] == 7:
            raise RuntimeError("no engine")
        called.append("relu")
        return torch.relu(nn.functional.conv2d(x, w, bias, *moved))

    def add_relu(x: Tensor, w: Tensor, z: Tensor, alpha: float, bias: Tensor, *moved: Any) -> Tensor:
        called.append("add_relu")
        return torch.relu(nn.functional.conv2d(x, w, bias, *moved) + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", add_relu)
    monkeypatch.setattr(followed, "_is_kernels", lambda *tensors: True)
    monkeypatch.setattr(followed, "_REFUSED", set())
    return called


def residual_block() -> nn.Module:
    return seen(Residual(SHORTCUTS["strided"](), nn.ReLU(), nn.BatchNorm2d))


def test_cudnn_computes_relu_along(by_cudnn: list[str]) -> None:
    model, images = residual_block(), IMAGES[:, :, :8].contiguous(memory_format=torch.channels_last)
    fused = fuse_for_inference(model, torch.float32)
    found = fused(images)
    assert by_cudnn == ["add_relu"]
    torch.testing.assert_close(found, model(images))
    layer = next(part for part in fused.modules() if isinstance(part, FollowedConv2d))
    torch.testing.assert_close(layer(images), torch.relu(layer(images, torch.zeros_like(found))))
    assert by_cudnn == ["add_relu", "relu", "add_relu"]
    wide = torch.zeros(1, 16, 1, 1)  # a residual that is no tensor of the result's extents
    assert torch.equal(layer(images, wide), layer(images))
    assert by_cudnn == ["add_relu", "relu", "add_relu", "relu"]
    for _ in range(2):
        assert layer(images[:, :, :7]).shape == (2, 16, 4, 5)
    assert len(followed._REFUSED) == 1


def test_what_finds_no_memory_is_told(by_cudnn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And cuDNN is asked again."""
    layer = FollowedConv2d(torch.randn(16, 8, 1, 1), torch.randn(16), "relu", nn.Conv2d(8, 16, 1))

    def full(*given: Any) -> Tensor:
        raise torch.cuda.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "cudnn_convolution_relu", full)
        with pytest.raises(torch.cuda.OutOfMemoryError, match="no room"):
            layer(IMAGES)
    layer(IMAGES)
    assert by_cudnn == ["relu"]


def test_the_operator_of_graphs_is_cudnns(by_cudnn: list[str]) -> None:
    """Numbers come to it in lists, and nothing of it is traced."""
    model, images = residual_block(), IMAGES[:, :, :8].contiguous(memory_format=torch.channels_last)
    fused = fuse_for_inference(model, torch.float32)
    with torch.no_grad():
        found = torch.compile(fused, backend="aot_eager", fullgraph=True)(images)
        torch.testing.assert_close(found, model(images))
    assert by_cudnn == ["add_relu"]


def test_results_lie_as_images_do(by_cudnn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do by cuDNN where that is switched off."""
    layer = FollowedConv2d(torch.randn(16, 8, 1, 1), torch.randn(16), "relu", nn.Conv2d(8, 16, 1))
    images = IMAGES.contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(nn.functional, "conv2d", lambda *given: torch.conv2d(*given).contiguous())
    with torch.backends.cudnn.flags(enabled=False):
        found = layer(images)
    assert by_cudnn == []
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, torch.relu(torch.conv2d(images, layer.weight, layer.bias)))


def test_a_layer_of_padded_pixels_is_no_product(by_cudnn: list[str]) -> None:
    layer = FollowedConv2d(torch.randn(16, 8, 1, 1), torch.randn(16), "relu", nn.Conv2d(8, 16, 1, padding=1))
    x = torch.randn(2, 8, 1, 1)
    assert torch.equal(layer(x), torch.relu(torch.conv2d(x, layer.weight, layer.bias, padding=1)))


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_residuals_that_are_numbers_or_learn(by_cudnn: list[str], activation: str) -> None:
    """A graph may add a number; and cuDNN's function has no derivative."""
    layer = FollowedConv2d(torch.randn(16, 8, 1, 1), torch.randn(16), activation, nn.Conv2d(8, 16, 1))
    linear, rows = FollowedLinear(nn.Linear(10, 10), activation), IMAGES
    function = getattr(nn.functional, activation)
    torch.testing.assert_close(layer(IMAGES, 0.5), function(torch.conv2d(IMAGES, layer.weight, layer.bias) + 0.5))
    torch.testing.assert_close(layer(IMAGES[0], 0.5), layer(IMAGES, 0.5)[0])
    torch.testing.assert_close(
        linear(rows, 0.5), function(nn.functional.linear(rows, linear.weight, linear.bias) + 0.5)
    )
    learned = torch.randn(2, 16, 9, 10, requires_grad=True)
    layer(IMAGES, learned).sum().backward()
    assert learned.grad is not None
    assert by_cudnn == []


def test_results_are_first_where_the_layer_gave_such() -> None:
    """What views them relies on it."""
    model = nn.Sequential(nn.Conv2d(8, 160, 3), nn.ReLU()).eval()
    fused = fuse_for_inference(model)
    assert any(isinstance(part, FollowedConv2d) for part in fused.modules())
    images = IMAGES.to(torch.bfloat16).contiguous()
    assert fused(images).is_contiguous()
    assert fused(images.contiguous(memory_format=torch.channels_last)).is_contiguous(memory_format=torch.channels_last)


class Apart(nn.Module):
    """Sums whose summands are of other kinds: one channel and many, images and a linear layer's; and computed norms."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.many, self.one = kind, nn.Conv2d(8, 10, 1), nn.Conv2d(8, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(10), nn.BatchNorm2d(1), nn.BatchNorm2d(8)])
        self.rows, self.gain = nn.Linear(10, 10), nn.Parameter(torch.rand(8))
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "one channel":
            return torch.relu(self.norms[1](self.one(x)) + self.norms[0](self.many(x)))
        if self.kind == "rows":
            other = self.norms[0](self.many(x))
            y = nn.functional.relu(x * 2, inplace=True)
            return torch.relu(self.rows(self.many(y)) + other)
        norm = self.norms[2]
        y = self.grouped(x) if self.kind == "computed, behind" else x
        y = nn.functional.batch_norm(y, norm.running_mean, norm.running_var, 1 + self.gain, None)
        return self.many(torch.relu(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["one channel", "rows", "computed", "computed, behind"])
def test_summands_of_other_kinds(kind: str, dtype: torch.dtype) -> None:
    model = seen(Apart(kind))
    images = torch.cat([IMAGES, IMAGES[:, :, :1]], 2)  # as many rows and columns as channels
    near = {"rtol": 5e-2, "atol": 8e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(fuse_for_inference(model, dtype)(images.to(dtype)).float(), model(images), **near)


def test_a_norm_keeps_the_type_of_a_sum() -> None:
    norm = FollowedNorm(torch.rand(8), torch.rand(8), "relu")
    wide = norm(IMAGES.to(torch.bfloat16), IMAGES)
    assert wide.dtype is torch.float32
    assert norm(IMAGES.to(torch.bfloat16), IMAGES.to(torch.bfloat16)).dtype is torch.bfloat16


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own tangents are scripted
def test_fused_models_are_differentiated_by_their_images() -> None:
    """As saliency maps are made; past torch's dispatcher nothing is known of tangents."""
    model = seen(Block())
    fused, x = fuse_for_inference(model, torch.float32), IMAGES.clone().requires_grad_()
    slopes = [torch.autograd.grad(one(x).square().sum(), x)[0] for one in (model, fused)]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)
    tangents = [torch.func.jvp(one, (IMAGES,), (torch.ones_like(IMAGES),))[1] for one in (model, fused)]
    assert bool(tangents[0].any())
    torch.testing.assert_close(*tangents, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
def test_fused_models_take_batches_of_batches(memory: torch.memory_format) -> None:
    """Under vmap torch does not say how images lie."""
    images, model = (
        IMAGES.contiguous(memory_format=memory),
        nn.Sequential(seen(Block()), nn.Conv2d(8, 160, 1), nn.ReLU()),
    )
    fused = fuse_for_inference(model, torch.float32)
    found = torch.func.vmap(fused)(torch.stack([images, -images]))
    torch.testing.assert_close(found, torch.stack([model(images), model(-images)]))
