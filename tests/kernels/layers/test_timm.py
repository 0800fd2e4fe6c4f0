"""timm's own kinds of convolutions, taken by `replace_convolutions`: on CPU tensors, beside the definition.

The layers here have timm's names and attributes; the definition is written with neither its functions nor ours.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from tapestry.kernels.layers.stem import in_blocks
from tapestry.kernels.layers.timm import (
    SameConv2d,
    SameStandardizedConv2d,
    SameStem,
    StandardizedConv2d,
    moved,
    same_geometry,
)
from tapestry.kernels.models.convolutions import convolutions
from tapestry.kernels.torch import GroupedConv2d, fuse_for_inference, replace_convolutions


class Conv2dSame(nn.Conv2d):
    """Every output whose window begins at step * i - before, wherever that is, zeros outside."""

    def __init__(self, channels: int, size: Any, stride: Any, dilation: Any, groups: int, bias: bool) -> None:
        super().__init__(channels, channels, size, stride, 0, dilation, groups, bias)

    def forward(self, input: Tensor) -> Tensor:
        return by_definition(input, self.weight, self.bias, self.stride, self.dilation, self.groups)


class ScaledStdConv2d(nn.Conv2d):
    def __init__(self, channels: int, size: int, stride: int = 1, groups: int = 1, same_pad: bool = False) -> None:
        super().__init__(channels, channels, size, stride, 0 if same_pad else size // 2, groups=groups)
        self.gain = nn.Parameter(torch.rand(channels, 1, 1, 1) + 0.5)
        self.scale, self.eps, self.same_pad = 1.7 * self.weight[0].numel() ** -0.5, 1e-6, same_pad

    def filter(self) -> Tensor:
        taps = self.weight.flatten(1)
        variance, mean = torch.var_mean(taps, 1, correction=0, keepdim=True)
        return ((taps - mean) / (variance + self.eps).sqrt()).view_as(self.weight) * self.scale * self.gain

    def forward(self, input: Tensor) -> Tensor:
        if self.same_pad:
            return by_definition(input, self.filter(), self.bias, self.stride, self.dilation, self.groups)
        return self._conv_forward(input, self.filter(), self.bias)


class ScaledStdConv2dSame(ScaledStdConv2d):
    pass


for _kind in (Conv2dSame, ScaledStdConv2d, ScaledStdConv2dSame):
    _kind.__module__ = "timm.layers.standing_in"


def by_definition(x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, dilation: Any, groups: int) -> Tensor:
    """TensorFlow's "SAME": ceil(extent / stride) outputs, the windows centred, the odd place behind."""
    windows = []
    for extent, taps, step, gap in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True):
        outputs = (extent + step - 1) // step
        reached = step * (outputs - 1) + gap * (taps - 1) + 1
        before = max(reached - extent, 0) // 2
        windows.append([[step * i + gap * t - before for i in range(outputs)] for t in range(taps)])
    rows, columns = windows
    n, _, h, width = x.shape
    y = x.new_zeros(n, groups, w.shape[0] // groups, len(rows[0]), len(columns[0]))
    split = w.reshape(groups, -1, *w.shape[1:])
    for r, ys in enumerate(rows):
        for s, xs in enumerate(columns):
            inside = torch.tensor([[0 <= a < h and 0 <= b < width for b in xs] for a in ys], dtype=x.dtype)
            seen = x[:, :, [min(max(a, 0), h - 1) for a in ys]][..., [min(max(b, 0), width - 1) for b in xs]] * inside
            y = y + torch.einsum("ngjpq,gkj->ngkpq", seen.reshape(n, groups, -1, *inside.shape), split[..., r, s])
    y = y.flatten(1, 2)
    return y if bias is None else y + bias[:, None, None]


@st.composite
def same_layers(draw: st.DrawFn) -> tuple[Conv2dSame, Tensor]:
    pairs = st.tuples(*[st.integers(1, 5)] * 2), st.tuples(*[st.integers(1, 2)] * 2)
    size, stride, dilation = draw(pairs[0]), draw(pairs[1]), draw(pairs[1])
    layer = Conv2dSame(16, size, stride, dilation, draw(st.sampled_from((2, 4, 16))), draw(st.booleans())).double()
    x = torch.randn(2, 16, draw(st.integers(1, 9)), draw(st.integers(1, 9)), dtype=torch.float64)
    return layer, x


@given(same_layers())
@settings(max_examples=40, deadline=None)
def test_same_padding_is_that_of_the_images(drawn: tuple[Conv2dSame, Tensor]) -> None:
    layer, x = drawn
    model = nn.Sequential(layer)
    x.requires_grad_()
    expected = model(x)
    gradients = torch.autograd.grad(expected.square().sum(), (x, layer.weight))
    assert replace_convolutions(model).taken == ("0",)
    assert type(model[0]) is SameConv2d
    assert model[0].weight is layer.weight
    found = model(x)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found.square().sum(), (x, layer.weight)), gradients, strict=True):
        torch.testing.assert_close(one, other)
    # What the kernels would be asked for is the same convolution.
    (met,) = convolutions(model.half(), x.detach().half(), GroupedConv2d)
    assert met.problem.output_shape == (*found.permute(0, 2, 3, 1).shape,)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_standardized_filters(same: bool, stride: int) -> None:
    kind = ScaledStdConv2dSame if same else ScaledStdConv2d
    layer = kind(24, 3, stride, 3, same_pad=same and stride == 2).double()
    model, x = nn.Sequential(layer), torch.randn(2, 24, 7, 8, dtype=torch.float64)
    wanted = (layer.weight, layer.gain, layer.bias)
    expected = model(x)
    gradients = torch.autograd.grad(expected.square().sum(), wanted)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert replace_convolutions(model).taken == ("0",)
    assert type(model[0]) is (SameStandardizedConv2d if same and stride == 2 else StandardizedConv2d)
    found = model(x)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found.square().sum(), wanted), gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert list(model.state_dict()) == list(before)
    model.load_state_dict(before)


def test_a_subclass_that_is_not_known_is_left_and_named() -> None:
    class Conv2dSame(nn.Conv2d):  # somebody's own, of that name
        pass

    report = replace_convolutions(nn.Sequential(Conv2dSame(16, 16, 3, groups=4)))
    assert not report.taken
    assert "a subclass, Conv2dSame" in report.left["0"]


class Net(nn.Module):
    """Standardized and padded layers, dense ones among them, with norms behind some."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = Conv2dSame(40, (3, 3), (2, 2), (1, 1), 1, False), nn.BatchNorm2d(40)
        self.second, self.other = Conv2dSame(40, (5, 5), (2, 2), (1, 1), 40, False), nn.BatchNorm2d(40)
        self.third, self.fourth = ScaledStdConv2d(40, 3, groups=5), ScaledStdConv2dSame(40, 3, 2, 10, same_pad=True)
        self.fifth, self.sixth = ScaledStdConv2d(40, 1), ScaledStdConv2dSame(40, 3, 2, same_pad=True)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.other(self.second(torch.relu(self.norm(self.first(x))))))
        out: Tensor = self.sixth(self.fifth(torch.relu(self.fourth(self.third(y)))))
        return out


def test_inference_is_fused_with_them() -> None:
    model = Net().eval()
    with torch.no_grad():
        model.norm.running_mean.uniform_(-1, 1), model.other.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    fused = fuse_for_inference(model, torch.float32)
    for extents in ((33, 40), (16, 17)):  # the padding is that of the images
        x = torch.randn(2, 40, *extents)
        with torch.no_grad():
            torch.testing.assert_close(fused(x), model(x))
    kinds = [type(layer).__name__ for layer in fused.children()]
    assert kinds.count("FusedSameConv2d") == 2
    assert kinds.count("FusedConv2d") == 1
    assert not [node for node in fused.graph.nodes if "batch_norm" in str(node.target) or "norm" in node.name]


@given(
    st.integers(1, 4),
    st.sampled_from((2, 4)),
    st.tuples(*[st.integers(2, 7)] * 2),
    st.tuples(*[st.integers(1, 17)] * 2),
)
@settings(max_examples=40, deadline=None)
def test_a_first_layer_over_blocks_of_pixels_is_padded_by_what_is_left_of_its_images(
    channels: int, stride: int, size: tuple[int, int], extents: tuple[int, int]
) -> None:
    layer = Conv2dSame(16, size, (stride, stride), (1, 1), 1, False).double()
    layer.in_channels, layer.weight = channels, nn.Parameter(torch.randn(16, channels, *size, dtype=torch.float64))
    x, bias = torch.randn(2, channels, *extents, dtype=torch.float64), torch.randn(16)
    assert in_blocks(layer)
    with torch.no_grad():
        expected = torch.relu(layer(x) + bias.double()[:, None, None])
        torch.testing.assert_close(SameStem(layer.weight, None, bias, "relu", layer).double()(x), expected)


def test_torch_compile_takes_them_without_graph_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry.kernels.layers import grouped as layers

    model = Net().eval()
    x = torch.randn(2, 40, 16, 17)
    with torch.no_grad():
        expected = model(x)
        replace_convolutions(model)
        monkeypatch.setattr(layers, "computed_here", lambda _: True)  # by the operators, as on a GPU
        torch.compiler.reset()
        torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), expected)
    torch.compiler.reset()


@pytest.mark.parametrize("kind", [nn.Conv2d, Conv2dSame, ScaledStdConv2d, ScaledStdConv2dSame])
def test_torch_compile_takes_first_layers_without_graph_breaks(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry.kernels.layers import stem

    makers: dict[Any, Any] = {
        nn.Conv2d: lambda: nn.Conv2d(3, 16, 3, 2, 1),
        Conv2dSame: lambda: Conv2dSame(16, (3, 3), (2, 2), (1, 1), 1, True),
        ScaledStdConv2d: lambda: ScaledStdConv2d(16, 3),
        ScaledStdConv2dSame: lambda: ScaledStdConv2dSame(16, 3, 2, same_pad=True),
    }
    layer = makers[kind]()
    if layer.in_channels != 3:
        layer.in_channels, layer.weight = 3, nn.Parameter(torch.randn(16, 3, 3, 3))
    model, x = nn.Sequential(layer), torch.randn(2, 3, 17, 18)
    expected = torch.autograd.grad(model(x).square().sum(), layer.weight)[0]
    assert replace_convolutions(model).taken == ("0",)
    monkeypatch.setattr(stem, "computed_here", lambda _: True)  # by the operator, as on a GPU
    monkeypatch.setattr(type(model[0]), "_conv_forward", None)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x).square().sum(), model[0].weight)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    torch.compiler.reset()


@given(st.integers(1, 300), st.integers(1, 7), st.integers(1, 2), st.integers(1, 2))
def test_same_geometry_leaves_as_many_places_as_steps(extent: int, taps: int, step: int, gap: int) -> None:
    top, bottom, left, right = same_geometry((extent, extent), (taps, taps), (step, step), (gap, gap), 1).padding
    assert (top, bottom) == (left, right)
    assert 0 <= bottom - top <= 1
    rows = (extent + top + bottom - gap * (taps - 1) - 1) // step + 1
    assert rows == -(-extent // step)


def test_a_layer_of_torchs_is_moved_as_it_says() -> None:
    assert moved(nn.Conv2d(8, 8, 3, 2, 1, groups=2), (9, 9)).padding == (1, 1, 1, 1)
    assert moved(Conv2dSame(8, (3, 3), (2, 2), (1, 1), 8, False), (8, 9)).padding == (0, 1, 1, 1)
