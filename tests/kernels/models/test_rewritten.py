"""Blocks that compute what a graph says, until somebody changes what it took for granted."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tapestry.kernels.models.rewritten import Rewritten
from tapestry.kernels.torch import fuse_for_training


class Settings(nn.Module):
    """What a block may have besides layers: none of several things, and some."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter: nn.Module | None = None
        self.gain, self.mask, self.pads, self.taps = None, None, (1, 1), [1, 2]
        self.function: Callable[..., Tensor] = functional.relu
        self.register_parameter("shift", None)
        self.register_buffer("offset", None)
        self.register_module("extra", None)

    def besides(self, x: Tensor) -> Tensor:
        for layer in (self.adapter, self.extra):
            x = x if layer is None else x + layer(x)
        for scale in (self.gain, self.mask):
            x = x if scale is None else x * scale
        for added in (self.shift, self.offset):
            x = x if added is None else x + added
        return functional.pad(self.function(x), self.pads)[..., : x.shape[-1]] * sum(self.taps)


class Summed(Settings):
    """As ResNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(self.conv(x)) + self.besides(x))
        return out


class Scaled(Settings):
    """As ConvNeXt's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gamma = nn.Conv2d(8, 8, 1), nn.Parameter(torch.full((1, 8, 1, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.besides(x) + self.conv(x) * self.gamma


class Excited(Settings):
    """A squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.act, self.expand = nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))).sigmoid()
        return x * self.besides(gate)


BLOCKS: list[type[Settings]] = [Summed, Scaled, Excited]
CHANGES: dict[str, Any] = {
    "adapter": nn.Conv2d(8, 8, 1), "extra": nn.Conv2d(8, 8, 1), "gain": 0.5, "mask": torch.tensor([[0.25]]),
    "shift": nn.Parameter(torch.tensor([[0.25]])), "offset": torch.tensor([[0.25]]), "pads": (0, 0), "taps": [2, 3],
    "function": functional.silu,
}  # fmt: skip
IMAGES = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(1))


def pair(kind: type[Settings]) -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(2)
    theirs = nn.Sequential(kind(), nn.Identity())
    ours = copy.deepcopy(theirs)
    fuse_for_training(ours)
    assert isinstance(vars(ours[0]).get("forward"), Rewritten)
    return theirs, ours


def rewritten(model: nn.Sequential) -> bool:
    """Whether the first block computes what the graph says."""
    asked: list[bool] = []
    made = vars(model[0])["forward"]
    function = made.function
    made.function = lambda *given, **named: asked.append(True) or function(*given, **named)
    try:
        model(IMAGES)
    finally:
        made.function = function
    return bool(asked)


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("changed", CHANGES)
def test_a_block_does_what_it_is_told_later(kind: type[Settings], changed: str) -> None:
    theirs, ours = pair(kind)
    assert rewritten(ours)
    torch.testing.assert_close(ours(IMAGES), theirs(IMAGES))
    for model in (theirs, ours):
        setattr(model[0], changed, copy.deepcopy(CHANGES[changed]))
    assert not rewritten(ours)
    made = [model(IMAGES) for model in (theirs, ours)]
    torch.testing.assert_close(*made)
    for one in made:
        one.square().mean().backward()
    for name, parameter in theirs.named_parameters():
        found = ours.get_parameter(name).grad
        assert parameter.grad is not None
        assert found is not None
        torch.testing.assert_close(found, parameter.grad)


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_same_said_anew_and_copies(kind: type[Settings]) -> None:
    _, ours = pair(kind)
    ours[0].pads, ours[0].taps, ours[0].gain = (1, 1), [1, 2], None
    assert rewritten(ours)
    for made in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert rewritten(made)
        assert torch.equal(made(IMAGES), ours(IMAGES))
        made[0].gain = 2.0
        assert not rewritten(made)
    ours[0].taps.append(3)
    assert not rewritten(ours)


@pytest.mark.parametrize("kind", BLOCKS)
def test_compiled(kind: type[Settings]) -> None:
    """Where something changed before, and after."""
    torch._dynamo.reset()
    theirs, ours = pair(kind)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for value in (None, 0.5, 0.25):
        theirs[0].gain = ours[0].gain = value
        torch.testing.assert_close(compiled(IMAGES), theirs(IMAGES))
    torch._dynamo.reset()
