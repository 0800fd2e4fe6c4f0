"""Replacing a model's layers, and what a model will run: found without computing, compiled ahead, left to cuDNN.

The operators of the layers: test_torch.py.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tapestry.kernels.convolution import choices, wide
from tapestry.kernels.convolution.pixels import PixelKind
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, Pass, recipes
from tapestry.kernels.convolution.wide_weight_gradient import WideWeightGradient
from tapestry.kernels.cost.gpu import known_gpu
from tapestry.kernels.errors import WrongValue
from tapestry.kernels.layers.stem import OverBlocks
from tapestry.kernels.models.convolutions import convolutions
from tapestry.kernels.normalization.images import ImageKind
from tapestry.kernels.runtime import background, parallel
from tapestry.kernels.runtime.compiler import Compiled, Recipe
from tapestry.kernels.tensors import convolution_calls
from tapestry.kernels.torch import GroupedConv2d, replace_convolutions
from tapestry.kernels.warm_up import warm_up

SUMS = ImageKind.of(16, "bf16", "f32").recipe("image_sums")  # of biases, in training


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.dense, self.product = nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(24, 16, 1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding="same", groups=16, bias=False)
        self.block = nn.Sequential(nn.Conv2d(16, 16, 5, 2, 2, groups=2), nn.BatchNorm2d(16))
        self.again = self.block[0]
        self.circular = nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular", groups=2)
        self.wide = nn.Conv2d(16, 16, 13, padding=6, groups=16)
        self.stride3 = nn.Conv2d(16, 16, 3, 3, 1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(self.depthwise(self.product(self.dense(self.stem(x)))))
        y = self.circular(self.again(y))
        out: Tensor = self.stride3(self.wide(y))
        return out


def test_swap_takes_what_it_can_and_says_why_not() -> None:
    net = Net().eval().double()
    before, x = copy.deepcopy(net), torch.randn(2, 3, 20, 20, dtype=torch.float64)
    report = replace_convolutions(net)
    assert report.taken == ("stem", "dense", "depthwise", "block.0", "again")
    reasons = {"product": "a matrix product", "circular": "circular", "wide": "13x13", "stride3": "stride"}
    assert {name: word in report.left[name] for name, word in reasons.items()} == dict.fromkeys(reasons, True)
    assert set(report.left) == set(reasons)
    assert isinstance(net.depthwise, GroupedConv2d)
    assert (type(net.stem), type(net.dense), type(net.product)) == (OverBlocks, GroupedConv2d, nn.Conv2d)
    assert net.again is net.block[0]
    torch.testing.assert_close(net(x), before(x))
    torch.testing.assert_close(net.depthwise(x[0].repeat(6, 1, 1)[:16]), before.depthwise(x[0].repeat(6, 1, 1)[:16]))
    assert "5 convolutions taken, 4 left" in str(report)
    assert "product: left, a matrix product, that cuDNN is made for" in str(report)


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


TAKEN: dict[str, Callable[[], nn.Conv2d]] = {
    "strided": lambda: nn.Conv2d(3, 16, 3, 2, 1),
    "not strided, most channels out": lambda: nn.Conv2d(3, 128, 3, padding="same", bias=False),
    "patches": lambda: nn.Conv2d(3, 24, 4, 4),
    "patches of few channels out": lambda: nn.Conv2d(4, 8, 2, 2),
    "seven channels": lambda: nn.Conv2d(7, 8, (1, 5), padding=(0, 3)),
    "as many channels": lambda: nn.Conv2d(24, 24, 3, padding=1),
    "more channels": lambda: nn.Conv2d(16, 120, (3, 5), 2, (1, 2), bias=False),
    "fewer channels": lambda: nn.Conv2d(40, 8, 5, padding=2, dilation=(1, 2)),
    "a narrow product": lambda: nn.Conv2d(32, 32, 1),
}
LEFT: list[tuple[str, Callable[[], nn.Conv2d]]] = [
    ("a matrix product, that cuDNN is made for", lambda: nn.Conv2d(24, 24, 1)),
    ("a matrix product, that cuDNN is made for", lambda: nn.Conv2d(16, 32, 1)),
    ("3 channels in and 20 out", lambda: nn.Conv2d(3, 20, 3)),
    ("136 channels out, more than 128", lambda: nn.Conv2d(3, 136, 3)),
    ("a filter of 1x1 with stride (1, 1) and dilation (1, 1) over 3", lambda: nn.Conv2d(3, 16, 1)),
    ("a filter of 3x3 with stride (1, 1) and dilation (2, 2) over 3", lambda: nn.Conv2d(3, 16, 3, dilation=2)),
    ("a filter of 3x3 with stride (2, 1) and dilation (1, 1) over 3", lambda: nn.Conv2d(3, 16, 3, (2, 1))),
    ("a filter of 16x16 with stride (16, 16) and dilation (1, 1) over 3", lambda: nn.Conv2d(3, 16, 16, 16)),
    ("padding mode circular", lambda: nn.Conv2d(3, 16, 3, padding=1, padding_mode="circular")),
    ("20 channels in and 24 out", lambda: nn.Conv2d(20, 24, 3)),
    ("20 channels, no multiple of 8", lambda: nn.Conv2d(20, 20, 3)),
    ("group width 128, not below 128", lambda: nn.Conv2d(128, 16, 3)),
    ("group width 128, not below 128", lambda: nn.Conv2d(16, 128, 3)),
    ("filter 9x9, larger than 7", lambda: nn.Conv2d(24, 24, 9)),
    ("stride (3, 3), not 1 or 2", lambda: nn.Conv2d(24, 24, 3, 3)),
]


def with_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of the parameters; of the images too, where they have any."""
    y: Tensor = model(x)
    wanted = [*model.parameters(), *([x] if x.requires_grad else [])]
    return [y, *torch.autograd.grad(y.square().sum(), wanted)]


@pytest.mark.parametrize("kind", TAKEN)
def test_swap_takes_layers_of_one_group(kind: str) -> None:
    layer = TAKEN[kind]().double()
    layers, first = nn.Sequential(layer), layer.in_channels < 8
    before = copy.deepcopy(layers)
    assert replace_convolutions(layers).taken == ("0",)
    assert type(layers[0]) is (OverBlocks if first else GroupedConv2d)
    x = torch.randn(2, layer.in_channels, 13, 11, dtype=torch.float64)
    for images in (x, x[0], x.contiguous(memory_format=torch.channels_last), x.clone().requires_grad_()):
        for found, expected in zip(with_gradients(layers, images), with_gradients(before, images), strict=True):
            torch.testing.assert_close(found, expected)
    (met,) = convolutions(layers.bfloat16(), x.bfloat16(), GroupedConv2d)
    assert met.problem.output_shape == (*before(x).permute(0, 2, 3, 1).shape,)
    assert met.passes == (("forward", "weight_gradient") if first else PASSES)
    assert bool(met.kinds) == first


def test_first_layers_are_traced_with_symbols() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1)), torch.randn(2, 3, 12, 14)
    expected = model(x)
    replace_convolutions(model)
    traced = make_fx(lambda parameters, x: torch.func.functional_call(model, parameters, x), tracing_mode="symbolic")
    torch.testing.assert_close(traced(dict(model.named_parameters()), x)(dict(model.named_parameters()), x), expected)


@pytest.mark.parametrize(("reason", "layer"), LEFT)
def test_swap_leaves_layers_of_one_group_and_says_why(reason: str, layer: Callable[[], nn.Conv2d]) -> None:
    layers = nn.Sequential(layer())
    report = replace_convolutions(layers)
    assert report.taken == ()
    assert report.left["0"].startswith(reason)
    assert type(layers[0]) is nn.Conv2d


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


# The stem of `Layers` on images of 20 x 24: a filter of 2 x 2 over blocks of 2 x 2 pixels, of 12 channels and 4 zeros.
STEM = ConvolutionProblem(4, 10, 12, 16, 1, 2, 2, padding=(1, 0, 1, 0), dtype="bf16")


def kind_of_pixels(images: str, taps: str) -> PixelKind:
    return PixelKind(images, "bf16", taps, channels=3, step=2, width=16, lines=2)


def test_what_a_model_calls_its_layers_for_is_found_without_computing() -> None:
    model = Layers().bfloat16()
    replace_convolutions(model)
    before = copy.deepcopy(model.state_dict())
    found = convolutions(model, (torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16), 2), GroupedConv2d)
    common: dict[str, Any] = {"n": 4, "h": 10, "w": 12, "c": 16, "dtype": "bf16"}
    grouped = ConvolutionProblem(groups=2, r=3, s=5, padding=(1, 1, 2, 2), **common)
    depthwise = ConvolutionProblem(groups=16, r=3, s=3, stride=(2, 1), padding=(1, 1, 1, 1), **common)
    assert [(met.name, met.problem) for met in found] == [
        ("stem", STEM), ("grouped", grouped), ("grouped", grouped), ("depthwise", depthwise),
    ]  # fmt: skip
    assert [met.passes for met in found] == [("forward", "weight_gradient"), *[PASSES] * 3]
    assert [met.kinds for met in found] == [(kind_of_pixels("bf16", "bf16"),) * 2, (), (), ()]
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
    assert [met.name for met in found] == ["stem", "grouped", "depthwise"]


def test_autocast_says_in_which_type() -> None:
    model = Layers()
    replace_convolutions(model)
    x = torch.zeros(1, 3, 8, 8)
    assert convolutions(model, x) == []
    with torch.autocast("cpu", torch.float16):
        stem, *others = convolutions(model, x)
    assert {met.problem.dtype for met in (stem, *others)} == {"f16"}
    assert [(kind.images, kind.blocks, kind.taps) for kind in stem.kinds] == [
        ("f32", "f16", "f16"),  # images, as they are given
        ("f16", "f16", "f32"),  # and the filter, as it is kept
    ]
    assert len(others) == 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """What is asked to be compiled before `warm_up` returns: nothing is."""
    found: list[Recipe] = []

    def compile_all(wanted: Iterable[Recipe], *_: Any) -> list[Compiled]:
        found.extend(wanted)
        return []

    monkeypatch.setattr(parallel, "compile_all", compile_all)
    return found


def test_warming_up_a_model_compiles_what_its_layers_run(asked: list[Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: (problem.groups, what) == (16, "forward"))
    model, gpu = Layers().bfloat16(), known_gpu("H200")
    replace_convolutions(model)
    x = torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16)
    warm_up(model, x)
    stem, grouped, depthwise = [met.problem for met in convolutions(model, x)]
    assert gpu is not None
    blocks = kind_of_pixels("bf16", "bf16").recipe("pixel_blocks")
    forward = [r for p in (stem, grouped) for r in recipes(p, "forward", gpu, {"bias": True})]
    expected = [*forward, *recipes(stem, "weight_gradient", gpu), blocks]
    expected += [r for p in (grouped, depthwise) for what in PASSES[1:] for r in recipes(p, what, gpu)]
    expected.append(SUMS)
    assert set(asked) == set(expected)
    assert not set(asked) & set(recipes(stem, "input_gradient", gpu))  # images have none
    longest = recipes(depthwise, "input_gradient", gpu)  # of a strided layer
    assert asked[: 2 + len(longest)] == [blocks, SUMS, *longest]  # what nothing is chosen for, and what takes longest
    asked.clear()
    warm_up(model.eval(), x)
    assert set(asked) == {blocks, *forward}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """What is compiled in the background; nothing is left to cuDNN."""
    found: list[Recipe] = []
    monkeypatch.setattr(background, "begin", lambda wanted, arch: found.extend(wanted))
    monkeypatch.setattr(choices, "left_to_cudnn", lambda *_: False)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_first_layer_is_compiled_with_what_makes_its_blocks(
    dtype: torch.dtype, asked: list[Recipe], later: list[Recipe]
) -> None:
    """Of images and filters of the types that they have; gradients have that of the filter, and later of images."""
    layers, gpu = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1)).to(dtype), known_gpu("H200")
    assert gpu is not None
    replace_convolutions(layers)
    with torch.autocast("cpu", torch.bfloat16):
        (met,) = convolutions(layers, torch.zeros(4, 3, 20, 24, dtype=dtype))
        warm_up(layers, torch.zeros(4, 3, 20, 24, dtype=dtype))
    lowered = dtype == torch.float32
    given = "f32" if lowered else "bf16"
    assert met.problem == STEM
    assert met.kinds == (kind_of_pixels(given, "bf16"), kind_of_pixels("bf16", given))
    blocks = {kind.recipe("pixel_blocks") for kind in met.kinds}
    forward = recipes(STEM, "forward", gpu, {"bias": True})
    gradient = recipes(STEM, "weight_gradient", gpu, partial=lowered)
    assert set(asked) == {*forward, *gradient, *blocks, SUMS}
    assert len(blocks) == (2 if lowered else 1)
    assert later == (recipes(STEM, "weight_gradient", gpu) if lowered else [])
    asked.clear()
    with torch.autocast("cpu", torch.bfloat16):
        warm_up(layers, torch.zeros(4, 3, 20, 24, dtype=dtype), passes=("input_gradient",))
    assert set(asked) <= blocks  # of the convolution nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_wide_gradients_are_compiled_as_they_are_called_for(
    dtype: torch.dtype, asked: list[Recipe], later: list[Recipe]
) -> None:
    """Nothing is added to an input gradient; those of filters have the type of parameters, and later of images."""
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
    assert len(asked) == len(PASSES) + 1  # and a bias's gradient
    assert later == ([other] if dtype == torch.float32 else [])


def test_a_model_without_an_example_is_refused() -> None:
    with pytest.raises(WrongValue, match=r"example[\s\S]*warm_up\(model, x\)"):
        warm_up(Layers())


def test_in_the_background_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Recipe] = []
    monkeypatch.setattr(background, "begin", lambda wanted, arch: begun.extend(wanted))
    monkeypatch.setattr(convolution_calls, "_background", False)
    model = Layers().bfloat16()
    replace_convolutions(model)
    assert warm_up(model, torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16), background=True) == []
    assert begun
    assert convolution_calls._background


def test_layers_that_cudnn_is_faster_at_are_left_to_it_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    always = {16: PASSES, 2: ("weight_gradient",), 1: ("forward", "weight_gradient")}
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: what in always[problem.groups])
    model = Layers().bfloat16()
    report = replace_convolutions(model, torch.zeros(4, 3, 20, 24, dtype=torch.bfloat16))
    assert report.taken == ("grouped",)
    assert report.left == dict.fromkeys(("stem", "depthwise"), "cuDNN is predicted to be faster")
    assert report.passes == {"grouped": ("weight_gradient",)}
    assert "grouped: weight gradient by cuDNN" in str(report)
    assert replace_convolutions(model).taken == ("stem", "depthwise")


@pytest.mark.parametrize(("channels", "passes"), [(3, ("forward", "weight_gradient")), (24, PASSES)])
def test_a_layer_of_one_group_is_taken_for_one_pass_that_is_ours(
    channels: int, passes: tuple[Pass, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a first layer nobody asks about the input gradient: it has none."""
    asked: list[Pass] = []

    def left(problem: ConvolutionProblem, what: Pass, gpu: Any) -> bool:
        asked.append(what)
        return what != "forward"

    monkeypatch.setattr(choices, "left_to_cudnn", left)
    layers = nn.Sequential(nn.Conv2d(channels, 16, 3, 2, 1)).bfloat16()
    report = replace_convolutions(layers, torch.zeros(4, channels, 20, 24, dtype=torch.bfloat16))
    assert asked == list(passes)
    assert report.taken == ("0",)
    assert report.passes == {"0": passes[1:]}
    assert f"0: {', '.join(what.replace('_', ' ') for what in passes[1:])} by cuDNN" in str(report)
