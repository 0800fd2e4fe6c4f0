"""Gelu behind layers whose biases learn, by the extension: what its gradient sums is the bias's gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from tapestry.kernels.layers.gelu import SummedGELU
from tapestry.kernels.tensors import gelu_calls, native_calls
from tapestry.kernels.torch import fuse_biases, fuse_for_inference, fuse_norms

from ..layers.test_timm import ScaledStdConv2d
from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, autocast, by_python
from .test_biases import nodes_behind
from .test_channel_sums import sums

__all__ = ["sums"]  # a fixture


class Kernels:
    """Stands in for the kernels: what to launch is the addresses that are there, and what torch computes at such."""

    def forward(self, cut: Any, x: int, y: int) -> tuple[Any, ...]:
        def compute(kind: Any, x: int, y: int) -> None:
            given, made = (memory(at, (cut.rows, cut.channels), DTYPES[kind.dtype]) for at in (x, y))
            made.copy_(functional.gelu(given))

        return [x, y], compute

    def gradient(self, cut: Any, x: int, dy: int, dx: int, sums: int, room: int) -> tuple[Any, ...]:
        def compute(kind: Any, x: int, dy: int, dx: int, sums: int, room: int) -> None:
            values, slopes, made = (memory(at, (cut.rows, cut.channels), DTYPES[kind.dtype]) for at in (x, dy, dx))
            exact = torch.ops.aten.gelu_backward(slopes.double(), values.double())
            made.copy_(exact)
            memory(sums, (cut.channels,)).copy_(exact.sum(0))
            memory(room, (self.workspace(cut),)).fill_(torch.nan)

        return [x, dy, dx, sums, room], compute

    @staticmethod
    def workspace(cut: Any) -> int:
        return int(cut.channels * cut.blocks)


@pytest.fixture
def gelus(sums: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(gelu_calls, "kernels", Kernels())
    monkeypatch.setattr(gelu_calls, "prepared", prepared_by(sums))
    monkeypatch.setattr(gelu_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(gelu_calls, "_plans", {})
    yield sums
    extension.forget_gelus()


class Mlp(nn.Module):
    """Two layers with gelu between, and what may be done to a value before or behind it."""

    def __init__(self, first: nn.Module, second: nn.Module, before: Any = None, behind: Any = None) -> None:
        super().__init__()
        self.first, self.act, self.second, self.before, self.behind = first, nn.GELU(), second, before, behind

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = y if self.before is None else self.before(y)
        y = self.act(y)
        made: Tensor = self.second(y if self.behind is None else self.behind(y))
        return made


def mlp(kind: str, **more: Any) -> tuple[Mlp, Mlp, Tensor]:
    """One of torch's, the same with biases of ours, and what it is given."""
    torch.manual_seed(5)
    random = torch.Generator().manual_seed(1)
    if kind == "rows":
        theirs, x = Mlp(nn.Linear(16, 24), nn.Linear(24, 16), **more), torch.randn((3, 5, 16), generator=random)
    else:
        theirs = Mlp(nn.Conv2d(16, 24, 1 if kind == "one tap" else 3), nn.Conv2d(24, 16, 1), **more)
        x = torch.randn((2, 16, 6, 5), generator=random).contiguous(memory_format=torch.channels_last)
        theirs = theirs.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ours = copy.deepcopy(theirs)
    assert fuse_biases(ours) == ["first", "second"]
    assert type(ours.act) is SummedGELU
    return theirs, ours, x


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    """A result, and gradients of a sum of its squares."""
    given = x.detach().requires_grad_()
    with autocast():
        y = model(given)
    return [y, *torch.autograd.grad(y.float().square().sum(), [given, *model.parameters()])]


def near(found: list[Tensor], expected: list[Tensor], alike: bool = True) -> None:
    """`alike` in memory, too."""
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.stride() == other.stride() or not alike
        scale = float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=2e-2, atol=1e-2 * scale)


@pytest.mark.parametrize("kind", ["rows", "one tap", "blocks"])
def test_steps(gelus: Driver, kind: str) -> None:
    theirs, ours, x = mlp(kind)
    expected = gradients(theirs, x)
    with by_python():
        near(gradients(ours, x), expected)
    gelus.ran.clear()
    found = []
    for who in ("python", "native", "native"):
        gelus.ran.clear()
        found.append(gradients(ours, x))
        near(found[-1], expected)
        # gelu and its gradient, and the sum of the second layer's bias; the first one's came with the gradient
        assert gelus.ran == [who] * 3
    for one, other in zip(*found[1:], strict=True):
        assert torch.equal(one, other)
    with autocast():
        y = ours(x)
    assert any("Gelu" in name and "tapestry" in name for name in nodes_behind(y))


BETWEEN: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("before", lambda y: y * 2), ("before", lambda y: y.mul_(2)), ("behind", lambda y: functional.dropout(y, 0.0)),
    ("behind", lambda y: y.mul_(2)), ("behind", lambda y: y.add_(1).clone()),
]  # fmt: skip


@pytest.mark.parametrize(("where", "what"), BETWEEN)
@pytest.mark.parametrize("kind", ["rows", "one tap"])
def test_what_is_between(gelus: Driver, kind: str, where: str, what: Callable[[Tensor], Tensor]) -> None:
    """Before it gelu is torch's, and both biases are summed by kernels."""
    theirs, ours, x = mlp(kind, **{where: what})
    for _ in range(2):
        gelus.ran.clear()
        near(gradients(ours, x), gradients(theirs, x))
    assert len(gelus.ran) == (2 if where == "before" else 3)


def test_a_gradient_that_comes_as_another_is_summed(gelus: Driver) -> None:
    """Where the layer's result has two readers, or something hangs on it that changes its gradient."""
    theirs, ours, x = mlp("rows")

    class Twice(nn.Module):
        def __init__(self, model: Mlp, hook: bool) -> None:
            super().__init__()
            self.model, self.hook = model, hook

        def forward(self, x: Tensor) -> Tensor:
            y = self.model.first(x)
            if self.hook:
                y.register_hook(lambda slope: slope * 3)
                made: Tensor = self.model.second(self.model.act(y))
            else:
                made = self.model.second(self.model.act(y)) + y[..., :16]
            return made

    for hook in (False, True):
        expected = gradients(Twice(theirs, hook), x)
        for _ in range(2):
            near(gradients(Twice(ours, hook), x), expected)


def test_a_gradient_that_is_written_into_is_summed(gelus: Driver) -> None:
    """By a hook, in place."""
    theirs, ours, x = mlp("rows")
    made = []

    def written(layer: nn.Module, to_input: Any, to_output: Any) -> None:
        to_input[0].mul_(2)

    for model in (theirs, ours, ours):
        handle = model.act.register_full_backward_hook(written)
        made.append(gradients(model, x))
        handle.remove()
    near(made[1], made[0])
    near(made[2], made[0])


def test_sums_are_of_the_gradient_they_were_made_with(gelus: Driver, extension: Any) -> None:
    """Two chains of the same extents, whose gradients come one after the other."""
    (one, ours, x), (other, more, _) = mlp("rows"), mlp("rows")
    with torch.no_grad():
        for parameter in (*other.parameters(), *more.parameters()):
            parameter.mul_(0.5)

    class Both(nn.Module):
        def __init__(self, left: Mlp, right: Mlp) -> None:
            super().__init__()
            self.left, self.right = left, right

        def forward(self, x: Tensor) -> Tensor:
            y, z = self.left.first(x), self.right.first(x)
            y, z = self.left.act(y), self.right.act(z)
            made: Tensor = self.left.second(y) + self.right.second(z)
            return made

    for _ in range(2):
        near(gradients(Both(ours, more), x), gradients(Both(one, other), x))


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_what_does_not_learn(gelus: Driver, frozen: str) -> None:
    theirs, ours, x = mlp("rows")
    for model in (theirs, ours):
        getattr(model.first, frozen).requires_grad_(False)
    made = []
    for model in (theirs, ours, ours):
        with autocast():
            y = model(x)
        learns = [parameter for parameter in model.parameters() if parameter.requires_grad]
        made.append([y, *torch.autograd.grad(y.float().square().sum(), learns)])
    near(made[1], made[0])
    near(made[2], made[0])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("kind", ["rows", "one tap"])
def test_derivatives_of_other_kinds(gelus: Driver, kind: str) -> None:
    theirs, ours, x = mlp(kind)
    for model in (theirs, ours):
        model.to(BF16)
    x, found = x.to(BF16).requires_grad_(), []
    gradients(ours, x)
    for model in (theirs, ours):
        y = model(x)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), model.first.weight)
        many = torch.randn((3, *y.shape), generator=torch.Generator().manual_seed(2)).to(BF16)
        batched = torch.autograd.grad(model(x), [x, model.first.bias], many, is_grads_batched=True)
        with forward_ad.dual_level():
            dual = model(forward_ad.make_dual(x.detach(), torch.ones_like(x)))
            tangent = forward_ad.unpack_dual(dual).tangent
        found.append([first, second, *batched, tangent])
    near(found[1], found[0], alike=False)


def test_what_is_torchs(gelus: Driver) -> None:
    """f32, no gradients, what lies otherwise; compiled; behind other layers."""
    theirs, ours, x = mlp("rows")
    torch.testing.assert_close(ours(x), theirs(x))
    with torch.no_grad(), autocast():
        torch.testing.assert_close(ours(x), theirs(x))
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), theirs(x))
    native = native_calls.gelu
    assert native is not None
    y = torch.randn(4, 8, dtype=BF16, requires_grad=True)
    for other in (y, y * 2, y.detach(), None, 3):
        assert native(other) is None  # type: ignore[arg-type]
    assert not gelus.ran


def test_which_layers() -> None:
    """Exact ones, of torch; what reads a model later takes them for what they were."""
    tanh, hooked = nn.GELU("tanh"), nn.GELU()
    hooked.register_forward_hook(lambda *_: None)
    model = nn.Sequential(nn.Conv2d(8, 40, 3), nn.BatchNorm2d(40), nn.GELU(), tanh, hooked, ScaledStdConv2d(40, 1))
    assert fuse_biases(model) == ["0", "5"]
    assert [type(part) for part in model[2:5]] == [SummedGELU, nn.GELU, nn.GELU]
    assert repr(model[2]) == "SummedGELU(approximate='none')"
    assert list(fuse_norms(model).taken.values()) == ["gelu"]
    fused = fuse_for_inference(nn.Sequential(nn.Conv2d(8, 16, 3, groups=2), SummedGELU()))
    assert [part.activation for part in fused.modules() if hasattr(part, "activation")] == ["gelu"]
    assert not copy.deepcopy(model[2]).state_dict()
    x = torch.randn(3, 4, dtype=F32)
    torch.testing.assert_close(SummedGELU()(x), functional.gelu(x))
