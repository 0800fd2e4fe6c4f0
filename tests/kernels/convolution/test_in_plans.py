"""Grouped convolutions found in programs of the language and in plans of the planner, shards included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f16, f32, param
from tapestry.errors import UsageError
from tapestry.kernels.convolution.in_plans import problems
from tapestry.kernels.convolution.problem import GROUP_WIDTHS, ConvolutionProblem
from tapestry.kernels.errors import WrongValue
from tapestry.kernels.warm_up import warm_up
from tapestry.planner import load_machine, plan
from tapestry.program import Pin
from tapestry.serialize import program_to_json


@tp.program
def conv(
    x: f16[Tensor, "n c y x"], w: param[f16[Tensor, "k j r s"]], *, stride: int, dilation: int, groups: int,
    top: int, bottom: int, left: int, right: int,
) -> Tensor:  # fmt: skip
    sides = ((top, bottom), (left, right))
    return tp.conv2d(x, w, stride=stride, dilation=dilation, groups=groups, padding=sides)


@tp.op
def last(x: f16[Tensor, "n y x c"], w: f16[Tensor, "r s k j"], *, stride: int, groups: int) -> f16[Tensor, "n p q k"]:
    """Channels last, the taps in front."""
    n, p, q, k, r, s, j = tp.indices("n p q k r s j")
    width = w.shape[3]
    return tp.sum[r, s, j](w[r, s, k, j] * x[n, stride * p + r, stride * q + s, k // width * width + j])


@tp.program
def channels_last(x: f16[Tensor, "n y x c"], w: f16[Tensor, "r s k j"], *, stride: int, groups: int) -> Tensor:
    return last(x, w, stride=stride, groups=groups)


def document(program: Any) -> dict[str, Any]:
    return {"program": program_to_json(program)}


@settings(max_examples=60)
@given(
    st.sampled_from(GROUP_WIDTHS), st.integers(1, 3), st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.integers(1, 2), st.integers(1, 2), st.tuples(*[st.integers(0, 3)] * 4), st.integers(1, 3), st.data(),
)  # fmt: skip
def test_a_convolution_of_the_language_is_found(
    width: int, groups: int, taps: tuple[int, int], stride: int, dilation: int, sides: tuple[int, int, int, int],
    n: int, data: st.DataObject,
) -> None:  # fmt: skip
    least = [max(1, (extent - 1) * dilation + 1 - sides[2 * i] - sides[2 * i + 1]) for i, extent in enumerate(taps)]
    h, w = (data.draw(st.integers(low + 1, low + 9)) for low in least)
    top, bottom, left, right = sides
    c = width * groups
    bound = conv.bind(
        n=n, c=c, y=h, x=w, k=c, j=width, r=taps[0], s=taps[1], stride=stride, dilation=dilation, groups=groups,
        top=top, bottom=bottom, left=left, right=right,
    )  # fmt: skip
    wanted = ConvolutionProblem(n, h, w, c, groups, *taps, (stride, stride), (dilation, dilation), sides)
    (((found,)),) = problems(document(bound)).values()
    assert (found.n, found.c, found.groups, found.r, found.s) == (n, c, groups, *taps)
    assert (found.p, found.q) == (wanted.p, wanted.q)
    assert [step for step, count in zip(found.stride, (wanted.p, wanted.q), strict=True) if count > 1] == [
        step for step, count in zip(wanted.stride, (wanted.p, wanted.q), strict=True) if count > 1
    ]
    # Rows and columns that no window meets need not be there.
    reads = [reached(found, axis) for axis in (0, 1)]
    assert reads == [reached(wanted, axis) for axis in (0, 1)]


def reached(problem: ConvolutionProblem, axis: int) -> list[list[int]]:
    """The input indices that every output reads under every tap, -1 outside, shifted to begin at the first that is."""
    extent, outputs = (problem.h, problem.w)[axis], (problem.p, problem.q)[axis]
    taps, before = (problem.r, problem.s)[axis], problem.padding[2 * axis]
    rows = [
        [p * problem.stride[axis] + r * problem.dilation[axis] - before for r in range(taps)] for p in range(outputs)
    ]
    inside = [at for row in rows for at in row if 0 <= at < extent]
    first = min(inside, default=0)
    return [[at - first if 0 <= at < extent else -1 for at in row] for row in rows]


def test_any_order_of_the_axes_will_do() -> None:
    bound = channels_last.bind(n=2, y=9, x=11, c=16, r=3, s=2, k=16, j=8, stride=2, groups=2)
    assert problems(document(bound)) == {
        "last": (ConvolutionProblem(2, 9, 10, 16, 2, 3, 2, (2, 2), (1, 1), (0, 0, 0, 0)),)
    }


@tp.program
def others(
    x: f16[Tensor, "8 16 10 10"], wide: f16[Tensor, "32 16 3 3"], deep: f16[Tensor, "16 16 9 9"],
    a: f16[Tensor, "10 10"], line: f16[Tensor, "16 16 3"], full: f32[Tensor, "16 1 3 3"],
) -> tuple[Tensor, ...]:  # fmt: skip
    flat = x[:, :, 0]
    return (
        tp.conv2d(x, wide),  # more channels out than in
        tp.conv2d(x, deep),  # nine taps
        tp.matmul(x, a),
        tp.conv1d(flat, line),
        tp.max_pool2d(x, 2),
        tp.conv2d(tp.cast(x, "f32"), full, groups=16),  # single precision
        tp.relu(x) * 2,
    )


def test_other_operations_are_left_out() -> None:
    assert problems(document(others.bind())) == {}


@tp.program
def net(x: f16[Tensor, "n 64 y x"], w: param[f16[Tensor, "64 8 3 3"]]) -> Tensor:
    return tp.relu(tp.conv2d(x, w, padding=1, groups=8))


@pytest.mark.parametrize("axis", ["n", "p", "k"])
def test_every_shard_of_a_plan_is_a_problem(axis: str) -> None:
    """The shards' problems, run one by one on what they read, are the whole."""
    pins = [Pin("op", "conv2d", (("mesh0", axis),))]
    made = plan(net.bind(n=4, y=12, x=10), load_machine("h200x8"), mesh=(2,), pins=pins, pieces=False)
    (found,) = problems(made).values()
    whole = ConvolutionProblem(4, 12, 10, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    wanted = {
        "n": {ConvolutionProblem(2, 12, 10, 64, 8, 3, 3, padding=(1, 1, 1, 1))},
        "k": {ConvolutionProblem(4, 12, 10, 32, 4, 3, 3, padding=(1, 1, 1, 1))},
        "p": {
            ConvolutionProblem(4, 7, 10, 64, 8, 3, 3, padding=(1, 0, 1, 1)),
            ConvolutionProblem(4, 7, 10, 64, 8, 3, 3, padding=(0, 1, 1, 1)),
        },
    }
    assert set(found) == wanted[axis]
    assert sum(np.prod(problem.output_shape) for problem in wanted[axis]) * (1 if axis == "p" else 2) == np.prod(
        whole.output_shape
    )


def test_what_is_no_plan_is_refused() -> None:
    for nonsense in ({}, {"program": {"tensors": []}}, 3):
        with pytest.raises(WrongValue, match="not a plan"):
            problems(nonsense)
    folded = {"program": {"tensors": [], "operations": [{"repeat": 3, "items": [], "step": []}]}}
    with pytest.raises(WrongValue, match="folded"):
        problems(folded)


@pytest.mark.parametrize(
    "body", ["__import__('os')[0] * w[k]", "x[f(n)] * w[k]", "x[n // 0, k, p, q] * w[k, c, r, s]", "x["]
)
def test_documents_are_read_not_run(body: str) -> None:
    """By the language's own parser, which names the place of what it does not know."""
    written = program_to_json(conv.bind(**dict.fromkeys("cyxk", 8), n=1, j=1, r=3, s=3, stride=1, dilation=1,
        groups=8, top=0, bottom=0, left=0, right=0))  # fmt: skip
    written["operations"][-1]["body"] = body
    with pytest.raises(UsageError, match=r"program.operations\[0\].body"):
        problems({"program": written})


def test_warming_up_compiles_what_a_plan_will_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path))
    made = plan(net.bind(n=64, y=56, x=56), load_machine("h200"), mesh=(1,))
    first = warm_up(made, passes=("forward", "weight_gradient"), jobs=2)
    assert {kernel.name for kernel in first} == {"forward", "weight_gradient", "fold_rounded"}
    assert {kernel.arch for kernel in first} == {"sm_90"}
    (problem,) = problems(made)["conv2d"]
    again = warm_up([(problem, "forward"), (problem, "f16", "weight_gradient")])
    assert again == first
    assert len(list(tmp_path.glob("*.kernel"))) == 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"plan": [3]}, "nothing to compile"),
        ({"plan": [], "gpu": "abacus"}, "no such GPU"),
        ({"plan": [], "passes": ("backward",)}, "no such pass"),
    ],
)
def test_what_cannot_be_warmed_up_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(WrongValue, match=text):
        warm_up(**given)
