"""Which modules look alike, and that blocks are traced once for all that do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.models import norm_sums
from tapestry.kernels.models.alike import looks
from tapestry.kernels.torch import fuse_for_training

from .test_training import Block


class Named(nn.Module):
    """With attributes of every kind, and two parts that may be one."""

    def __init__(self, act: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), None
        self.act, self.sizes, self.name, self.scale = act, (1, 2), "a", 2.0
        self.gain = nn.Parameter(torch.ones(3))
        self.register_buffer("kept", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.act(self.second(self.first(x)))


class Other(Named):
    pass


def changed(change: Callable[[Any], Any]) -> Named:
    module = Named()
    change(module)
    return module


def shared(module: Any) -> None:
    module.second = module.first


def tied(module: Any) -> None:
    module.second.weight = module.first.weight


DIFFERENT: dict[str, Callable[[], nn.Module]] = {
    "a class": Other,
    "a number": lambda: changed(lambda m: setattr(m, "scale", 3.0)),
    "a number's type": lambda: changed(lambda m: setattr(m, "scale", 2)),
    "a string": lambda: changed(lambda m: setattr(m, "name", "b")),
    "a sequence": lambda: changed(lambda m: setattr(m, "sizes", (1, 3))),
    "a sequence's type": lambda: changed(lambda m: setattr(m, "sizes", [1, 2])),
    "an object": lambda: Named(lambda x: x),
    "an attribute more": lambda: changed(lambda m: setattr(m, "more", 1)),
    "a part": lambda: changed(lambda m: setattr(m, "first", nn.Identity())),
    "a part that is not there": lambda: changed(lambda m: setattr(m, "third", nn.Identity())),
    "a part's setting": lambda: changed(lambda m: setattr(m.first, "in_features", 5)),
    "parts that are one": lambda: changed(shared),
    "parameters that are one": lambda: changed(tied),
    "a parameter's shape": lambda: changed(lambda m: setattr(m, "gain", nn.Parameter(torch.ones(4)))),
    "a parameter's type": lambda: Named().double(),
    "a parameter that is not there": lambda: changed(lambda m: m.register_parameter("gain", None)),
    "a buffer's device": lambda: changed(lambda m: m.register_buffer("kept", torch.zeros(2, device="meta"))),
    "a buffer that has a gradient": lambda: changed(lambda m: m.kept.requires_grad_()),
    "a buffer's strides": lambda: changed(lambda m: m.register_buffer("kept", torch.zeros(4)[::2])),
    "what a buffer has": lambda: changed(lambda m: setattr(m.kept, "kind", 1)),
    "a zero's sign": lambda: changed(lambda m: setattr(m, "scale", -0.0)),
    "a buffer's name": lambda: changed(lambda m: m.register_buffer("other", torch.zeros(2))),
}


def test_modules_that_look_alike() -> None:
    assert looks(Named()) == looks(Named()) is not None
    assert looks(copy.deepcopy(Named())) == looks(Named().eval())
    assert hash(looks(Named())) == hash(looks(Named()))


@pytest.mark.parametrize("difference", DIFFERENT)
def test_modules_that_do_not(difference: str) -> None:
    usual = changed(lambda m: setattr(m, "scale", 0.0)) if difference == "a zero's sign" else Named()
    assert looks(DIFFERENT[difference]()) != looks(usual)


def test_what_is_not_in_dictionaries_or_not_there_yet_is_like_nothing() -> None:
    class Slots(nn.Module):
        __slots__ = ("kind",)

    lazy = nn.Module()
    lazy.weight = nn.UninitializedParameter()
    assert looks(Slots()) is looks(lazy) is None


class Masked(Block):
    """One that goes by the numbers of a buffer of its own."""

    def __init__(self, on: bool) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((2,), float(on)))

    def forward(self, x: Tensor) -> Tensor:
        mask: Any = self.mask
        return super().forward(x + x if torch.equal(mask, torch.ones(2, dtype=mask.dtype)) else x)


def test_blocks_that_go_by_numbers_stay_as_they_are() -> None:
    model = nn.Sequential(Masked(False), Masked(True)).double()
    before = copy.deepcopy(model)
    fuse_for_training(model)
    x = torch.randn(9, 8, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(model(x), before(x))
    assert all("forward" not in vars(block) for block in model)


@pytest.mark.parametrize("within", ["it", "a part of it"])
def test_what_hangs_on_a_module_may_do_anything(within: str) -> None:
    module = Named()
    (module if within == "it" else module.first).register_forward_hook(lambda *_: None)
    assert looks(module) is None


class Twice(Block):
    """One that has a switch."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + x if self.twice else x)


def test_blocks_are_traced_once_for_all_that_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each computes what it did, with its own parameters."""
    traced: list[nn.Module] = []
    trace = norm_sums.graph_of

    def noted(block: nn.Module, *rest: Any) -> Any:
        traced.append(block)
        return trace(block, *rest)

    monkeypatch.setattr(norm_sums, "graph_of", noted)
    torch.manual_seed(0)
    model = nn.Sequential(*(Twice(twice) for twice in (False, True, False, True, False))).double()
    before = copy.deepcopy(model)
    made = fuse_for_training(model)
    assert len(made.excitations) == 5
    assert list(made.norms.taken.values()).count("a residual and relu") == 5
    assert [traced.count(block) for block in model] == [0, 0, 0, 2, 2]  # from the end
    assert len(traced) == 5  # and one excitation
    x = torch.randn(9, 8, 6, 5, dtype=torch.float64)
    found, expected = model(x), before(x)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), list(model.parameters())),
        torch.autograd.grad(expected.square().sum(), list(before.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
