"""Batch norms with what follows them, on CPU tensors: the operators, the layer, the swap of a model's layers, and the
calls that the kernels get, which run on the emulated machine. On a GPU: gpu/test_norms.py; residuals:
models/test_norm_sums.py; compiled: layers/test_norms_compiled.py.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers.norms import NormAct2d, activation_name, kinds, lowered
from tapestry.kernels.models.convolutions import convolutions
from tapestry.kernels.normalization import batch_norm
from tapestry.kernels.normalization.batch_norm import NormKind
from tapestry.kernels.normalization.stretches import Launch
from tapestry.kernels.runtime import device
from tapestry.kernels.tensors import autograd, norm_calls, norm_library
from tapestry.kernels.tensors.norm_library import FUNCTIONS, Running
from tapestry.kernels.tensors.norm_operators import gradients, operator
from tapestry.kernels.torch import fuse_for_inference, fuse_norms

from .. import host_compiler
from ..normalization.launches import run as run_emulated
from ..normed import Residual, images

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "": nn.Identity, "relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU, "gelu": nn.GELU, "hardswish": nn.Hardswish,
}  # fmt: skip


UNITS = {torch.float32: 1e-4, torch.bfloat16: 2.0**-7}


def defined(activation: str, x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = nn.functional.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-3)
    made: Tensor = FUNCTIONS[activation](y if residual is None else y + residual)
    return made


def affine(channels: int = 6, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(5)
    made = (torch.randn(channels, generator=random, dtype=torch.float64).to(dtype) for _ in range(2))
    weight, bias = (values.requires_grad_() for values in made)
    return weight, bias


# -- the operators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", list(LAYERS))
@pytest.mark.parametrize("residual", [False, True])
def test_the_operators_are_what_they_say(activation: str, residual: bool) -> None:
    x, added = images().requires_grad_(), images(seed=2).requires_grad_() if residual else None
    given = (x, added, *affine(), 1e-3, activation)
    torch.library.opcheck(operator.default, given)  # fake tensors, autograd, no aliases
    y, (mean, variance) = operator(*given)
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))
    expected = defined(activation, *given[:4])
    torch.testing.assert_close(y, expected)
    wanted = [tensor for tensor in given[:4] if isinstance(tensor, Tensor)]
    dy = images(seed=3)
    found = torch.autograd.grad(y, wanted, dy)
    for one, other in zip(found, torch.autograd.grad(expected, wanted, dy), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16], ids=str)
def test_the_operators_of_halves(own: torch.dtype) -> None:
    x, added = (images(torch.bfloat16, seed).requires_grad_() for seed in (1, 2))
    given = (x, added, *affine(6, own), 1e-3, "relu")
    torch.library.opcheck(operator.default, given)
    y, statistics = operator(*given)
    rest = (y.detach(), statistics, *(each.detach() for each in given[2:4]), 1e-3, "relu")
    torch.library.opcheck(gradients, (x.detach(), images(torch.bfloat16, 3), *rest))
    found = torch.autograd.grad(y, given[:4], images(torch.bfloat16, 3))
    assert [each.dtype for each in found] == [torch.bfloat16, torch.bfloat16, own, own]


def test_without_weight_and_bias() -> None:
    x = images().requires_grad_()
    y, expected = operator(x, None, None, None, 1e-3, "silu")[0], defined("silu", x, None, None, None)
    (one,), (other,) = (torch.autograd.grad(values.square().sum(), x) for values in (y, expected))
    torch.testing.assert_close(one, other)


def test_a_second_derivative_is_refused() -> None:
    x = images().requires_grad_()
    (dx,) = torch.autograd.grad(operator(x, None, None, None, 1e-3, "silu")[0].sum(), x, create_graph=True)
    with pytest.raises(WrongValue, match="gradients of a fused batch norm's gradients"):
        torch.autograd.grad(dx.sum(), x)


def test_one_value_a_channel_is_refused_before_anything_is_remembered() -> None:
    kept = (torch.zeros(6), torch.ones(6), torch.tensor(0))
    with pytest.raises(ValueError, match="more than one value a channel"):
        norm_library.remember(Running(*kept, 0.1), torch.ones(2, 6), 1)
    assert int(kept[2]) == 0


# -- the calls ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_the_emulated_machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are direct, and launches run where there is no GPU; the kernels' names as they are launched."""
    launched: list[str] = []

    def prepared(kind: Any, launches: Sequence[Launch], number: int) -> list[Launch]:
        found.append((kind, launches))
        return []

    def run(plan: Any, given: Sequence[Tensor | None], *rest: Any) -> None:
        plan.launches = None  # addresses are new each time
        own_run(plan, given, *rest)
        kind, launches = found[0]
        found.clear()
        machine = host_compiler.emulated(kind.source(), *batch_norm.KERNELS)
        for launch in launches:
            run_emulated(machine, launch, 3)
            launched.append(launch.kernel)

    def dense(x: Tensor) -> bool:
        return x.dtype in norm_calls.DTYPES and x.is_contiguous(memory_format=torch.channels_last)

    found: list[tuple[Any, Sequence[Launch]]] = []
    own_run = norm_calls._Plan.run
    monkeypatch.setattr(norm_calls._Plan, "run", run)
    monkeypatch.setattr(norm_calls, "prepared", prepared)
    monkeypatch.setattr(norm_calls, "torch_stream", lambda number: 0)
    monkeypatch.setattr(norm_calls, "_room", lambda plan, stream: torch.full((plan.workspace,), torch.nan))
    monkeypatch.setattr(norm_calls, "computed", dense)
    monkeypatch.setattr(norm_calls, "_plans", {})
    monkeypatch.setattr(autograd, "plain", lambda *tensors: True)
    monkeypatch.setattr(device, "properties", lambda number: SimpleNamespace(sms=2))
    return launched


@pytest.mark.parametrize(("activation", "residual"), [("silu", False), ("relu", True), ("", True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("settings", [{}, {"affine": False}], ids=str)
def test_the_calls_of_a_layer(
    activation: str, residual: bool, dtype: torch.dtype, settings: dict[str, Any], on_the_emulated_machine: list[str]
) -> None:
    """With parameters and buffers of its own type, against the definition in f64 of the same values."""
    host_compiler.compiler()
    layer = NormAct2d(nn.BatchNorm2d(8, eps=1e-3, momentum=0.3, **settings).to(dtype), LAYERS[activation]())
    with torch.no_grad():
        for values, parameter in zip(affine(8, dtype), layer.parameters(), strict=False):
            parameter.copy_(values)
    plain = copy.deepcopy(layer).double()
    x, dy = (images(dtype, seed, 8).requires_grad_() for seed in (1, 3))
    added = images(dtype, 2, 8).requires_grad_() if residual else None
    y = layer(x, added)
    wide = [each.detach().double().requires_grad_() for each in (x, added) if each is not None]
    before = nn.BatchNorm2d.forward(plain, wide[0])
    expected: Tensor = FUNCTIONS[activation](before + wide[1] if residual else before)
    found = torch.autograd.grad(y, [*([x] if added is None else [x, added]), *layer.parameters()], dy)
    wanted = torch.autograd.grad(expected, [*wide, *plain.parameters()], dy.double())
    near = UNITS[dtype]
    for one, other in zip([y, *found, *layer.buffers()], [expected, *wanted, *plain.buffers()], strict=True):
        assert one.dtype in (dtype, torch.int64)
        torch.testing.assert_close(one.double(), other.double(), rtol=2 * near, atol=8 * near)
    assert on_the_emulated_machine == list(batch_norm.KERNELS)


@pytest.mark.parametrize("part", ["weight", "bias", "running_mean", "running_var"])
def test_parameters_of_several_types_are_torchs(part: str, on_the_emulated_machine: list[str]) -> None:
    layer = NormAct2d(nn.BatchNorm2d(8), nn.SiLU())
    getattr(layer, part).data = getattr(layer, part).data.bfloat16()
    with pytest.raises(RuntimeError, match=r"type|Type"):
        layer(images(torch.float32, channels=8))
    assert on_the_emulated_machine == []


def test_a_call_that_came_before_is_looked_up(on_the_emulated_machine: list[str]) -> None:
    layer = NormAct2d(nn.BatchNorm2d(8), nn.SiLU())
    x = images(torch.float32, channels=8)
    with torch.no_grad():
        layer(x), layer(x + 1)
        assert len(norm_calls._plans) == 1
        layer(x[:2])
        assert len(norm_calls._plans) == 2
    assert len(on_the_emulated_machine) == 9


# -- the layer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}])
def test_other_tensors_are_torchs(settings: dict[str, Any]) -> None:
    norm = nn.BatchNorm2d(6, **settings)
    layer, plain = NormAct2d(copy.deepcopy(norm), nn.SiLU()), nn.Sequential(norm, nn.SiLU())
    for seed in range(2):
        x = images(torch.float32, seed)
        assert torch.equal(layer(x), plain(x))
    layer.eval(), plain.eval()
    x = images(torch.float32, 5)
    assert torch.equal(layer(x), plain(x))
    assert all(torch.equal(a, b) for a, b in zip(layer.buffers(), norm.buffers(), strict=True))


def test_a_batch_of_one_value_is_refused_as_torch_does() -> None:
    layer = NormAct2d(nn.BatchNorm2d(6), nn.SiLU())
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(torch.zeros(1, 6, 1, 1))


def test_norms_under_vmap_are_torchs() -> None:
    layer = NormAct2d(nn.BatchNorm2d(6, track_running_stats=False), nn.SiLU())
    x = torch.randn(3, 2, 6, 4, 4)
    torch.testing.assert_close(torch.func.vmap(layer)(x), torch.stack([layer(one) for one in x]))


def test_a_layer_is_copied_and_pickled() -> None:
    layer = NormAct2d(nn.BatchNorm2d(6), nn.Hardswish())
    x = images(torch.float32)
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert made.activation == "hardswish"
        assert torch.equal(made.eval()(x), layer.eval()(x))


def test_which_activations_are_known() -> None:
    assert activation_name(nn.GELU()) == "gelu"
    assert activation_name(nn.GELU(approximate="tanh")) is None
    assert activation_name(nn.Mish()) is None


# -- models ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Norms with an activation behind them, and what only looks so."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.SiLU(inplace=True)
        self.conv2, self.bn2, self.drop, self.act2 = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.Identity(), nn.ReLU()
        self.bn3, self.act3 = nn.BatchNorm2d(6), nn.ReLU()  # of a sum
        self.bn4, self.act4 = nn.BatchNorm2d(6), nn.Hardswish()  # read twice
        self.bn5, self.act5 = nn.BatchNorm2d(6), nn.Tanh()
        self.tail = nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6), nn.ReLU6())

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.bn1(self.conv1(x)))
        y = self.act2(self.drop(self.bn2(self.conv2(y))))
        y = self.act3(self.bn3(y) + x)
        z = self.bn4(y)
        y = self.act4(z) + z
        out: Tensor = self.tail(self.act5(self.bn5(y)))
        return out


TAKEN = {"bn1": "silu", "bn2": "relu", "bn3": "a residual and relu", "bn4": "", "bn5": "", "tail.1": "relu6"}


def test_norms_of_a_model_and_what_follows_them() -> None:
    model = Block()
    before, keys = copy.deepcopy(model), list(model.state_dict())
    report = fuse_norms(model)
    assert report.taken == TAKEN
    assert report.left == {}
    assert "bn1: with silu" in str(report)
    assert [type(part) for part in (model.act1, model.act2, model.tail[2])] == [nn.Identity] * 3
    assert [type(part) for part in (model.act3, model.act4, model.act5)] == [nn.ReLU, nn.Hardswish, nn.Tanh]
    assert list(model.state_dict()) == keys
    x = images(torch.float32)
    assert torch.equal(model(x), before(x))
    for one, other in zip(model.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    model.load_state_dict(before.state_dict())
    assert torch.equal(model.eval()(x), before.eval()(x))
    assert fuse_norms(model).taken == {}


def test_parameters_stay_the_optimizers() -> None:
    model = Block()
    parameters = list(model.parameters())
    fuse_norms(model)
    assert {id(parameter) for parameter in model.parameters()} == {id(parameter) for parameter in parameters}


class Shared(nn.Module):
    """An activation in two places, of which one is behind a sum."""

    def __init__(self, sums: bool) -> None:
        super().__init__()
        self.bn1, self.bn2, self.relu, self.sums = nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.ReLU(), sums

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(x))
        out: Tensor = self.relu(self.bn2(y) + x if self.sums else self.bn2(y))
        return out


@pytest.mark.parametrize(("sums", "taken"), [(False, "relu"), (True, "")])
def test_an_activation_in_two_places(sums: bool, taken: str) -> None:
    model = Shared(sums)
    before = copy.deepcopy(model)
    assert fuse_norms(model).taken == {"bn1": taken, "bn2": taken}
    x = images(torch.float32)
    assert torch.equal(model(x), before(x))


def test_what_is_left_alone() -> None:
    class Own(nn.BatchNorm2d):
        pass

    hooked = nn.BatchNorm2d(6)
    hooked.register_forward_hook(lambda *_: None)
    model = nn.Sequential(nn.SyncBatchNorm(6), Own(6), hooked, nn.BatchNorm1d(6), nn.BatchNorm2d(6))
    report = fuse_norms(model)
    assert report.taken == {"4": ""}
    assert [why.split(",")[0] for why in report.left.values()] == [
        "SyncBatchNorm",
        "Own",
        "hooks or parametrizations hang on it",
        "BatchNorm1d",
    ]
    assert fuse_norms(nn.BatchNorm2d(6)).left == {"": "it is the model itself: wrap it in a module"}


def test_hooks_of_an_activation_keep_it() -> None:
    model = Block()
    model.act1.register_forward_hook(lambda *_: None)
    assert fuse_norms(model).taken == TAKEN | {"bn1": ""}


def test_flow_that_depends_on_training() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn, self.act = nn.BatchNorm2d(6), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            y = self.bn(x)
            out: Tensor = self.act(y if self.training else y + 1)
            return out

    model = Sometimes()
    before = copy.deepcopy(model)
    assert fuse_norms(model).taken == {"bn": ""}
    assert model.training
    x = images(torch.float32)
    assert torch.equal(model.eval()(x), before.eval()(x))


def test_flow_that_depends_on_values_is_said() -> None:
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn, self.act = nn.BatchNorm2d(6), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.act(self.bn(x))
            return y if y.sum() > 0 else -y

    report = fuse_norms(Flow())
    assert report.taken == {"bn": ""}
    assert "cannot trace" in str(report)


def test_kernels_that_a_model_needs_are_known_before_it_runs() -> None:
    model = nn.Sequential(Residual(), nn.Conv2d(6, 8, 1), nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8), nn.SiLU())
    fuse_norms(model)
    x = images(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, met = kinds(model, lowered((x,))), convolutions(model, x)
    assert found == [
        NormKind("bf16", 2, "relu"), NormKind("bf16", 2, "relu", True), NormKind("bf16", 2),
        NormKind("bf16", 8, "silu"),
    ]  # fmt: skip
    assert [one.name for one in met] == ["0.conv1", "0.unit.conv", "0.downsample.conv", "1", "2"]
    assert [(one.problem.c, one.problem.k, one.kinds) for one in met[-2:]] == [(6, 8, ()), (8, 8, ())]


def test_inference_is_fused_after_norms_were() -> None:
    model = Block().eval()
    before = fuse_for_inference(copy.deepcopy(model), torch.float32)
    fuse_norms(model)
    x = images(torch.float32)
    torch.testing.assert_close(fuse_for_inference(model, torch.float32)(x), before(x))


def test_kernels_that_a_model_of_halves_needs() -> None:
    model = nn.Sequential(nn.BatchNorm2d(8), nn.SiLU(), nn.BatchNorm2d(8, affine=False)).bfloat16()
    fuse_norms(model)
    assert kinds(model, torch.bfloat16) == [
        NormKind("bf16", 8, "silu", parameters="bf16"), NormKind("bf16", 8, parameters="bf16"), NormKind("bf16", 8),
    ]  # fmt: skip
    assert kinds(model, torch.float16) == [NormKind("f16", 8)]  # of gradients that have no parameters' type
