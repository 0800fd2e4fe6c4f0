"""The torch face on a GPU: the kernels under the operators. Skipped where there is none."""

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.convolution.problem import BadConvolution
from tapestry.kernels.runtime.moving import Moving
from tapestry.kernels.tensors import convolution_calls, native_calls
from tapestry.kernels.tensors.geometry import packed
from tapestry.kernels.torch import (
    FusedForTraining,
    conv2d,
    fuse_for_inference,
    fuse_for_training,
    replace_convolutions,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

Steps = tuple[list[int], list[int], list[int], int]
# width 8 stride 1, width 16 stride 2 asymmetric, depthwise dilated, width 32
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Steps]] = {
    "width 8": ((4, 64, 17, 19), (64, 8, 3, 3), ([1, 1], [1, 1, 1, 1], [1, 1], 8)),
    "width 16, stride 2": ((3, 64, 20, 21), (64, 16, 5, 3), ([2, 2], [2, 1, 0, 1], [1, 1], 4)),
    "depthwise, dilated": ((2, 96, 14, 14), (96, 1, 3, 5), ([1, 1], [2, 2, 4, 4], [2, 2], 96)),
    "width 32": ((2, 64, 9, 9), (64, 32, 3, 3), ([1, 1], [1, 1, 1, 1], [1, 1], 2)),
}


@pytest.fixture(autouse=True)
def exact_reference() -> Any:
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def operands(name: str, dtype: torch.dtype = torch.float16, layout: Any = torch.channels_last) -> tuple[Tensor, ...]:
    shape, filters, _ = CASES[name]
    random = torch.Generator("cuda").manual_seed(len(name))
    made = [torch.randn(s, generator=random, device="cuda").to(dtype) for s in (shape, filters, shape[1:2])]
    return tuple(t.contiguous(memory_format=layout) if t.dim() == 4 else t for t in made)


def run(x: Tensor, w: Tensor, bias: Tensor | None, steps: Steps) -> Tensor:
    stride, padding, dilation, groups = steps
    return conv2d(x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


def wide(x: Tensor, w: Tensor, bias: Tensor | None, steps: Steps) -> Tensor:
    stride, (top, bottom, left, right), dilation, groups = steps
    padded = nn.functional.pad(x.float(), (left, right, top, bottom))
    return nn.functional.conv2d(padded, w.float(), None if bias is None else bias.float(), stride, 0, dilation, groups)


def close(ours: Tensor, reference: Tensor, terms: int = 1) -> None:
    unit = 2.0**-9 if ours.dtype == torch.float16 else 2.0**-6
    torch.testing.assert_close(ours.float(), reference.float(), rtol=unit, atol=unit + 2.0**-20 * terms)


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_values_and_gradients(name: str, dtype: torch.dtype, layout: Any) -> None:
    steps = CASES[name][2]
    ours = [t.requires_grad_() for t in operands(name, dtype, layout)]
    theirs = [t.detach().float().requires_grad_() for t in ours]
    y, expected = run(*ours, steps), wide(*theirs, steps)
    close(y, expected)
    assert y.is_contiguous(memory_format=torch.channels_last)
    dy = torch.randn_like(expected).to(dtype)
    found = torch.autograd.grad(y, ours, dy)
    for left, right in zip(found, torch.autograd.grad(expected, theirs, dy.float()), strict=True):
        close(left, right, terms=dy.numel() // dy.shape[1])


ONE: Steps = ([1, 1], [1, 1, 1, 1], [1, 1], 1)
PARTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Steps]] = CASES | {
    "rows that would come whole": ((16, 24, 112, 112), (24, 24, 3, 3), ONE),
    "depthwise rows that would": ((32, 24, 112, 112), (24, 1, 3, 3), (*ONE[:3], 24)),
    "depthwise, 7 x 7": ((4, 96, 28, 28), (96, 1, 7, 7), ([1, 1], [3, 3, 3, 3], [1, 1], 96)),
    "width 24, stride 2": ((4, 72, 28, 28), (72, 24, 3, 3), ([2, 2], [1, 1, 1, 1], [1, 1], 3)),
    "width 3": ((4, 48, 14, 14), (48, 3, 3, 3), (*ONE[:3], 16)),
}


@pytest.mark.parametrize("name", list(PARTS))
def test_parts_of_channels_are_not_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `torch.split` and the gradient of `torch.cat` give them: the same but for the order of sums."""

    def channels_last(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)

    (n, c, *extents), filters, steps = PARTS[name]
    x, w = channels_last(n, c, *extents).requires_grad_(), channels_last(*filters).requires_grad_()
    expected = run(x, w, None, steps)
    dy = torch.randn_like(expected)
    others = torch.autograd.grad(expected, (x, w), dy)
    part = channels_last(n, 2 * c + 8, *extents)[:, c + 8 :].copy_(x.detach()).requires_grad_()
    slope = channels_last(n, dy.shape[1] + 24, *dy.shape[2:])[:, 8:-16].copy_(dy)
    monkeypatch.setattr(convolution_calls, "dense", None)
    found = run(part, w, None, steps)
    assert not any(given.is_contiguous(memory_format=torch.channels_last) for given in (part, slope))
    for one, other in zip((found, *torch.autograd.grad(found, (part, w), slope)), (expected, *others), strict=True):
        close(one, other, terms=dy.numel() // dy.shape[1])


@pytest.mark.parametrize("name", list(CASES))
def test_launches_are_told_addresses_and_not_prepared_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this GPU a tensor map holds its address as a word that can be written; results at new addresses are right."""
    monkeypatch.setattr(convolution_calls, "_plans", {})
    native_calls.wait()  # what comes while it is set aside would be taken away with it
    for what in native_calls.CALLS:  # all by way of Python
        monkeypatch.setattr(native_calls, what, None)
    steps, kept = CASES[name][2], []
    for _ in range(3):
        given = [t.requires_grad_() for t in operands(name)]
        y = run(*given, steps)
        kept.append((given, y, torch.autograd.grad(y, given, torch.ones_like(y))))
    launches = [found for plan in convolution_calls._plans.values() for found in plan.launches.values()]
    launches += [pair.launches for plan in convolution_calls._plans.values() for pair in plan.pairs.values()]
    assert len(launches) == 2
    assert all(isinstance(found, Moving) for found in launches)
    first = (kept[0][1], *kept[0][2])
    for _, y, gradients in kept[1:]:
        assert all(torch.equal(one, other) for one, other in zip((y, *gradients), first, strict=True))
    close(first[0], wide(*kept[0][0], steps))


@pytest.mark.parametrize("name", list(CASES))
def test_opcheck(name: str) -> None:
    steps = CASES[name][2]
    x, w, bias = (t.requires_grad_() for t in operands(name))
    dy = run(x, w, None, steps).detach().requires_grad_()
    ops = torch.ops.tapestry
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (ops.grouped_conv2d.default, (x, w, bias, *steps)),
        (ops.grouped_conv2d_input_gradient.default, (dy, w, list(x.shape), *steps)),
        (ops.grouped_conv2d_weight_gradient.default, (x, dy, list(w.shape), *steps)),
    ]
    for operator, arguments in calls:
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", list(CASES))
def test_where_nothing_is_recorded_operators_give_the_same(name: str) -> None:
    steps = CASES[name][2]
    x, w, bias = (t.requires_grad_() for t in operands(name))
    ops = torch.ops.tapestry
    y = ops.grouped_conv2d(x, w, bias, *steps)
    dy = torch.randn_like(y)
    with torch.no_grad():  # past autograd's function, and both gradients in one call
        close(ops.grouped_conv2d(x, w, bias, *steps), y)
        *moved, groups = steps
        number = packed(*map(tuple, moved))
        narrow, nothing = ops.grouped_conv2d_lowered(x, w, bias, number, groups)
        wide, taps = ops.grouped_conv2d_lowered(x, w.float(), bias, number, groups)
        close(narrow, y)
        close(wide, y)
        assert nothing.numel() == 0
        assert torch.equal(taps, w)
        dx, dw = ops.grouped_conv2d_gradients(x, dy, w, nothing, number, groups)
        same, wide_dw = ops.grouped_conv2d_gradients(x, dy, w.float(), taps, number, groups)
        assert wide_dw.dtype is torch.float32
        close(same, dx)
        close(wide_dw, dw)
        close(ops.grouped_conv2d_input_gradient(dy, w, list(x.shape), *steps), dx)
        close(ops.grouped_conv2d_weight_gradient(x, dy, list(w.shape), *steps), dw)
    for found, expected in zip(torch.autograd.grad(y, [x, w], dy), (dx, dw), strict=True):
        close(found, expected)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("groups", [8, 64])
def test_compiled_under_autocast(groups: int) -> None:
    """Filters of f32 go into the graph as they are, and their gradients come out as they are."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(16, 64, 1), nn.Conv2d(64, 64, 3, 2, 1, groups=groups), nn.BatchNorm2d(64), nn.SiLU()]
    net = nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    replace_convolutions(net)
    x = torch.randn(4, 16, 15, 14, device="cuda").contiguous(memory_format=torch.channels_last)
    found = []
    for called in (net, torch.compile(net, fullgraph=True)):
        with torch.autocast("cuda", torch.bfloat16):
            loss = called(x).float().square().sum()
        found.append(torch.autograd.grad(loss, [net[1].weight, net[2].weight]))
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0.05, atol=0.02 * float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own
def test_compiled_without_graph_breaks() -> None:
    layer = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=8), nn.SiLU()).cuda().half()
    replace_convolutions(layer)
    x = torch.randn(2, 64, 12, 12, device="cuda", dtype=torch.float16, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        total: Tensor = layer(x).float().square().sum()
        return total

    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(compiled(x), loss(x), rtol=1e-3, atol=1e-3)
    expected = torch.autograd.grad(loss(x), x)[0]
    close(torch.autograd.grad(compiled(x), x)[0], expected, terms=64)


def test_autocast_runs_the_kernels_on_f32_parameters() -> None:
    x, w, bias = operands("width 8", torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        y = run(x, w, bias, CASES["width 8"][2])
    assert y.dtype == torch.bfloat16
    close(y, wide(*(t.bfloat16() for t in (x, w, bias)), CASES["width 8"][2]))


def test_types_the_kernels_do_not_have_are_refused() -> None:
    with pytest.raises(BadConvolution, match="float16"):
        run(*operands("width 8", torch.float32), CASES["width 8"][2])
    x, w, bias = operands("width 8")
    with pytest.raises(BadConvolution):
        run(x, w.bfloat16(), bias, CASES["width 8"][2])


def test_the_current_stream_is_used() -> None:
    x, w, bias = operands("width 8")
    steps, stream = CASES["width 8"][2], torch.cuda.Stream()
    expected = run(x, w, bias, steps)
    run(x * 2, w, bias, steps)  # torch loads its kernels when they are asked for first, and waits for the GPU then
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)  # half a second: the host may be busy with other tests
        late = x * 2
        y = run(late, w, bias, steps)
    # Nothing was waited for: the stream still sleeps.
    assert not stream.query()
    stream.synchronize()
    torch.testing.assert_close(y, run(x * 2, w, bias, steps))
    assert not torch.equal(y, expected)


def test_captured_in_a_graph_and_replayed() -> None:
    x, w, bias = operands("width 8")
    steps = CASES["width 8"][2]
    run(x, w, bias, steps)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(x, w, bias, steps)
    x.mul_(2)
    y.fill_(float("nan"))
    graph.replay()
    torch.testing.assert_close(y, run(x, w, bias, steps))


def test_a_replaced_model_trains_as_before() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 5, 2, 2, groups=32), nn.Conv2d(32, 32, 3, groups=4)]
    net, x = nn.Sequential(*layers).cuda(), torch.randn(4, 3, 24, 24, device="cuda")
    gradients = []
    for _ in range(2):
        with torch.autocast("cuda", torch.float16):
            loss = net(x).float().square().mean()
        gradients.append(torch.autograd.grad(loss, list(net.parameters())))
        report = replace_convolutions(net)
    assert report.taken == ()
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=2e-3 * float(theirs.abs().max()))


def test_inputs_of_other_types_go_to_torch() -> None:
    layer = nn.Sequential(nn.Conv2d(32, 32, 3, groups=4)).cuda()
    x = torch.randn(2, 32, 8, 8, device="cuda")
    expected = layer(x)
    replace_convolutions(layer)
    torch.testing.assert_close(layer(x), expected)


FIRST_WORK = """
import torch
import tapestry.kernels.torch as kernels
made = {"device": "cuda", "dtype": torch.float16, "requires_grad": True}
x, w = torch.randn(2, 64, 12, 12, **made), torch.randn(64, 8, 3, 3, **made)
kernels.conv2d(x, w, padding=1, groups=8).backward(torch.ones(2, 64, 12, 12, device="cuda", dtype=torch.float16))
found = x.grad, w.grad
wide = [t.detach().float().requires_grad_() for t in (x, w)]
torch.nn.functional.conv2d(*wide, padding=1, groups=8).sum().backward()
for ours, theirs in zip(found, wide):
    torch.testing.assert_close(ours.float(), theirs.grad, rtol=2e-2, atol=2e-1)
"""


def test_autograds_thread_may_begin_with_our_work() -> None:
    """It has no context of the driver then; a process of its own, since any other work of torch's would make one."""
    done = subprocess.run([sys.executable, "-c", FIRST_WORK], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def test_filters_in_f32_get_their_gradient_in_f32_under_autocast() -> None:
    x, w, _ = operands("width 8", torch.float32)
    steps = CASES["width 8"][2]
    w.requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        y = run(x, w, None, steps)
    dy = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, w, dy)
    narrow = x.bfloat16(), w.detach().bfloat16().float().requires_grad_()
    (expected,) = torch.autograd.grad(wide(narrow[0], narrow[1], None, steps), narrow[1], dy.float())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_a_fused_model_computes_what_it_did_in_f32() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand, self.norm1 = nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64)
            self.depthwise, self.norm2 = nn.Conv2d(64, 64, 5, 2, 2, groups=64, bias=False), nn.BatchNorm2d(64)
            self.grouped, self.norm3 = nn.Conv2d(64, 64, 3, padding=1, groups=8), nn.BatchNorm2d(64)

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.hardswish(self.norm1(self.expand(x)))
            y = nn.functional.silu(self.norm2(self.depthwise(y)))
            return torch.relu(self.norm3(self.grouped(y)) + y)

    torch.manual_seed(0)
    model = Block().cuda()
    x = torch.randn(4, 16, 20, 20, device="cuda").contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        model(x)  # statistics
    model.eval()
    with torch.no_grad():
        expected = model(x)
        found = fuse_for_inference(model)(x.bfloat16())
        plain = model.bfloat16()(x.bfloat16())
    error, usual = (float((y.float() - expected).norm() / expected.norm()) for y in (found, plain))
    assert error <= 1.1 * usual + 1e-3


@pytest.mark.parametrize(("channels", "out", "size"), [(3, 32, 3), (3, 16, 3), (3, 64, 7), (1, 24, 2)])
def test_the_first_layer_is_computed_over_blocks_of_pixels(channels: int, out: int, size: int) -> None:
    from tapestry.kernels.layers.stem import Stem
    from tapestry.kernels.layers.timm import moved

    layer = nn.Conv2d(channels, out, size, 2, size // 2).to("cuda")
    scale, bias = torch.rand(out, device="cuda") + 0.5, torch.randn(out, device="cuda")
    x = torch.randn(3, channels, 61, 64, device="cuda").contiguous(memory_format=torch.channels_last).bfloat16()
    layer.weight.data = layer.weight.bfloat16().float()
    made = Stem(layer.weight, scale, bias, "silu", moved(layer, ())).bfloat16()
    y = nn.functional.conv2d(x.float(), layer.weight, None, 2, size // 2)
    close(made(x), nn.functional.silu(y * scale[:, None, None] + bias[:, None, None]))


@pytest.mark.parametrize(("channels", "out"), [(16, 96), (24, 72), (40, 120)])
def test_products_take_what_follows_along(channels: int, out: int) -> None:
    model = nn.Sequential(nn.Conv2d(channels, out, 1), nn.BatchNorm2d(out), nn.ReLU()).to("cuda").eval()
    x = torch.randn(3, channels, 28, 28, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected, found = model(x), fuse_for_inference(model)(x.bfloat16())
    assert float((found.float() - expected).norm() / expected.norm()) < 0.01
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("activation", ["", "relu", "silu", "gelu", "hardswish"])
def test_the_fused_operator_on_cuda_is_the_one_in_steps(activation: str) -> None:
    from tapestry.kernels.layers import fused

    x, w, bias = operands("width 8")
    steps = CASES["width 8"][2]
    scale, residual = torch.rand(64, device="cuda") + 0.5, torch.randn_like(x)
    found = fused.operator(x, w, scale, bias.float(), residual, activation, *steps)
    y = wide(x, w, None, steps) * scale[:, None, None] + bias.float()[:, None, None] + residual.float()
    close(found, fused.FUNCTIONS[activation](y))
    arguments = (x, w, scale, bias.float(), residual, activation, *steps)
    assert torch.library.opcheck(fused.operator.default, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.filterwarnings("ignore")  # of torch.jit, and what tracing says of numbers
@pytest.mark.parametrize("fuse", [fuse_for_training, fuse_for_inference])
def test_transforms_and_traces_are_torchs(fuse: Callable[[nn.Module], Any]) -> None:
    """Kernels know no tangents, and a trace no kernels; calls that the extension knows are told of neither."""
    theirs = small_model().to("cuda", torch.bfloat16).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    ours = copy.deepcopy(theirs)
    ours = fuse(ours) if fuse is fuse_for_inference else (fuse(ours), ours)[1]
    x, tangent = (torch.randn(4, 3, 24, 24, device="cuda").bfloat16() for _ in range(2))
    x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        ours(x)
    found = [
        (
            torch.func.jvp(model, (x,), (tangent,))[1],
            torch.func.grad(lambda given, model=model: model(given).float().square().sum())(x),
            torch.jit.trace(model, (x,), check_trace=False)(tangent),
        )
        for model in (theirs, ours)
    ]
    for expected, made in zip(*found, strict=True):
        assert float((made - expected).float().norm() / expected.float().norm()) < 0.1  # of lost ones 1


def test_until_a_kernel_is_there_cudnn_computes() -> None:
    from tapestry.kernels.tensors import convolution_calls
    from tapestry.kernels.tensors.geometry import geometry_of

    x, w = torch.randn(2, 64, 12, 31, device="cuda").half(), torch.randn(64, 8, 3, 2, device="cuda").half()
    x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    convolution_calls.compile_in_background()
    try:
        first = [conv2d(x, w, padding=(1, 1), groups=8) for _ in range(2)]
    finally:
        convolution_calls.compile_in_background(False)
    last = convolution_calls.forward(x, w, None, geometry_of(1, 1, 1, 8, (3, 2)))
    for y in first:
        close(y, last, terms=48)


# -- training ----------------------------------------------------------------------------------------------------------

STEPS_OF_TRAINING = 100


def small_model() -> nn.Sequential:
    """A depthwise, a strided depthwise and a grouped convolution among others."""

    def block(*convolution: nn.Module, channels: int) -> list[nn.Module]:
        return [*convolution, nn.BatchNorm2d(channels), nn.ReLU()]

    torch.manual_seed(0)
    return nn.Sequential(
        *block(nn.Conv2d(3, 32, 3, padding=1), channels=32),
        *block(nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False), channels=32),
        *block(nn.Conv2d(32, 32, 5, 2, padding=2, groups=32, bias=False), nn.Conv2d(32, 64, 1), channels=64),
        *block(nn.Conv2d(64, 64, 3, padding=1, groups=8), channels=64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to("cuda")  # fmt: skip


def losses(model: nn.Module, layout: torch.memory_format) -> Tensor:
    """Of steps of SGD on one batch, under autocast."""
    random = torch.Generator("cuda").manual_seed(1)
    images = torch.randn(64, 3, 24, 24, generator=random, device="cuda").contiguous(memory_format=layout)
    labels = torch.randint(10, (64,), generator=random, device="cuda")
    update, found = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9), []
    for _ in range(STEPS_OF_TRAINING):
        update.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        update.step()
        found.append(loss.detach().float())
    return torch.stack(found)


@pytest.mark.parametrize("fuse", [replace_convolutions, fuse_for_training])
def test_losses_are_those_of_cudnn(fuse: Callable[[nn.Module], Any]) -> None:
    """Within what two runs of cuDNN's differ by, whose tensors lie in memory in different orders."""
    theirs, other, ours = (small_model() for _ in range(3))
    report = fuse(ours)
    if isinstance(report, FusedForTraining):
        assert (len(report.norms.taken), report.biases) == (4, ("7", "15"))
        report = report.convolutions
    assert len(report.taken) == 4
    expected = losses(theirs.to(memory_format=torch.channels_last), torch.channels_last)
    noise = (losses(other, torch.contiguous_format) - expected).square().mean().sqrt()
    found = losses(ours.to(memory_format=torch.channels_last), torch.channels_last)
    print(f"rms of differences: {float((found - expected).square().mean().sqrt()):.2e}, cuDNN's own {float(noise):.2e}")
    assert expected[-10:].mean() < expected[:10].mean()
    assert (found - expected).square().mean().sqrt() < 2 * noise + 2e-3 * expected[0]
