"""Depthwise layers with large filters, over blocks of pixels: beside torch's own, on the CPU."""

from __future__ import annotations

import copy
import pickle

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given, settings
from torch import Tensor, nn

from tapestry.kernels.layers import large_filters
from tapestry.kernels.layers.large_filters import (
    FusedLargeFilters,
    LargeFilters,
    is_large,
    large_for,
    moved_over,
    problem_of,
)
from tapestry.kernels.models.convolutions import convolutions
from tapestry.kernels.torch import fuse_for_inference, replace_convolutions

extents = st.tuples(*[st.integers(1, 22)] * 2)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of any size are computed so, wherever they are."""
    monkeypatch.setattr(large_filters, "computed_here", lambda _: True)
    monkeypatch.setattr(large_filters, "FEWEST", 0)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_convolution_is_one_over_blocks(data: st.DataObject) -> None:
    taps, sides = data.draw(st.tuples(*[st.integers(1, 13)] * 2)), data.draw(st.tuples(*[st.integers(0, 7)] * 4))
    large, sizes = large_for(taps, sides), data.draw(extents)
    assume(large.fits and min(large.outputs(sizes)) > 0)
    n, c = data.draw(st.integers(1, 2)), 8 * data.draw(st.integers(1, 2))
    x = torch.randn(n, c, *sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    w = torch.randn(c, 1, *taps, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    top, bottom, left, right = sides
    expected = nn.functional.conv2d(nn.functional.pad(x, (left, right, top, bottom)), w, groups=c)
    over, filters = large_filters.blocks_of(x, large), large_filters.filter_over(w, large)
    moved = moved_over(large, sizes, c)
    above, below, ahead, behind = moved.padding
    padded = nn.functional.pad(over, (ahead, behind, above, below))
    found = nn.functional.conv2d(padded, filters, groups=c)
    made = large_filters.pixels_of(found, large, expected.shape[2:])
    torch.testing.assert_close(made, expected)
    problem = problem_of(large, tuple(x.shape), torch.bfloat16)
    assert (problem.input_shape[1:3], problem.output_shape[1:3]) == (over.shape[2:], found.shape[2:])
    assert (problem.weight_shape, problem.narrow) == (filters.permute(0, 2, 3, 1).shape, True)


def layers(size: tuple[int, int], bias: bool = True) -> nn.Sequential:
    torch.manual_seed(1)
    sides = (size[0] // 2, size[1] // 2)
    return nn.Sequential(nn.Conv2d(16, 16, size, padding=sides, groups=16, bias=bias), nn.BatchNorm2d(16), nn.ReLU())


def with_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    y = model(x)
    return [y, *torch.autograd.grad(y.square().sum(), [*model.parameters(), x])]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("size", [(9, 9), (11, 11), (12, 10), (8, 9)])
@pytest.mark.parametrize("compiled", [False, True])
def test_layers_and_their_gradients(size: tuple[int, int], compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = layers(size).double(), torch.randn(2, 16, 9, 12, dtype=torch.float64, requires_grad=True)
    ours = copy.deepcopy(model)
    assert replace_convolutions(ours).taken == ("0",)
    assert type(ours[0]) is LargeFilters
    monkeypatch.setattr(LargeFilters, "_conv_forward", None)
    torch.compiler.reset()
    called = torch.compile(ours, backend="aot_eager", fullgraph=True) if compiled else ours
    y = called(x)
    found = [y, *torch.autograd.grad(y.square().sum(), [*ours.parameters(), x])]
    for one, other in zip(found, with_gradients(model, x), strict=True):
        torch.testing.assert_close(one, other)
    torch.compiler.reset()


class Block(nn.Module):
    """A large filter, what follows it, and something that is added."""

    def __init__(self, norm: bool, first: bool, bias: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 9, padding=4, groups=16, bias=bias)
        self.norm = nn.BatchNorm2d(16) if norm else nn.Identity()
        self.act, self.first = nn.ReLU(), first

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        made: Tensor = self.act(y) + x if self.first else self.act(y + x)
        return made


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("first", [False, True], ids=["residual first", "activation first"])
@pytest.mark.parametrize("bias", [False, True])
def test_inference_has_them_over_blocks_with_what_follows(norm: bool, first: bool, bias: bool) -> None:
    """In one launch but for a residual, and an activation behind that."""
    torch.manual_seed(4)
    model = Block(norm, first, bias).eval()
    if norm:
        model.norm.running_mean.uniform_(-1, 1), model.norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    fused = fuse_for_inference(nn.Sequential(model), torch.float32)
    (kept,) = (part for part in fused.modules() if isinstance(part, FusedLargeFilters))
    assert kept.activation == ("relu" if first else "")
    assert not [part for part in fused.modules() if isinstance(part, (nn.BatchNorm2d, LargeFilters))]
    assert len([part for part in fused.modules() if isinstance(part, nn.ReLU)]) == (not first)
    for extents in ((8, 8), (7, 10), (3, 1)):
        x = torch.randn(2, 16, *extents)
        with torch.no_grad():
            torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(pickle.loads(pickle.dumps(fused))(x), fused(x))
            torch.testing.assert_close(torch.compile(fused, backend="aot_eager", fullgraph=True)(x), fused(x))
    torch.compiler.reset()
    narrow = fuse_for_inference(nn.Sequential(model))
    (kept,) = (part for part in narrow.modules() if isinstance(part, FusedLargeFilters))
    assert kept.weight.dtype is torch.bfloat16
    assert {values.dtype for values in (kept.scale, kept.bias) if values is not None} <= {torch.float32}
    x = torch.randn(2, 16, 8, 8).bfloat16()
    torch.testing.assert_close(narrow(x).float(), model(x.float()), rtol=0.1, atol=0.1)


@pytest.mark.usefixtures("here")
def test_derivatives_of_any_order() -> None:
    model, x = layers((9, 9), bias=False)[:1].double(), torch.randn(1, 16, 6, 5, dtype=torch.float64)
    ours, found = copy.deepcopy(model), []
    replace_convolutions(ours)
    for of in (ours, model):
        given = x.clone().requires_grad_()
        first = torch.autograd.grad(of(given).pow(3).sum(), given, create_graph=True)[0]
        found.append(torch.autograd.grad(first.square().sum(), [given, of[0].weight]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_which_layers() -> None:
    def taken(*given: int, **named: object) -> bool:
        return is_large(nn.Conv2d(*given, **named))  # type: ignore[arg-type]

    assert taken(16, 16, 9, groups=16, padding=4)
    assert taken(16, 16, 12, groups=16)
    assert taken(16, 16, (8, 11), groups=16)  # type: ignore[arg-type]
    assert not taken(16, 16, (1, 11), groups=16)  # type: ignore[arg-type]
    assert not taken(16, 16, 7, groups=16)  # the kernels' own
    assert not taken(16, 16, 13, groups=16)
    assert not taken(16, 16, 9, groups=8)
    assert not taken(16, 16, 9, stride=2, groups=16)
    assert not taken(12, 12, 9, groups=12)
    assert not taken(16, 32, 9, groups=16)


def test_what_they_are_called_for() -> None:
    model, x = layers((9, 9)).bfloat16(), torch.zeros(64, 16, 32, 32, dtype=torch.bfloat16)
    ((name, _, problem, kinds),) = convolutions(model, x)
    assert (name, kinds) == ("0", ())
    assert (problem.input_shape, problem.weight_shape) == ((64, 16, 16, 64), (64, 5, 5, 4))
    assert (problem.groups, problem.padding) == (16, (2, 2, 2, 2))
    assert convolutions(model, x[:1]) == []  # too few
