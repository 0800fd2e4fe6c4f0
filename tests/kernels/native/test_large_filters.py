"""Depthwise layers with large filters as one node of autograd, CPU tensors taken for CUDA's: the definition."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers import grouped, large_filters
from tapestry.kernels.layers.large_filters import LargeFilters
from tapestry.kernels.torch import replace_convolutions

from .driver import Driver
from .steps import BF16, autocast, freed, same, step, told


@pytest.fixture
def large(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(large_filters, "FEWEST", 0)
    monkeypatch.setattr(large_filters, "computed_here", lambda x: True)
    return driver


def layer(size: tuple[int, int], bias: bool) -> tuple[nn.Conv2d, LargeFilters]:
    torch.manual_seed(4)
    theirs = nn.Conv2d(16, 16, size, padding=(size[0] // 2, size[1] // 2), groups=16, bias=bias)
    model = nn.Sequential(copy.deepcopy(theirs))
    replace_convolutions(model)
    assert isinstance(model[0], LargeFilters)
    return theirs, model[0]


def images(extents: tuple[int, int], seed: int, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(3, 16, *extents, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype).contiguous(memory_format=torch.channels_last)


def near(found: list[Tensor | None], exact: list[Tensor | None]) -> None:
    for one, other in zip(found, exact, strict=True):
        assert one is not None
        assert other is not None
        assert float((one.double() - other.double()).abs().max()) < 0.02 * float(other.abs().max())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [(9, 9), (11, 11), (8, 11), (10, 9)])
@pytest.mark.parametrize("extents", [(8, 8), (9, 12)])
def test_steps(large: Driver, size: tuple[int, int], extents: tuple[int, int], bias: bool) -> None:
    theirs, conv = layer(size, bias)
    x = images(extents, 1, torch.float32).requires_grad_()
    shape = theirs(x).shape[2:]
    dy = images((shape[0], shape[1]), 2, BF16)
    exact = step(copy.deepcopy(theirs).double(), x.double().detach().requires_grad_(), dy.double())
    with autocast():
        made = [step(conv, x, dy) for _ in range(3)]
    near(made[0], exact)
    for again in made[1:]:
        same(again, made[0])
    assert large.ran[-3:] == ["native", "python", "python"]  # gradients, one behind the other, are Python's
    assert [tensor.dtype for tensor in made[0] if tensor is not None][:3] == [BF16, torch.float32, torch.float32]


def test_halves_and_what_learns_nothing(large: Driver) -> None:
    theirs, conv = layer((9, 9), True)
    theirs, conv = theirs.to(BF16), conv.to(BF16)
    x, dy = images((8, 8), 1, BF16), images((8, 8), 2, BF16)
    near(step(conv, x.requires_grad_(), dy), step(theirs.double(), x.double().detach().requires_grad_(), dy.double()))
    with torch.no_grad():
        near([conv(x)], [theirs(x.double())])
    conv.weight.requires_grad_(False)
    assert conv(x.detach()).grad_fn is not None  # of the bias
    (first,) = torch.autograd.grad(conv(x).square().sum(), x)
    near([first], list(torch.autograd.grad(theirs(wide := x.double().detach().requires_grad_()).square().sum(), wide)))


def test_derivatives_of_gradients(large: Driver) -> None:
    theirs, conv = layer((9, 9), False)
    theirs, conv, found = theirs.double(), conv.to(BF16), []
    for of, dtype in ((conv, BF16), (theirs, torch.float64)):
        x = images((8, 8), 1, dtype).requires_grad_()
        first = torch.autograd.grad(of(x).square().sum(), [x, of.weight], create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), [x, of.weight]))
    for one, other in zip(*found, strict=True):
        assert float((one.double() - other).abs().max()) < 0.06 * float(other.abs().max())


def test_what_is_not_asked_for_is_not_computed(large: Driver) -> None:
    _, conv = layer((9, 9), True)
    x, dy = images((8, 8), 1, torch.float32).requires_grad_(), images((8, 8), 2, BF16)
    with autocast():
        whole = step(conv, x, dy)
        for frozen, images_learn, launches in ((True, True, 1), (False, False, 1), (True, False, 0)):
            conv.weight.requires_grad_(not frozen)
            y = conv(x if images_learn else x.detach())
            large.ran.clear()
            y.backward(dy, retain_graph=True)
            assert len(large.ran) == launches
            if frozen and not images_learn:  # the bias alone, differentiable
                torch.autograd.grad(y, conv.bias, dy, create_graph=True)
        conv.weight.requires_grad_(True)
    assert whole[1] is not None


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_default_device(large: Driver, device: str) -> None:
    """As models are captured that make what they need where they are."""
    large_filters._laid.cache_clear()
    large_filters._places.cache_clear()
    theirs, conv = layer((9, 9), False)
    x, dy = images((7, 8), 1, torch.float32).requires_grad_(), images((7, 8), 2, BF16)
    exact = step(copy.deepcopy(theirs).double(), x.double().detach().requires_grad_(), dy.double())
    with autocast(), torch.device(device):
        near(step(conv, x, dy), exact)


def test_results_are_dense(large: Driver) -> None:
    _, conv = layer((9, 9), False)
    with autocast():
        y = conv(images((7, 9), 1, torch.float32))
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_few_numbers_are_torchs(large: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    _, conv = layer((9, 9), False)
    monkeypatch.setattr(large_filters, "FEWEST", 10**6)
    monkeypatch.setattr(grouped, "computed_here", lambda x: True)
    with autocast():
        conv(images((8, 8), 1, torch.float32))
    assert large.ran == []


@pytest.mark.filterwarnings("ignore:Using backward")  # with a graph, of cycles
def test_hooks_are_set_off_once(large: Driver) -> None:
    _, conv = layer((9, 9), False)
    x, called = images((8, 8), 1, torch.float32).requires_grad_(), []
    conv.weight.register_hook(lambda dy: called.append("weight") or dy * 0.1)
    x.register_hook(lambda dy: called.append("x") or -dy)
    found = []
    for again in (False, True):
        conv.zero_grad()
        x.grad = None
        with autocast():
            y = conv(x)
        y.float().square().sum().backward(create_graph=again)
        found.append([x.grad.detach(), conv.weight.grad.detach()])
        assert sorted(called) == ["weight", "x"]
        called.clear()
    near(*found)


@pytest.mark.parametrize("many", [False, True])
def test_lowered_weights_are_freed(large: Driver, many: bool) -> None:
    _, conv = layer((9, 9), True)
    x = images((9, 12), 1, torch.float32).requires_grad_(many)
    freed(conv, x, torch.Size((16 * 4, 4, 5, 5)))


def test_tangents_and_traces(large: Driver) -> None:
    theirs, conv = (each.to(BF16) for each in layer((9, 9), True))
    x = images((9, 12), 1, BF16)
    conv(x), conv(x)
    assert large.ran[-1] == "native"
    told(conv, theirs, x)
