"""The torch face on CPU tensors, where torch's own convolution is underneath: everything around the kernels.

The kernels under the operators: gpu/test_torch.py. Replacing layers of models: models/test_replacement.py.
"""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, fx, nn

from tapestry.kernels.convolution.problem import BadConvolution
from tapestry.kernels.tensors.geometry import packed, unpacked
from tapestry.kernels.torch import conv2d, replace_convolutions

Steps = tuple[list[int], list[int], list[int], int]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, Steps]:
    """x, w in f64 and (stride, padding, dilation, groups), padding asymmetric or negative, the filter fitting."""
    width, groups = draw(st.sampled_from((1, 2, 4, 8))), draw(st.integers(1, 3))
    r, s = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride = draw(st.lists(st.integers(1, 2), min_size=2, max_size=2))
    dilation = draw(st.lists(st.integers(1, 2), min_size=2, max_size=2))
    padding = draw(st.lists(st.integers(-1, 3), min_size=4, max_size=4))
    h = draw(st.integers(1, 5)) + dilation[0] * (r - 1) + 2
    w = draw(st.integers(1, 5)) + dilation[1] * (s - 1) + 2
    random = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    x = torch.randn(draw(st.integers(1, 3)), width * groups, h, w, generator=random, dtype=torch.float64)
    filters = torch.randn(width * groups, width, r, s, generator=random, dtype=torch.float64)
    return x, filters, (stride, padding, dilation, groups)


def plainly(x: Tensor, w: Tensor, steps: Steps) -> Tensor:
    """The definition: one product and sum per filter tap and group."""
    (sy, sx), (top, bottom, left, right), (dy, dx), groups = steps
    padded = nn.functional.pad(x, (left, right, top, bottom))
    n, c, height, width = padded.shape
    r, s = w.shape[2:]
    p, q = (height - dy * (r - 1) - 1) // sy + 1, (width - dx * (s - 1) - 1) // sx + 1
    y = torch.zeros(n, groups, c // groups, p, q, dtype=x.dtype)
    split = w.reshape(groups, c // groups, *w.shape[1:])
    for i in range(r):
        for j in range(s):
            seen = padded[:, :, i * dy : i * dy + sy * (p - 1) + 1 : sy, j * dx : j * dx + sx * (q - 1) + 1 : sx]
            y = y + torch.einsum("ngjpq,gkj->ngkpq", seen.reshape(n, groups, -1, p, q), split[:, :, :, i, j])
    return y.reshape(n, c, p, q)


def run(x: Tensor, w: Tensor, steps: Steps, bias: Tensor | None = None) -> Tensor:
    stride, padding, dilation, groups = steps
    return conv2d(x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)


@given(problems())
@settings(max_examples=30)
def test_values_and_layout(problem: tuple[Tensor, Tensor, Steps]) -> None:
    x, w, steps = problem
    bias = torch.arange(w.shape[0], dtype=torch.float64)
    y = run(x, w, steps, bias)
    torch.testing.assert_close(y, plainly(x, w, steps) + bias[:, None, None])
    assert y.stride() == torch.empty_like(y, memory_format=torch.channels_last).stride()


@given(problems())
@settings(max_examples=20)
def test_gradients_are_those_of_the_definition(problem: tuple[Tensor, Tensor, Steps]) -> None:
    x, w, steps = problem
    ours, theirs = [(x.clone().requires_grad_(), w.clone().requires_grad_()) for _ in range(2)]
    y, expected = run(*ours, steps), plainly(*theirs, steps)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    got = torch.autograd.grad(y, ours, dy)
    for left, right in zip(got, torch.autograd.grad(expected, theirs, dy), strict=True):
        torch.testing.assert_close(left, right)


def example(dtype: torch.dtype = torch.float64, grad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    shapes = ((2, 8, 6, 5), (8, 4, 3, 2), (8,))
    x, w, bias = (torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)
    return x.requires_grad_(grad), w.requires_grad_(grad), bias.requires_grad_(grad)


STEPS: Steps = ([2, 1], [1, 2, 0, 1], [1, 2], 2)


def test_first_and_second_derivatives() -> None:
    def call(*operands: Tensor) -> Tensor:
        return run(operands[0], operands[1], STEPS, operands[2])

    assert torch.autograd.gradcheck(call, example(), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, example(), fast_mode=True)


def calls() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    x, w, bias = example()
    dy = run(x, w, STEPS).detach().requires_grad_()
    ops = torch.ops.tapestry
    return {
        "forward": (ops.grouped_conv2d.default, (x, w, bias, *STEPS)),
        "forward without bias": (ops.grouped_conv2d.default, (x, w, None, *STEPS)),
        "input gradient": (ops.grouped_conv2d_input_gradient.default, (dy, w, list(x.shape), *STEPS)),
        "weight gradient": (ops.grouped_conv2d_weight_gradient.default, (x, dy, list(w.shape), *STEPS)),
    }


@pytest.mark.parametrize("name", list(calls()))
def test_opcheck(name: str) -> None:
    operator, arguments = calls()[name]
    results = torch.library.opcheck(operator, arguments)
    assert set(results.values()) == {"SUCCESS"}


def test_both_gradients_at_once() -> None:
    x, w, _ = example(grad=False)
    dy = run(x, w, STEPS)
    ops = torch.ops.tapestry
    both, (*moved, groups) = ops.grouped_conv2d_gradients, STEPS
    number = packed(*map(tuple, moved))
    _, nothing = ops.grouped_conv2d_lowered(x, w, None, number, groups)
    assert nothing.numel() == 0
    given = (x, dy, w, nothing, number, groups)
    torch.library.opcheck(both.default, given, test_utils=["test_schema", "test_faketensor"])
    dx, dw = both(*given)
    torch.testing.assert_close(dx, ops.grouped_conv2d_input_gradient(dy, w, x.shape, *STEPS))
    torch.testing.assert_close(dw, ops.grouped_conv2d_weight_gradient(x, dy, w.shape, *STEPS))


def test_a_lowered_filter_is_given_on() -> None:
    """Both gradients take it for what it is: here another one, of which the gradient of x is then."""
    x, w, _ = example(torch.bfloat16, grad=False)
    ops, (*moved, groups) = torch.ops.tapestry, STEPS
    number, wide = packed(*map(tuple, moved)), w.float()
    arguments = (x, wide, None, number, groups)
    torch.library.opcheck(ops.grouped_conv2d_lowered.default, arguments, test_utils=["test_schema", "test_faketensor"])
    y, taps = ops.grouped_conv2d_lowered(*arguments)
    torch.testing.assert_close(y, run(x, w, STEPS))
    torch.testing.assert_close(taps, w)
    for other, factor in ((taps, 1), (2 * taps, 2), (x.new_empty(0), 1)):
        dx, dw = ops.grouped_conv2d_gradients(x, y, wide, other, number, groups)
        torch.testing.assert_close(dx, factor * ops.grouped_conv2d_input_gradient(y, w, x.shape, *STEPS))
        torch.testing.assert_close(dw, ops.grouped_conv2d_weight_gradient(x, y, w.shape, *STEPS).float())


@pytest.mark.parametrize("autocast", [False, True])
def test_what_is_compiled_calls_an_operator_forward_and_one_backward(autocast: bool) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    called, taken = list[str](), list[str]()

    def noted(graph: fx.GraphModule, _: Any) -> Any:
        for node in graph.graph.nodes:
            if "tapestry" in str(node.target):
                called.append(node.target._opname)
                taken.extend(filters.op for filters in (node.args[1:2] if len(called) == 1 else node.args[2:4]))
        return make_boxed_func(graph.forward)

    x, w, bias = example(torch.float32)
    compiled = torch.compile(lambda: run(x, w, STEPS, bias), backend=aot_autograd(fw_compiler=noted))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y, expected = compiled(), run(x, w, STEPS, bias)
    torch.testing.assert_close(y, expected)
    found, wanted = (torch.autograd.grad(one.float().square().sum(), (x, w, bias)) for one in (y, expected))
    torch.testing.assert_close(found, wanted)
    assert called == ["grouped_conv2d_lowered", "grouped_conv2d_gradients"]
    assert taken == ["placeholder"] * 3, "a filter of f32 is lowered within the first call"


@given(
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    st.tuples(*[st.integers(-2048, 2047)] * 4),
    st.tuples(st.integers(0, 7), st.integers(0, 7)),
    st.integers(1, 1 << 20),
)
def test_a_geometry_is_one_number(
    stride: tuple[int, int], padding: tuple[int, int, int, int], dilation: tuple[int, int], groups: int
) -> None:
    number = packed(stride, padding, dilation)
    assert number is not None
    assert number < 1 << 63
    assert unpacked(number, groups) == (stride, padding, dilation, groups)


@pytest.mark.parametrize(
    "far", [((8, 1), (0,) * 4, (1, 1)), ((1, 1), (0, 2048, 0, 0), (1, 1)), ((1, 1), (0,) * 4, (1, 9))]
)
def test_a_geometry_that_is_no_number_is_computed_all_the_same(far: Any) -> None:
    assert packed(*far) is None
    x, w = torch.randn(1, 2, 12, 12, requires_grad=True), torch.randn(2, 1, 2, 2, requires_grad=True)
    steps = (*far, 2)
    y, expected = run(x, w, steps), plainly(x.double(), w.double(), steps).float()
    torch.testing.assert_close(y, expected)
    found, wanted = (torch.autograd.grad(one.square().sum(), (x, w)) for one in (y, expected))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("frozen", [None, 0, 1])
def test_a_filter_of_f32_under_an_image_of_bf16(frozen: int | None) -> None:
    """Its gradient is of f32, too; where only one of both is asked for as well."""
    x, w, bias = example(torch.float32)
    narrow, rounded = x.detach().bfloat16().requires_grad_(frozen != 0), w.detach().bfloat16().requires_grad_()
    w = w.detach().requires_grad_(frozen != 1)
    y, expected = run(narrow, w, STEPS, bias), run(narrow, rounded, STEPS, bias)
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y, expected)
    asked = [k for k in (0, 1) if k != frozen]
    found, wanted = (
        torch.autograd.grad(one.float().square().sum(), [both[k] for k in asked])
        for one, both in ((y, (narrow, w)), (expected, (narrow, rounded)))
    )
    assert [one.dtype for one in found] == [(torch.bfloat16, torch.float32)[k] for k in asked]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.float(), other.float())


@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (1, 1, 7, 5), (3, 8, 1, 4)])
def test_strides_are_promised_where_they_are_ambiguous(shape: tuple[int, ...]) -> None:
    x, w = torch.randn(shape), torch.randn(shape[1], 1, 1, 1)
    arguments = (x, w, None, [1, 1], [0] * 4, [1, 1], shape[1])
    assert torch.library.opcheck(torch.ops.tapestry.grouped_conv2d.default, arguments, test_utils="test_faketensor")


def test_compile_without_graph_breaks() -> None:
    layer = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU())
    replace_convolutions(layer)
    x = torch.randn(2, 8, 5, 5, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        return run(layer(x), torch.ones(8, 4, 3, 2), STEPS).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), loss(x))
    expected = torch.autograd.grad(loss(x), [x, *layer.parameters()])
    torch.testing.assert_close(torch.autograd.grad(compiled(x), [x, *layer.parameters()]), expected)


def test_compile_with_dynamic_extents() -> None:
    def double(x: Tensor, w: Tensor) -> Tensor:
        return 2 * run(x, w, STEPS)

    compiled = torch.compile(double, fullgraph=True, dynamic=True, backend="aot_eager")
    x, w, _ = example(grad=False)
    for part in (x, x[:, :, 1:], x[:1, :, :, 1:]):
        torch.testing.assert_close(compiled(part, w), double(part, w))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_operands_and_returns_gradients_of_the_parameters_type(dtype: torch.dtype) -> None:
    x, w, bias = example(torch.float32)
    with torch.autocast("cpu", dtype):
        y = run(x, w, STEPS, bias)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), run(x, w, STEPS, bias), atol=0.1, rtol=0.05)
    gradients = torch.autograd.grad(y.float().sum(), (x, w, bias))
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


@pytest.mark.parametrize("padding", [1, (1, 2), "same", "valid"])
def test_torchs_spellings_of_padding(padding: Any) -> None:
    x, w = torch.randn(2, 6, 9, 8), torch.randn(6, 2, 5, 3)
    ours = conv2d(x, w, padding=padding, groups=3, dilation=(1, 2))
    filters = nn.functional.conv2d(x, w, padding=padding, groups=3, dilation=(1, 2))
    torch.testing.assert_close(ours, filters)


@pytest.mark.parametrize("padding", ["full", (1, 2, 3), (1,)])
def test_other_spellings_are_refused(padding: Any) -> None:
    with pytest.raises(BadConvolution, match="padding"):
        conv2d(torch.randn(1, 2, 5, 5), torch.randn(2, 1, 3, 3), padding=padding, groups=2)
