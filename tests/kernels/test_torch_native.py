"""Convolutions by the extension: the bits of the path in Python, for every kind of call, and what is left to that one.

The extension is compiled here and serves CPU tensors, with a driver of Python's (`native_driver`).
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tapestry.kernels import (
    errors,
    torch_autograd,
    torch_calls,
    torch_extension,
    torch_fused_calls,
    torch_geometry,
    torch_native,
    torch_norm_calls,
    torch_norm_operators,
    torch_operators,
)
from tapestry.kernels.convolution import prepare
from tapestry.kernels.cost import cudnn
from tapestry.kernels.runtime import device
from tapestry.kernels.runtime.array import identities
from tapestry.kernels.torch import GroupedConv2d, NormAct2d, conv2d
from tapestry.kernels.torch_fused import FusedConv2d

from .native_driver import CONTEXT, STREAM, Driver, Launch, Norms, Prepare, described
from .test_torch_eager import H200

pytestmark = pytest.mark.skipif(shutil.which(torch_extension.compiler()) is None, reason="there is no C++ compiler")
BY_TORCH = (
    torch_operators._cpu_lowered, torch_autograd.backward_of, torch_operators._cpu_gradients,
    torch_norm_operators.norm_backward_of,
)  # fmt: skip
BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(scope="session")
def extension() -> Any:
    return torch_extension.loaded(torch_extension.made())


@pytest.fixture
def driver(extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """CPU tensors are taken for CUDA's, and kernels compute as torch does."""
    found = Driver()
    kernels = Prepare(found)
    monkeypatch.setattr(torch_calls, "array", described)
    monkeypatch.setattr(torch_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(device, "properties", lambda number: H200)
    monkeypatch.setattr(cudnn, "is_faster", lambda problem, what, gpu: False)
    monkeypatch.setattr(torch_autograd, "_on_gpu", lambda tensor: True)
    monkeypatch.setattr(torch_calls, "_plans", {})
    for name in ("forward", "input_gradient", "weight_gradient"):
        monkeypatch.setattr(prepare, f"{name}_steps", getattr(kernels, name))
    monkeypatch.setattr(torch_native, "_taken", True)
    monkeypatch.setattr(torch_native, "convolve", None)
    monkeypatch.setattr(torch_native, "_extension", None)
    monkeypatch.setattr(torch_native, "_begun", True)
    for kind in (Tensor, nn.Parameter):
        monkeypatch.setitem(identities, kind, identities[kind])
    torch_native.serve(extension, "cpu", found.functions)
    yield found
    extension.forget()
    extension.serve("cpu", found.functions, *BY_TORCH)  # operators of graphs are computed there from some test on


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    """To bf16, on CPUs, and for who asks on CUDA."""
    before = torch.get_autocast_dtype("cuda")
    with torch.autocast("cpu", BF16):
        torch.set_autocast_dtype("cuda", BF16)
        torch.set_autocast_enabled("cuda", True)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)


def operands(seed: int = 0, dtype: torch.dtype = BF16) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x, dy = (torch.randn(2, 16, 7, 6, generator=random).to(dtype) for _ in range(2))
    return tuple(t.contiguous(memory_format=torch.channels_last) for t in (x, dy))  # type: ignore[return-value]


def layer(bias: bool = False, dtype: torch.dtype = BF16) -> GroupedConv2d:
    torch.manual_seed(7)
    made = GroupedConv2d(16, 16, 3, padding=1, groups=2, bias=bias).to(dtype)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def step(conv: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor | None]:
    """The result and all gradients."""
    conv.zero_grad()
    given = x.detach().requires_grad_(x.requires_grad)
    y = conv(given)
    if y.requires_grad:
        y.backward(dy)
    return [y.detach(), given.grad, *(parameter.grad for parameter in conv.parameters())]


def same(found: list[Tensor | None], expected: list[Tensor | None]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)


def both_ways(driver: Driver, conv: nn.Module, x: Tensor, dy: Tensor, native: int = 2) -> None:
    """A step in Python, which tells the extension, and the same by that in `native` calls."""
    first = step(conv, x, dy)
    driver.ran.clear()
    second = step(conv, x, dy)
    same(second, first)
    assert driver.ran.count("native") == native


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_a_step_has_the_same_bits(driver: Driver, bias: bool, dtype: torch.dtype) -> None:
    conv = layer(bias, dtype)
    if conv.bias is not None:
        conv.bias.data = conv.bias.data.float()
    x, dy = operands(dtype=dtype)
    both_ways(driver, conv, x.requires_grad_(), dy, native=3)
    assert set(driver.ran) == {"native"}
    assert set(driver.streams) == {STREAM}
    wide = nn.functional.conv2d(x.float(), conv.weight.float(), conv.bias, padding=1, groups=2)
    torch.testing.assert_close(conv(x).float(), wide, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("given", [F32, BF16])
def test_autocast_lowers_images_and_filters(driver: Driver, given: torch.dtype) -> None:
    conv = layer(bias=True, dtype=F32)
    x, dy = operands()
    with autocast():
        both_ways(driver, conv, x.to(given).requires_grad_(), dy, native=3)
        with torch.no_grad():
            assert conv(x).dtype == BF16
            assert torch.equal(conv(x), conv(x.to(given)))
    assert conv.weight.grad is not None
    assert conv.weight.grad.dtype == F32


@pytest.mark.parametrize(("of_x", "of_w"), [(True, False), (False, True), (False, False)])
def test_what_needs_no_gradient_gets_none(driver: Driver, of_x: bool, of_w: bool) -> None:
    conv, (x, dy) = layer(), operands()
    conv.weight.requires_grad_(of_w)
    both_ways(driver, conv, x.requires_grad_(of_x), dy, native=1)
    assert conv(x).requires_grad == (of_x or of_w)


def test_inference(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    with torch.no_grad():
        expected = conv(x)
        assert conv(x).grad_fn is None
    with torch.inference_mode():
        found = conv(x)
        assert found.is_inference()
        assert torch.equal(conv(found.clone()), conv(expected))
    assert torch.equal(found, expected)
    assert driver.ran == ["python", *["native"] * 4]


def test_derivatives_of_derivatives(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()

    def penalty() -> list[Tensor | None]:
        given, slope = x.detach().requires_grad_(), dy.detach().requires_grad_()
        (dx,) = torch.autograd.grad(conv(given), given, slope, create_graph=True)
        return list(torch.autograd.grad(dx.float().square().sum(), [slope, conv.weight]))

    expected = penalty()
    driver.ran.clear()
    same(penalty(), expected)
    assert "native" in driver.ran


def test_operands_that_lie_otherwise_are_copied(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    expected = step(conv, x.requires_grad_(), dy)
    for _ in range(2):
        driver.ran.clear()
        found = step(conv, x.detach().contiguous().requires_grad_(), dy)
        assert found[1] is not None
        assert torch.equal(found[1], expected[1])  # type: ignore[arg-type]
        same([found[0], *found[2:]], [expected[0], *expected[2:]])
        flat = torch.autograd.grad(conv(x).sum(), conv.weight)  # a gradient that is one number, everywhere
        assert flat[0].shape == conv.weight.shape
    assert "python" in driver.ran


def test_addresses_that_are_not_aligned_are_calls_of_their_own(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    memory = torch.zeros(x.numel() + 1, dtype=BF16)
    odd = memory.as_strided(x.shape, x.stride(), 1).copy_(x).detach().requires_grad_()
    expected = step(conv, x.requires_grad_(), dy)
    driver.ran.clear()
    same(step(conv, odd, dy)[:1], expected[:1])
    assert driver.ran[0] == "python"


def test_tensors_of_other_kinds_are_left_to_torch(driver: Driver) -> None:
    class Named(Tensor):
        pass

    conv, (x, _) = layer(), operands()
    assert conv(x) is not None
    assert torch_native.convolve is not None
    number = conv._number
    assert torch_native.convolve(x, conv.weight, None, number, 2) is not None
    others = [x.as_subclass(Named), x.to_sparse(), x.to("meta"), x.float(), x[0]]
    for other in others:
        assert torch_native.convolve(other, conv.weight, None, number, 2) is None
    assert torch_native.convolve(x, None, None, number, 2) is None
    assert torch_native.convolve(x, conv.weight.float(), None, number, 2) is None  # autocast is off
    bias = torch.zeros(16)
    for unfit in (bias, bias.bfloat16(), bias[::2], bias.to("meta")):  # no call with a bias came before
        assert torch_native.convolve(x, conv.weight, unfit, number, 2) is None


def test_modes_and_transforms_are_left_to_torch(driver: Driver) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    conv, (x, dy) = layer(), operands()
    conv(x), conv(x)
    driver.ran.clear()
    with Noted():
        conv(x)
    assert any("conv" in name for name in seen)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert conv(torch.empty_like(x)).shape == x.shape
    y = conv(x.requires_grad_())
    driver.ran.clear()
    with Noted():
        y.backward(dy)
    assert "native" not in driver.ran
    seen.clear()
    found = torch.func.grad(lambda given: conv(given).float().sum())(x.detach())
    assert found.shape == x.shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tangent_is_not_lost(driver: Driver) -> None:
    from torch.autograd import forward_ad

    conv, (x, dy) = layer(), operands()
    conv(x), conv(x)
    with forward_ad.dual_level(), pytest.raises((NotImplementedError, RuntimeError)):
        conv(forward_ad.make_dual(x, dy))


def test_what_is_saved_is_watched_and_may_be_packed(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    expected = step(conv, x.requires_grad_(), dy)
    given = x.detach().clone().requires_grad_()
    middle = given * 1
    y = conv(middle)
    middle.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)
    packed: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t):
        found = step(conv, x, dy)
    assert len(packed) == 2
    same(found, expected)
    y = conv(x)
    y.backward(dy, retain_graph=True)
    y.backward(dy)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(dy)


def test_a_step_that_is_computed_again_may_go_another_way(driver: Driver) -> None:
    """The first forward pass in Python, the second, of the backward pass, by the extension."""
    conv, (x, dy) = layer(dtype=F32), operands()
    with autocast():
        y = checkpoint(conv, x.requires_grad_(), use_reentrant=False)
    assert driver.ran == ["python"]
    y.backward(dy)
    assert driver.ran[1] == "native"
    found = [x.grad, conv.weight.grad]
    x.grad = None
    with autocast():
        _, *expected = step(conv, x, dy)
    same(found, expected)


def test_threads(driver: Driver) -> None:
    conv, each = layer(), [operands(seed) for seed in range(4)]
    with torch.no_grad():
        expected = [conv(x) for x, _ in each]
    found: list[list[Tensor]] = [[] for _ in each]

    def work(at: int) -> None:
        with torch.no_grad():
            found[at] = [conv(each[at][0]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(each))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, one in zip(found, expected, strict=True):
        assert len(results) == 20
        assert all(torch.equal(result, one) for result in results)
    assert driver.ran.count("python") == 1


def test_another_context_is_made_current_for_a_while(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    expected = conv(x)
    driver.context = 0xBAD
    assert torch.equal(conv(x), expected)
    assert driver.pushed == [CONTEXT, 0]


def test_a_refused_launch_is_made_in_python_which_says_why(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    step(conv, x.requires_grad_(), dy)
    y = conv(x)
    driver.status = 700
    with torch.no_grad(), pytest.raises(RuntimeError, match="refused, says Python"):
        conv(x)
    with pytest.raises(RuntimeError, match="refused"):
        conv(x)
    with pytest.raises(RuntimeError, match="refused, says Python"):
        y.backward(dy)


def test_settings_of_a_layer_and_of_the_function(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    for settings in ({}, {"stride": (2, 1)}, {"padding": (1, 0), "stride": (1, 1)}, {"dilation": (1, 2)}):
        for name, value in settings.items():
            setattr(conv, name, value)
        steps: Any = {name: getattr(conv, name) for name in ("stride", "padding", "dilation", "groups")}
        expected = nn.functional.conv2d(x, conv.weight, None, **steps)
        for _ in range(2):
            assert torch.equal(conv(x), expected)
            assert torch.equal(conv2d(x, conv.weight, **steps), expected)
    assert driver.ran == ["python", *["native"] * 3] * 4


def test_passes_left_to_cudnn_stay_there(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, (x, dy) = layer(), operands()
    monkeypatch.setattr(cudnn, "is_faster", lambda problem, what, gpu: what == "input_gradient")
    both_ways(driver, conv, x.requires_grad_(), dy, native=1)
    monkeypatch.setattr(cudnn, "is_faster", lambda problem, what, gpu: True)
    monkeypatch.setattr(torch_calls, "_plans", {})
    torch_native.forget()
    both_ways(driver, conv, x, dy, native=0)


def test_plans_that_are_forgotten_are_made_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_calls, "REMEMBERED", 2)
    conv = layer()
    for _ in range(2):
        for rows in (5, 6, 7, 8):
            x = torch.randn(1, 16, rows, 4, dtype=BF16).contiguous(memory_format=torch.channels_last)
            assert torch.equal(conv(x), conv(x))
    assert driver.ran == ["python", "native"] * 8


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["", "silu"])
def test_what_follows_a_convolution(driver: Driver, scale: bool, residual: bool, activation: str) -> None:
    x, other = operands()
    geometry = torch_geometry.Geometry((1, 1), (1, 1, 1, 1), (1, 1), 2)
    scaled = torch.rand(16) if scale else None
    conv = FusedConv2d(layer().weight, scaled, torch.randn(16), activation, geometry)
    added = other if residual else None
    with torch.no_grad():
        found = [conv(x, added) for _ in range(3)]
        assert driver.ran == ["python", "native", "native"]
        assert all(torch.equal(one, found[0]) for one in found)
        y = nn.functional.conv2d(x.float(), conv.weight.float(), padding=1, groups=2)
        y = (y if scaled is None else y * scaled[:, None, None]) + conv.bias[:, None, None]  # type: ignore[index]
        y = y if added is None else y + added
        torch.testing.assert_close(found[0].float(), nn.functional.silu(y) if activation else y, atol=0.05, rtol=0.02)
        conv(x.contiguous(), added), conv(x, other.contiguous() if residual else None)
        assert driver.ran[3:] == (["python"] * 2 if residual else ["python", "native"])
        with autocast():
            torch.testing.assert_close(
                conv(x, added), found[0], atol=0.05, rtol=0.02
            )  # torch, one step after the other
        assert driver.ran[5:] == []
        assert torch_native.fused is not None
        rest = (torch_fused_calls._NUMBERS[activation], torch_geometry.packed(*geometry[:3]), 2)
        assert torch_native.fused(x, conv.weight, conv.scale, conv.bias, added, *rest) is not None
        for unfit in (x.float(), x[0], x.to("meta"), torch.randn(2, 16, 9, 6, dtype=BF16)):
            assert torch_native.fused(unfit, conv.weight, conv.scale, conv.bias, added, *rest) is None
        assert torch_native.fused(x, conv.weight, conv.scale, None, added, *rest) is None
        assert torch_native.fused(x, conv.weight, conv.scale, conv.bias[:8], added, *rest) is None  # type: ignore[index]


# -- norms -------------------------------------------------------------------------------------------------------------

SHAPE = (2, 16, 7, 6)


@pytest.fixture
def norms(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    kernels = Norms(driver, SHAPE, BF16)
    monkeypatch.setattr(torch_norm_calls, "prepared", kernels.prepared)
    monkeypatch.setattr(torch_norm_calls._Plan, "_described", lambda plan, at, epsilon: (plan, at, epsilon))
    monkeypatch.setattr(torch_norm_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(torch_norm_calls, "_capturing", lambda: True)
    monkeypatch.setattr(torch_norm_calls, "computed", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    monkeypatch.setattr(torch_norm_calls, "_plans", {})
    empty = torch.empty
    monkeypatch.setattr(torch_norm_calls, "torch", _Empty(torch, lambda size, dtype, device: empty(size, dtype=dtype)))
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
def test_norms(norms: Driver, act: nn.Module, summed: bool, settings: dict[str, Any]) -> None:
    layers = [NormAct2d(nn.BatchNorm2d(16, **settings), act) for _ in range(2)]
    (x, dy), (residual, _) = operands(), operands(1)
    added = residual if summed else None
    x.requires_grad_()
    for expected_by in ("python", "native", "native"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch_native, "norm", None)
            patch.setattr(torch_native, "convolve", None)  # it is not told either
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
    assert norms.ran[-2:] == ["native", "python"]
    y = layer(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(errors.WrongValue, match="first derivative"):
        slope.sum().backward()
    known = torch_native.norm
    assert known is not None
    number = torch_norm_calls.setting_of(layer.eps, "silu")
    assert known(x, None, layer.weight, layer.bias, *layer.buffers(), number, 0.1) is not None
    for unfit in (x.float(), x.contiguous(), x[:1], x[0], x.to("meta")):
        assert known(unfit, None, layer.weight, layer.bias, *layer.buffers(), number, 0.1) is None
    assert known(x, None, layer.weight, layer.bias, *layer.buffers(), number, 0.2) is None
    assert known(x, None, layer.weight[:8], layer.bias, *layer.buffers(), number, 0.1) is None
    norms.status = 700
    with pytest.raises(RuntimeError, match="refused"):
        layer(x)


# -- operators in graphs -----------------------------------------------------------------------------------------------


@pytest.fixture
def taken(driver: Driver, extension: Any) -> Driver:
    """The operators of graphs are computed by the extension, or as before in Python, for the rest of this process."""
    extension.serve("cpu", driver.functions, *BY_TORCH)
    if not torch_native.__dict__.setdefault("_taken_by_tests", False):
        extension.take_over()
        torch_native.__dict__["_taken_by_tests"] = True
    return driver


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_operators_of_graphs(taken: Driver, dtype: torch.dtype) -> None:
    conv, (x, dy) = layer(dtype=dtype), operands()
    number, w = torch_operators.packed((1, 1), (1, 1, 1, 1), (1, 1)), conv.weight.detach()
    expected = [torch_operators.lowered(x, w, None, number, 2), *torch_operators.gradients(x, dy, w, number, 2)]
    assert taken.ran == []
    torch_operators.lowered_forward(x, w, None, number, 2)
    torch_operators.lowered_gradients(x, dy, w, number, 2)
    taken.ran.clear()
    found = [torch_operators.lowered(x, w, None, number, 2), *torch_operators.gradients(x, dy, w, number, 2)]
    same(found, expected)
    assert set(taken.ran) == {"native"}


class _Called(nn.Module):
    """A layer by its operator, on CPUs too."""

    def __init__(self, conv: GroupedConv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.conv.weight, self.conv.bias, padding=1, groups=2)


def test_compiled_steps(taken: Driver) -> None:
    conv, (x, dy) = layer(dtype=F32), operands()
    with autocast():
        expected = step(conv, x.requires_grad_(), dy)
    with torch.autocast("cpu", BF16):
        compiled = torch.compile(_Called(conv), backend="aot_eager", fullgraph=True)
        step(compiled, x, dy)
        taken.ran.clear()
        found = step(compiled, x, dy)
    same(found, expected)
    assert set(taken.ran) == {"native"}


def test_calls_that_are_given_their_results(driver: Driver, extension: Any) -> None:
    """Fixed addresses: what is launched again without Python, and what a call is known by."""
    ran: list[tuple[int, ...]] = []
    launch = Launch(driver, lambda *given: ran.append(given), (5, 6, 7))
    again = torch_native.repeated([launch, Launch(driver, lambda *given: ran.append(given), (8, 9))])
    assert again is not None
    assert again(STREAM) == 0
    assert (ran, driver.ran) == ([(5, 6, 7), (8, 9)], ["native", "native"])
    driver.status = 700
    assert again(STREAM) == 700
    with pytest.raises(TypeError):
        again("a stream")
    x, _ = operands()
    known = extension.identity(x)
    assert known == extension.identity(x.detach()) == extension.identity(nn.Parameter(x))
    others = [x.clone(), x[:1], x.view(torch.float16), x.permute(0, 2, 3, 1), x.flatten()]
    assert len({known, *map(extension.identity, others)}) == 6
    for unfit in (x.to("meta"), x.to_sparse(), 3, None):
        with pytest.raises(TypeError):
            extension.identity(unfit)


def test_without_a_compiler_calls_stay_in_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path))
    for command, why in (("/no/such/compiler", "No such file"), ("false", "exit 1")):
        monkeypatch.setenv("CXX", command)
        with pytest.raises(torch_extension.NotBuilt, match=why):
            torch_extension.made()
    monkeypatch.setattr(torch_native, "_functions", tuple)
    monkeypatch.setattr(torch_native, "convolve", None)
    torch_native._serve(torch_extension.made)
    assert torch_native.convolve is None
    assert torch_native.state().startswith("off: false")
    with pytest.raises(torch_extension.NotBuilt):
        torch_extension.loaded(b"no library")
