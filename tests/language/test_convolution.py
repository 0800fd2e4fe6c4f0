"""Convolutions are recognised by their index expressions; what only looks like one is not. The oracle is enumeration:
what is recognised is computed by the formula of `tapestry.convolution`, and compared with the reference.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.convolution import Convolution, convolution
from tapestry.expr import Affine, Bound, Call, Read
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.reference.evaluation import evaluate_all
from tapestry.verify import verify

AXES = ("n", "h", "w", "c")


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Program, dict[str, Any]]:
    """A program of one convolution, its axes and dimensions in any order, and what it is."""
    width, groups, per = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    step, gap = draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), draw(st.tuples(*[st.integers(1, 2)] * 2))
    taps, outputs = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 4)] * 2))
    before = draw(st.tuples(*[st.integers(0, 2)] * 2))
    least = [(o - 1) * s + (t - 1) * g + 1 - b for o, s, t, g, b in zip(outputs, step, taps, gap, before, strict=True)]
    shape = [max(1, low + draw(st.integers(-1, 1))) for low in least]
    padded = any(low > extent or b for low, extent, b in zip(least, shape, before, strict=True))
    extents = dict(zip("npqkrsj", (draw(st.integers(1, 2)), *outputs, groups * per, *taps, width), strict=True))
    orders = [draw(st.permutations(range(4))) for _ in range(3)]
    dim = {name: Affine.dim(name) for name in extents}
    lines = [s * dim[p] + g * dim[r] - b for p, s, r, g, b in zip("pq", step, "rs", gap, before, strict=True)]
    if draw(st.booleans()):  # dimensions of one element may be missing
        lines = [line.substitute({d: 0 for d in line.dims if extents[d] == 1}) for line in lines]
    group = dim["k"] // per * width + dim["j"] if groups > 1 else dim["j"]
    roles = {"n": dim["n"], "h": lines[0], "w": lines[1], "c": group}
    whole = dict(zip(AXES, (extents["n"], *shape, groups * width), strict=True))
    axes = [AXES[axis] for axis in orders[0]]
    guard = tuple(Bound(roles[a], 0, whole[a]) for a in ("h", "w")) if padded else ()
    x = Read("x", tuple(roles[a] for a in axes), guard)
    w = Read("w", tuple(dim["krsj"[axis]] for axis in orders[1]))
    write = tuple(dim["npqk"[axis]] for axis in orders[2])
    factors = draw(st.permutations([x, w]))
    op = Operation(
        "conv", tuple(Dim(name, extents[name]) for name in draw(st.permutations("npqkrsj"))), "y", write,
        Call("multiply", tuple(factors)), tuple(draw(st.permutations("rsj"))), "sum",
    )  # fmt: skip
    shapes = {
        "x": tuple(whole[a] for a in axes),
        "w": tuple(extents["krsj"[axis]] for axis in orders[1]),
        "y": tuple(extents["npqk"[axis]] for axis in orders[2]),
    }
    roles_of = {"x": "input", "w": "input", "y": "value"}
    tensors = tuple(Tensor(name, "int64", shapes[name], role) for name, role in roles_of.items())  # type: ignore[arg-type]
    return Program("net", tensors, (op,), ("y",)), {"width": width, "groups": groups, "step": step, "gap": gap}


def operands(program: Program) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(1)
    return {t.name: random.integers(-9, 9, t.shape) for t in program.tensors if t.role == "input"}


def by_formula(found: Convolution, program: Program, given: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """What the description says, point by point."""
    x, w = given[found.image].transpose(found.x_axes), given[found.filters].transpose(found.w_axes)
    (op,) = program.operations
    shape = program.tensor(op.output).shape
    y = np.zeros([shape[axis] for axis in found.y_axes], np.int64)
    for n, p, q, k in np.ndindex(*y.shape):
        for r, s, j in product(*map(range, w.shape[1:])):
            row = found.rows.step * p + found.rows.gap * r - found.rows.before
            column = found.columns.step * q + found.columns.gap * s - found.columns.before
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                y[n, p, q, k] += x[n, row, column, k // found.per * found.width + j] * w[k, r, s, j]
    return y.transpose(np.argsort(found.y_axes))


@given(convolutions())
@settings(max_examples=120, deadline=None)
def test_a_convolution_is_recognised_whatever_its_names_and_axes(case: tuple[Program, dict[str, Any]]) -> None:
    program, _ = case
    verify(program)
    (op,) = program.operations
    found, given = convolution(op, program), operands(program)
    assert found is not None
    assert (by_formula(found, program, given) == evaluate_all(program, given)["y"]).all()


@given(convolutions(), st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_changed_is_another_convolution_or_none(
    case: tuple[Program, dict[str, Any]], data: st.DataObject
) -> None:
    """An index of x is changed anyhow: reads are kept inside by a guard, and the oracle judges what is recognised."""
    program, _ = case
    (op,) = program.operations
    assert isinstance(op.body, Call)
    x = next(arg for arg in op.body.args if isinstance(arg, Read) and arg.tensor == "x")
    axis, name = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([dim.name for dim in op.dims]))
    row, factor = x.index[axis], data.draw(st.sampled_from([-2, -1, 1, 2]))
    changed = data.draw(
        st.sampled_from([row + Affine.dim(name) * factor, (row + Affine.dim(name)) // 2, row % 2, -row])
    )
    index = (*x.index[:axis], changed, *x.index[axis + 1 :])
    shape = program.tensor("x").shape
    guard = tuple(Bound(at, 0, extent) for at, extent in zip(index, shape, strict=True))
    guard = (*guard, Bound(Affine.dim(name), data.draw(st.integers(0, 1)), None))
    body = Call("multiply", tuple(Read("x", index, guard) if arg is x else arg for arg in op.body.args))
    changed_program = replace(program, operations=(replace(op, body=body),))
    found, given = convolution(changed_program.operations[0], changed_program), operands(program)
    if found is not None:
        assert (by_formula(found, changed_program, given) == evaluate_all(changed_program, given)["y"]).all()


# -- by name -----------------------------------------------------------------------------------------------------------


def plain(rows: Affine, guard: tuple[Bound, ...] = (), fill: int = 0, monoid: str = "sum", **changes: Any) -> Program:
    """x [2, 8, 8, 4], w [6, 3, 3, 2] -> y [2, 6, 6, 6], channels last, two groups of 2 in and 3 out."""
    n, p, q, k, r, s, j = (Affine.dim(name) for name in "npqkrsj")
    x = Read("x", (n, rows, q + s, k // 3 * 2 + j), guard, fill)
    w = Read("w", (k, r, s, j))
    dims = tuple(Dim(name, extent) for name, extent in zip("npqkrsj", (2, 6, 6, 6, 3, 3, 2), strict=True))
    op = Operation("conv", dims, "y", (n, p, q, k), Call("multiply", (x, w)), ("r", "s", "j"), monoid)
    shapes = {"x": (2, 8, 8, 4), "w": (6, 3, 3, 2), "y": (2, 6, 6, 6)}
    tensors = tuple(Tensor(name, "f32", shape, "value") for name, shape in shapes.items())
    return Program("net", tensors, (replace(op, **changes),), ("y",))


P, R = Affine.dim("p"), Affine.dim("r")


def found_in(program: Program) -> Convolution | None:
    return convolution(program.operations[0], program)


def test_what_is_found_says_all_of_it() -> None:
    found = found_in(plain(P + R))
    assert found is not None
    assert found.channels_last
    assert (found.batch, found.channel, found.inner, found.width, found.per) == ("n", "k", "j", 2, 3)
    assert (found.rows.step, found.rows.gap, found.rows.before, found.rows.extent) == (1, 1, 0, 8)
    assert found.rows.within((0, 6), (0, 3)) == (8, 0, 0)
    assert found.rows.within((0, 2), (0, 3)) == (4, 0, 0)


INSIDE = Bound(P + R - 1, 0, 8)


@pytest.mark.parametrize(
    "program",
    [
        plain(P),  # the taps of one direction read one row
        plain(R),  # every output the same rows
        plain(P - R + 2),  # a flipped filter
        plain(P + R // 2),
        plain(P + R + Affine.dim("n") * 0 + Affine.dim("q") * 1, (Bound(P + R + Affine.dim("q"), 0, 8),)),
        plain(P + R - 1, (INSIDE,), fill=1),  # padded with ones
        plain(P + R - 1, (Bound(P + R - 1, 1, 8),)),  # a row of the image is left out
        plain(P + R, (Bound(R, 1, None),)),  # a tap is left out
        plain(P + R, monoid="max"),
        plain(P + R, where=(Bound(P, 0, 3),)),
        plain(P + R, body=Read("x", (P, P, P, P))),
    ],
)
def test_what_only_looks_like_a_convolution_is_none(program: Program) -> None:
    assert found_in(program) is None


def test_padding_with_zeros_is_one() -> None:
    found = found_in(plain(P + R - 1, (INSIDE,)))
    assert found is not None
    assert found.rows.before == 1
    assert found.rows.within((0, 6), (0, 3)) == (7, 1, 0)
