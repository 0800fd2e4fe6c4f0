"""Layer scales of models, and the sums behind them: blocks compute what they did, whatever they are called by. What
kernels are called for: tensors/test_scale_calls.py.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.models.scales import scale_kinds
from tapestry.kernels.normalization.scaled_sum import ScaleKind
from tapestry.kernels.tensors import scale_calls
from tapestry.kernels.torch import fuse_for_inference, fuse_for_training, fuse_layer_scales, fuse_norms

from ..tensors.test_scale_calls import BF16, F64, drawn


class LayerScale(nn.Module):
    """As timm has it."""

    def __init__(self, channels: int, inplace: bool = False) -> None:
        super().__init__()
        self.gamma, self.inplace = nn.Parameter(torch.randn(channels)), inplace

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(self.gamma) if self.inplace else x * self.gamma


class LayerScale2d(LayerScale):
    def forward(self, x: Tensor) -> Tensor:
        gamma = self.gamma.view(1, -1, 1, 1)
        return x.mul_(gamma) if self.inplace else x * gamma


LayerScale.__module__ = LayerScale2d.__module__ = "timm.layers.layer_scale"


class DropPath(nn.Module):
    """Likewise."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.drop_prob)
        return x * kept.div_(1 - self.drop_prob)


DropPath.__module__ = "timm.layers.drop"


class ConvNeXt(nn.Module):
    """A block as timm's ConvNeXt has it."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.LayerNorm(8)
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)
        self.gamma, self.shortcut = nn.Parameter(torch.randn(8)), nn.Identity()
        self.drop_path = DropPath(drop) if drop else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.conv(x).permute(0, 2, 3, 1)
        x = self.down(self.act(self.up(self.norm(x)))).permute(0, 3, 1, 2)
        if self.gamma is not None:
            x = x.mul(self.gamma.reshape(1, -1, 1, 1))
        return self.drop_path(x) + self.shortcut(shortcut)


class Rows(ConvNeXt):
    """The same as it was written first: channels lie last where they are multiplied."""

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.conv(x).permute(0, 2, 3, 1)
        x = self.gamma * self.down(self.act(self.up(self.norm(x))))
        x = x.permute(0, 3, 1, 2)
        return shortcut + self.drop_path(x)


class Written(ConvNeXt):
    """The same as torchvision has it: the sum is written into the product."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__(drop)
        self.layer_scale = nn.Parameter(torch.randn(8, 1, 1))
        self.gamma = None  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        result = self.layer_scale * self.conv(x)
        result = self.drop_path(result)
        result += x
        return result


class Scaled(nn.Module):
    """Two sums, with layers that scale."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn, self.mlp = nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.ls1, self.ls2, self.drop_path1, self.drop_path2 = (
            LayerScale(8),
            LayerScale(8),
            DropPath(drop),
            DropPath(drop),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return self.drop_path2(self.ls2(self.mlp(self.norm2(x)))) + x


class Images(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv, self.scale, self.drop_path = nn.Conv2d(8, 8, 1), LayerScale2d(8), DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.scale(self.conv(x)))


BLOCKS = {ConvNeXt: (5, 8, 4, 6), Rows: (5, 8, 4, 6), Written: (5, 8, 4, 6), Scaled: (5, 7, 8), Images: (5, 8, 4, 6)}


def model(block: type[Any], drop: float) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(block(drop), block(drop)).double()


def steps(made: nn.Module, shape: tuple[int, ...]) -> list[Tensor]:
    """Results and gradients of two steps of training, whatever is drawn, and results in evaluation."""
    torch.manual_seed(6)
    found: list[Tensor] = []
    x = drawn(*shape).double().requires_grad_()
    for training in (True, True, False):
        made.train(training)
        y = made(x)
        found += [
            y,
            *torch.autograd.grad(
                y.sin().sum(), [x, *(each for each in made.parameters() if each is not None)], allow_unused=True
            ),
        ]  # type: ignore[list-item]
    return [each.detach() for each in found if each is not None]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_blocks_compute_what_they_did(block: type[Any], drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is asked: what is dropped is drawn as it was."""
    made, before, calls = model(block, drop), model(block, drop), []
    named = dict(made.named_parameters())
    assert fuse_layer_scales(made) == ["0", "1"]
    assert dict(made.named_parameters()).keys() == named.keys()
    assert all(value is named[name] for name, value in made.named_parameters())
    monkeypatch.setattr(scale_calls, "_by_torch", _noted(scale_calls._by_torch, calls))
    copies = [made, copy.deepcopy(made)]
    if drop == 0.0 and block in (
        ConvNeXt,
        Rows,
        Written,
    ):  # the others have layers that are said to be of other modules
        copies.append(pickle.loads(pickle.dumps(made)))
    for copied in copies:
        calls.clear()
        for one, other in zip(steps(copied, BLOCKS[block]), steps(before, BLOCKS[block]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert len(calls) == 3 * 2 * (2 if block is Scaled else 1)
    assert fuse_layer_scales(made) == []


def _noted(call: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def noted(*given: Any) -> Any:
        calls.append(given)
        return call(*given)

    return noted


@pytest.mark.parametrize("block", BLOCKS)
def test_graphs_of_torch_compile_have_no_breaks(block: type[Any]) -> None:
    made, before = model(block, 0.0), model(block, 0.0)
    fuse_layer_scales(made)
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    x = drawn(*BLOCKS[block]).double()
    torch.testing.assert_close(compiled(x), before(x))


@pytest.mark.parametrize("block", [ConvNeXt, Rows, Written])
def test_with_all_else(block: type[Any]) -> None:
    """In one call, twice, and fused for inference afterwards."""
    made, before = model(block, 0.3), model(block, 0.3)
    report = fuse_for_training(made)
    assert report.scales == ("0", "1")
    assert "2 layer scales taken" in str(report).splitlines()
    assert fuse_for_training(made).scales == ()
    for one, other in zip(steps(made, BLOCKS[block]), steps(before, BLOCKS[block]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    x = drawn(*BLOCKS[block]).double()
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(made, F64)(x), before.eval()(x), rtol=1e-5, atol=1e-5)
    assert fuse_for_training(model(block, 0.3), scales=False).scales == ()


def test_what_is_not_taken() -> None:
    class Twice(Images):
        def forward(self, x: Tensor) -> Tensor:
            y = self.scale(self.conv(x))
            return x + y + y.mean()

    class Between(Images):
        def forward(self, x: Tensor) -> Tensor:
            y, z = self.scale(self.conv(x)), self.conv(x)
            z.mul_(2)
            return z + self.drop_path(y)

    class Into(Images):
        def forward(self, x: Tensor) -> Tensor:
            z = self.conv(x)
            z += self.scale(z)
            return z

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.gamma = nn.Conv2d(8, 8, 1), nn.Parameter(torch.randn(8, 4, 6))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.gamma * self.conv(x)

    class Columns(ConvNeXt):
        """Numbers of columns, which images had as channels."""

        def forward(self, x: Tensor) -> Tensor:
            y = self.down(self.act(self.up(x.permute(0, 2, 3, 1))))
            return x + (y * self.gamma.view(1, 1, -1, 1)).permute(0, 3, 1, 2)

    hooked = Images()
    hooked.drop_path.register_forward_hook(lambda *given: None)
    in_place = Images()
    in_place.scale.inplace = True
    for block in (Twice(), Between(), Into(), Table(), Columns(), hooked, in_place):
        assert fuse_layer_scales(nn.Sequential(block)) == [], type(block)


def test_a_summand_that_is_read_twice_is_left() -> None:
    class Doubled(Images):
        def forward(self, x: Tensor) -> Tensor:
            y = self.scale(self.conv(x))
            return y + y

    class Squared(ConvNeXt):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.gamma * self.gamma

    class Overwritten(Images):
        def __init__(self) -> None:
            super().__init__()
            self.rest = nn.Sequential(nn.ReLU(inplace=True))

        def forward(self, x: Tensor) -> Tensor:
            h = self.conv(x)
            y = self.scale(h)
            return self.rest(h) + y

    for block in (Doubled(), Squared(), Overwritten()):
        assert fuse_layer_scales(nn.Sequential(block)) == [], type(block)


def test_a_sum_that_is_written_keeps_the_products_type() -> None:
    made = Written().bfloat16()
    before = copy.deepcopy(made)
    model = nn.Sequential(made)
    assert fuse_layer_scales(model) == ["0"]
    x = drawn(*BLOCKS[Written])
    with torch.autocast("cpu", BF16):
        found, expected = model(x), before(x)
    assert found.dtype is expected.dtype is BF16
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("fused", [False, True], ids=["as it was", "fused for training"])
def test_fused_inference_has_a_call_of_each(block: type[Any], fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled, copied and compiled, too; and kernels of it are known before it runs."""
    before, x, calls = model(block, 0.4).float().eval(), drawn(*BLOCKS[block]), []
    if fused:
        fuse_layer_scales(before)
    made = fuse_for_inference(before, torch.float32)
    scales = 4 if block is Scaled else 2
    monkeypatch.setattr(scale_calls, "_by_torch", _noted(scale_calls._by_torch, calls))
    for one in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        calls.clear()
        torch.testing.assert_close(one(x), before(x))
        assert len(calls) == (2 * scales if fused else scales)  # of both models
        assert scale_kinds(one, BF16)
    with torch.no_grad():
        compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), before(x))


def test_images_without_a_batch_are_dropped_as_one() -> None:
    made, before = model(Images, 0.5).train(), model(Images, 0.5).train()
    fuse_layer_scales(made)
    x = drawn(8, 4, 6).double()
    for seed in range(6):
        found = []
        for called in (made, before):
            torch.manual_seed(seed)
            found.append(called(x))
        torch.testing.assert_close(*found)


def test_settings_that_are_changed_later_count() -> None:
    made, before, x = model(Images, 0.0), model(Images, 0.0), drawn(*BLOCKS[Images]).double()
    fuse_layer_scales(made)
    for each in (made, before):
        each[0].scale = nn.Identity()
        each[1].drop_path.drop_prob = 0.5
    for one, other in zip(steps(made, BLOCKS[Images]), steps(before, BLOCKS[Images]), strict=True):
        torch.testing.assert_close(one, other)
    assert fuse_norms(made).left == {}
    del x


def test_kernels_that_a_model_needs_are_known_before_it_runs() -> None:
    made = model(ConvNeXt, 0.0).float()
    assert scale_kinds(made, BF16) == []
    fuse_layer_scales(made)
    assert scale_kinds(made, BF16) == [
        ScaleKind("bf16", "f32", "f32", "f32", 4), ScaleKind("bf16", "bf16", "f32", "f32", 4),
    ]  # fmt: skip
    dropping = model(ConvNeXt, 0.2).bfloat16()
    fuse_layer_scales(dropping)
    assert scale_kinds(dropping, BF16) == [ScaleKind("bf16", "bf16", "bf16", "bf16", 8, True)]
