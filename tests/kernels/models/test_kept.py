"""Models that keep something of their calls: fused, they keep the same, and nothing of having been traced."""

from __future__ import annotations

import copy
import pickle
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers.norms import NormAct2d
from tapestry.kernels.models.convolutions import convolutions
from tapestry.kernels.models.in_place import Tracer
from tapestry.kernels.models.kept import NOTHING, State
from tapestry.kernels.torch import fuse_for_inference, fuse_for_training

KEEPING: dict[str, Callable[[Any, Tensor], object]] = {
    "nothing": lambda self, y: None,
    "a value": lambda self, y: setattr(self, "seen", y),
    "a shape": lambda self, y: setattr(self, "seen", y.shape[2:]),
    "a number of calls": lambda self, y: setattr(self, "calls", self.calls + 1),
    "a list": lambda self, y: self.list.append(y),
    "a queue": lambda self, y: self.queue.append(y),
    "a cache": lambda self, y: self.cache.setdefault(str(y.device), y),
    "a set": lambda self, y: self.set.add(y),
    "a buffer": lambda self, y: self.count.add_(1),
    "another buffer": lambda self, y: setattr(self, "count", self.count + 1),
    "a value of a part": lambda self, y: setattr(self.act, "seen", y),
    "the same": lambda self, y: setattr(self, "scale", 1.0 / 3.0),
}


class Block(nn.Module):
    """A norm whose result is kept, a sum that is, and an excitation of it."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.calls, self.scale, self.seen = what, 0, 1.0 / 3.0, None
        self.list, self.queue, self.set = list[Tensor](), deque[Tensor](maxlen=2), set[Tensor]()
        self.cache: OrderedDict[str, Tensor] = OrderedDict()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU()
        self.other, self.act2, self.gate = nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x))
        KEEPING[self.what](self, y)
        y = self.act2(self.other(self.act(y)) + x)
        out: Tensor = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return out


def model(what: str) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(Block(what), nn.Conv2d(8, 8, 1)).double()


def images() -> Tensor:
    return torch.randn(2, 8, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def kept(block: nn.Module) -> list[Tensor]:
    """All that was kept, as tensors."""
    found: Any = block
    unordered = sorted(found.set, key=lambda each: float(each.detach().sum()))
    several = [*found.list, *found.queue, *found.cache.values(), *unordered, found.seen, found.calls, found.count]
    return [torch.as_tensor(each) for each in (*several, getattr(found.act, "seen", None)) if each is not None]


def proxies(block: nn.Module) -> list[str]:
    return [name for name, value in vars(block).items() if "Proxy" in repr(value)]


@pytest.mark.parametrize("what", KEEPING)
def test_fused_models_keep_the_same(what: str) -> None:
    before = model(what)
    found = copy.deepcopy(before)
    made = fuse_for_training(found)
    assert made.norms.taken.keys() == {"0.norm", "0.other"}
    assert not proxies(found[0])
    for one, other in zip(kept(found[0]), kept(before[0]), strict=True):
        torch.testing.assert_close(one, other)
    found = pickle.loads(pickle.dumps(found))
    for training in (True, False):
        found.train(training)
        before.train(training)
        for _ in range(2):
            torch.testing.assert_close(found(images()), before(images()))
            for one, other in zip(kept(found[0]), kept(before[0]), strict=True):
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("what", KEEPING)
def test_fused_for_inference_it_holds_no_value_of_a_trace(what: str) -> None:
    before = model(what)
    if what not in ("nothing", "the same", "a cache"):
        with pytest.raises(WrongValue, match=r"keeps nothing of its calls(.|\n)*it keeps something"):
            fuse_for_inference(before, torch.float64)
        first = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Identity())
        before = nn.Sequential(first, *before).double()  # of which a part is fused
    fused = fuse_for_inference(before, torch.float64)
    assert not proxies(before[0])
    pickle.loads(pickle.dumps(fused))
    with torch.no_grad():
        torch.testing.assert_close(fused(images()), before.eval()(images()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("what", KEEPING)
def test_a_trace_says_what_was_kept(what: str) -> None:
    reader, made = Tracer(), model(what)
    reader.trace(made)
    assert reader.kept.anything == (what not in ("nothing", "the same"))
    targets = {node.target for node in reader.kept.nodes}
    named = {"a value", "a list", "a queue", "a cache", "a set", "a value of a part"}
    assert ("0.norm" in targets) == (what in named)
    reader.trace(lambda x: x + 1)
    assert reader.kept == NOTHING


class Biased(nn.Module):
    """As timm's attention keeps its biases in evaluation; it cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.cache = nn.Parameter(torch.ones(8, 8)), dict[str, Tensor]()

    def train(self, mode: bool = True) -> Biased:
        super().train(mode)
        if mode:
            self.cache = {}
        return self

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias if self.training else self.cache.setdefault(str(x.device), 2 * self.bias)
        y = torch.einsum("nchw,ck->nkhw", x, bias)
        return y if float(y.detach().sum()) < 1e9 else x


def test_what_was_kept_in_another_type_is_forgotten_for_inference() -> None:
    model = nn.Sequential(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU()), Biased())
    with torch.no_grad():
        expected, x = model.eval()(images().float()), images().bfloat16()
        fused = fuse_for_inference(model)
        assert model[1].cache["cpu"].dtype is torch.float32
        torch.testing.assert_close(fused(x).float(), expected, rtol=0.05, atol=0.05)


def test_what_a_trace_ends_with_an_error_is_put_back() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(x)
            return x if x.sum() > 0 else -x

    reader, made = Tracer(), Fails()
    with pytest.raises(fx.proxy.TraceError):
        reader.trace(made)
    assert made.seen == []


class Where(Block):
    """Which asks where its tensors are, so that it is called with some that only say so."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "meta":
            raise TypeError("nowhere")
        return super().forward(x)


@pytest.mark.parametrize("kind", [Block, Where])
@pytest.mark.parametrize("what", KEEPING)
def test_to_be_asked_for_its_convolutions_leaves_nothing(what: str, kind: type[Block]) -> None:
    made, x = nn.Sequential(kind(what)).bfloat16().eval(), images().bfloat16()
    before, states = copy.deepcopy(made), torch.get_rng_state()
    assert [met.name for met in convolutions(made, x)] == ["0.conv", "0.gate"]
    assert torch.equal(torch.get_rng_state(), states)
    torch.testing.assert_close(made(x), before(x))
    for one, other in zip(kept(made[0]), kept(before[0]), strict=True):
        torch.testing.assert_close(one, other)


class Scaled(nn.Module):
    """A block with a sum, scaled by what it makes itself."""

    def __init__(self, made: Callable[[], Any]) -> None:
        super().__init__()
        self.made, self.norm, self.act = made, nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(x) + x) * self.made()
        return out


def constant() -> Tensor:
    return torch.tensor([0.25, 4.0]).repeat(4)[:, None, None]


def drawn() -> Tensor:
    return torch.rand(8, 1, 1)


def drawn_by_python() -> float:
    return random.random()


@pytest.mark.parametrize("made", [constant, drawn, drawn_by_python])
def test_what_is_made_in_every_call_is(made: Callable[[], Any]) -> None:
    """A graph would have it as it was made once."""
    torch.manual_seed(3)
    random.seed(3)
    before = nn.Sequential(Scaled(made))
    found, states = copy.deepcopy(before), (torch.get_rng_state(), random.getstate())
    fuse_for_training(found)
    assert isinstance(found[0].norm, NormAct2d)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert vars(found[0]).keys() == vars(before[0]).keys()
    x = images().float()
    for _ in range(2):
        results = []
        for model in (found, before):
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            results.append(model(x))
        torch.testing.assert_close(*results)
        drawn(), drawn_by_python()
        states = (torch.get_rng_state(), random.getstate())


class Frozen(nn.Module):
    """Part of a sum is not learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = self.conv(x)
        out: Tensor = self.act(self.norm(x) + shift)
        return out


class Wide(Frozen):
    """It is computed without autocast."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            shift = self.conv(x)
        out: Tensor = self.act(self.norm(x) + shift)
        return out


class Asks(Frozen):
    """It is computed twice under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        shift = self.conv(x)
        if torch.is_autocast_enabled("cpu"):
            shift = shift + self.conv(x)
        out: Tensor = self.act(self.norm(x) + shift)
        return out


class Records(Frozen):
    """It is computed twice where gradients are recorded."""

    def forward(self, x: Tensor) -> Tensor:
        shift = self.conv(x)
        if torch.is_grad_enabled():
            shift = shift + self.conv(x)
        out: Tensor = self.act(self.norm(x) + shift)
        return out


class Behind(Frozen):
    """Nothing is learnt of what is behind the norm."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        with torch.no_grad():
            y = self.act(y)
        out: Tensor = self.conv(y)
        return out


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("kind", [Frozen, Wide, Asks, Records, Behind])
def test_modes_hold_where_they_held(kind: Callable[[], nn.Module], lowered: bool) -> None:
    torch.manual_seed(4)
    before = nn.Sequential(kind())
    found = copy.deepcopy(before)
    fuse_for_training(found)
    results: list[list[Any]] = []
    for model in (found, before):
        x = images().float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, lowered):
            y = model(x)
            with torch.no_grad():
                without = model.eval()(x)
        y.float().square().sum().backward()
        results.append([y, without, x.grad, *(value.grad for value in model.parameters())])
    for one, other in zip(*results, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_constants_of_a_graph_for_inference() -> None:
    before = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), Scaled(constant))
    fused = fuse_for_inference(before, torch.float32)
    assert not hasattr(before[1], "_tensor_constant0")
    x = images().float()
    for made in (fused, pickle.loads(pickle.dumps(fused)), copy.deepcopy(fused)):
        with torch.no_grad():
            torch.testing.assert_close(made(x), before.eval()(x))


def test_what_was_there_and_is_gone() -> None:
    made = nn.Module()
    made.list, made.set, made.named, made.pair = [1, 2], {3}, {"a": 4}, (5, 6.0)  # type: ignore[assignment]
    state = State(made)
    made.list.pop(), made.set.clear(), made.named.pop("a")  # type: ignore[operator, union-attr]
    made.pair = (5, 6.0)  # type: ignore[assignment]
    del made.training
    assert state.put_back().anything
    assert (made.list, made.set, made.named, made.pair, made.training) == ([1, 2], {3}, {"a": 4}, (5, 6.0), True)
    assert State(made).put_back() == NOTHING
