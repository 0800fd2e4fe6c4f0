"""Models and blocks with operands that may be left out: a graph has one way, and they go on going both."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.torch import fuse_for_inference, fuse_for_training, fuse_norms


class Block(nn.Module):
    """A residual that may be another one than the input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        if skip is None:
            skip = x
        out: Tensor = self.act(self.norm(self.conv(x)) + skip)
        return out


class Necessary(Block):
    """None of which may be left out, but be None."""

    def forward(self, x: Tensor, skip: Tensor | None) -> Tensor:  # type: ignore[override]
        y = self.norm(self.conv(x))
        y = 2 * y if skip is None else y + skip
        out: Tensor = self.act(y)
        return out


class Excited(nn.Module):
    """An excitation, or another one."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        gate = self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True))))
        out: Tensor = x * torch.sigmoid(gate if shift is None else gate + shift)
        return out


class Net(nn.Module):
    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.one, self.other = block(), block()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.other(self.one(x, None), x)
        return out


def settled(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return model.double()


def images(seed: int = 0, *shape: int) -> Tensor:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(shape or (3, 8, 5, 4), generator=made, dtype=torch.float64)


@pytest.mark.parametrize("block", [Block, Necessary, Excited])
def test_blocks_in_training(block: Callable[[], nn.Module]) -> None:
    model = settled(Net(block))
    before = copy.deepcopy(model)
    fuse_for_training(model)
    for training in (True, False):
        model.train(training)
        before.train(training)
        torch.testing.assert_close(model(images()), before(images()))


class Either(nn.Module):
    """A norm's activation follows where something is given, or where nothing is."""

    def __init__(self, given: bool) -> None:
        super().__init__()
        self.norm, self.act, self.second, self.always = nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8), nn.SiLU()
        self.given = given

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.norm(x)
        if (mask is None) != self.given:
            y = self.act(y)
        out: Tensor = self.always(self.second(y))
        return out if mask is None else out * mask


@pytest.mark.parametrize("given", [False, True])
def test_what_follows_a_norm_in_every_way_is_its_own(given: bool) -> None:
    model = settled(nn.Sequential(Either(given))[0])
    before = copy.deepcopy(model)
    assert fuse_norms(model).taken == {"norm": "", "second": "silu"}
    for operands in ((images(),), (images(), images(1))):
        torch.testing.assert_close(model(*operands), before(*operands))


@pytest.mark.parametrize("given", [False, True])
def test_inference_is_of_what_was_left_out(given: bool) -> None:
    model = settled(Either(given))
    fused = fuse_for_inference(model, torch.float64)
    x = images()
    with torch.no_grad():
        expected = model.eval()(x)
        for made in (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
            torch.testing.assert_close(made(x), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(made(x, mask=None), expected, rtol=1e-5, atol=1e-5)
            with pytest.raises(WrongValue, match=r"operand 'mask' is given.*\n.*left out.*None\n.*Tensor"):
                made(x, images(1))


class Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor, doubled: bool = False, name: str = "sum") -> Tensor:
        y: Tensor = self.act(self.norm(self.conv(x)))
        y = y.sum(1) if name == "sum" else y.mean(1)
        return 2 * y if doubled else y


def test_inference_with_switches() -> None:
    model = settled(Switched()).eval()
    fused, x = fuse_for_inference(model, torch.float64), images()
    with torch.no_grad():
        torch.testing.assert_close(fused(x, False, name="".join(("s", "um"))), model(x), rtol=1e-5, atol=1e-5)
        for operands in ((x, True), (x, False, "mean"), (x, 0)):
            with pytest.raises(WrongValue, match="is given"):
                fused(*operands)


class Untraced(nn.Module):
    """A control flow of values, between parts that have none; one norm is called from outside its part, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.list = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(8), nn.SiLU()) for _ in range(2))
        self.shared = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
        self.norm = self.shared[0]

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for part in self.list:
            y = part(y)
        y = self.shared(y)
        return self.norm(y) if bool(y.sum() > -1e9) else y


def test_models_that_cannot_be_traced_keep_their_activations() -> None:
    """They may call what is in a part by itself: that a part may be traced says too little."""
    model = settled(Untraced())
    before = copy.deepcopy(model)
    made = fuse_norms(model)
    assert set(made.taken.values()) == {""}
    assert "cannot trace the model" in made.left["(activations)"]
    for training in (True, False):
        model.train(training)
        before.train(training)
        torch.testing.assert_close(model(images()), before(images()))
