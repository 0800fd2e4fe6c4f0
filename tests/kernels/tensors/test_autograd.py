"""The eager path past torch's dispatcher, on CPU tensors: its derivatives, what it leaves to the operators, and that
a call that came before is not worked out again. On a GPU: gpu/test_torch.py.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.convolution import choices, prepare, recipes, weight_gradient
from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import BadConvolution, ConvolutionProblem
from tapestry.kernels.layers import grouped
from tapestry.kernels.runtime import device
from tapestry.kernels.runtime.array import DeviceArray
from tapestry.kernels.runtime.background import Coming
from tapestry.kernels.runtime.device import DeviceProperties
from tapestry.kernels.tensors import autograd, convolution_calls, library, operators
from tapestry.kernels.tensors.geometry import Geometry
from tapestry.kernels.torch import GroupedConv2d, conv2d

from ..native.driver import described

GEOMETRY = Geometry((2, 1), (1, 2, 0, 1), (1, 2), 2)
STEPS: dict[str, Any] = GEOMETRY._asdict()
H200 = DeviceProperties("NVIDIA H200", (9, 0), 132, 60 << 20, 227 << 10, 228 << 10, 65536, 2048, 141 << 30)


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    shapes = ((2, 8, 6, 5), (8, 4, 3, 2), (8,))
    x, w, bias = (torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)
    return x.requires_grad_(), w.requires_grad_(), bias.requires_grad_()


# -- derivatives -------------------------------------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that reach the kernels, which torch's convolution on the CPU stands in for; CPU tensors are direct."""
    made: list[str] = []

    def note(name: str, function: Any) -> Any:
        def run(*given: Any) -> Tensor:
            dtype = given[4] if name == "filter" and len(given) == 5 else given[0].dtype
            *operands, geometry = given[:4]
            made.append(name)
            with torch.no_grad():
                result: Tensor = function(*operands, *geometry).to(dtype)
            return result

        return run

    monkeypatch.setattr(convolution_calls, "forward", note("forward", library.forward))
    monkeypatch.setattr(convolution_calls, "input_gradient", note("input", library.input_gradient))
    monkeypatch.setattr(convolution_calls, "filter_gradient", note("filter", library.weight_gradient))

    def both(
        x: Tensor, dy: Tensor, w: Tensor, geometry: Geometry, dtype: torch.dtype, plan: Any
    ) -> tuple[Tensor, Tensor]:
        assert plan is ours
        first = convolution_calls.input_gradient(dy, w, x.shape, geometry)
        return first, convolution_calls.filter_gradient(x, dy, w.shape, geometry, dtype)

    monkeypatch.setattr(convolution_calls, "gradients", both)
    ours = SimpleNamespace(left=False)
    monkeypatch.setattr(convolution_calls, "planned", lambda *_: ours)
    monkeypatch.setattr(autograd, "_on_gpu", lambda tensor: True)
    return made


def test_first_and_second_derivatives(computed: list[str]) -> None:
    def call(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return conv2d(x, w, bias, **STEPS)

    assert torch.autograd.gradcheck(call, example(), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, example(), fast_mode=True)
    assert set(computed) == {"forward", "input", "filter"}


def test_only_what_is_asked_for_is_computed(computed: list[str]) -> None:
    x, w, _ = example()
    with torch.no_grad():
        assert conv2d(x, w, **STEPS).grad_fn is None
    assert conv2d(x.detach(), w.detach(), **STEPS).grad_fn is None
    conv2d(x.detach(), w, **STEPS).sum().backward()
    assert computed == ["forward", "forward", "forward", "filter"]
    torch.autograd.grad(conv2d(x, w.detach(), **STEPS).sum(), x)
    assert computed[4:] == ["forward", "input"]


def test_gradients_have_the_types_of_what_they_are_of(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters in f32 under autocast: x and w are lowered, the bias is added as it is."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    monkeypatch.setattr(convolution_calls, "forward", lambda x, w, b, g, plan: library.forward(x, w, b.to(x), *g))
    x, w, bias = example(torch.float32)
    y = conv2d(x, w, bias, **STEPS)
    assert y.dtype == torch.bfloat16
    gradients = torch.autograd.grad(y.float().sum(), (x, w, bias))
    assert [gradient.dtype for gradient in gradients] == [torch.float32] * 3
    assert gradients[2].tolist() == [float(y.numel() // 8)] * 8
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    expected = torch.autograd.grad(operators.forward(x, w, bias, *GEOMETRY).sum(), (x, w))
    torch.testing.assert_close(gradients[:2], expected, atol=0.1, rtol=0.02)


def test_a_lowered_filter_has_second_derivatives(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of f64 lowered to f32, exact enough to compare: the gradient by x depends on w, on the node that lowered it."""
    x, w, _ = example()
    narrow = x.detach().float().requires_grad_()

    def penalty(taps: Tensor, values: Tensor, lowered: bool) -> Tensor:
        y = autograd.forward(values, taps, None, GEOMETRY, lowered=lowered)
        (slope,) = torch.autograd.grad(y.square().sum(), values, create_graph=True)
        return torch.autograd.grad(slope.double().square().sum(), taps)[0]

    found, expected = penalty(w, narrow, True), penalty(w, x, False)
    assert found.dtype == w.dtype
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", ["compiled", "a mode", "a subclass", "on the CPU"])
def test_whatever_traces_sees_the_operators(computed: list[str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x, w, _ = (tensor.detach() for tensor in example())

    class Other(Tensor):
        pass

    def call(x: Tensor) -> Tensor:
        return conv2d(x, w, **STEPS)

    if kind == "on the CPU":
        monkeypatch.undo()
    if kind == "compiled":
        torch.compile(call, fullgraph=True, backend="aot_eager")(x)
    elif kind == "a mode":
        with FlopCounterMode(display=False):
            call(x)
    else:
        call(x.as_subclass(Other) if kind == "a subclass" else x)
    assert computed == []


def test_a_transform_is_no_place_for_a_direct_call(computed: list[str]) -> None:
    seen: list[bool] = []

    def call(x: Tensor) -> Tensor:
        seen.append(autograd.direct(x))
        return x.sum()

    torch.func.grad(call)(torch.ones(3))
    call(torch.ones(3))
    assert seen == [False, True]


# -- layers that are left to torch -------------------------------------------------------------------------------------


def test_a_layer_whose_passes_are_all_by_cudnn_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients the forward pass alone counts; each shape is asked for once."""
    asked: list[tuple[int, str]] = []
    faster = {8: {"forward"}, 9: set(recipes.PASSES), 10: set(recipes.PASSES[1:])}

    def left(problem: ConvolutionProblem, what: str, operand: Tensor) -> bool:
        asked.append((problem.h, what))
        return what in faster[problem.h]

    ours: list[int] = []
    monkeypatch.setattr(autograd, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(convolution_calls, "left_to_cudnn", left)
    monkeypatch.setattr(autograd, "forward", lambda x, *_, **__: ours.append(x.shape[2]) or x)
    conv = GroupedConv2d(16, 16, 3, padding=1, groups=16, bias=False).bfloat16()
    for _ in range(2):
        for h in (8, 9, 10):
            x = torch.randn(1, 16, h, h).bfloat16()
            y = conv(x)
            assert (y.grad_fn is not None) == (h == 9)
            with torch.no_grad():
                conv(x)
    assert ours == [8, 10, 10] * 2
    assert len(set(asked)) == len([found for found in asked if found[1] != "forward"]) + 3
    conv.padding = (0, 0)
    assert conv(torch.randn(1, 16, 9, 9).bfloat16()).shape[2] == 7


# -- prepared calls ----------------------------------------------------------------------------------------------------


class Launches:
    """What a GPU was asked for: problems prepared, and the addresses that their launches ran with."""

    def __init__(self) -> None:
        self.prepared: list[tuple[Any, ...]] = []
        self.ran: list[tuple[int, ...]] = []

    def note(self, *given: Any) -> Any:
        """A launch with the operands' addresses as its arguments; of two in a row, the second is of moved operands."""
        operands = [one for one in (*given, *getattr(given[-2], "_asdict", dict)().values()) if _is_array(one)]
        words = memoryview(bytearray(8 * len(operands))).cast("Q")
        for place, operand in enumerate(operands):
            words[place] = operand.pointer
        self.prepared.append(given)
        return SimpleNamespace(launches=(SimpleNamespace(words=words, launch=lambda stream: self._run(words, stream)),))

    def _run(self, words: memoryview, stream: int) -> None:
        assert stream == 0x5EED
        self.ran.append(tuple(words))

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        """What was prepared, without the moved copies."""
        return self.prepared[::2]


def _is_array(value: Any) -> bool:
    return isinstance(value, DeviceArray)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    found = Launches()
    monkeypatch.setattr(convolution_calls, "array", described)
    monkeypatch.setattr(convolution_calls, "torch_stream", lambda device: 0x5EED)
    monkeypatch.setattr(device, "properties", lambda number: H200)
    for name in ("forward_steps", "input_gradient_steps", "weight_gradient_steps"):
        monkeypatch.setattr(prepare, name, found.note)
    monkeypatch.setattr(convolution_calls, "_plans", {})
    return found


def layer(dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    x, w = torch.randn(2, 64, 28, 28), torch.randn(64, 8, 3, 3)
    made = [t.to(dtype).contiguous(memory_format=torch.channels_last) for t in (x, w)]
    return made[0], made[1], torch.randn(64)


PLAIN = Geometry((1, 1), (1, 1, 1, 1), (1, 1), 8)


def test_a_call_that_came_before_is_only_launched(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, _ = layer()
    out = torch.empty_like(x)
    monkeypatch.setattr(Tensor, "new_empty_strided", lambda like, *_: out)
    for _ in range(3):
        assert convolution_calls.forward(x, w, None, PLAIN) is out
    assert (len(launches.calls), len(launches.ran)) == (1, 3)
    problem, given, taps, target, fused, configuration = launches.calls[0]
    assert (problem.input_shape, problem.weight_shape) == ((2, 28, 28, 64), (64, 3, 3, 8))
    assert (given.pointer, taps.pointer, target.pointer) == (x.data_ptr(), w.data_ptr(), out.data_ptr())
    assert (given.shape, fused, configuration) == ((2, 28, 28, 64), prepare.NOTHING, None)


def test_other_addresses_are_told_to_the_same_launches(launches: Launches) -> None:
    """Models that share a GPU shift one another's memory: nothing may be prepared again for that."""
    x, w, bias = layer()
    given = [(torch.empty_like(x), torch.empty_like(w)) for _ in range(3)]
    results = [convolution_calls.forward(*operands, None, PLAIN) for operands in given]
    assert (len(launches.calls), len(convolution_calls._plans)) == (1, 1)
    expected = [tuple(t.data_ptr() for t in (*operands, y)) for operands, y in zip(given, results, strict=True)]
    assert launches.ran == expected
    y = convolution_calls.forward(x, w, bias, PLAIN)  # with a bias: another kernel
    assert launches.ran[-1] == (x.data_ptr(), w.data_ptr(), y.data_ptr(), bias.data_ptr())
    assert (len(launches.calls), len(convolution_calls._plans)) == (2, 1)


def test_results_are_what_the_operators_promise(launches: Launches) -> None:
    x, w, bias = layer()
    geometry = Geometry((2, 1), (1, 0, 2, 1), (1, 2), 8)
    y = convolution_calls.forward(x, w, bias, geometry)
    with torch.device("meta"):
        like = torch.empty(2, 64, 14, 27, dtype=torch.bfloat16, memory_format=torch.channels_last)
    assert (y.shape, y.stride(), y.dtype) == (like.shape, like.stride(), like.dtype)
    assert launches.calls[0][4].bias.pointer == bias.data_ptr()
    dx = convolution_calls.input_gradient(y, w, x.shape, geometry)
    assert (dx.shape, dx.stride(), dx.dtype) == (x.shape, x.stride(), x.dtype)
    dw = convolution_calls.filter_gradient(x, y, w.shape, geometry)
    assert (dw.shape, dw.stride(), dw.dtype) == (w.shape, w.stride(), w.dtype)


def test_operands_in_another_order_are_copied_each_time(launches: Launches) -> None:
    x, w, _ = layer()
    rows = x.contiguous()
    for _ in range(2):
        convolution_calls.forward(rows, w, None, PLAIN)
    given = launches.calls[0][1]
    assert View(given.pointer, given.shape, (28 * 28 * 64, 28 * 64, 64), "bf16").strides == tuple(
        step // 2 for step in given.strides[:3]
    )
    assert given.pointer != rows.data_ptr()
    dy = torch.ones((), dtype=torch.bfloat16).expand(x.shape)  # as a sum's backward gives it
    convolution_calls.filter_gradient(x, dy, w.shape, PLAIN)
    assert launches.calls[-1][2].strides == launches.calls[-1][1].strides


def test_parts_of_images_are_taken_as_they_lie(launches: Launches) -> None:
    x, w, _ = layer()
    around = torch.randn(3, 96, 30, 28).to(x.dtype).contiguous(memory_format=torch.channels_last)
    parts = around[1:, 16:80, 1:29], around[:2, :64, ::2, ::3].contiguous(memory_format=torch.channels_last)
    for part in parts:
        convolution_calls.forward(part, w, None, PLAIN)
        given = launches.calls[-1][1]
        assert given.pointer == part.data_ptr()
        assert given.strides == tuple(2 * step for step in part.permute(0, 2, 3, 1).stride())
    assert convolution_calls.forward(parts[0], w, None, PLAIN).is_contiguous(memory_format=torch.channels_last)
    dy = around[:2, 32:, :28]
    convolution_calls.filter_gradient(parts[0], dy, w.shape, PLAIN)
    assert [given.pointer for given in launches.calls[-1][1:3]] == [parts[0].data_ptr(), dy.data_ptr()]
    both = convolution_calls.gradients(parts[0], dy, w, PLAIN, torch.bfloat16)
    assert [made.shape for made in both] == [x.shape, w.shape]
    assert launches.ran[-1][:2] == (parts[0].data_ptr(), dy.data_ptr())


@pytest.mark.parametrize("kind", ["another address", "channels between", "one number everywhere", "rows turned"])
def test_what_the_copy_engine_cannot_fetch_is_copied(launches: Launches, kind: str) -> None:
    x, w, _ = layer()
    memory = torch.zeros(4 * x.numel(), dtype=x.dtype)
    step = {"another address": 96, "channels between": 68}.get(kind, 64)
    part = memory.as_strided(x.shape, (28 * 28 * step, 1, 28 * step, step), 4 if kind == "another address" else 0)
    if kind == "one number everywhere":
        part = memory[:1].expand(x.shape)
    if kind == "rows turned":
        part = memory[: x.numel()].view(x.shape)
    convolution_calls.forward(part, w, None, PLAIN)
    given = launches.calls[0][1]
    assert given.pointer != part.data_ptr()
    assert given.strides == (2 * 28 * 28 * 64, 2 * 28 * 64, 128, 2)


def test_an_odd_address_has_a_plan_of_its_own(launches: Launches) -> None:
    x, w, _ = layer()
    memory = torch.zeros(x.numel() + 8, dtype=x.dtype)
    dy = torch.empty_like(x)
    for shift in (0, 4, 8):
        odd = memory.as_strided(x.shape, x.stride(), shift)
        convolution_calls.filter_gradient(odd, dy, w.shape, PLAIN)
    chosen = [given[-1] for given in launches.calls]
    assert [choice.direct for choice in chosen] == [False, True]  # the third is like the first
    assert [ran[0] - memory.data_ptr() for ran in launches.ran] == [0, 8, 16]
    problem = launches.calls[0][0]
    sizes = [weight_gradient.workspace_bytes(problem, choice) for choice in chosen]
    assert [given[5] is not None for given in launches.calls] == [size > 0 for size in sizes]


def test_both_gradients_are_one_call(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared once for one kind of call, apart where a pass is cuDNN's; w's has the type of the parameter."""
    x, w, _ = layer()
    dy = torch.randn_like(x)
    for _ in range(3):
        dx, dw = convolution_calls.gradients(x, dy, w, PLAIN, torch.float32)
        assert (dx.shape, dx.stride(), dx.dtype) == (x.shape, x.stride(), x.dtype)
        assert (dw.shape, dw.stride(), dw.dtype) == (w.shape, w.stride(), torch.float32)
        assert launches.ran[-2:] == [
            (dy.data_ptr(), w.data_ptr(), dx.data_ptr()),
            (x.data_ptr(), dy.data_ptr(), dw.data_ptr(), *launches.ran[-1][3:]),
        ]
    assert (len(launches.prepared), len(launches.ran)) == (4, 6)
    convolution_calls.gradients(x, dy.contiguous(memory_format=torch.contiguous_format), w, PLAIN, torch.float32)
    assert len(launches.ran) == 8
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: what == "input_gradient")
    dx, dw = convolution_calls.gradients(x, dy, w, PLAIN, torch.bfloat16)
    torch.testing.assert_close(dx, library.input_gradient(dy, w, x.shape, *PLAIN))
    assert (len(launches.ran), dw.dtype) == (9, torch.bfloat16)


def test_what_the_kernels_do_not_compute_is_refused_and_not_remembered(launches: Launches) -> None:
    x, w, bias = layer()
    for _ in range(2):
        with pytest.raises(BadConvolution, match="float16"):
            convolution_calls.forward(x.float(), w.float(), None, PLAIN)
        with pytest.raises(BadConvolution, match="weights"):
            convolution_calls.forward(x, w[:, :4], None, Geometry((1, 1), (1, 1, 1, 1), (1, 1), 8))
        with pytest.raises(BadConvolution, match=r"type of the bias[\s\S]*int64"):
            convolution_calls.forward(x, w, bias.long(), PLAIN)
    assert launches.prepared == []


@pytest.mark.parametrize("setting", [{"stride": (1, 1, 1)}, {"dilation": [2]}])
def test_settings_of_other_lengths_are_refused(computed: list[str], setting: dict[str, Any]) -> None:
    x, w, _ = example()
    with pytest.raises(BadConvolution, match="1 or 2 ints"):
        conv2d(x, w, **{**STEPS, **setting})


def test_a_layer_of_lists_is_the_same_layer(computed: list[str]) -> None:
    x, w, _ = example()
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in STEPS.items()}
    torch.testing.assert_close(conv2d(x, w, **lists), nn.functional.pad(conv2d(x, w, **STEPS), (0, 0, 0, 0)))


def test_a_layer_is_the_function_of_its_settings(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are changed after a call count in the next one."""
    monkeypatch.setattr(grouped, "DTYPES", {torch.float64: "f64"})
    made = grouped.GroupedConv2d(8, 8, 3, padding=1, groups=2, dtype=torch.float64)
    x = torch.randn(2, 8, 6, 5, dtype=torch.float64)
    for settings in ({}, {"stride": (2, 1)}, {"padding": "same", "stride": (1, 1)}, {"dilation": (1, 2)}):
        for name, value in settings.items():
            setattr(made, name, value)
        steps = {name: getattr(made, name) for name in ("stride", "padding", "dilation", "groups")}
        expected = nn.functional.conv2d(x, made.weight, made.bias, **steps)
        torch.testing.assert_close(made(x), expected)
    assert computed == ["forward"] * 4
    made.weight = nn.Parameter(made.weight.detach() * 2)
    torch.testing.assert_close(made(x), nn.functional.conv2d(x, made.weight, made.bias, **steps))
    copied = copy.deepcopy(made)
    torch.testing.assert_close(copied(x), made(x))
    torch.testing.assert_close(made(x[0]), made(x)[0])


# -- left to cuDNN -----------------------------------------------------------------------------------------------------


def test_a_pass_that_cudnn_is_faster_at_is_left_to_it(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, bias = (t.to(torch.bfloat16) for t in layer())
    left: set[str] = set()
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: what in left)
    monkeypatch.setattr(convolution_calls, "_plans", {})
    left |= {"forward", "weight_gradient"}
    y = convolution_calls.forward(x, w, bias, PLAIN)
    dw = convolution_calls.filter_gradient(x, y, w.shape, PLAIN, torch.float32)
    assert launches.prepared == []
    torch.testing.assert_close(y, library.forward(x, w, bias, *PLAIN))
    assert (dw.dtype, dw.stride()) == (torch.float32, w.stride())
    convolution_calls.input_gradient(y, w, x.shape, PLAIN)
    assert len(launches.calls) == 1


def test_until_a_kernel_is_compiled_cudnn_computes(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, _ = layer()
    ready = prepare.forward_steps

    def coming(*given: Any) -> Any:
        raise Coming("forward")

    monkeypatch.setattr(prepare, "forward_steps", coming)
    with pytest.raises(Coming):
        convolution_calls.forward(x, w, None, PLAIN)
    monkeypatch.setattr(convolution_calls, "_background", True)
    torch.testing.assert_close(convolution_calls.forward(x, w, None, PLAIN), library.forward(x, w, None, *PLAIN))
    monkeypatch.setattr(prepare, "forward_steps", ready)
    convolution_calls.forward(x, w, None, PLAIN)
    assert (len(launches.calls), len(launches.ran)) == (1, 1)
