"""The reference against a second evaluator that shares nothing with it: Python scalars, one point after another."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.expr import Affine, Call, Cast, Const, Expr, Floor, IndexValue, Inside, Read
from tapestry.program import Block, Operation, Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close, inputs_for, programs

Point = Mapping[str, int]
Scalar = Any


def index(expr: Affine, point: Point) -> int:
    total = expr.const
    for atom, c in expr.terms:
        total += c * (index(atom.inner, point) // atom.divisor if isinstance(atom, Floor) else point[atom])
    return total


def holds(bounds: tuple[Any, ...], point: Point) -> bool:
    values = [(index(b.expr, point), b.lo, b.hi) for b in bounds]
    return all((lo is None or lo <= v) and (hi is None or v < hi) for v, lo, hi in values)


FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow, "minimum": min, "maximum": max,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne,
    "logical_and": lambda a, b: a and b, "logical_or": lambda a, b: a or b,
    "logical_not": operator.not_, "where": lambda c, a, b: a if c else b, "negative": operator.neg, "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0), "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "sin": math.sin,
    "cos": math.cos, "tanh": math.tanh, "erf": math.erf, "rsqrt": lambda a: 1 / math.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
}  # fmt: skip
FOLDS: dict[str, Callable[..., Scalar]] = {
    "sum": operator.add, "prod": operator.mul, "max": max, "min": min,
    "any": lambda a, b: a or b, "all": lambda a, b: a and b,
}  # fmt: skip


def int64(value: Scalar) -> Scalar:
    return (value + 2**63) % 2**64 - 2**63 if isinstance(value, int) and not isinstance(value, bool) else value


def scalar(expr: Expr, point: Point, values: Mapping[str, np.ndarray]) -> Scalar:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Read):
        return read(expr, point, values)
    if isinstance(expr, IndexValue):
        return index(expr.index, point)
    if isinstance(expr, Inside):
        return holds(expr.bounds, point)
    if isinstance(expr, Cast):
        return stored(scalar(expr.arg, point, values), expr.dtype)
    assert isinstance(expr, Call)
    return int64(FUNCTIONS[expr.function](*(scalar(arg, point, values) for arg in expr.args)))


def read(expr: Read, point: Point, values: Mapping[str, np.ndarray]) -> Scalar:
    if not holds(expr.guard, point):
        return expr.fill
    at = tuple(index(row, point) for row in expr.index)
    assert all(0 <= i < n for i, n in zip(at, values[expr.tensor].shape, strict=True))
    element = values[expr.tensor][at]
    return element.item() if element.dtype.kind in "bi" else float(element)


def stored(value: Scalar, dtype: str) -> Scalar:
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return bool(value)
    if kind == "int":
        half = 2 ** (8 * DTYPES[dtype].bytes - 1)
        return (int(value) + half) % (2 * half) - half
    return float(np.float64(value).astype(numpy_dtype(dtype)))


def neutral(monoid: str, dtype: str) -> Scalar:
    if monoid in ("max", "min"):
        sign = -1 if monoid == "max" else 1
        if DTYPES[dtype].kind == "float":
            return sign * math.inf
        half = 2 ** (8 * DTYPES[dtype].bytes - 1)
        return -half if sign < 0 else half - 1
    return {"sum": 0, "prod": 1, "any": False, "all": True}[monoid]


def run(op: Operation, shape: tuple[int, ...], dtype: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    out = np.zeros(shape, numpy_dtype(dtype))
    names = [dim.name for dim in op.dims]
    found: dict[tuple[int, ...], Scalar] = {}
    for numbers in itertools.product(*(range(dim.extent) for dim in op.dims)):
        point = dict(zip(names, numbers, strict=True))
        at = tuple(index(row, point) for row in op.write)
        if op.monoid:
            found.setdefault(at, neutral(op.monoid, dtype))
        if holds(op.where, point):
            assert not isinstance(op.body, Block)
            value = scalar(op.body, point, values)
            found[at] = int64(FOLDS[op.monoid](found[at], value)) if op.monoid else value
    for at, value in found.items():
        out[at] = stored(value, dtype)
    return out


def attention(op: Operation, shape: tuple[int, ...], values: Mapping[str, np.ndarray]) -> np.ndarray:
    """State by state: the visible keys' scores, their maximum, and the two sums."""
    assert isinstance(op.body, Block)
    out, width, keys = np.zeros(shape, np.float32), shape[-1] - 2, op.dims[-2]
    names = [dim.name for dim in op.dims[:-2]]
    for numbers in itertools.product(*(range(dim.extent) for dim in op.dims[:-2])):
        point = dict(zip(names, numbers, strict=True))
        scores, rows = [], []
        for s in range(keys.extent):
            here = {**point, keys.name: s}
            if holds(op.where, here):
                q, k, v = (
                    [read(r, {**here, op.dims[-1].name: c}, values) for c in range(width)] for r in op.body.reads
                )
                scores.append(op.body.attrs["scale"] * math.fsum(a * b for a, b in zip(q, k, strict=True)))
                rows.append(v)
        m = max(scores)
        weights = [math.exp(x - m) for x in scores]
        sums = [math.fsum(w * v[c] for w, v in zip(weights, rows, strict=True)) for c in range(width)]
        out[numbers] = [*sums, math.fsum(weights), m]
    return out


def interpret(program: Program, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    values = dict(inputs)
    for tensor in program.of_role("const"):
        values[tensor.name] = np.array(tensor.data, numpy_dtype(tensor.dtype)).reshape(tensor.shape)
    for op in program.operations:
        tensor = program.tensor(op.output)
        if isinstance(op.body, Block):
            values[op.output] = attention(op, tensor.shape, values)
        else:
            values[op.output] = run(op, tensor.shape, tensor.dtype, values)
    return {name: values[name] for name in program.outputs} | {state: values[new] for state, new in program.states}


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_reference_is_the_pointwise_meaning(data: st.DataObject) -> None:
    program = data.draw(programs(max_ops=3))
    # Records of several results are written out value by value in the tests of their monoids.
    assume(all(isinstance(op.body, Block) or op.monoid in (None, *FOLDS) for op in program.operations))
    inputs = data.draw(inputs_for(program))
    assert_close(program, inputs, evaluate(program, inputs), interpret(program, inputs))
