"""Fused batch norms by the extension: the bits of the path in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels import errors
from tapestry.kernels.tensors import native_calls, norm_calls, norm_operators
from tapestry.kernels.torch import NormAct2d

from .driver import STREAM, Driver, Norms
from .steps import BF16, by_python, operands, same, told

SHAPE = (2, 16, 7, 6)


@pytest.fixture
def norms(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    kernels = Norms(driver, SHAPE, BF16)
    monkeypatch.setattr(norm_calls, "prepared", kernels.prepared)
    monkeypatch.setattr(norm_calls._Plan, "_described", lambda plan, at, epsilon: (plan, at, epsilon))
    monkeypatch.setattr(norm_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(norm_calls, "_capturing", lambda: True)
    monkeypatch.setattr(norm_calls, "computed", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    monkeypatch.setattr(norm_calls, "_plans", {})
    empty = torch.empty
    monkeypatch.setattr(norm_calls, "torch", _Empty(torch, lambda size, dtype, device: empty(size, dtype=dtype)))
    yield driver
    extension.forget_norms()


class _Empty:
    """Torch, where device -1 is the CPU."""

    def __init__(self, torch: Any, empty: Any) -> None:
        self._torch, self.empty = torch, empty

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def norm_step(norm: nn.Module, x: Tensor, residual: Tensor | None, dy: Tensor) -> list[Tensor | None]:
    """The result, all gradients, and what is remembered then."""
    norm.zero_grad()
    given = x.detach().requires_grad_(x.requires_grad)
    added = None if residual is None else residual.detach().requires_grad_()
    y = norm(given, added)
    y.backward(dy)
    buffers = [buffer.clone() for buffer in norm.buffers()]
    gradients = [None if added is None else added.grad, *(one.grad for one in norm.parameters())]
    return [y.detach(), given.grad, *gradients, *buffers]


@pytest.mark.parametrize("act", [nn.Identity(), nn.ReLU(), nn.SiLU()])
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("settings", [{}, {"affine": False, "momentum": None}, {"track_running_stats": False}])
@pytest.mark.parametrize("own", [torch.float32, BF16])
def test_norms(norms: Driver, act: nn.Module, summed: bool, settings: dict[str, Any], own: torch.dtype) -> None:
    layers = [NormAct2d(nn.BatchNorm2d(16, **settings).to(own), act) for _ in range(2)]
    (x, dy), (residual, _) = operands(), operands(1)
    added = residual if summed else None
    x.requires_grad_()
    for expected_by in ("python", "native", "native"):
        with by_python():
            expected = norm_step(layers[0], x, added, dy)
        norms.ran.clear()
        found = norm_step(layers[1], x, added, dy)
        same(found, expected)
        assert set(norms.ran) == {expected_by}
    with torch.no_grad():
        assert torch.equal(layers[1](x, added), layers[0](x, added))


def test_norms_of_other_tensors_are_left_to_python(norms: Driver) -> None:
    layer, (x, dy) = NormAct2d(nn.BatchNorm2d(16), nn.SiLU()), operands()
    norm_step(layer, x.requires_grad_(), None, dy)
    expected = norm_step(layer, x, None, dy)
    assert set(norms.ran[-2:]) == {"native"}
    flat = norm_step(layer, x, None, dy.contiguous())
    same(flat[:4], expected[:4])
    assert norms.ran[-2:] == ["native", "native"]  # of a gradient that is copied first
    y = layer(x)
    assert "Recorded" in y.grad_fn.name()  # whoever computes it: what tests on GPUs go by
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(errors.WrongValue, match="first derivative"):
        slope.sum().backward()
    known = native_calls.norm
    assert known is not None
    number = norm_calls.setting_of(layer.eps, "silu")
    assert known(x, None, layer.weight, layer.bias, *layer.buffers(), number, 0.1) is not None
    for unfit in (x.float(), x.contiguous(), x[:1], x[0], x.to("meta")):
        assert known(unfit, None, layer.weight, layer.bias, *layer.buffers(), number, 0.1) is None
    assert known(x, None, layer.weight, layer.bias, *layer.buffers(), number, 0.2) is None
    assert known(x, None, layer.weight[:8], layer.bias, *layer.buffers(), number, 0.1) is None
    halves = [None if one is None else one.to(BF16) for one in (layer.weight, layer.bias, *list(layer.buffers())[:2])]
    for mixed in ((halves[0], layer.bias), (layer.weight, halves[1]), halves[:2]):
        assert known(x, None, *mixed, *layer.buffers(), number, 0.1) is None
    assert known(x, None, *halves, layer.num_batches_tracked, number, 0.1) is None  # nobody told of such
    norm_step(halved := NormAct2d(nn.BatchNorm2d(16).to(BF16), nn.SiLU()), x, None, dy)
    assert known(x, None, *halves, layer.num_batches_tracked, number, 0.1) is not None
    assert known(x, None, layer.weight, layer.bias, *halved.buffers(), number, 0.1) is None
    norms.status = 700
    with pytest.raises(RuntimeError, match="refused"):
        layer(x)


@pytest.mark.parametrize("act", ["", "relu", "silu"])
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("momentum", [0.1, -1.0])
def test_operators_of_graphs(taken: Driver, norms: Driver, act: str, summed: bool, momentum: float) -> None:
    """What Python has told of is computed without it: by name, whatever its number; the rest as before."""
    (x, dy), (other, _) = operands(), operands(1)
    weight, bias = torch.randn(2, 16).unbind()
    residual = other if summed else None

    def computed(forward: Any, gradients: Any, x: Tensor, dy: Tensor, epsilon: float = 1e-3) -> list[Tensor]:
        known = [torch.zeros(16), torch.ones(16), torch.tensor(0)]
        y, statistics = forward(x, residual, weight, bias, *known, momentum, epsilon, act)
        kept = norm_calls.other_of(y, residual, act)
        return [y, statistics, *gradients(x, dy, kept, statistics, weight, bias, epsilon, act), *known]

    called = norm_operators.lowered, norm_operators.gradients
    expected = computed(*called, x, dy)
    assert taken.ran == []  # torch's functions
    same(computed(norm_operators.lowered_norm, norm_operators.lowered_norm_gradients, x, dy), expected)
    assert taken.ran == ["python", "python"]
    same(computed(*called, x, dy), expected)
    assert taken.ran[2:] == ["native", "native"]
    same(computed(*called, x, dy.contiguous())[:1], expected[:1])
    assert taken.ran[4:] == ["native", "native"]
    taken.ran.clear()
    computed(*called, x, dy, 1e-2)
    if not summed:
        computed(*called, x.contiguous(), dy)
    assert taken.ran == []


def test_compiled_steps(taken: Driver, norms: Driver) -> None:
    torch._dynamo.reset()
    layers = [NormAct2d(nn.BatchNorm2d(16), nn.SiLU()) for _ in range(2)]
    (x, dy), (residual, _) = operands(), operands(1)
    x.requires_grad_()
    norm_step(layers[0], x, residual, dy)  # Python's call is told of
    compiled = torch.compile(layers[1], backend="aot_eager", fullgraph=True)
    layers[1].load_state_dict(layers[0].state_dict())
    expected = norm_step(layers[0], x, residual, dy)
    norms.ran.clear()
    found = norm_step(compiled, x, residual, dy)
    same(found, expected)
    assert norms.ran == ["native", "native"]


@pytest.mark.parametrize("training", [True, False])
def test_tangents_and_traces(norms: Driver, training: bool) -> None:
    theirs = nn.BatchNorm2d(16, track_running_stats=False)
    ours, (x, _) = NormAct2d(nn.BatchNorm2d(16, track_running_stats=False), nn.SiLU()).train(training), operands()
    for _ in range(2):
        ours(x)
    assert norms.ran[-1] == "native"
    told(ours, lambda given: nn.functional.silu(theirs(given)), x)
