"""Sums that are a norm's: which are found, and that blocks and their parts go on being what they are, one by one."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.models.rewritten import Rewritten
from tapestry.kernels.torch import NormAct2d, fuse_excitations, fuse_for_inference, fuse_norms

from .. import normed
from ..normed import Residual
from .test_excitations import Excite


class ConvNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x))
        return out


class Block(nn.Module):
    """As RegNet's: what drops nothing, and what passes on, are identities."""

    def __init__(self, downsample: bool, in_place: bool) -> None:
        super().__init__()
        self.first, self.excite, self.last = ConvNorm(), Excite(), ConvNorm()
        self.drop = nn.Sequential() if downsample else nn.Identity()
        self.downsample = ConvNorm() if downsample else nn.Identity()
        self.act, self.in_place = nn.ReLU(), in_place

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.last(self.excite(self.first(x))))
        if self.in_place:
            y += self.downsample(x)
        else:
            y = y + self.downsample(x)
        out: Tensor = self.act(y)
        return out


class Net(nn.Module):
    """With a sum of its own, so that it holds blocks as they hold norms."""

    def __init__(self, in_place: bool = False) -> None:
        super().__init__()
        self.one, self.other = Block(True, in_place), Block(False, in_place)
        self.norm, self.act = nn.BatchNorm2d(8), nn.ReLU()

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.other(self.one(x))
        return out

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        out: Tensor = self.act(self.norm(y) + x)
        return out


def nets(in_place: bool = False) -> tuple[Net, Net]:
    torch.manual_seed(2)
    before = Net(in_place).double()
    for part in before.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return before, copy.deepcopy(before)


def images() -> Tensor:
    return torch.randn(9, 8, 6, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def rewritten(model: nn.Module) -> list[str]:
    return [name for name, part in model.named_modules() if isinstance(vars(part).get("forward"), Rewritten)]


@pytest.mark.parametrize("in_place", [False, True])
def test_what_passes_on_is_looked_past(in_place: bool) -> None:
    before, model = nets(in_place)
    taken = fuse_norms(model).taken
    summed = "a residual and relu"
    assert taken == {
        # An empty Sequential is no identity that is known: whose memory is written into, nobody knows.
        "one.first.norm": "", "one.last.norm": "", "one.downsample.norm": "" if in_place else summed,
        "other.first.norm": "", "other.last.norm": summed, "norm": summed,
    }  # fmt: skip
    assert rewritten(model) == (["", "other"] if in_place else ["", "one", "other"])
    for training in (True, False):
        before.train(training)
        model.train(training)
        results = []
        for one in (model, before):
            x = images().requires_grad_()
            y = one(x)
            y.square().sum().backward()
            results.append([y, x.grad, *(value.grad for value in one.parameters()), *one.buffers()])
            one.zero_grad()
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)


def test_parts_compute_what_they_did_when_called_by_themselves() -> None:
    before, model = nets()
    fuse_norms(model)
    x = images()
    for training in (True, False):
        before.train(training)
        model.train(training)
        torch.testing.assert_close(model.features(x), before.features(x))
        for name, part in before.named_modules():
            if name not in ("one.excite.expand", "other.excite.expand"):  # which has fewer channels
                torch.testing.assert_close(model.get_submodule(name)(x), part(x))
    assert isinstance(model.other.last.norm, NormAct2d)
    assert model.other.last.norm.activation == "relu"


def test_hooks_on_parts_are_set_off() -> None:
    _, model = nets()
    fuse_norms(model)
    called = []
    for name, part in model.named_modules():
        part.register_forward_hook(lambda *_, name=name: called.append(name))
    model(images())
    # Not what holds a norm that computes a sum: that one is called for the block.
    opened = {"one.downsample", "other.last"}
    gone = opened | {"act", "one.act", "other.act", "other.drop"}
    assert set(called) == {name for name, _ in model.named_modules()} - gone
    assert len(called) == len(set(called))


def test_a_block_in_which_a_hook_hangs_on_what_would_be_opened_is_left() -> None:
    before, model = nets()
    called = []
    model.other.last.register_forward_hook(lambda *_: called.append("last"))
    fuse_norms(model)
    assert rewritten(model) == ["", "one"]
    called.clear()  # of values that stood for tensors
    torch.testing.assert_close(model(images()), before(images()))
    assert called == ["last"]


def test_excitations_within_blocks_are_those_that_are_called() -> None:
    before, model = nets()
    fuse_norms(model)
    assert fuse_excitations(model) == ["one.excite", "other.excite"]
    called = []
    for block in (model.one, model.other):
        block.excite.register_forward_pre_hook(lambda *_: called.append(True))
    torch.testing.assert_close(model(images()), before(images()))
    assert called == [True, True]


def test_inference_of_a_model_whose_sums_are_fused() -> None:
    before, model = nets()
    fuse_norms(model)
    fused = fuse_for_inference(model, torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(fused(images()), before.eval()(images()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("downsample", [False, True])
def test_a_residual_becomes_the_norms(downsample: bool) -> None:
    model = nn.Sequential(Residual(downsample), Residual())
    before, keys = copy.deepcopy(model), list(model.state_dict())
    report = fuse_norms(model)
    assert report.taken["0.unit.bn"] == report.taken["1.unit.bn"] == "a residual and relu"
    assert report.taken["0.bn1"] == "relu"
    assert type(model[0]) is Residual
    assert list(model.state_dict()) == keys
    x = normed.images(torch.float32)
    for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        made.load_state_dict(before.state_dict())
        plain = copy.deepcopy(before)
        given = [x.clone().requires_grad_() for _ in range(2)]
        values = [one(data) for one, data in zip((made, plain), given, strict=True)]
        torch.testing.assert_close(*values)
        first, second = (torch.autograd.grad(y.square().sum(), data) for y, data in zip(values, given, strict=True))
        torch.testing.assert_close(first, second)
        torch.testing.assert_close(made.eval()(x), plain.eval()(x))
        assert made[0].forward.module is made[0]
    assert fuse_norms(model).taken == {}


def test_sums_that_are_left() -> None:
    class Depends(Residual):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act2(self.unit(x) + (x if self.training else 2 * x))
            return out

    hooked = Residual()
    hooked.register_forward_hook(lambda *_: None)
    shared = Residual()
    for block in (Residual(drop=True), Depends(), hooked):
        model = nn.Sequential(block)
        before = copy.deepcopy(model)
        assert fuse_norms(model).taken["0.unit.bn"] == ""
        x = normed.images(torch.float32)
        torch.testing.assert_close(model.eval()(x), before.eval()(x))
    assert fuse_norms(nn.Sequential(shared, shared)).taken["0.unit.bn"] == ""
