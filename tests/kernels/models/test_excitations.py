"""Squeeze-and-excitations by kernels, on CPU tensors: which modules are taken, and the calls.

Torch computes what the kernels would. On a GPU: gpu/test_excitation.py.
"""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.models import excitations as of_models
from tapestry.kernels.models.excitations import excitation_kinds
from tapestry.kernels.normalization.images import ImageKind
from tapestry.kernels.tensors import autograd, excitations
from tapestry.kernels.tensors.image_calls import worth_it
from tapestry.kernels.torch import fuse_excitations, fuse_for_inference

from ..emulated_calls import kept_elsewhere


class Excite(nn.Module):
    """As models have it."""

    def __init__(self, pooled: bool = False, width: int = 4) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1) if pooled else None
        self.reduce, self.act = nn.Conv2d(8, width, 1), nn.SiLU(inplace=True)
        self.expand, self.gate = nn.Conv2d(width, 8, 1), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        m = x.mean((2, 3), keepdim=True) if self.pool is None else self.pool(x)
        gate = self.gate(self.expand(self.act(self.reduce(m))))
        out: Tensor = x * gate if self.pool is None else gate * x
        return out


class Deeper(Excite):
    """The input is read a third time."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) + x
        return out


class Largest(Excite):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(self.expand(self.act(self.reduce(x.amax((2, 3), keepdim=True)))))
        return out


class Rows(Excite):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(self.expand(self.act(self.reduce(x.mean((1, 2), keepdim=True)))))
        return out


def images(seed: int = 1) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn((70, 8, 4, 5), generator=random, dtype=torch.float64)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are what the kernels take, and torch computes what they would; their names as they come."""
    made: list[str] = []

    def run(what: str, x: Tensor, *rest: Tensor) -> None:
        made.append(what)
        out = rest[-1]
        if what == "means":
            value = x.mean((2, 3), keepdim=True)
        elif what == "products":
            value = (x * rest[0]).sum((2, 3), keepdim=True)
        else:
            value = x * rest[0] + (rest[1] / (x.shape[2] * x.shape[3]) if what == "mapped" else 0)
        out.copy_(value)

    monkeypatch.setattr(excitations, "launched", run)
    monkeypatch.setattr(excitations, "computed", lambda x: x.dim() == 4)
    monkeypatch.setattr(of_models, "DTYPES", {torch.float64: "f32"})
    monkeypatch.setattr(autograd, "plain", lambda *tensors: True)
    return made


@pytest.mark.parametrize("pooled", [False, True])
def test_values_and_gradients(pooled: bool, launched: list[str]) -> None:
    model = nn.Sequential(Excite(pooled)).double()
    before = copy.deepcopy(model)
    assert fuse_excitations(model) == ["0"]
    assert fuse_excitations(model) == []
    assert list(model.state_dict()) == list(before.state_dict())
    for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        launched.clear()
        x, other = images(), images()
        values = made(x), before(other)
        torch.testing.assert_close(*values)
        dy = images(2).detach()
        found = torch.autograd.grad(values[0], [x, *made.parameters()], dy)
        expected = torch.autograd.grad(values[1], [other, *before.parameters()], dy)
        for one, two in zip(found, expected, strict=True):
            torch.testing.assert_close(one, two)
        assert launched == ["means", "scaled", "products", "mapped"]


def test_what_is_kept_elsewhere(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels get images that are channels-last."""
    run = excitations.launched

    def held(what: str, *given: Tensor) -> None:
        assert all(one.is_contiguous(memory_format=torch.channels_last) for one in given if one.shape[2:] != (1, 1))
        run(what, *given)

    monkeypatch.setattr(excitations, "launched", held)
    model, x = nn.Sequential(Excite()).double(), images().detach().contiguous(memory_format=torch.channels_last)
    fuse_excitations(model)
    with kept_elsewhere():
        y = model(x.requires_grad_())
    torch.autograd.grad(y, x, torch.ones_like(y))
    assert launched == ["means", "scaled", "products", "mapped"]


def test_a_second_derivative_is_refused(launched: list[str]) -> None:
    model = nn.Sequential(Excite()).double()
    fuse_excitations(model)
    x = images()
    with pytest.raises(WrongValue, match="without create_graph"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)
    assert launched == ["means", "scaled"]


def test_a_gate_of_another_type_is_torchs(launched: list[str]) -> None:
    class Narrow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(x).float()

    model = nn.Sequential(Excite()).double()
    model[0].gate = Narrow()
    before = copy.deepcopy(model)
    assert fuse_excitations(model) == ["0"]
    x, other = images(), images()
    (found,), (expected,) = (torch.autograd.grad(m(g).sum(), g) for m, g in ((model, x), (before, other)))
    torch.testing.assert_close(found, expected)
    assert launched == ["means", "mapped"]


def test_kernels_that_a_model_needs_are_known_before_it_runs() -> None:
    model = nn.Sequential(Excite(), Excite(), nn.Conv2d(8, 8, 1))
    assert excitation_kinds(model, torch.bfloat16) == []
    fuse_excitations(model)
    assert excitation_kinds(model, torch.bfloat16) == [ImageKind("bf16", 8, "bf16")]
    assert excitation_kinds(model, torch.float64) == []


def test_few_images_are_torchs(launched: list[str]) -> None:
    model = nn.Sequential(Excite()).double()
    fuse_excitations(model)
    model(images()[:3])
    with torch.no_grad():
        model(images()[:3])
    assert launched == []


def test_inference_is_two_launches(launched: list[str]) -> None:
    model = nn.Sequential(Excite()).double().eval()
    expected = model(images())
    fuse_excitations(model)
    with torch.no_grad():
        torch.testing.assert_close(model(images()), expected)
    assert launched == ["means", "scaled"]


def test_modules_that_are_something_else() -> None:
    model = nn.ModuleList([Deeper(), Largest(), Rows(), nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1))])
    assert fuse_excitations(model) == []


def test_inference_and_compilers_see_torchs() -> None:
    model = nn.Sequential(Excite(), nn.Conv2d(8, 8, 1)).eval()
    before, x = copy.deepcopy(model), images().detach().float()
    fuse_excitations(model)
    torch.testing.assert_close(fuse_for_inference(model, torch.float32)(x), before(x))
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), before(x))


@pytest.mark.parametrize(
    ("shape", "ours"),
    [
        ((64, 24, 97, 97), True), ((32, 24, 190, 190), True), ((8, 144, 95, 95), True),
        ((8, 1152, 7, 7), True),  # small enough for a block each
        ((8, 24, 97, 97), False),  # cut by nothing but 97
        ((7, 24, 190, 190), False), ((65535, 8, 2, 2), True), ((65536, 8, 2, 2), False), ((8, 0, 4, 4), False),
    ],
)  # fmt: skip
def test_how_many_images(shape: tuple[int, ...], ours: bool) -> None:
    """Enough for a GPU, each whole or cut among blocks, and no more than a launch may have blocks."""
    assert worth_it(torch.empty(shape, device="meta")) is ours
