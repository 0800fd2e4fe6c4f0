"""What the standard operations declare: their domains, projections and folds; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.notation import format_operation
from tapestry.program import Block, Program
from tapestry.testing import program_of


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def algebra(program: Program) -> list[str]:
    return [format_operation(op) for op in program.operations]


X2, X3, X4 = zeros(4, 6), zeros(5, 4, 6), zeros(2, 4, 9, 8)
QKV = {"q": zeros(6, 4, 8), "k": zeros(7, 2, 8), "v": zeros(7, 2, 8)}


@pytest.mark.parametrize(
    ("call", "arrays", "expected"),
    [
        (
            lambda x, w: tp.conv2d(x, w, stride=(2, 1), dilation=2, padding=((1, 0), (0, 2))),
            {"x": X4, "w": zeros(3, 4, 2, 3)},
            "sum[c, r, s] (x[n, c, 2*p + 2*r - 1, q + 2*s] if 0 <= 2*p + 2*r - 1 and q + 2*s < 8 else 0)"
            " * w[k, c, r, s]",
        ),
        (
            lambda x, w: tp.conv2d(x, w, groups=2, padding="same"),
            {"x": X4, "w": zeros(6, 2, 1, 1)},
            "sum[c, r, s] x[n, c + 2*(k//3), p, q] * w[k, c, r, s]",
        ),
        (
            lambda x, w: tp.conv2d(x, w, groups=4),
            {"x": X4, "w": zeros(4, 1, 2, 2)},
            "sum[c, r, s] x[n, k, p + r, q + s] * w[k, c, r, s]",
        ),
        (lambda x: tp.max_pool2d(x, 2), {"x": X4}, "max[r, s] x[n, c, 2*p + r, 2*q + s]"),
        (lambda x: tp.avg_pool2d(x, 2, stride=1), {"x": X4}, "sum[r, s] x[n, c, p + r, q + s] / 2 / 2"),
        (lambda x: tp.mean(x, "d0"), {"x": X2}, "sum[d0] x[d0, d1] / 4"),
        (lambda x: tp.sum(x), {"x": X2}, "sum[d0, d1] x[d0, d1]"),
        (lambda x: tp.einsum("ij,kj->ik", x, x), {"x": X2}, "sum[j] x[i, j] * x[k, j]"),
        (lambda x: tp.einsum("ii", x), {"x": zeros(3, 3)}, "sum[i] x[i, i]"),
        (lambda x, y: x @ y, {"x": X3, "y": zeros(6, 2)}, "sum[d2] x[d0, d1, d2] * y[d2, n]"),
        (lambda x, y: x + y, {"x": X3, "y": zeros(4, 1)}, "x[d0, d1, d2] + y[d1, 0]"),
        (lambda x: x.reshape(2, 2, 6).reshape(4, 6) + 0, {"x": X2}, "x[d0, d1] + 0"),
        (lambda x: x.reshape(24)[::5] + 0, {"x": X2}, "x[(5*d0)//6, 5*d0 - 6*((5*d0)//6)] + 0"),
        (lambda x: x.reshape(2, 12).T + 0, {"x": X2}, "x[2*d0 + d1//6, d1 % 6] + 0"),
        (lambda x: tp.transpose(x, (1, 0)) + 0, {"x": X2}, "x[d0, d1] + 0"),
        (lambda x: tp.pad(tp.pad(x, 1), 1) + 0, {"x": X2}, "if 0 <= d0 - 2 < 4 and 0 <= d1 - 2 < 6 else 0) + 0"),
        (lambda x: tp.pad(x, 1)[1:-1, 1:-1] + 0, {"x": X2}, "x[d0, d1] + 0"),
        (lambda x: tp.concat([x, x])[4:] + 0, {"x": X2}, "x[d0, d1] + 0"),
        (lambda x: tp.broadcast_to(x[None, :, :1], (3, 4, 6)) + 0, {"x": X2}, "x[d0, 0] + 0"),
        (lambda x: tp.squeeze(x[1:2], 0) + 0, {"x": X2}, "x[1, d1] + 0"),
        (lambda x: tp.stack([x, x], axis=1)[:, 1] + 0, {"x": X2}, "x[d0, d1] + 0"),
    ],
)
def test_one_operation_with_exact_projections(
    call: Callable[..., Tensor], arrays: dict[str, Any], expected: str
) -> None:
    (line,) = algebra(program_of(call, **arrays))
    assert line.endswith(expected), line


def test_attention_is_a_state_and_a_division() -> None:
    program = program_of(lambda q, k, v: tp.attention(q, k, v, causal=True, offset=1, scale=0.25), **QKV)
    state, finish = program.operations
    assert isinstance(state.body, Block)
    assert state.body.attrs == {"scale": 0.25, "causal": True, "offset": 1, "groups": 2, "width": 8}
    assert [str(read) for read in state.reads] == [
        "(q[d0, d1, c] if c < 8 else 0)",
        "(k[s, d1//2, c] if c < 8 else 0)",
        "(v[s, d1//2, c] if c < 8 else 0)",
    ]
    assert [(dim.name, dim.extent, dim.cut) for dim in state.dims] == [
        ("d0", 6, True), ("d1", 4, True), ("s", 7, True), ("c", 10, False),
    ]  # fmt: skip
    assert [str(bound) for bound in state.where] == ["-d0 + s < 2"]
    assert (state.monoid, state.reduce_dims, state.group, finish.group) == (
        "online_softmax", ("s",), "attention", "attention",
    )  # fmt: skip
    assert format_operation(finish) == "out[d0, d1, e] = attention.state[d0, d1, e] / attention.state[d0, d1, 8]"


def test_attention_keeps_its_state_wide() -> None:
    narrow = {name: array.astype("float16") for name, array in QKV.items()}
    program = program_of(tp.attention, **narrow)
    assert [program.tensor(op.output).dtype for op in program.operations] == ["f32", "f16"]


@pytest.mark.parametrize(
    ("view", "copies"),
    [
        (lambda x: x, 0),
        (lambda x: tp.transpose(x, (0, 2, 1)).transpose(0, 2, 1), 0),
        (lambda x: x[::-1], 0),
        (lambda x: tp.pad(x, d0=1)[1:-1], 0),
        (lambda x: tp.pad(x[1:], d0=(1, 0)), 1),
        (lambda x: tp.concat([x[:3], x[3:]]), 1),
        (lambda x: x.reshape(2, 6, 8).reshape(6, 2, 8), 0),
        (lambda x: x.reshape(8, 2, 6).transpose(2, 1, 0), 1),
    ],
)
def test_a_block_kernel_takes_changes_of_axes_and_copies_the_rest(
    view: Callable[[Tensor], Tensor], copies: int
) -> None:
    program = program_of(lambda x, k: tp.attention(view(x), k, k), x=zeros(6, 2, 8), k=zeros(3, 2, 8))
    assert [op.name for op in program.operations].count("attention.copy") == copies
    program_reads = [read for op in program.operations if isinstance(op.body, Block) for read in op.reads]
    assert all(len(read.guard) == 1 for read in program_reads)


def test_statistics_of_short_floats_are_kept_in_f32() -> None:
    def net(x: Tensor) -> Any:
        return tp.softmax(x), tp.layer_norm(x), tp.rms_norm(x)

    program = program_of(net, x=X2.astype("float16"))
    assert [program.tensor(op.output).dtype for op in program.operations] == [
        "f16", "f32", "f16", "f32", "f32", "f16", "f32", "f16",
    ]  # fmt: skip


def test_normalisations_fold_any_axes() -> None:
    def net(x: Tensor, w: Tensor) -> Tensor:
        return tp.layer_norm(x, w, w, axis=(0, 2))

    program = program_of(net, x=X3, w=zeros(5, 6))
    assert [op.reduce_dims for op in program.operations] == [("d0", "d2"), ("d0", "d2"), ()]
    assert algebra(program)[-1].endswith("* rsqrt(layer_norm.variance[d1] + 1e-05) * w[d0, d2] + w[d0, d2]")


def test_composites_nest_under_the_outermost_name() -> None:
    @tp.composite
    def block(x: Tensor) -> Tensor:
        y = tp.softmax(x)
        return tp.relu(y)

    program = program_of(lambda x: block(block(x)), x=X2)
    assert [op.group for op in program.operations] == ["block"] * 4 + ["block_1"] * 4
    assert program.operations[0].name == "block.softmax.max"
    assert [op.output for op in program.operations][2:4] == ["block.y", "block.relu"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: tp.einsum("ij,jk->ik", x), ["names 2 operands", "1"]),
        (lambda x: tp.einsum("ijk->i", x), ["operand 0 has 2 axes, not 3", "ijk"]),
        (lambda x: tp.einsum("ij,ij->i", x, x.T), ["i has two extents, 4 and 6"]),
        (lambda x: tp.einsum("ij->ik", x), ["'k' is in no operand"]),
        (lambda x: tp.einsum("ij->ii", x), ["output 'ii' repeats a letter"]),
        (lambda x: tp.einsum("i..->i", x), [".."]),
        (lambda x: x @ x, ["inner extents differ", "d0=4, d1=6"]),
        (lambda x: tp.conv2d(x, x), ["conv2d takes tensors of 4 axes"]),
        (lambda x: tp.conv1d(x[None], x[:, :3, None]), ["channels and groups contradict", "groups"]),
        (lambda x: tp.conv1d(x[None], x[:, :4, None], stride=0), ["conv1d(stride=0)"]),
        (lambda x: tp.conv1d(x[None], x[:, :4, None], padding=(1, 2)), ["conv1d(padding=(1, 2))", '"same"']),
        (
            lambda x: tp.conv1d(x[None, :, :2], x[None]),
            ["outside its shape", "q + s in [0, 5] along d1", "d1 in [0, 1]", "conv1d"],
        ),
        (lambda x: tp.max_pool2d(x, 2), ["max_pool2d takes a tensor of 4 axes"]),
        (lambda x: tp.max_pool1d(x[None], (2, 2)), ["max_pool1d(window=(2, 2))"]),
        (lambda x: tp.softmax(x.astype("int32")), ["softmax takes floats", "astype"]),
        (lambda x: tp.softmax(x, ()), ["softmax needs an axis"]),
        (lambda x: tp.layer_norm(x, x), ["the weight has not the extents of the normalised axes"]),
        (lambda x: tp.rotary(x[:, :5]), ["rotary takes floats with positions and an even last axis"]),
        (lambda x: tp.attention(x, x, x), ["attention takes q [(b,) t, h, e]"]),
        (lambda x: tp.attention(x[None], x[None], x[None].astype("f64")), ["of one dtype"]),
        (lambda x: tp.attention(x[:, None], x[:, None, :5], x[:, None, :5]), ["queries and keys contradict"]),
        (lambda x: tp.gelu(x, approximate="erf"), ["gelu(approximate='erf')"]),
        (lambda x: tp.reshape(x, (5, -1)), ["reshape changes the number of elements", "24 elements"]),
        (lambda x: tp.reshape(x, (-1, -1)), ["reshape changes the number of elements"]),
        (lambda x: tp.transpose(x, (0, 0)), ["is not an order of the axes"]),
        (lambda x: x[7], ["7 is not an index of axis d0"]),
        (lambda x: x[3:3:0], ["a slice of axis d0 has step 0"]),
        (lambda x: x[0, 0, 0], ["3 keys for"]),
        (lambda x: x["d0"], ["'d0' is not an index of axis d0"]),
        (lambda x: tp.squeeze(x, 0), ["axis d0 has extent 4, not 1"]),
        (lambda x: tp.broadcast_to(x, (4,)), ["does not broadcast to [4]"]),
        (lambda x: tp.pad(x, (1, 2, 3)), ["pad has 3 widths for 2 axes"]),
        (lambda x: tp.pad(x, d0=(-2, -3)), ["pad leaves nothing"]),
        (lambda x: tp.pad(x, d0=0.5), ["not an integer or a list"]),
        (lambda x: tp.concat([x, x.T]), ["the operands differ elsewhere"]),
        (lambda x: tp.concat([]), ["at least one tensor"]),
        (lambda x: tp.where(x, x, x), ["where has no meaning for (f32, f32, f32)"]),
        (lambda x: [*x], ["tensors are not iterated"]),
    ],
)
def test_errors_name_what_and_both_sides(call: Callable[[Tensor], Any], said: list[str]) -> None:
    with pytest.raises(tp.UsageError) as caught:
        program_of(call, x=X2)
    for words in said:
        assert words in str(caught.value)
