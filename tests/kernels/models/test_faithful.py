"""Models of which a graph says less than they do, by what is found in programs: fused they do the same."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from tapestry.kernels.torch import fuse_for_inference, fuse_for_training, replace_convolutions

from .test_excitations import Excite


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(self.conv(x)) + x)
        return out


class Plain(Base):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(self.conv(x)))
        return out


def settled(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for part in model.modules():
        if type(part) is nn.BatchNorm2d:
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return model.double()


def images() -> Tensor:
    return torch.randn(3, 8, 6, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def alike(found: nn.Module, expected: nn.Module) -> None:
    """Results, gradients and buffers, in training and in evaluation."""
    for training in (True, False):
        results: list[list[Any]] = []
        for model in (found, expected):
            model.train(training)
            model.zero_grad()
            x = images().requires_grad_()
            y = model(x)
            several = y if isinstance(y, (list, tuple)) else [y]
            torch.autograd.backward([one.square().sum() for one in several])
            results.append([*several, x.grad, *(each.grad for each in model.parameters()), *model.buffers()])
        for one, other in zip(*results, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)


def fused(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """One, and the same as it was."""
    before = copy.deepcopy(model)
    fuse_for_training(model)
    return model, before


class Merging(nn.Conv2d):
    """As loralib's layers: weights are merged in evaluation, when it is told."""

    def __init__(self) -> None:
        super().__init__(8, 8, 1)
        self.low, self.merged = nn.Parameter(torch.ones(8, 8, 1, 1)), False

    def train(self, mode: bool = True) -> Merging:
        super().train(mode)
        if mode == self.merged:
            self.weight.data += self.low.data * (-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight if self.merged else self.weight + self.low
        return nn.functional.conv2d(input, weight, self.bias)


def test_layers_are_not_told_what_they_are_not() -> None:
    model = settled(nn.Sequential(Merging(), nn.BatchNorm2d(8), nn.ReLU()))
    before = copy.deepcopy(model)
    replace_convolutions(model, images())
    fuse_for_training(model)
    assert model[0].merged is False
    alike(model, before)


@pytest.mark.parametrize("layer", ["conv", "norm", "act", ""])
def test_forwards_of_their_own(layer: str) -> None:
    """As wrappers put them on layers, and on models."""
    model = settled(Plain())
    part = model.get_submodule(layer)
    vars(part)["forward"] = types.MethodType(lambda self, x: 3 * type(self).forward(self, x) + 1, part)
    x = images()
    with torch.no_grad():
        expected = model.eval()(x)
        model.train()
        trained = copy.deepcopy(model)  # whose forward is the one's it was copied of
        training = model(x)
        fuse_for_training(model)
        torch.testing.assert_close(model(x), training)
        torch.testing.assert_close(model.eval()(x), expected, rtol=0.2, atol=0.5)  # statistics moved
        del trained


def test_the_forward_of_a_model_of_its_own_is_no_inference_of_its_class() -> None:
    model = settled(nn.Sequential(Plain(), nn.Identity()))
    vars(model)["forward"] = types.MethodType(lambda self, x: 3 * self[0](x), model)
    with torch.no_grad():
        expected = model.eval()(images())
        torch.testing.assert_close(fuse_for_inference(model, torch.float64)(images()), expected, rtol=1e-5, atol=1e-5)


class Scaled(Base):
    """Its residual is scaled by a number that is annealed."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.drop = 1.0, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.drop(self.norm(self.conv(x))) + self.alpha * x)
        return out


class Drop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2


CHANGES: dict[str, Callable[[Any], None]] = {
    "a setting": lambda block: setattr(block, "alpha", 0.25),
    "a setting that is a tensor": lambda block: setattr(block, "alpha", torch.tensor(0.25)),
    "an activation": lambda block: setattr(block, "act", nn.ReLU()),
    "what passes on": lambda block: setattr(block, "drop", Drop()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_later_counts(what: str) -> None:
    found, before = fused(settled(nn.Sequential(Scaled())))
    assert "forward" in vars(found[0])
    alike(found, before)
    for model in (found, before):
        CHANGES[what](model[0])
    alike(found, before)
    alike(copy.deepcopy(found), before)


class Read(Base):
    """A number of the model's is read, and may be another one later."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale.item() if self.how == "item" else 1.0 if self.scale > 0.5 else 3.0
        out: Tensor = self.act(self.norm(self.conv(x)) + scale * x)
        return out


@pytest.mark.parametrize("how", ["item", "bool"])
def test_numbers_that_are_read_out_of_buffers(how: str) -> None:
    found, before = fused(settled(nn.Sequential(Read(how))))
    for model in (found, before):
        model[0].scale.fill_(0.25)
    alike(found, before)


class Written(Base):
    def __init__(self, into: str) -> None:
        super().__init__()
        self.into = into

    def forward(self, x: Tensor) -> Tensor:
        y, shortcut = self.norm(self.conv(x)), x * 1.0
        if self.into == "norm":
            y += shortcut
        elif self.into == "residual":
            shortcut += y
            y = shortcut
        else:
            y = y + shortcut
        out: Tensor = self.act(y)
        return out


@pytest.mark.parametrize("into", ["norm", "residual", "neither"])
def test_a_sum_has_the_type_of_what_it_is_written_into(into: str) -> None:
    found, before = fused(nn.Sequential(Written(into)))
    assert "forward" in vars(found[0])
    x = images().float()
    with torch.autocast("cpu", torch.bfloat16):
        one, other = found(x), before(x)
    assert one.dtype is other.dtype
    torch.testing.assert_close(one, other)
    alike(found.double(), before.double())


def test_replicas_compute_with_their_own_parameters() -> None:
    """As nn.DataParallel makes them."""
    model = settled(nn.Sequential(Base(), nn.LayerNorm(5), Excite()))
    fuse_for_training(model)
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        for value in doubled.parameters():
            value.mul_(2)

    def replica(part: nn.Module, other: nn.Module) -> Any:
        copied: Any = part._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        for name, value in other._parameters.items():
            setattr(copied, name, None if value is None else value.detach().clone())
        for name, child in part.named_children():
            setattr(copied, name, replica(child, other.get_submodule(name)))
        return copied

    torch.testing.assert_close(replica(model, doubled)(images()), doubled(images()))


@pytest.mark.parametrize("kind", [lambda: nn.BatchNorm2d(8), lambda: nn.LayerNorm(5)])
def test_parameters_that_are_pruned_later(kind: Callable[[], nn.Module]) -> None:
    found, before = fused(settled(nn.Sequential(nn.Conv2d(8, 8, 1), kind())))
    for model in (found, before):
        prune.l1_unstructured(model[1], "weight", 0.5)
    alike(found, before)


def test_taps() -> None:
    """Hooks between a norm and its activation are given what they were given, and what they make counts."""

    class Tapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.tap, self.act = nn.BatchNorm2d(8), nn.Identity(), nn.SiLU()
            self.held, self.act2 = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)), nn.SiLU()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act2(self.held(self.act(self.tap(self.norm(x)))))
            return out

    model = settled(Tapped())
    for part in (model.tap, model.held):
        part.register_forward_hook(lambda module, given, made: made - 1)
    alike(*fused(model))


def test_a_hook_on_the_pool_of_an_excitation() -> None:
    model = settled(nn.Sequential(Excite(pooled=True)))
    assert model[0].pool is not None
    model[0].pool.register_forward_hook(lambda module, given, made: 3 * made)
    alike(*fused(model))


@pytest.mark.parametrize("layer", ["", "0", "1", "2", "3.conv"])
@pytest.mark.parametrize("before", [False, True])
def test_hooks_in_inference(layer: str, before: bool) -> None:
    model = settled(nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), Base()))
    part = model.get_submodule(layer)
    if before:
        part.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    else:
        part.register_forward_hook(lambda module, given, made: 2 * made)
    with torch.no_grad():
        found = fuse_for_inference(model, torch.float64)(images())
        torch.testing.assert_close(found, model.eval()(images()), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_filters_that_are_made_by_hooks_in_inference(how: Callable[[nn.Module], nn.Module]) -> None:
    model = settled(nn.Sequential(how(nn.Conv2d(8, 8, 3)), nn.BatchNorm2d(8), nn.ReLU(), Base())).eval()
    with torch.no_grad():
        expected = model(images())
        torch.testing.assert_close(fuse_for_inference(model, torch.float64)(images()), expected, rtol=1e-5, atol=1e-5)


class Streaming(nn.Module):
    """What it saw last is added."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = Base(), 0.0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x) + self.last
        self.last = y.detach()  # type: ignore[assignment]
        return y


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x) + torch.randn(8, 1, 1, dtype=torch.float64)
        return out


@pytest.mark.parametrize("kind", [Streaming, Noisy])
def test_inference_of_what_differs_from_call_to_call(kind: Callable[[], nn.Module]) -> None:
    model = settled(kind()).eval()
    if kind is Streaming:
        model.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU()).double()
    found = fuse_for_inference(model, torch.float64)
    with torch.no_grad():
        for call in range(2):
            torch.manual_seed(call)
            one = found(images())
            torch.manual_seed(call)
            torch.testing.assert_close(one, model(images()), rtol=1e-5, atol=1e-5)


class Listed(Base):
    """A list calls one of its layers."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.several = what, [self.get_submodule(what)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.what == "norm":
            y = self.several[0](y)
            y = self.act(y)
        else:
            y = self.several[0](self.norm(y))
        return y


@pytest.mark.parametrize("what", ["norm", "act"])
def test_layers_that_a_list_holds(what: str) -> None:
    alike(*fused(settled(Listed(what))))


class Tries(Base):
    def forward(self, x: Tensor) -> Tensor:
        try:
            gain = 2.0 if x.sum() > -1e9 else 1.0
        except Exception:
            gain = 1.0
        _, channels, _, _ = x.shape
        out: Tensor = self.act(self.norm(self.conv(x)) + gain * x.view(-1, channels, *x.shape[2:]))
        return out


class Clamps(Base):
    """As binary networks do."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        y.data = y.data.clamp(max=0.1)
        out: Tensor = self.act(y + x)
        return out


class Unlearnt(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        out: Tensor = self.act(y) if torch.is_grad_enabled() else y
        return out


class Counted(Base):
    """How many images there are is added."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(self.conv(x)) + x.shape[0])
        return out


class Halves(nn.Module):
    """It writes into what it is given, and does not say so."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(0.5)


class Halved(Base):
    def __init__(self) -> None:
        super().__init__()
        self.halves = Halves()

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        y = self.norm(x)
        self.halves(x)
        out: Tensor = self.act(y + x)
        return out


def test_layers_that_write_and_do_not_say_so() -> None:
    found, before = fused(settled(nn.Sequential(Halved())))
    with torch.no_grad():
        for training in (True, False):
            torch.testing.assert_close(found.train(training)(images()), before.train(training)(images()))


@pytest.mark.parametrize("kind", [Tries, Clamps, Unlearnt, Counted])
def test_blocks(kind: Callable[[], nn.Module]) -> None:
    found, before = fused(settled(nn.Sequential(kind())))
    alike(found, before)
    with torch.no_grad():
        torch.testing.assert_close(found(images()), before(images()))


def test_a_norm_with_a_part_that_is_no_activation_of_its() -> None:
    model = settled(Plain())
    model.norm.act = nn.ReLU()
    model.act = nn.Identity()
    alike(*fused(model))


def test_excitations_of_one_image() -> None:
    found, before = fused(settled(nn.Sequential(Excite(pooled=True))))
    torch.testing.assert_close(found(images()[0]), before(images()[0]))


def test_layers_that_are_not_there_yet() -> None:
    model, before = (nn.Sequential(Plain(), nn.LazyConv2d(8, 1), nn.LazyBatchNorm2d()).double() for _ in range(2))
    fuse_for_training(model)
    with torch.no_grad():
        model(images()), before(images())
    model.load_state_dict(before.state_dict())
    alike(model, before)


def test_buffers_that_are_not_saved() -> None:
    model = settled(Base())
    model.norm._non_persistent_buffers_set = {"running_mean"}
    found, before = fused(model)
    assert list(found.state_dict()) == list(before.state_dict())
