"""When two executions of a program agree."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DTYPES, numpy_dtype
from .expr import FUNCTIONS, MONOIDS, Call, Cast, Expr, walk
from .program import Block, Operation, Program

_EPSILON = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
_POINTWISE = 8
"""Roundings charged to one point of a body: its arithmetic, its functions and the write."""


def tolerance(program: Program, name: str) -> float:
    """Bound of the difference of two executions of a float tensor, for values of magnitude at most 1; 0 for integers.

    Every operation upstream rounds each of the n terms it folds once (a partial result may be stored), and its body and
    write 8 times, with the unit roundoff u of its dtype: the bound is the sum over operations of (n + 8) u. Where a
    function is not correctly rounded, or an inexact fold takes in what functions made of its operands, u is that of the
    type they compute in, if that is narrower: a product of f32 may enter an f64 sum rounded or not. It assumes that no
    operation amplifies what it reads, as in programs of `tapestry.testing.programs`.
    """
    if DTYPES[program.tensor(name).dtype].kind != "float":
        return 0.0
    return sum(_rounding(program, op) for op in _upstream(program, name))


def _rounding(program: Program, op: Operation) -> float:
    folded = prod(op.extents[dim] for dim in op.reduce_dims)
    dtypes = [program.tensor(op.output).dtype, *_casts(op.body), *_inner(program, op)]
    return (folded + _POINTWISE) * max(_EPSILON.get(dtype, 0.0) for dtype in dtypes)


def _inner(program: Program, op: Operation) -> list[str]:
    """The types that functions compute in, where two executions may differ by their roundings."""
    if isinstance(op.body, Block):
        return []
    called = [FUNCTIONS[node.function] for node in walk(op.body) if isinstance(node, Call)]
    kind = DTYPES[program.tensor(op.output).dtype].kind
    folds = op.monoid is not None and kind not in MONOIDS[op.monoid].exact and bool(called)
    if not folds and all(function.exact for function in called):
        return []
    # Integers and indices are f32 to functions of floats; only where all that is read is f64 nothing is narrower.
    return [] if op.operands and all(program.tensor(name).dtype == "f64" for name in op.operands) else ["f32"]


def _casts(body: Expr | Block) -> list[str]:
    return [] if isinstance(body, Block) else [node.dtype for node in walk(body) if isinstance(node, Cast)]


def _upstream(program: Program, name: str) -> list[Operation]:
    """The operations that a tensor depends on."""
    wanted = {name}
    found = []
    for op in reversed(program.operations):
        if op.output in wanted:
            found.append(op)
            wanted |= set(op.operands)
    return found


def assert_close(program: Program, got: Mapping[str, NDArray[Any]], want: Mapping[str, NDArray[Any]]) -> None:
    """Both hold the same tensors: integers and truths equal, floats within `tolerance` times max(1, largest |want|).

    Names are outputs, or states (whose values are those that replace them). Infinities must agree exactly, NaN with
    NaN. AssertionError with the tensor, the worst element, both values and the tolerance.
    """
    assert set(got) == set(want), f"tensors {sorted(got)} are not {sorted(want)}"
    values = dict(program.states)
    for name, expected in want.items():
        tensor = program.tensor(name)
        assert got[name].dtype == numpy_dtype(tensor.dtype), f"{name}: dtype {got[name].dtype}, not {tensor.dtype}"
        assert got[name].shape == expected.shape, f"{name}: shape {got[name].shape}, not {expected.shape}"
        source = name if name in program.producer else values.get(name, name)
        _assert_array(name, got[name], expected, tolerance(program, source))


def _assert_array(name: str, got: NDArray[Any], want: NDArray[Any], allowed: float) -> None:
    if not want.size:
        return
    if not allowed:
        wrong = (got != want) & ~((got != got) & (want != want))
        assert not wrong.any(), f"{name}: {_first(wrong, got, want)}; {int(wrong.sum())} of {wrong.size} differ"
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(a - b) <= allowed * scale) | (a == b) | (np.isnan(a) & np.isnan(b)))
    assert not wrong.any(), f"{name}: {_first(wrong, a, b)}; tolerance {allowed * scale:.3g}, {int(wrong.sum())} differ"


def _first(wrong: NDArray[np.bool_], got: NDArray[Any], want: NDArray[Any]) -> str:
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"element {at} is {got[at]}, not {want[at]}"
