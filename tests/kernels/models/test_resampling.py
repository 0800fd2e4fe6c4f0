"""Pools on CPU tensors: the calls that kernels get, which run on the emulated machine; and which layers are taken."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tapestry.kernels.layers.pools import ChannelsLastAvgPool2d, ChannelsLastMaxPool2d, pool_kinds
from tapestry.kernels.pooling import windows
from tapestry.kernels.tensors import autograd, pool_calls
from tapestry.kernels.torch import fuse_for_inference, fuse_norms, fuse_resampling

from ..emulated_calls import emulated, kept_elsewhere

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are plain, and launches run where there is no GPU; the kernels' names as they are launched."""
    return emulated(monkeypatch, pool_calls, windows.KERNELS)


def drawn(*shape: int, dtype: torch.dtype = F32, seed: int = 1) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last)


def fused(layer: nn.Module) -> tuple[nn.Module, str]:
    """The same by kernels, and what those are called."""
    model = nn.Sequential(copy.deepcopy(layer))
    assert fuse_resampling(model) == ["0"]
    assert fuse_resampling(model) == []
    return model[0], "maximum" if isinstance(layer, nn.MaxPool2d) else "average"


POOLS = [
    nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2), nn.MaxPool2d((2, 3), (1, 2), (0, 1), ceil_mode=True), nn.AvgPool2d(2),
    nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    nn.AvgPool2d(3, 1, 1), nn.AvgPool2d((1, 2), 2, (0, 1), divisor_override=3), nn.AvgPool2d([2], [2]),
]  # fmt: skip


@pytest.mark.parametrize("layer", POOLS, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_calls(layer: nn.Module, dtype: torch.dtype, launched: list[str]) -> None:
    ours, name = fused(layer)
    x = drawn(2, 24, 9, 7, dtype=dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    expected = layer(wide)
    for turn in range(2):
        y = ours(x)
        dy = drawn(*y.shape, dtype=dtype, seed=2)
        (dx,) = torch.autograd.grad(y, x, dy if turn else dy.contiguous())  # in another order, too
        (exact,) = torch.autograd.grad(expected, wide, dy.double(), retain_graph=True)
        for found, one in ((y, expected), (dx, exact)):
            assert found.dtype is dtype
            assert found.is_contiguous(memory_format=torch.channels_last)
            near = torch.finfo(dtype).eps
            torch.testing.assert_close(found.double(), one.detach(), rtol=near, atol=4 * near)
    with torch.no_grad():
        assert torch.equal(ours(x), y)
    assert torch.equal(ours(x.detach()), y)
    assert launched == [name, f"{name}_gradient"] * 2 + [name] * 2
    y = ours(x)
    assert not y._is_view()  # what follows may write in place
    y.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(2 * layer(x).sum(), x)[0])


@pytest.mark.parametrize("layer", POOLS, ids=str)
def test_what_is_kept_elsewhere(layer: nn.Module, launched: list[str]) -> None:
    ours, name = fused(layer)
    x = drawn(2, 24, 9, 7).requires_grad_()
    with kept_elsewhere():
        y = ours(x)
    dy = drawn(*y.shape, seed=2)
    torch.testing.assert_close(torch.autograd.grad(y, x, dy), torch.autograd.grad(layer(x), x, dy))
    assert launched == [name, f"{name}_gradient"]


def test_calls_of_the_same_extents_are_told_apart(launched: list[str]) -> None:
    """By all that makes them differ, and in any order."""
    x = drawn(2, 8, 9, 7)
    more = [
        nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(2, divisor_override=3), nn.AvgPool2d(2, divisor_override=-5),
    ]  # fmt: skip
    for layer in [*POOLS, *more] * 2:
        for dtype in (BF16, F16, F32):
            given = x.to(dtype)
            found, expected = fused(layer)[0](given), layer(given.double())
            torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)
    assert len(launched) == 6 * len([*POOLS, *more])


def calls_of(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Of a pool: derivatives of the second order, batched gradients, forward ones, and gradients where all is computed
    again.
    """
    y = layer(x)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(3).sum(), x)
    many = torch.stack([drawn(*y.shape, seed=seed) for seed in range(3)])
    (batched,) = torch.autograd.grad(layer(x), x, many, is_grads_batched=True)
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(x.detach(), torch.ones_like(x)))
        tangent = forward_ad.unpack_dual(dual).tangent
    (again,) = torch.autograd.grad(checkpoint(layer, x, use_reentrant=False).square().sum(), x)  # type: ignore[no-untyped-call]
    return [first.detach(), second, batched, tangent, again]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("layer", POOLS, ids=str)
def test_derivatives_of_other_kinds(layer: nn.Module, launched: list[str]) -> None:
    ours, _ = fused(layer)
    x = drawn(2, 8, 9, 7).requires_grad_()
    for one, other in zip(calls_of(ours, x), calls_of(layer, x), strict=True):
        torch.testing.assert_close(one, other)
    assert launched


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("layer", POOLS, ids=str)
def test_what_is_torchs(layer: nn.Module, launched: list[str]) -> None:
    """What lies otherwise, or has no batch; what is traced or compiled; other types; settings of later."""
    ours, name = fused(layer)
    x = drawn(2, 8, 9, 7)
    odd = torch.empty(x.numel() + 1)[1:].view(2, 9, 7, 8).copy_(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    assert odd.is_contiguous(memory_format=torch.channels_last)
    for other in (odd, x.contiguous(), x[0], x[:0], x.double(), drawn(2, 1, 9, 7), drawn(2, 9, 9, 7)[:, 1:]):
        torch.testing.assert_close(ours(other), layer(other))
    assert torch.jit.trace(ours, x.contiguous(), check_trace=False)(x).shape == layer(x).shape
    assert not launched
    for model in (layer, ours):
        model.stride = 4
    torch.testing.assert_close(ours(x), layer(x))
    assert not launched
    for model in (layer, ours):
        model.stride = 1
    torch.testing.assert_close(ours(x), layer(x))
    assert launched == [name]


def test_settings_that_torch_refuses_or_reads_its_way(launched: list[str]) -> None:
    x = drawn(2, 8, 9, 7)
    zero, many, none, empty = nn.AvgPool2d(2), nn.MaxPool2d(2), nn.MaxPool2d(2), nn.AvgPool2d(2)
    zero.divisor_override, many.kernel_size, none.stride, empty.stride = 0, (2, 2, 2), None, []  # type: ignore[assignment]
    for layer in (zero, many):
        model = nn.Sequential(copy.deepcopy(layer))
        fuse_resampling(model)
        with pytest.raises(RuntimeError, match=r"divisor|kernel_size"):
            model(x)
    for layer in (none, empty):
        torch.testing.assert_close(fused(layer)[0](x), layer(x))
    assert launched == ["maximum", "average"]
    one = drawn(3, 8, 1, 1)
    assert fused(nn.MaxPool2d(3, 1, 1))[0](one).stride() == nn.MaxPool2d(3, 1, 1)(one).stride()


def test_without_a_gpu() -> None:
    ours, _ = fused(POOLS[0])
    x = drawn(2, 8, 9, 7)
    torch.testing.assert_close(ours(x), POOLS[0](x))
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), POOLS[0](x))
    torch.testing.assert_close(torch.func.vmap(ours)(x), POOLS[0](x))
    torch.testing.assert_close(fx.symbolic_trace(nn.Sequential(ours))(x), POOLS[0](x))


class Kept(nn.AvgPool2d):
    """Whose forward may be another."""


def test_which_layers() -> None:
    hooked = nn.AvgPool2d(2)
    hooked.register_forward_hook(lambda *_: None)
    shared = nn.MaxPool2d(3, 2, 1)
    others = [nn.AvgPool2d(2, 4), nn.MaxPool2d(5, 1, 2), nn.AdaptiveAvgPool2d(1), nn.MaxPool2d(2, 2, 2)]
    model = nn.Sequential(
        shared, shared, nn.AvgPool2d(7), nn.MaxPool2d(2, return_indices=True), nn.MaxPool2d(3, dilation=2), Kept(2),
        hooked, nn.AvgPool2d(2), *others,
    )  # fmt: skip
    assert fuse_resampling(model) == ["0", "1", "7"]
    assert model[0] is model[1]
    assert (type(model[0]), type(model[7])) == (ChannelsLastMaxPool2d, ChannelsLastAvgPool2d)
    assert repr(model[7]) == repr(nn.AvgPool2d(2)).replace("AvgPool2d", "ChannelsLastAvgPool2d")
    assert not model.state_dict()
    alone: Any = nn.AvgPool2d(2)
    assert fuse_resampling(alone) == []  # nowhere to put another
    x = drawn(1, 4, 6, 6)
    for other in (copy.deepcopy(model[7]), pickle.loads(pickle.dumps(model[7]))):
        assert torch.equal(other(x), model[7](x))


@pytest.mark.parametrize(
    ("shape", "how", "detours"),
    [
        ((4, 64, 7, 5), {"scale_factor": 2}, True), ((4, 64, 7, 5), {"size": (9, 8)}, True),
        ((4, 64, 7, 5), {"size": 9, "align_corners": True}, True), ((4, 64, 7, 5), {"scale_factor": (1.5, 2.5)}, True),
        ((4, 64, 7, 5), {"scale_factor": 12}, False), ((1, 64, 7, 5), {"scale_factor": 2}, False),
        ((40, 8, 7, 5), {"scale_factor": 2}, False),
    ],
    ids=str,
)  # fmt: skip
def test_bilinear_upsampling(
    shape: tuple[int, ...], how: dict[str, Any], detours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are and lie as torch's; where it is slow, it is given channels-last images."""
    theirs = nn.Upsample(mode="bilinear", **how)
    model = nn.Sequential(copy.deepcopy(theirs), nn.Upsample(scale_factor=2))
    assert fuse_resampling(model) == ["0"]
    monkeypatch.setattr(autograd, "plain", lambda *tensors: True)
    given, of_torch = [], functional.interpolate

    def noted(x: Tensor, *rest: Any, **named: Any) -> Tensor:
        given.append(x.is_contiguous(memory_format=torch.channels_last))
        return of_torch(x, *rest, **named)

    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = theirs(x)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(functional, "interpolate", noted)
    found = model[0](x)
    assert given == [detours]
    assert found.stride() == y.stride()
    torch.testing.assert_close(found, y)
    torch.testing.assert_close(*(torch.autograd.grad(one, x, dy)[0] for one in (found, y)))
    last = x.detach().contiguous(memory_format=torch.channels_last)
    assert model[0](last).stride() == theirs(last).stride()
    assert given[1:] == [True, True]
    torch.testing.assert_close(model[0](x.detach()[:0]), theirs(x.detach()[:0]))
    model[0]._is_slow = None  # of what is traced nobody asks
    traced = torch.compile(model[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(traced(x), y)


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 3, groups=4), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AvgPool2d(2),
    )  # fmt: skip


def test_fused_inference_has_them() -> None:
    model = net().eval()
    made = fuse_for_inference(model, F32)
    kinds = [type(part) for part in made.modules()]
    assert kinds.count(ChannelsLastMaxPool2d) == kinds.count(ChannelsLastAvgPool2d) == 1
    x = drawn(2, 3, 24, 24)
    torch.testing.assert_close(made(x), model(x))
    assert all(type(part) not in (ChannelsLastMaxPool2d, ChannelsLastAvgPool2d) for part in model.modules())


def test_norms_are_fused_behind_and_before_them() -> None:
    """Whichever comes first."""
    models = [net(), net()]
    fuse_norms(models[0])
    fuse_resampling(models[0])
    fuse_resampling(models[1])
    fuse_norms(models[1])
    assert [type(part) for part in models[0].modules()] == [type(part) for part in models[1].modules()]
    x = drawn(2, 3, 24, 24)
    for model in models:
        torch.testing.assert_close(model(x), net()(x))


def test_kernels_that_are_compiled_ahead() -> None:
    model = net()
    assert pool_kinds(model, BF16) == []
    fuse_resampling(model)
    found = pool_kinds(model, BF16)
    assert [(kind.dtype, kind.vector, kind.window.size) for kind in found] == [("bf16", 8, (3, 3)), ("bf16", 8, (2, 2))]
    assert pool_kinds(model, torch.float64) == []
