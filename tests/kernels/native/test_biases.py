"""Biases of layers that torch computes: gradients by Python and by the extension, and all else as torch has it."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.utils import prune

from tapestry.kernels.layers.biases import BiasedConv2d, BiasedLinear
from tapestry.kernels.tensors import native_calls
from tapestry.kernels.tensors.bias_calls import linked
from tapestry.kernels.torch import fuse_biases, fuse_for_inference, replace_convolutions

from ..layers.test_timm import ScaledStdConv2d
from .driver import Driver
from .steps import BF16, F32, autocast, by_python, freed, same, step
from .test_channel_sums import sums

__all__ = ["sums"]  # a fixture


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


def layers(kind: str) -> tuple[nn.Module, nn.Module]:
    """One of torch's, and the same with a bias of ours; their images and gradients are `shapes`."""
    torch.manual_seed(5)
    theirs: nn.Module = nn.Linear(16, 24) if kind == "linear" else nn.Conv2d(16, 24, 2, 2)
    ours = nn.Sequential(copy.deepcopy(theirs))
    assert fuse_biases(ours) == ["0"]
    assert type(ours[0]) is (BiasedLinear if kind == "linear" else BiasedConv2d)
    return theirs, ours[0]


SHAPES = {
    "linear": [((3, 5, 16), (3, 5, 24)), ((16,), (24,)), ((700, 16), (700, 24)), ((2, 3, 5, 16), (2, 3, 5, 24))],
    "convolution": [((2, 16, 6, 4), (2, 24, 3, 2)), ((9, 16, 40, 30), (9, 24, 20, 15))],
}
CASES = [(kind, *shapes) for kind, found in SHAPES.items() for shapes in found]


@pytest.mark.parametrize(("kind", "given", "made"), CASES, ids=str)
@pytest.mark.parametrize("lowered", [False, True])
def test_steps(sums: Driver, kind: str, given: tuple[int, ...], made: tuple[int, ...], lowered: bool) -> None:
    theirs, ours = layers(kind)
    x, dy = drawn(*given, dtype=F32).requires_grad_(), drawn(*made, seed=1, dtype=BF16 if lowered else F32)
    if len(given) == 4 and kind == "linear":
        x, dy = x.detach().contiguous().requires_grad_(), dy.contiguous()
    with autocast() if lowered else torch.enable_grad():
        expected = step(theirs, x, dy)
        step(ours, x, dy)  # by Python, which tells the extension
        for who in ("python", "native", "python", "native"):
            sums.ran.clear()
            with by_python() if who == "python" else contextlib.nullcontext():
                found = step(ours, x, dy)
            same(found[:3], expected[:3])  # all but the bias's
            assert found[3] is not None
            exact = dy.double().reshape(-1, made[-1]).sum(0) if kind == "linear" else dy.double().sum((0, 2, 3))
            torch.testing.assert_close(found[3].double(), exact, rtol=1e-6, atol=1e-4)
            assert {*sums.ran} == {who} or (len(given) == 1 and not sums.ran)


@pytest.mark.parametrize(("kind", "given", "made"), CASES, ids=str)
def test_steps_in_halves(sums: Driver, kind: str, given: tuple[int, ...], made: tuple[int, ...]) -> None:
    """Of layers that are bf16 altogether: sums are f32 and rounded once."""
    theirs, ours = (layer.to(BF16) for layer in layers(kind))
    x, dy = drawn(*given).requires_grad_(), drawn(*made, seed=1)
    if len(given) == 4 and kind == "linear":
        x, dy = x.detach().contiguous().requires_grad_(), dy.contiguous()
    expected = step(theirs, x, dy)
    step(ours, x, dy)  # by Python, which tells the extension
    for who in ("python", "native"):
        sums.ran.clear()
        with by_python() if who == "python" else contextlib.nullcontext():
            found = step(ours, x, dy)
        same(found[:3], expected[:3])
        assert found[3] is not None
        exact = dy.double().reshape(-1, made[-1]).sum(0) if kind == "linear" else dy.double().sum((0, 2, 3))
        torch.testing.assert_close(found[3], exact.float().to(BF16), rtol=2.0**-7, atol=1e-4)
        assert {*sums.ran} == {who} or (len(given) == 1 and not sums.ran)


def nodes_behind(y: Tensor) -> set[str]:
    """What autograd has recorded of a result."""
    found, left = set[Any](), [y.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found.add(node)
            left += [before for before, _ in node.next_functions]
    return {str(node.name()) for node in found}


@pytest.mark.parametrize("settings", [{}, {"stride": 2}, {"padding": "same"}, {"padding": 1}, {"groups": 2}])
@pytest.mark.parametrize("lies", ["channels last", "channels first", "part"])
@pytest.mark.parametrize("lowered", [False, True])
def test_images_of_one_pixel(sums: Driver, settings: dict[str, Any], lies: str, lowered: bool) -> None:
    """A convolution over them is a linear layer, whichever way; what follows writes in place, as they often do."""
    torch.manual_seed(4)
    theirs = nn.Sequential(nn.Conv2d(16, 24, 1, **settings), nn.SiLU(inplace=True))
    if lies != "channels first":
        theirs = theirs.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    assert fuse_biases(ours) == ["0"]
    x = drawn(9, 16, 1, 1, dtype=F32) if lies != "part" else drawn(9, 48, 1, 1, dtype=F32)[:, 7:39:2]
    x = x.detach().requires_grad_()
    with autocast() if lowered else torch.enable_grad():
        dy = torch.randn_like(theirs(x))
        expected = step(theirs, x, dy)
        for who in ("python", "native", "native"):
            with by_python() if who == "python" else contextlib.nullcontext():
                found = step(ours, x, dy)
            for one, other in zip(found, expected, strict=True):
                assert one is not None
                assert other is not None
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                torch.testing.assert_close(one, other, rtol=2e-2 if lowered else 1e-5, atol=2e-2 if lowered else 1e-5)
        for way in (by_python(), contextlib.nullcontext()):
            with way:
                names = nodes_behind(y := ours(x))
                (dw,) = torch.autograd.grad(y, [ours[0].weight], dy)
            assert dw.stride() == ours[0].weight.stride()  # torch's parallel modules warn of others
            product = settings in ({}, {"stride": 2}, {"padding": "same"})
            assert any("Convolution" in name for name in names) is not product
            assert any(("Product" if product else "Linked") in name for name in names)


@pytest.mark.parametrize("settings", [{}, {"stride": 2}, {"padding": "same"}, {"padding": 1}, {"groups": 2}])
@pytest.mark.parametrize("lies", ["channels last", "channels first", "part"])
@pytest.mark.parametrize("types", ["autocast", "halves", "f32"])
def test_one_tap(sums: Driver, settings: dict[str, Any], lies: str, types: str) -> None:
    """Of images that lie as rows, and halves, it is a product that adds the bias; others torch convolves."""
    torch.manual_seed(4)
    theirs = nn.Sequential(nn.Conv2d(16, 24, 1, **settings), nn.SiLU(inplace=True))
    if lies != "channels first":
        theirs = theirs.to(memory_format=torch.channels_last)
    if types == "halves":
        theirs = theirs.to(BF16)
    ours = copy.deepcopy(theirs)
    assert fuse_biases(ours) == ["0"]
    dtype = BF16 if types == "halves" else F32
    x = drawn(3, 48, 5, 4, dtype=dtype)[:, 7:39:2] if lies == "part" else drawn(3, 16, 5, 4, dtype=dtype)
    x = (x.detach() if lies != "channels first" else x.detach().contiguous()).requires_grad_()
    product = settings in ({}, {"padding": "same"}) and lies == "channels last" and types != "f32"
    near = {"rtol": 1e-5, "atol": 1e-5} if types == "f32" else {"rtol": 2e-2, "atol": 4e-2}
    with autocast() if types == "autocast" else torch.enable_grad():
        y = theirs(x)
        dy = torch.randn_like(y)
        expected = step(theirs, x, dy)
        for who in ("python", "native", "native"):
            sums.ran.clear()
            with by_python() if who == "python" else contextlib.nullcontext():
                found, names = step(ours, x, dy), nodes_behind(ours(x))
                with torch.no_grad():  # what autograd records nothing of is the same product
                    assert torch.equal(ours(x), found[0])
                    torch.testing.assert_close(ours(x.expand(3, -1, -1, -1)[:0]), y[:0])
            assert any("Product" in name for name in names) is product
            assert any("Convolution" in name for name in names) is not product
            for one, other in zip(found, expected, strict=True):
                assert one is not None
                assert other is not None
                assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
                torch.testing.assert_close(one, other, **near)
    by_word = product and "same" in settings.values()  # which the extension does not read
    assert sums.ran == ["python" if by_word else "native"] or lies != "channels last"


def test_one_tap_and_what_does_not_learn(sums: Driver) -> None:
    """Is a product as well, of which nothing more is computed than asked for."""
    theirs = nn.Conv2d(16, 24, 1).to(BF16, memory_format=torch.channels_last)  # type: ignore[call-overload]
    ours = nn.Sequential(copy.deepcopy(theirs))
    fuse_biases(ours)
    x, dy = drawn(2, 16, 6, 4), drawn(2, 24, 6, 4, seed=1)
    for learns in ([], ["weight"], ["bias"]):
        for layer in (theirs, ours[0]):
            for name, parameter in layer.named_parameters():
                parameter.requires_grad_(name in learns)
        for given in (x, x.detach().requires_grad_()):
            if not learns and not given.requires_grad:
                continue
            expected = step(theirs, given, dy)
            for way in (by_python, contextlib.nullcontext):
                with way():
                    assert "Product" in ours(given).grad_fn.name()
                    found = step(ours[0], given, dy)
                assert [one is None for one in found] == [other is None for other in expected]
                for one, other in zip(found, expected, strict=True):
                    if one is not None:
                        torch.testing.assert_close(one, other, rtol=2e-2, atol=4e-2)


@pytest.mark.parametrize("extents", [(1, 1), (6, 4)])
@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_derivatives_of_products_under_autocast(sums: Driver, extents: tuple[int, int], way: Callable[[], Any]) -> None:
    """Second ones, batched ones; and backward passes under autocast, where forward ones were not."""
    theirs = nn.Conv2d(16, 24, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ours = nn.Sequential(copy.deepcopy(theirs))
    fuse_biases(ours)
    x, dy = (drawn(9, of, *extents, dtype=F32, seed=of).requires_grad_() for of in (16, 24))
    found = []
    for layer in (theirs, ours[0]):
        with way():
            with autocast():
                y = layer(x)
            first = torch.autograd.grad(y, [x, *layer.parameters()], dy.to(y.dtype), create_graph=True)
            second = torch.autograd.grad(sum(one.float().square().sum() for one in first), [dy, layer.weight])
            with autocast():
                many = torch.stack([drawn(*dy.shape, seed=seed) for seed in range(3)])
                batched = torch.autograd.grad(layer(x), [x, *layer.parameters()], many, is_grads_batched=True)
            y = layer(x)
            with autocast():
                exact = torch.autograd.grad(y, [x, layer.weight], dy)
            found.append([*first, *second, *batched])
            wide = torch.autograd.grad(theirs(x), [x, theirs.weight], dy)
            if extents == (1, 1) and layer is not theirs:  # in f32, as the layer was
                for one, other in zip(exact, wide, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    for one, other in zip(*found, strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2 * float(other.detach().abs().max()))


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_what_is_no_product_of_pixels(sums: Driver, way: Callable[[], Any]) -> None:
    """Images without a batch, of one channel, of no pixels; numbers that are complex."""
    with way():
        for channels, shape in ((16, (16, 16, 4)), (1, (2, 1, 6, 4))):
            theirs = nn.Conv2d(channels, 24, 1).to(BF16, memory_format=torch.channels_last)  # type: ignore[call-overload]
            ours = nn.Sequential(copy.deepcopy(theirs))
            fuse_biases(ours)
            x = drawn(*shape)
            assert torch.equal(ours(x), theirs(x))
            assert ours(x).stride() == theirs(x).stride()
        with pytest.raises(RuntimeError, match="size"):
            ours(drawn(2, 1, 0, 4))
        theirs = nn.Conv2d(16, 24, 1, dtype=torch.complex64)
        ours = nn.Sequential(copy.deepcopy(theirs))
        fuse_biases(ours)
        x = torch.randn(3, 16, 1, 1, dtype=torch.complex64)
        for one, other in zip(
            *(torch.autograd.grad(of(x).abs().sum(), [*of.parameters()]) for of in (ours, theirs)), strict=True
        ):
            torch.testing.assert_close(one, other)


def test_images_are_kept_for_what_learns(sums: Driver) -> None:
    """Where the filter does not, they are not."""
    for learns in (True, False):
        ours = nn.Sequential(nn.Conv2d(16, 24, 1).to(BF16, memory_format=torch.channels_last))  # type: ignore[call-overload]
        fuse_biases(ours)
        ours[0].weight.requires_grad_(learns)
        for way in (by_python, contextlib.nullcontext):
            kept: list[Tensor] = []

            def pack(tensor: Tensor, kept: list[Tensor] = kept) -> Tensor:
                kept.append(tensor)
                return tensor

            with way(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                y = ours(drawn(2, 16, 6, 4).requires_grad_())
                torch.autograd.grad(y.sum(), ours[0].bias)
            assert any(tuple(tensor.shape) == (2, 16, 6, 4) for tensor in kept) is learns


def test_a_bias_that_is_not_the_filters(sums: Driver) -> None:
    """torch says so; a product would spread it."""
    ours = nn.Sequential(nn.Conv2d(16, 24, 1).to(BF16, memory_format=torch.channels_last))  # type: ignore[call-overload]
    fuse_biases(ours)
    ours[0].bias = nn.Parameter(torch.zeros(1, dtype=BF16))
    for way in (by_python, contextlib.nullcontext):
        with way(), pytest.raises(RuntimeError, match="bias"):
            ours(drawn(2, 16, 6, 4))


@pytest.mark.parametrize(
    "settings", [{"padding": 1}, {"padding": (1,)}, {"stride": 1, "padding": "valid"}, {"dilation": (1,)}]
)
def test_steps_that_are_said_in_another_way(sums: Driver, settings: dict[str, Any]) -> None:
    """Later, and as torch takes them: one number for both, a word."""
    theirs, ours = layers("convolution")
    for name, value in settings.items():
        for layer in (theirs, ours):
            setattr(layer, name, value)
    x = drawn(2, 16, 6, 4, dtype=F32)
    for way in (by_python(), contextlib.nullcontext()):
        with way:
            torch.testing.assert_close(ours(x), theirs(x))
    with pytest.raises(RuntimeError, match="to have 16 channels"):
        ours(drawn(2, 24, 6, 4, dtype=F32))


@pytest.mark.parametrize("given", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("of_filter", [torch.channels_last, torch.contiguous_format])
def test_results_of_one_pixel_are_in_the_format_of_torchs(sums: Driver, given: Any, of_filter: Any) -> None:
    """What resizes them goes by that."""
    theirs = nn.Conv2d(16, 24, 1).to(memory_format=of_filter)  # type: ignore[call-overload]
    ours = nn.Sequential(copy.deepcopy(theirs))
    fuse_biases(ours)
    x = torch.randn(9, 16, 1, 1).to(memory_format=given)
    for way in (by_python(), contextlib.nullcontext()):
        with way:
            assert ours(x).stride() == theirs(x).stride()
    with pytest.raises(RuntimeError, match="to have 16 channels"):
        ours(torch.randn(9, 8, 1, 1))


def test_standardized_filters(sums: Driver) -> None:
    """timm's, of which the filter is made anew in every call."""
    torch.manual_seed(2)
    model = nn.Sequential(ScaledStdConv2d(16, 1))
    theirs = copy.deepcopy(model[0])
    assert fuse_biases(model) == ["0"]
    ours, x, dy = model[0], drawn(2, 16, 6, 4, dtype=F32).requires_grad_(), drawn(2, 16, 6, 4, seed=1, dtype=F32)
    for _ in range(2):
        expected, found = (step(layer, x, dy) for layer in (theirs, ours))
        for one, other in zip(found, expected, strict=True):
            assert one is not None
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert sums.ran == ["python", "native"]
    torch.testing.assert_close(ours(x.detach()[0]), theirs(x.detach()[0]))


def test_what_follows_may_write_in_place(sums: Driver) -> None:
    """As after torch's layers, by both ways."""
    theirs, ours = layers("linear")
    x = drawn(6, 16, dtype=F32).requires_grad_()

    def gradients(layer: nn.Module) -> list[Tensor]:
        y = functional.relu_(layer(x).mul_(2).add_(1))
        return list(torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]))

    expected = gradients(theirs)
    with by_python():
        python = gradients(ours)
    for found in (python, gradients(ours), gradients(ours)):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["blocks", "pixels"])
@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_derivatives_of_higher_order(sums: Driver, kind: str, way: Callable[[], Any]) -> None:
    theirs, ours = layers("convolution")
    x = drawn(2, 16, 6, 4, dtype=F32).requires_grad_()
    if kind == "pixels":
        theirs, x = nn.Conv2d(16, 24, 1), drawn(6, 16, 1, 1, dtype=F32).requires_grad_()
        ours = nn.Sequential(copy.deepcopy(theirs))
        fuse_biases(ours)
        ours = ours[0]
    found = []
    for layer in (theirs, ours):
        with way():
            y = layer(x)
            first = torch.autograd.grad(y.pow(3).sum(), [x, *layer.parameters()], create_graph=True)
            found.append(torch.autograd.grad(sum(one.square().sum() for one in first), [x, *layer.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("frozen", ["weight", "bias", "both"])
def test_what_does_not_learn_gets_nothing(sums: Driver, frozen: str) -> None:
    for kind in SHAPES:
        theirs, ours = layers(kind)
        for layer in (theirs, ours):
            layer.weight.requires_grad_(frozen == "bias")
            layer.bias.requires_grad_(frozen == "weight")
        given, made = SHAPES[kind][0]
        for x in (drawn(*given, dtype=F32), drawn(*given, dtype=F32).requires_grad_()):
            expected, found = (step(layer, x, drawn(*made, seed=1, dtype=F32)) for layer in (theirs, ours))
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if one is not None and other is not None:
                    torch.testing.assert_close(one, other)


def test_calls_that_are_torchs(sums: Driver) -> None:
    """Without gradients, traced, transformed; where nothing is linked."""
    theirs, ours = layers("linear")
    x = drawn(6, 16, dtype=F32)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))
    assert ours(x).grad_fn.name() != theirs(x).grad_fn.name()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), theirs(x))
    each = torch.func.vmap(
        torch.func.grad(lambda row: torch.func.functional_call(ours, dict(ours.named_parameters()), row).sum())
    )
    torch.testing.assert_close(each(x), theirs.weight.sum(0).expand(6, 16))
    images = layers("convolution")[1]
    assert images(drawn(16, 6, 4, dtype=F32)).shape == (24, 3, 2)
    assert not sums.ran
    native = native_calls.linked
    assert native is not None
    y, bias = drawn(6, 24, dtype=F32), nn.Parameter(torch.zeros(24))
    assert native(y, bias, True) is not None
    for other in (bias.detach().double(), bias[:3], bias[None], None, 3):
        assert native(y, other, True) is None  # type: ignore[arg-type]
    assert native(y, bias, False) is None  # no images
    assert native(y.to("meta"), bias, True) is None
    half = nn.Parameter(torch.zeros(24, dtype=BF16))
    (found,) = torch.autograd.grad(linked(y.to(BF16), half, True), half, y.to(BF16))
    assert found.dtype is BF16
    torch.testing.assert_close(found, y.to(BF16).float().sum(0).to(BF16))


def test_parameters_that_are_not_the_layers_own(sums: Driver) -> None:
    """Pruned, reparametrized, or those of a replica: torch's layers with what they have instead."""
    for kind, (given, _) in ((kind, shapes[0]) for kind, shapes in SHAPES.items()):
        for name in ("weight", "bias"):
            for other in (prune.identity, replica):
                theirs, ours = layers(kind)
                for layer in (theirs, ours):
                    other(layer, name)
                x = drawn(*given, dtype=F32)
                torch.testing.assert_close(ours(x), theirs(x))
    assert not sums.ran


def replica(layer: nn.Module, name: str) -> None:
    """As DataParallel makes them: a tensor of the layer's, and no parameter."""
    value = getattr(layer, name).detach()
    delattr(layer, name)
    setattr(layer, name, value)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_gradients_that_are_traced_or_transformed(sums: Driver) -> None:
    """Forward ones, batched ones, those of a trace: all as torch's layers have them, by both ways."""
    for kind, (given, made) in ((kind, shapes[0]) for kind, shapes in SHAPES.items()):
        theirs, ours = layers(kind)
        x, many = drawn(*given, dtype=F32), torch.randn(3, *made)
        for where in (by_python, contextlib.nullcontext):
            found = []
            for layer in (theirs, ours):
                with where():
                    y = layer(x)
                    batched = torch.autograd.grad(y, [layer.weight, layer.bias], many, is_grads_batched=True)
                    with forward_ad.dual_level():
                        dual = layer(forward_ad.make_dual(x, torch.ones_like(x)))
                        tangent = forward_ad.unpack_dual(dual).tangent
                    traced = torch.jit.trace(layer, x, check_trace=False)(x)
                found.append([*batched, tangent, traced])
            for one, other in zip(*found, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_graphs_of_torch_fx(sums: Driver) -> None:
    """For those who trace, a convolution may be no leaf; a linear layer is known to write to nothing but its result."""
    model = nn.Sequential(nn.Conv2d(16, 24, 3, groups=8), nn.Flatten(), nn.Linear(96, 4))
    fuse_biases(model)
    x = drawn(2, 16, 4, 4, dtype=F32)
    torch.testing.assert_close(fx.symbolic_trace(model)(x), model(x))
    expected = Beside().eval()
    ours = copy.deepcopy(expected)
    assert fuse_biases(ours) == ["conv", "fc"]
    for made in (fuse_for_inference(each, F32) for each in (expected, ours)):
        assert not [part for part in made.modules() if isinstance(part, nn.BatchNorm2d)]
        torch.testing.assert_close(made(x), expected(x))


class Beside(nn.Module):
    """Something is written in place between a convolution and its norm, which is a linear layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(16, 16, 3, groups=2), nn.BatchNorm2d(16), nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        gate = self.act(self.fc(x.mean((1, 2))))
        made: Tensor = self.norm(y) + gate.mean()
        return made


def test_gradients_that_are_not_dense(sums: Driver) -> None:
    _, ours = layers("linear")
    for _ in range(2):
        y = ours(drawn(4, 6, 16, dtype=F32))
        (found,) = torch.autograd.grad(y.sum(), ours.bias)
        assert torch.equal(found, torch.full((24,), 24.0))
    assert not sums.ran


def test_layers_that_are_swapped_or_fused_afterwards() -> None:
    """Are taken for what they were."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(16, 16, 3, groups=2), nn.ReLU(), ScaledStdConv2d(16, 3, groups=2), nn.Conv2d(16, 8, 1)
    )
    expected = model.eval()(x := drawn(2, 16, 6, 4, dtype=F32))
    assert fuse_biases(model) == ["0", "2", "3"]
    fused = fuse_for_inference(model)
    assert [type(part).__name__ for part in fused.modules()].count("FusedConv2d") == 2
    assert replace_convolutions(model).taken == ("0", "2")
    assert type(model[3]) is BiasedConv2d
    torch.testing.assert_close(model(x), expected)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.fc1, self.fc2, self.plain = nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 16, bias=False)
        self.again = self.fc1
        self.hooked = nn.Linear(16, 16)
        self.hooked.register_forward_hook(lambda *_: None)
        self.attention = nn.MultiheadAttention(16, 2)


def test_which_layers() -> None:
    """Those of torch's own classes; what reads a model finds what it had."""
    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held = list(model.parameters())
    assert fuse_biases(model) == ["patches", "fc1", "fc2", "again"]  # attention's is a class of its own
    assert model.again is model.fc1
    assert type(model.attention.out_proj) is not BiasedLinear
    assert fuse_biases(model) == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(one is other for one, other in zip(model.parameters(), held, strict=True))
    assert repr(model.fc1) == "BiasedLinear(in_features=16, out_features=24, bias=True)"
    for other in (copy.deepcopy(model.fc1), pickle.loads(pickle.dumps(model.fc1))):
        assert torch.equal(other(torch.ones(16)), model.fc1(torch.ones(16)))
    alone: Any = nn.Linear(3, 3)
    assert fuse_biases(alone) == []  # nowhere to put another
    model.fc1.to(torch.float64)
    assert model.fc1(torch.ones(16, dtype=torch.float64)).dtype is torch.float64


LAID: dict[str, Callable[[], Tensor]] = {
    "dense": lambda: drawn(3, 5, 16, dtype=F32),
    "rows": lambda: drawn(7, 16, dtype=F32),
    "moved": lambda: drawn(3, 16, 5, dtype=F32).transpose(1, 2),
    "part": lambda: drawn(3, 5, 48, dtype=F32)[..., 7:39:2],
    "images": lambda: drawn(3, 16, 5, 4, dtype=F32).permute(0, 2, 3, 1),
    "one for all": lambda: drawn(5, 16, dtype=F32).expand(3, 5, 16),
    "vector": lambda: drawn(16, dtype=F32),
    "none": lambda: drawn(0, 16, dtype=F32),
}


@pytest.mark.parametrize("lies", LAID)
@pytest.mark.parametrize("types", ["autocast", "halves", "f32"])
@pytest.mark.parametrize("learns", ["all", "bias", "x and bias", "x and weight"])
def test_linear_layers_are_one_node(sums: Driver, lies: str, types: str, learns: str) -> None:
    """Of rows that lie anyhow; of one row, and none, by torch. What does not learn has no gradient."""
    theirs, ours = layers("linear")
    if types == "halves":
        theirs, ours = theirs.to(BF16), ours.to(BF16)
    for layer in (theirs, ours):
        layer.weight.requires_grad_(learns in ("all", "x and weight"))
        layer.bias.requires_grad_(learns != "x and weight")
    x = LAID[lies]().to(BF16 if types == "halves" else F32).detach().requires_grad_(learns != "bias")
    with autocast() if types == "autocast" else torch.enable_grad():
        y = theirs(x)
        dy = torch.randn_like(y)
        expected = step(theirs, x, dy)
        for way in (by_python, contextlib.nullcontext, contextlib.nullcontext):
            with way():
                found, names = step(ours, x, dy), nodes_behind(ours(x))
                assert any("Product" in name for name in names) is (
                    learns != "x and weight" and lies not in ("vector", "none")
                )
            assert [one is None for one in found] == [other is None for other in expected]
            for one, other in zip(found, expected, strict=True):
                if one is not None and other is not None:
                    assert (one.shape, one.dtype) == (other.shape, other.dtype)
                    near = 1e-5 if types == "f32" else 2e-2
                    torch.testing.assert_close(one, other, rtol=near, atol=2 * near)


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_derivatives_of_linear_layers_under_autocast(sums: Driver, way: Callable[[], Any]) -> None:
    """Second ones, batched ones; results that are written over."""
    theirs, ours = layers("linear")
    x, dy = (drawn(3, 5, of, dtype=F32, seed=of).requires_grad_() for of in (16, 24))
    found = []
    for layer in (theirs, ours):
        with way(), autocast():
            y = layer(x)
            first = torch.autograd.grad(y, [x, *layer.parameters()], dy.to(y.dtype), create_graph=True)
            second = torch.autograd.grad(sum(one.float().square().sum() for one in first), [dy, layer.weight])
            many = torch.stack([drawn(*dy.shape, seed=seed) for seed in range(3)])
            batched = torch.autograd.grad(layer(x), [x, *layer.parameters()], many, is_grads_batched=True)
            over = torch.autograd.grad(layer(x).mul_(2).sum(), [x, *layer.parameters()])
            found.append([*first, *second, *batched, *over])
    for one, other in zip(*found, strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=3e-2, atol=3e-2 * float(other.detach().abs().max()))


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_linear_layers_that_do_not_fit_say_what_torch_says(sums: Driver, way: Callable[[], Any]) -> None:
    theirs, ours = layers("linear")
    for x in (drawn(3, 17, dtype=F32), drawn(3, 16)):
        said = []
        for layer in (theirs, ours):
            with way(), pytest.raises(RuntimeError) as raised:
                layer(x)
            said.append(str(raised.value))
        assert said[0] == said[1]


def lowered_layers(kind: str) -> tuple[nn.Module, nn.Module, Tensor]:
    """One of torch's, ours, and what they are given."""
    if kind == "linear":
        return *layers("linear"), drawn(3, 5, 16, dtype=F32).requires_grad_()
    theirs = nn.Conv2d(16, 24, 1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ours = nn.Sequential(copy.deepcopy(theirs))
    if kind == "one tap":
        fuse_biases(ours)
    else:
        theirs = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        ours = nn.Sequential(copy.deepcopy(theirs))
        replace_convolutions(ours)
    return theirs, ours[0], drawn(2, 16, 6, 4).requires_grad_()


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
@pytest.mark.parametrize("kind", ["linear", "one tap", "grouped"])
def test_a_weight_that_is_written_after_autocast_lowered_it(sums: Driver, kind: str, way: Callable[[], Any]) -> None:
    """The gradient is of what it was, as torch has it; without autocast both refuse."""
    theirs, ours, x = lowered_layers(kind)
    found = []
    for layer in (theirs, ours):
        with way():
            with autocast():
                layer(x), layer(x)
                y = layer(x)
            with torch.no_grad():
                layer.weight.add_(1)
            found.append(torch.autograd.grad(y.float().square().sum(), [x, *layer.parameters()], retain_graph=True))
            if layer is ours:
                with pytest.raises(RuntimeError, match="inplace"):
                    torch.autograd.grad(y.float().square().sum(), [x], create_graph=True)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * float(other.detach().abs().max()))


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
@pytest.mark.parametrize("kind", ["linear", "one tap", "grouped"])
def test_lowered_weights_are_freed(sums: Driver, kind: str, way: Callable[[], Any]) -> None:
    """They had stayed as long as anybody held a loss."""
    _, layer, x = lowered_layers(kind)
    for _ in range(3):
        with way():
            freed(layer, x, layer.weight.shape)


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
@pytest.mark.parametrize("lowered", [False, True])
def test_a_first_layer_keeps_no_weight(sums: Driver, lowered: bool, way: Callable[[], Any]) -> None:
    """Whose images learn nothing: torch's linear layer may be brought up to date between two backward passes."""
    theirs, ours = layers("linear")
    x, found = drawn(3, 5, 16, dtype=F32), []
    for layer in (theirs, ours):
        with way(), autocast() if lowered else contextlib.nullcontext():
            layer(x)
            y = layer(x).float()
        for loss in (y.square().mean(), y.abs().mean()):
            loss.backward(retain_graph=True)
            with torch.no_grad():
                for parameter in layer.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad)
        found.append([parameter.grad for parameter in layer.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("way", [by_python, contextlib.nullcontext])
def test_complex_linear_layers_are_torchs(sums: Driver, way: Callable[[], Any]) -> None:
    theirs = nn.Linear(4, 5, dtype=torch.complex64)
    ours = nn.Sequential(copy.deepcopy(theirs))
    fuse_biases(ours)
    x = torch.randn(3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found = []
    for layer in (theirs, ours[0]):
        with way():
            y = layer(x)
            found.append(torch.autograd.grad(y.abs().square().sum(), [x, *layer.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
