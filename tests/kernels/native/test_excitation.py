"""Squeeze-and-excitations by the extension: the bits of the path in Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.normalization import images
from tapestry.kernels.tensors import excitations, image_calls, native_calls
from tapestry.kernels.torch import fuse_excitations

from ..models.test_excitations import Excite
from .driver import STREAM, Driver, Launch, memory
from .steps import BF16, by_python, same, step, told

SHAPE = (64, 8, 4, 5)
CUT = (8, 8, 48, 40)  # images of which each is cut among several blocks


class Memory:
    """Images of a shape, and their numbers, at addresses."""

    def __init__(self, cut: Any) -> None:
        shapes = (SHAPE, CUT)
        self.shape = next(s for s in shapes if (s[0] * s[2] * s[3], s[1]) == (cut.rows, cut.channels))
        self.room = images.room_of(cut)

    def image(self, address: int) -> Tensor:
        n, c, h, w = self.shape
        return memory(address, (n, h, w, c), BF16).permute(0, 3, 1, 2)

    def numbers(self, address: int) -> Tensor:
        return memory(address, (*self.shape[:2], 1, 1), BF16)

    def works(self, room: tuple[int, ...]) -> None:
        assert len(room) == bool(self.room)
        for address in room:
            memory(address, (self.room,)).fill_(torch.nan)

    def means(self, x: int, out: int, *room: int) -> None:
        self.works(room)
        self.numbers(out).copy_(self.image(x).float().mean((2, 3), keepdim=True))

    def products(self, x: int, dy: int, out: int, *room: int) -> None:
        self.works(room)
        self.numbers(out).copy_((self.image(x).float() * self.image(dy)).sum((2, 3), keepdim=True))

    def scaled(self, x: int, gate: int, y: int) -> None:
        self.image(y).copy_(self.image(x) * self.numbers(gate))

    def mapped(self, x: int, gate: int, added: int, y: int) -> None:
        spread = self.numbers(added).float() / (self.shape[2] * self.shape[3])
        self.image(y).copy_(self.image(x).float() * self.numbers(gate) + spread)


@pytest.fixture
def calls(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    def prepared(kind: Any, made: tuple[Callable[..., None], tuple[int, ...]], device: int) -> list[Launch]:
        compute, at = made

        def run(*addresses: int) -> None:
            with torch.no_grad():
                compute(*addresses)

        return [Launch(driver, run, at)]

    def call(what: str) -> Callable[..., Any]:
        return lambda cut, *at: (getattr(Memory(cut), what), at)

    stands_in = {what: call(what) for what in ("means", "products", "scaled", "mapped")}
    monkeypatch.setattr(image_calls, "CALLS", stands_in)
    monkeypatch.setattr(image_calls, "prepared", prepared)
    monkeypatch.setattr(image_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(image_calls, "_known", {})
    monkeypatch.setattr(image_calls, "_told", set())
    monkeypatch.setattr(excitations, "computed", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    yield driver
    extension.forget_images()


def drawn(seed: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(BF16)
    return made.contiguous(memory_format=torch.channels_last)


def fused(part: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(5)
    model = nn.Sequential(part or Excite()).to(BF16)
    assert fuse_excitations(model) == ["0"]
    return model


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("shape", [SHAPE, CUT], ids=["whole", "cut"])
def test_steps(calls: Driver, pooled: bool, shape: tuple[int, ...]) -> None:
    model = fused(Excite(pooled))
    x, dy = drawn(1, shape).requires_grad_(), drawn(2, shape)
    for expected_by in ("python", "native", "native"):
        with by_python():
            expected = step(model, x, dy)
        calls.ran.clear()
        same(step(model, x, dy), expected)
        assert calls.ran == [expected_by] * 4
    calls.ran.clear()
    with torch.no_grad():
        assert torch.equal(model(x), expected[0])
    assert calls.ran == ["native"] * 2
    model(drawn(3, (*SHAPE[:2], 5, 4)))  # torch's, where gradients are recorded and none is asked for
    assert calls.ran == ["native"] * 2


def test_the_definition(calls: Driver) -> None:
    model, x, dy = fused(), drawn(1).requires_grad_(), drawn(2)
    wide = nn.Sequential(Excite()).double()
    wide.load_state_dict(model.state_dict())
    found = [step(model, x, dy) for _ in range(2)][1]
    assert set(calls.ran[4:]) == {"native"}
    expected = step(wide, x.detach().double().requires_grad_(), dy.double())
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one.double(), other, rtol=0.03, atol=0.03 * float(other.abs().max()))


def test_what_the_extension_does_not_know_is_pythons(calls: Driver) -> None:
    model, x, dy = fused(), drawn(1).requires_grad_(), drawn(2)
    y = model(x)
    assert calls.ran == ["python"] * 2
    model(x)
    assert calls.ran[2:] == ["native"] * 2
    expected = step(model, x, dy)
    assert calls.ran[4:] == ["native"] * 2 + ["python"] * 2  # the gradients, which were not asked for before
    calls.ran.clear()
    same(step(model, x, dy.contiguous()), expected)  # other strides than those of y
    assert calls.ran.count("native") >= 2
    y.backward(dy)  # of a call in Python, after the extension was told
    given, native, other = drawn(1).requires_grad_(), native_calls.squeezed, native_calls.excited
    assert native is not None
    assert other is not None
    made = native(given)
    assert made is not None
    passed, mean, link = made
    for unfit in (mean.float(), mean[:, :4], mean[:1], mean.to("meta"), None):
        assert other(passed, unfit, link) is None  # type: ignore[arg-type]
    assert other(passed, mean, excitations.Link()) is None
    assert other(passed, mean, link) is not None
    assert torch.equal(link.gate, mean)
    for unlike in (given.detach(), given.float(), given[:32], given.contiguous(), given.to("meta"), 3):
        assert native(unlike) is None  # type: ignore[arg-type]
    with torch.no_grad():
        assert native(given[:32]) is None
        passed, mean, link = native(given)
        y = other(passed, mean, link)
    assert torch.equal(y, (given * mean).detach())
    assert not y.requires_grad


def test_a_gate_of_another_type(calls: Driver) -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(x).float()

    part = Excite()
    part.gate = Wide()
    before = copy.deepcopy(part).to(BF16)
    model, x = fused(part), drawn(1).requires_grad_()
    before.load_state_dict(model[0].state_dict())
    dy = drawn(2).float()
    found = [step(model, x, dy) for _ in range(2)]
    same(found[1], found[0])
    assert "native" in calls.ran
    for one, other in zip(found[1], step(before, x, dy), strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one.float(), other.float(), rtol=0.03, atol=0.03 * float(other.abs().max()))


def test_a_second_derivative_is_refused(calls: Driver) -> None:
    model, x, dy = fused(), drawn(1).requires_grad_(), drawn(2)
    step(model, x, dy)
    with pytest.raises(WrongValue, match="without create_graph"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)
    assert calls.ran[4:] == ["native"] * 2
    calls.status = 700
    with pytest.raises(RuntimeError, match="refused"):
        model(x)


def test_tangents_and_traces(calls: Driver) -> None:
    torch.manual_seed(5)
    theirs = Excite().to(BF16)
    ours, x = fused(), drawn(1).requires_grad_()
    ours(x), ours(x)
    assert calls.ran[-1] == "native"
    told(ours, theirs, x)
