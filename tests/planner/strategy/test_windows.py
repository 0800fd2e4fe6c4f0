"""Shapes of convolutions: what the planner and the checker read off an operation, beside what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner.check import shapes as checked
from tapestry.planner.machine import ShapeTable
from tapestry.planner.machine.shapes import about
from tapestry.planner.strategy.cost import kernel_class, task_shape, touched, window_places
from tapestry.program import Operation, Program
from tapestry.space import Box


class Layer(NamedTuple):
    """x [n, c, h, h] and w [k, c, r, r], moved by steps, with zeros around."""

    n: int
    c: int
    k: int
    h: int
    r: int
    stride: int
    padding: int

    @property
    def apart(self) -> bool:
        """Whether no two windows share an element."""
        return self.stride >= self.r and not self.padding

    @property
    def p(self) -> int:
        return (self.h + 2 * self.padding - self.r) // self.stride + 1

    def program(self) -> Program:
        """The result, and both gradients."""

        @tp.program
        def total(x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
            return tp.sum(tp.conv2d(x, w, stride=self.stride, padding=self.padding) * dy)

        @tp.program
        def step() -> dict[str, Tensor]:
            x = tp.param("x", "f32", (self.n, self.c, self.h, self.h))
            w = tp.param("w", "f32", (self.k, self.c, self.r, self.r))
            dy = tp.param("dy", "f32", (self.n, self.k, self.p, self.p))
            y = tp.conv2d(x, w, stride=self.stride, padding=self.padding)
            return {"y": y} | {f"d{name}": d for name, d in tp.grad(total, wrt=("x", "w"))(x, w, dy).items()}

        return step.bind()


def shapes(op: Operation, program: Program) -> tuple[object, object]:
    """As the planner has it, and the checker."""
    shard = touched(op, program, Box.of_shape(tuple(op.extents.values())).region())
    sizes = {name: image.region.size for name, image in shard.reads.items()}
    found = task_shape(op, shard.points, sizes, shard.written.size)
    listed = [shard.written.size, *(sizes[name] for name in op.operands)]
    return found, checked.of(op, kernel_class(op), shard.points, listed)


LAYERS = st.builds(
    Layer, st.integers(1, 5), st.integers(1, 7), st.integers(1, 9), st.integers(9, 12), st.integers(2, 3),
    st.integers(1, 2), st.integers(0, 1),
)  # fmt: skip


@given(LAYERS)
def test_a_convolution_and_its_gradients_have_the_channels_that_they_were_given(layer: Layer) -> None:
    """Results span more than windows: that tells a convolution from the gradient of its filters."""
    program = layer.program()
    n, c, k, _, r, *_ = layer
    made = {op.output: op for op in program.operations if kernel_class(op) == "conv"}
    assert {"y", "dw"} <= made.keys() or layer.apart
    for op in program.operations:
        if kernel_class(op) in ("conv", "matmul"):
            planned, proved = shapes(op, program)
            assert planned == proved
    if layer.apart:  # windows are rows of a matrix then
        products = {op.output: op for op in program.operations if kernel_class(op) == "matmul"}
        assert {"y", "dw"} <= products.keys()
    for name, op in made.items():
        planned, proved = shapes(op, program)
        assert planned == proved
        assert isinstance(planned, tuple)
        if name in ("y", "dw"):
            assert planned == pytest.approx((n * layer.p**2, k, c * r**2))
        elif name == "dx":  # of which a part may be left out that no window reaches
            assert planned[1:] == pytest.approx((c, k * r**2))


def tables(windows: Sequence[int], seconds: Sequence[float]) -> tuple[ShapeTable, ...]:
    """Of two shapes each: of 1 and of 6 channels in."""
    every = zip(windows, pairwise(seconds), strict=False)
    return tuple(ShapeTable("conv", "f32", (8,), (4,), (w, 6 * w), both, w) for w, both in every)


@given(
    LAYERS, st.sets(st.integers(1, 16), min_size=1, max_size=3), st.lists(st.floats(1e-6, 1), min_size=4, max_size=4)
)
def test_windows_between_those_of_tables_are_priced_alike_by_planner_and_checker(
    layer: Layer, windows: set[int], seconds: list[float]
) -> None:
    """Of as many channels, linear in the places of a window; nothing is said of more channels than were measured."""
    program, made = layer.program(), tables(sorted(windows), seconds)
    raw = [msgspec.to_builtins(table) for table in made]
    for op in program.operations:
        if kernel_class(op) == "conv":
            shape, listed = shapes(op, program), about(made, window_places(op))
            assert isinstance(shape[0], tuple)
            assert listed is not None
            shard = touched(op, program, Box.of_shape(tuple(op.extents.values())).region())
            sizes = [shard.written.size, *(shard.reads[name].region.size for name in op.operands)]
            expected = listed.at(*shape[0]) if listed.covers(shape[0][-1]) else 0.0
            assert checked.seconds_of(raw, op, shard.points, sizes) == pytest.approx(expected)


def test_windows_between_two_tables_take_a_share_of_each() -> None:
    small, large = (
        ShapeTable("conv", "f32", (8,), (4,), (w, 2 * w), both, w) for w, both in ((9, (1, 2)), (25, (5, 3)))
    )
    assert about([large, small], 9) is small
    assert about([large, small], 4) is small
    assert about([large, small], 49) is large
    found = about([large, small], 13)
    assert found is not None
    assert found.at(8, 4, 13) == pytest.approx(0.75 * 1 + 0.25 * 5)
    assert found.at(8, 4, 26) == pytest.approx(0.75 * 2 + 0.25 * 3)
    assert found.covers(26)
    assert not found.covers(27)
    assert about([], 9) is None


@tp.op
def depthwise(x: f32[Tensor, "n y x c"], w: f32[Tensor, "r s c"]) -> f32[Tensor, "n p q c"]:
    n, p, q, c, r, s = tp.indices("n p q c r s")
    return tp.sum[r, s](x[n, p + r, q + s, c] * w[r, s, c])


@tp.op
def grouped(x: f32[Tensor, "n y x g c"], w: f32[Tensor, "g k r s c"]) -> f32[Tensor, "n p q g k"]:
    n, p, q, g, k, r, s, c = tp.indices("n p q g k r s c")
    return tp.sum[r, s, c](x[n, p + r, q + s, g, c] * w[g, k, r, s, c])


@tp.op
def line(x: f32[Tensor, "n t c"], w: f32[Tensor, "r c k"]) -> f32[Tensor, "n p k"]:
    n, p, k, r, c = tp.indices("n p k r c")
    return tp.sum[r, c](x[n, 2 * p + r, c] * w[r, c, k])


def of(call: Callable[..., Tensor], **given: tuple[int, ...]) -> tuple[object, object]:
    @tp.program
    def made() -> Tensor:
        return call(*(tp.param(name, "f32", shape) for name, shape in given.items()))

    program = made.bind()
    (op,) = program.operations
    assert kernel_class(op) == "conv"
    return shapes(op, program)


def test_along_one_axis_with_channels_last() -> None:
    planned, proved = of(line, x=(3, 21, 5), w=(3, 5, 8))
    assert planned == proved == (3 * 10, 8, 15)


def test_groups_have_no_such_shape() -> None:
    assert of(depthwise, x=(2, 9, 9, 16), w=(3, 3, 16)) == (None, None)
    assert of(grouped, x=(2, 9, 9, 4, 8), w=(4, 8, 3, 3, 8)) == (None, None)
