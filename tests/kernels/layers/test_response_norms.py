"""Global response norms by kernels, on CPU tensors: which layers are taken, and the calls.

Torch computes what the kernels would. On a GPU: gpu/test_row_norms.py.
"""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers import response_norms
from tapestry.kernels.layers.response_norms import FusedResponseNorm, response_kinds
from tapestry.kernels.normalization.images import ImageKind
from tapestry.kernels.tensors import autograd
from tapestry.kernels.torch import fuse_norms

from ..emulated_calls import kept_elsewhere

PIXELS = (2, 3)


class GlobalResponseNorm(nn.Module):
    """What timm calls so."""

    def __init__(self, channels: int, first: bool = True) -> None:
        super().__init__()
        self.eps, self.channel_dim = 1e-3, 1 if first else -1
        random = torch.Generator().manual_seed(4)
        self.weight, self.bias = (nn.Parameter(torch.randn(channels, generator=random)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.channel_dim == 1 else x.permute(0, 3, 1, 2)
        g = x.square().sum(PIXELS, keepdim=True).sqrt()
        normal = g / (g.mean(1, keepdim=True) + self.eps)
        y: Tensor = x + self.weight[:, None, None] * x * normal + self.bias[:, None, None]
        return y if self.channel_dim == 1 else y.permute(0, 2, 3, 1)


GlobalResponseNorm.__module__ = "timm.layers.grn"


def images(seed: int = 1, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn((66, 8, 4, 5), generator=random).to(dtype)
    return x.contiguous(memory_format=torch.channels_last)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are what the kernels take, and torch computes what they would; their names as they come."""
    made: list[str] = []

    def run(what: str, x: Tensor, *rest: Tensor, numbers: torch.dtype) -> None:
        assert numbers is torch.float32
        assert all(one.is_contiguous() and one.dtype is numbers for one in rest if one.dim() == 2)
        made.append(what)
        wide, given = x.float(), [one.float() if one.dim() == 4 else one[:, :, None, None] for one in rest]
        if what == "squares":
            rest[0].copy_(wide.square().sum(PIXELS))
        elif what == "shifted":
            rest[2].copy_(wide * given[0] + given[1])
        elif what == "both sums":
            rest[1].copy_((wide * given[0]).sum(PIXELS))
            rest[2].copy_(given[0].sum(PIXELS))
        else:
            assert what == "blended"
            rest[3].copy_(wide * given[0] + given[1] * given[2])

    monkeypatch.setattr(response_norms, "launched", run)
    monkeypatch.setattr(autograd, "plain", lambda *tensors: True)
    return made


def test_what_is_kept_elsewhere(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels get images that are channels-last."""
    run = response_norms.launched

    def held(what: str, *given: Tensor, numbers: torch.dtype) -> None:
        assert all(one.is_contiguous(memory_format=torch.channels_last) for one in given if one.dim() == 4)
        run(what, *given, numbers=numbers)

    monkeypatch.setattr(response_norms, "launched", held)
    ours, x = FusedResponseNorm(GlobalResponseNorm(8)), images().requires_grad_()
    with kept_elsewhere():
        y = ours(x)
    torch.autograd.grad(y, x, images(2))
    assert launched == ["squares", "shifted", "both sums", "blended"]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("silent", [False, True], ids=["", "a channel of an image is 0"])
def test_values_and_gradients(first: bool, silent: bool, launched: list[str]) -> None:
    ours, wide = FusedResponseNorm(GlobalResponseNorm(8, first)), GlobalResponseNorm(8, first).double()
    x, dy = images(), images(2)
    if silent:
        x[0, 3] = 0
    x, dy = (one if first else one.permute(0, 2, 3, 1) for one in (x, dy))
    exact = (x.double() + (1e-100 if silent else 0)).requires_grad_()  # the norm of zeros has no derivative
    x.requires_grad_()
    y, expected = ours(x), wide(exact)
    assert y.stride() == x.stride()
    torch.testing.assert_close(y.double(), expected, rtol=2**-7, atol=2**-7)
    found = torch.autograd.grad(y, [x, *ours.parameters()], dy)
    for one, other in zip(found, torch.autograd.grad(expected, [exact, *wide.parameters()], dy.double()), strict=True):
        unit = 2**-7 if one.dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(one.double(), other, rtol=unit, atol=unit * float(other.abs().max()))
    assert launched == ["squares", "shifted", "both sums", "blended"]


def test_a_second_derivative_is_refused(launched: list[str]) -> None:
    x = images().requires_grad_()
    with pytest.raises(WrongValue, match="without create_graph"):
        torch.autograd.grad(FusedResponseNorm(GlobalResponseNorm(8))(x).float().sum(), x, create_graph=True)
    assert launched == ["squares", "shifted"]


@pytest.mark.parametrize("first", [True, False])
def test_what_is_torchs(first: bool, launched: list[str]) -> None:
    norm = GlobalResponseNorm(8, first)
    ours = FusedResponseNorm(norm)
    for x in (images()[:3], images().contiguous(), images(dtype=torch.float32)):
        given = x if first else x.permute(0, 2, 3, 1)
        torch.testing.assert_close(ours(given), norm(given), rtol=2e-2, atol=8e-2)  # bf16 steps in other orders
    assert launched == []


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grn, self.drop, self.down = GlobalResponseNorm(8), nn.Dropout(0.0), nn.Conv2d(8, 4, 1)
        self.last = GlobalResponseNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.down(self.drop(self.grn(x))))
        return out


def test_the_response_norms_of_a_model() -> None:
    model = Block()
    before, x = copy.deepcopy(model), images(dtype=torch.float32)
    assert response_kinds(model, torch.bfloat16) == []
    assert set(fuse_norms(model).taken) == {"grn", "last"}
    assert fuse_norms(model).taken == {}
    assert (model.grn.read_lowered, model.last.read_lowered) == (True, False)
    assert list(model.state_dict()) == list(before.state_dict())
    for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(made(x), before(x))
    kinds = response_kinds(model, torch.bfloat16)
    assert kinds == [ImageKind("bf16", 8, "f32"), ImageKind("bf16", 4, "f32")]
    assert response_kinds(model, torch.float64) == []
