"""Replacing a model's layers, and what a model will run: found without computing, compiled ahead, left to cuDNN.

The operators of the layers: test_torch.py.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels import torch_calls
from tapestry.kernels.convolution import choices, wide
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, recipes
from tapestry.kernels.convolution.wide_weight_gradient import WideWeightGradient
from tapestry.kernels.cost.gpu import known_gpu
from tapestry.kernels.errors import WrongValue
from tapestry.kernels.runtime import background, parallel
from tapestry.kernels.runtime.compiler import Recipe
from tapestry.kernels.torch import GroupedConv2d, replace_convolutions
from tapestry.kernels.torch_models import convolutions
from tapestry.kernels.warm_up import warm_up


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding="same", groups=16, bias=False)
        self.block = nn.Sequential(nn.Conv2d(16, 16, 5, 2, 2, groups=2), nn.BatchNorm2d(16))
        self.again = self.block[0]
        self.circular = nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular", groups=2)
        self.wide = nn.Conv2d(16, 16, 9, padding=4, groups=16)
        self.stride3 = nn.Conv2d(16, 16, 3, 3, 1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(self.depthwise(self.stem(x)))
        y = self.circular(self.again(y))
        out: Tensor = self.stride3(self.wide(y))
        return out


def test_swap_takes_what_it_can_and_says_why_not() -> None:
    net = Net().eval()
    before, x = copy.deepcopy(net), torch.randn(2, 3, 20, 20)
    report = replace_convolutions(net)
    assert report.taken == ("depthwise", "block.0", "again")
    reasons = {"stem": "3 channels in and 16 out", "circular": "circular", "wide": "9x9", "stride3": "stride"}
    assert {name: word in report.left[name] for name, word in reasons.items()} == dict.fromkeys(reasons, True)
    assert set(report.left) == set(reasons)
    assert isinstance(net.depthwise, GroupedConv2d)
    assert net.again is net.block[0]
    torch.testing.assert_close(net(x), before(x))
    torch.testing.assert_close(net.depthwise(x[0].repeat(6, 1, 1)[:16]), before.depthwise(x[0].repeat(6, 1, 1)[:16]))
    assert "3 convolutions taken, 4 left" in str(report)


def test_swap_takes_layers_of_other_channels_out() -> None:
    layers = nn.Sequential(
        nn.Conv2d(16, 32, 3, groups=4), nn.Conv2d(32, 16, 3, groups=16, bias=False), nn.Conv2d(16, 20, 3, groups=4),
        nn.Conv2d(20, 16, 1), nn.Conv2d(16, 2048, 1, groups=8),
    )  # fmt: skip
    before, x = copy.deepcopy(layers), torch.randn(2, 16, 12, 12)
    report = replace_convolutions(layers)
    assert report.taken == ("0", "1")
    assert "16 channels in and 20 out" in report.left["2"]
    torch.testing.assert_close(layers(x), before(x))
    found = convolutions(layers.bfloat16(), x.bfloat16(), GroupedConv2d)
    assert [(met.problem.c, met.problem.k) for met in found] == [(16, 32), (32, 16)]


def test_a_layer_pads_with_zeros_or_is_refused() -> None:
    with pytest.raises(WrongValue, match=r"padding mode[\s\S]*zeros[\s\S]*reflect"):
        GroupedConv2d(16, 16, 3, padding=1, groups=2, padding_mode="reflect")


def test_swap_keeps_state_and_parameters() -> None:
    net = Net()
    parameters, state = dict(net.named_parameters()), copy.deepcopy(net.state_dict())
    replace_convolutions(net)
    assert {name: id(value) for name, value in net.named_parameters()} == {k: id(v) for k, v in parameters.items()}
    assert list(net.state_dict()) == list(state)
    Net().load_state_dict(net.state_dict())
    net.load_state_dict(state)
    assert net.depthwise.bias is None
    assert replace_convolutions(net).taken == ()


def test_swap_leaves_subclasses_hooks_and_the_root_alone() -> None:
    class Same(nn.Conv2d):
        pass

    layers = nn.Sequential(Same(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=8))
    layers[1].register_forward_hook(lambda *_: None)
    nn.utils.parametrizations.weight_norm(layers[2])
    report = replace_convolutions(layers)
    assert report.taken == ()
    assert "Same" in report.left["0"]
    assert "hooks" in report.left["1"]
    assert set(report.left) == {"0", "1", "2"}
    assert "itself" in replace_convolutions(nn.Conv2d(8, 8, 3, groups=8)).left[""]


# -- what a model will run ---------------------------------------------------------------------------------------------


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16)
        self.grouped = nn.Conv2d(16, 16, (3, 5), padding="same", groups=2)
        self.depthwise = nn.Conv2d(16, 16, 3, (2, 1), 1, groups=16, bias=False)

    def forward(self, x: Tensor, times: int = 1) -> Tensor:
        y = self.norm(self.stem(x))
        for _ in range(times):
            y = self.grouped(y)
        out: Tensor = self.depthwise(y)
        return out


def test_what_a_model_calls_its_layers_for_is_found_without_computing() -> None:
    model = Layers().bfloat16()
    replace_convolutions(model)
    before = copy.deepcopy(model.state_dict())
    found = convolutions(model, (torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16), 2), GroupedConv2d)
    common: dict[str, Any] = {"n": 4, "h": 10, "w": 12, "c": 16, "dtype": "bf16"}
    grouped = ConvolutionProblem(groups=2, r=3, s=5, padding=(1, 1, 2, 2), **common)
    depthwise = ConvolutionProblem(groups=16, r=3, s=3, stride=(2, 1), padding=(1, 1, 1, 1), **common)
    assert [(met.name, met.problem) for met in found] == [
        ("grouped", grouped), ("grouped", grouped), ("depthwise", depthwise),
    ]  # fmt: skip
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.grouped._forward_pre_hooks


def test_models_that_ask_where_they_are_are_called_on_fake_tensors() -> None:
    """What was met before it failed is not met twice."""

    class Asking(Layers):
        def forward(self, x: Tensor, times: int = 1) -> Tensor:
            y = self.grouped(self.norm(self.stem(x)))
            if x.device.type == "meta":
                raise RuntimeError("nowhere")
            out: Tensor = self.depthwise(y * torch.ones(1, device=x.device, dtype=x.dtype))
            return out

    model = Asking().bfloat16()
    replace_convolutions(model)
    found = convolutions(model, torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16), GroupedConv2d)
    assert [met.name for met in found] == ["grouped", "depthwise"]


def test_autocast_says_in_which_type() -> None:
    model = Layers()
    replace_convolutions(model)
    x = torch.zeros(1, 3, 8, 8)
    assert convolutions(model, x) == []
    with torch.autocast("cpu", torch.float16):
        assert {met.problem.dtype for met in convolutions(model, x)} == {"f16"}


def test_warming_up_a_model_compiles_what_its_layers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Recipe] = []
    monkeypatch.setattr(parallel, "compile_all", lambda wanted, arch, jobs, note: asked.extend(wanted) or [])
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: (problem.groups, what) == (16, "forward"))
    model, gpu = Layers().bfloat16(), known_gpu("H200")
    replace_convolutions(model)
    x = torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16)
    warm_up(model, x)
    grouped, depthwise = [met.problem for met in convolutions(model, x)]
    assert gpu is not None
    expected = [*recipes(grouped, "forward", gpu, {"bias": True})]
    expected += [r for p in (grouped, depthwise) for what in PASSES[1:] for r in recipes(p, what, gpu)]
    assert set(asked) == set(expected)
    longest = recipes(depthwise, "input_gradient", gpu)  # of a strided layer
    assert asked[: len(longest)] == longest
    asked.clear()
    warm_up(model.eval(), x)
    assert asked == recipes(grouped, "forward", gpu, {"bias": True})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wide_gradients_are_compiled_as_they_are_called_for(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is added to an input gradient; those of filters have the type of parameters, and later of images."""
    asked: list[Recipe] = []
    later: list[Recipe] = []
    monkeypatch.setattr(background, "begin", lambda wanted, arch: later.extend(wanted))
    monkeypatch.setattr(parallel, "compile_all", lambda wanted, arch, jobs, note: asked.extend(wanted) or [])
    monkeypatch.setattr(choices, "left_to_cudnn", lambda *_: False)
    layers, gpu = nn.Sequential(nn.Conv2d(1008, 1008, 3, padding=1, groups=21)).to(dtype), known_gpu("H200")
    assert gpu is not None
    replace_convolutions(layers)
    with torch.autocast("cpu", torch.bfloat16):
        (met,) = convolutions(layers, torch.zeros(64, 1008, 7, 7, dtype=dtype))
        warm_up(layers, torch.zeros(64, 1008, 7, 7, dtype=dtype))
    cut = choices.gradient_cut(met.problem, gpu)
    assert isinstance(cut, WideWeightGradient)
    assert not cut.apart  # one launch leaves the gradient
    (filters,) = wide.gradient_recipes(met.problem, cut, partial=dtype == torch.float32)
    (other,) = wide.gradient_recipes(met.problem, cut, partial=dtype != torch.float32)
    (gradient,) = wide.recipes(choices.sweeps(met.problem, "input_gradient", gpu, False), {})
    assert {filters, gradient} < set(asked)
    assert len(asked) == len(PASSES)
    assert later == ([other] if dtype == torch.float32 else [])


def test_a_model_without_an_example_is_refused() -> None:
    with pytest.raises(WrongValue, match=r"example[\s\S]*warm_up\(model, x\)"):
        warm_up(Layers())


def test_in_the_background_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Recipe] = []
    monkeypatch.setattr(background, "begin", lambda wanted, arch: begun.extend(wanted))
    monkeypatch.setattr(torch_calls, "_background", False)
    model = Layers().bfloat16()
    replace_convolutions(model)
    assert warm_up(model, torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16), background=True) == []
    assert begun
    assert torch_calls._background


def test_layers_that_cudnn_is_faster_at_are_left_to_it_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    always = {16: PASSES, 2: ("weight_gradient",)}
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: what in always[problem.groups])
    model = Layers().bfloat16()
    report = replace_convolutions(model, torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16))
    assert report.taken == ("grouped",)
    assert report.left["depthwise"] == "cuDNN is predicted to be faster"
    assert report.passes == {"grouped": ("weight_gradient",)}
    assert "grouped: weight gradient by cuDNN" in str(report)
    assert replace_convolutions(model).taken == ("depthwise",)
