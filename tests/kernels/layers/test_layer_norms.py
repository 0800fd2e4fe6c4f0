"""Layer norms by kernels, on CPU tensors: which layers are taken, and the calls, whose kernels run on the emulated
machine. On a GPU: gpu/test_row_norms.py.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.layer_norms import FusedLayerNorm, row_kinds
from tapestry.kernels.normalization import layer_norm
from tapestry.kernels.tensors import layer_norm_calls
from tapestry.kernels.torch import fuse_for_inference, fuse_norms

from ..emulated_calls import emulated, kept_elsewhere

UNITS = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7}


def drawn(shape: Sequence[int], dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(tuple(shape), generator=random) + 0.5).to(dtype)


def norm(channels: int = 24, **settings: Any) -> nn.LayerNorm:
    made = nn.LayerNorm(channels, eps=1e-3, **settings)
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(drawn(parameter.shape, seed=5 + number))
    return made


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """CPU tensors are direct, and launches run where there is no GPU; the kernels' names as they are launched."""
    names = emulated(monkeypatch, layer_norm_calls, layer_norm.KERNELS)
    before, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    yield names
    torch.set_autocast_enabled("cuda", before)
    torch.set_autocast_dtype("cuda", dtype)


def compare(ours: FusedLayerNorm, x: Tensor, dtype: torch.dtype) -> None:
    """A layer of ours with the definition in f64, forward and backward."""
    x = x.requires_grad_()
    y = ours(x)
    assert y.dtype is dtype
    wide = [t.detach().double().requires_grad_() for t in (x, *ours.parameters())]
    rows = wide[0].permute(0, 2, 3, 1) if ours.first else wide[0]
    expected = nn.functional.layer_norm(rows, ours.normalized_shape, *wide[1:], eps=ours.eps)
    expected = expected.permute(0, 3, 1, 2) if ours.first else expected
    assert y.shape == expected.shape
    assert y.stride() == x.stride()
    dy = drawn(y.shape, dtype, 3)  # other strides than those of y, where channels come first
    found = [y, *torch.autograd.grad(y, [x, *ours.parameters()], dy)]
    for one, other in zip(found, [expected, *torch.autograd.grad(expected, wide, dy.double())], strict=True):
        unit = UNITS[one.dtype]
        torch.testing.assert_close(
            one.double(), other, rtol=unit, atol=unit * max(1, float(other.detach().abs().max()))
        )


@pytest.mark.parametrize("first", [False, True])
def test_what_is_kept_elsewhere(first: bool, launched: list[str]) -> None:
    ours, x = FusedLayerNorm(norm(), first), drawn((3, 24, 4, 5) if first else (3, 4, 5, 24))
    x = (x.contiguous(memory_format=torch.channels_last) if first else x).requires_grad_()
    with kept_elsewhere():
        kept = ours(x)
    dy = drawn(kept.shape, seed=3)
    given = [x, *ours.parameters()]
    for one, other in zip(*(torch.autograd.grad(y, given, dy) for y in (kept, ours(x))), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"elementwise_affine": False}], ids=str)
def test_rows(dtype: torch.dtype, settings: dict[str, Any], launched: list[str]) -> None:
    ours = FusedLayerNorm(norm(**settings))
    compare(ours, drawn((3, 5, 24), dtype), dtype)
    compare(ours, drawn((3, 5, 24), dtype, 9), dtype)  # the plan is there
    assert launched == ["layer_norm", "layer_norm_gradient", "layer_norm_fold"] * 2


def test_channels_first(launched: list[str]) -> None:
    ours = FusedLayerNorm(norm(), first=True)
    compare(ours, drawn((2, 24, 3, 5)).contiguous(memory_format=torch.channels_last), torch.float32)
    assert len(launched) == 3
    torch.testing.assert_close(
        ours(drawn((2, 24, 3, 5))), norm()(drawn((2, 24, 3, 5)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    )
    assert len(launched) == 3  # channels are not innermost: torch's


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_result_below_autocast(lowered: bool, dtype: torch.dtype, launched: list[str]) -> None:
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    ours = FusedLayerNorm(norm(), read_lowered=lowered)
    compare(ours, drawn((7, 24), dtype), torch.bfloat16 if lowered else torch.float32)
    assert len(launched) == 3


def test_a_second_derivative(launched: list[str]) -> None:
    ours, theirs = FusedLayerNorm(norm()), norm()
    found = []
    for layer in (ours, theirs):
        x = drawn((3, 24)).requires_grad_()
        (dx,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum(), [x, layer.weight]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert launched == ["layer_norm", "layer_norm_gradient", "layer_norm_fold"]  # of dy, which y is a part of


def test_a_second_derivative_with_parameters_of_halves(launched: list[str]) -> None:
    ours, x = FusedLayerNorm(norm()).bfloat16(), drawn((3, 24), torch.bfloat16).requires_grad_()
    exact, wide = norm().bfloat16().double(), x.detach().double().requires_grad_()
    found = []
    for layer, given in ((ours, x), (exact, wide)):
        (dx,) = torch.autograd.grad(layer(given).double().square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(dx.double().square().sum(), [given, layer.weight]))
    for one, other in zip(*found, strict=True):
        assert one.dtype is torch.bfloat16
        torch.testing.assert_close(one.double(), other, rtol=0.05, atol=0.05 * float(other.abs().max()))


def test_what_is_torchs(launched: list[str]) -> None:
    x = drawn((3, 24))
    for layer, given in (
        (norm().double(), x.double()),  # f64
        (norm(1100), drawn((3, 1100))),  # longer than a warp holds
        (norm(), drawn((24, 3)).t()),  # not dense
        (norm(), x[:0]),
    ):
        ours = FusedLayerNorm(layer)
        torch.testing.assert_close(ours(given), layer(given))
    with pytest.raises(RuntimeError, match="normalized_shape"):
        FusedLayerNorm(norm())(drawn((3, 5)))
    assert launched == []


# -- models ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """As ConvNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(24, 24, 3, padding=1, groups=24), norm(), nn.Dropout(0.0)
        self.up, self.act, self.down = nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        out: Tensor = x + self.down(self.act(self.up(self.drop(y)))).permute(0, 3, 1, 2)
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.block = nn.Conv2d(3, 24, 1), norm(), Block()
        self.last, self.head = norm(), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = self.last(self.block(x).mean((2, 3)))
        out: Tensor = self.head(y) + y.sum()
        return out


def test_the_layer_norms_of_a_model() -> None:
    model = Model()
    before, x = copy.deepcopy(model), drawn((2, 3, 6, 6))
    report = fuse_norms(model)
    assert set(report.taken) == {"first", "block.norm", "last"}
    assert str(report).startswith("3 norms taken, 0 left")
    assert fuse_norms(model).taken == {}
    assert list(model.state_dict()) == list(before.state_dict())
    lowered = {name for name, part in model.named_modules() if isinstance(part, FusedLayerNorm) and part.read_lowered}
    assert lowered == {"block.norm"}  # the others are read by a sum too
    for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fuse_for_inference(model, x.dtype)):
        torch.testing.assert_close(made(x), before(x))


class Depends(nn.Module):
    """Flow that no trace can tell, around blocks of which it can."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.norm = Block(), norm()

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.block(x)
        out: Tensor = self.norm(x.permute(0, 2, 3, 1))
        return out


def test_flow_that_depends_on_values() -> None:
    model = nn.Sequential(Depends())
    assert set(fuse_norms(model).taken) == {"0.block.norm", "0.norm"}
    assert model[0].block.norm.read_lowered
    assert not model[0].norm.read_lowered


class OfF32(nn.Linear):
    """It looks at its input as it comes."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return super().forward(input.float())


class Head(nn.Module):
    def __init__(self, last: nn.Linear, wide: bool) -> None:
        super().__init__()
        self.norm, self.drop, self.last, self.wide = norm(), nn.Dropout(0.0), last, wide

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.norm(x))
        with torch.autocast("cuda", enabled=False) if self.wide else contextlib.nullcontext():
            out: Tensor = self.last(y)
        return out


def test_heads_of_f32_get_f32() -> None:
    """Whose layers autocast casts nothing for."""
    hooked = nn.Linear(24, 3)
    hooked.register_forward_pre_hook(lambda part, given: None)
    for last, wide in ((nn.Linear(24, 3), False), (nn.Linear(24, 3), True), (OfF32(24, 3), False), (hooked, False)):
        model = nn.Sequential(Head(last, wide))
        assert fuse_norms(model).taken
        assert model[0].norm.read_lowered == (type(last) is nn.Linear and last is not hooked and not wide)


def test_what_is_left_alone() -> None:
    class Own(nn.LayerNorm):
        pass

    hooked = norm()
    hooked.register_forward_hook(lambda *_: None)
    model = nn.ModuleList([Own(8), hooked, nn.LayerNorm((3, 4)), nn.LayerNorm(2048)])
    reasons = fuse_norms(model).left
    assert list(reasons) == ["0", "1", "2", "3"]
    assert "may differ" in reasons["0"]
    assert "hooks" in reasons["1"]
    assert "2 dimensions" in reasons["2"]
    assert "2048 values" in reasons["3"]
    assert "itself" in fuse_norms(norm()).left[""]


def test_kernels_that_a_model_needs_are_known_before_it_runs() -> None:
    model = Model()
    assert row_kinds(model, torch.bfloat16) == []
    fuse_norms(model)
    found = row_kinds(model, torch.bfloat16)
    pairs = {("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16"), ("f32", "f32")}
    assert {(kind.dtype, kind.result) for kind in found} == pairs
    assert row_kinds(model, torch.float64) == []
    halved = row_kinds(model.bfloat16(), torch.bfloat16)
    assert {(kind.dtype, kind.result, kind.parameters) for kind in halved} == {
        ("bf16", "bf16", "bf16"), ("bf16", "f32", "bf16"),
    }  # fmt: skip
