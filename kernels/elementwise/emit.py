"""Scalar expressions as C++ statements.

Values are computed in bool, Int (64 bits, wrapping), float or double, each function in the type of its promoted
arguments, as the language says; its text is that of its entry in `tapestry.expr.functions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dtypes import DTYPES
from ...expr import (
    FUNCTIONS,
    Affine,
    Bound,
    Call,
    Cast,
    Const,
    Expr,
    Function,
    IndexValue,
    Inside,
    Numbering,
    Read,
    children,
    children_first,
)
from .types import ELEMENT_TYPES, element_type

BOOL, INT, SINGLE, DOUBLE = "bool", "Int", "float", "double"
_ORDER = (BOOL, INT, SINGLE, DOUBLE)
_COMPUTE = {"bool": BOOL, "int64": INT, "f32": SINGLE, "f64": DOUBLE}

_REPEATED = {2: "{0} * {0}", 3: "{0} * {0} * {0}", 4: "({0} * {0}) * ({0} * {0})"}


@dataclass(frozen=True)
class Value:
    """A C++ name or literal, its type, whether every element of a vector has it, and the number if it is constant."""

    text: str
    type: str
    uniform: bool = True
    constant: float | int | bool | None = None

    @property
    def weak(self) -> bool:
        return self.constant is not None


ReadText = Callable[[Read], tuple[str, bool]]
IndexText = Callable[[Affine], tuple[str, bool]]
ConditionText = Callable[[tuple[Bound, ...]], tuple[str, bool]]


@dataclass
class Emitter:
    """Statements for the distinct sub-expressions of one or more expressions.

    ``outer`` holds those that are the same for a whole vector (or row), ``inner`` those of one element. ``read``,
    ``index`` and ``condition`` give C++ text and whether it is uniform. ``quick`` allows approximations that a 16-bit
    result does not show; ``relaxed`` turns a division by something uniform into a product with its reciprocal.
    """

    read: ReadText
    index: IndexText
    condition: ConditionText
    dtypes: dict[str, str]
    quick: bool = False
    relaxed: bool = False
    prefix: str = "t"
    outer: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    _known: dict[Any, Value] = field(default_factory=dict)
    _numbering: Numbering = field(default_factory=Numbering)
    _count: int = 0

    def value(self, expr: Expr) -> Value:
        """Where the value of an expression is; equal expressions are computed once."""
        computed: dict[int, None] = {}
        for node in children_first(expr, computed, self._parts):
            computed[id(node)] = None
            key = self._numbering.of(node)
            if key not in self._known:
                self._known[key] = self._compute(node)
        return self._known[self._numbering.of(expr)]

    def _compute(self, expr: Expr) -> Value:
        if isinstance(expr, Const):
            return self._constant(expr.value)
        if isinstance(expr, Read):
            return self._reading(expr)
        if isinstance(expr, IndexValue):
            text, uniform = self.index(expr.index)
            return self.let(f"Int({text})", INT, uniform)
        if isinstance(expr, Inside):
            text, uniform = self.condition(expr.bounds)
            return self.let(text, BOOL, uniform)
        if isinstance(expr, Cast):
            return self.cast(self.value(expr.arg), expr.dtype)
        return self._call(expr)

    def let(self, text: str, kind: str, uniform: bool) -> Value:
        """A new name for a computed value."""
        name = self._name()
        (self.outer if uniform else self.inner).append(f"const {kind} {name} = {text};")
        return Value(name, kind, uniform)

    def _name(self) -> str:
        self._count += 1
        return f"{self.prefix}{self._count - 1}"

    # -- leaves ------------------------------------------------------------------------------------------------------

    def _constant(self, value: float | int | bool) -> Value:
        kind = BOOL if isinstance(value, bool) else INT if isinstance(value, int) else DOUBLE
        return Value(literal(value, kind), kind, True, value)

    def wide(self, dtype: str) -> str:
        """The type that elements of a dtype are computed in."""
        return _COMPUTE[DTYPES[dtype].compute]

    def _reading(self, read: Read) -> Value:
        return self.let(*self._element(read, read.guard))

    def _element(self, read: Read, guard: tuple[Bound, ...]) -> tuple[str, str, bool]:
        """Text of what is read where a guard holds, its type, and whether it is uniform."""
        text, uniform = self.read(read)
        kind = self.wide(self.dtypes[read.tensor])
        if guard:
            inside, also = self.condition(guard)
            text, uniform = f"({inside}) ? {kind}({text}) : {self._fill(read, kind)}", uniform and also
        return text, kind, uniform

    def _fill(self, read: Read, kind: str) -> str:
        return literal(_as(read.fill, kind), kind)

    def read_together(self, found: Sequence[Read], shared: tuple[Bound, ...]) -> None:
        """Reads whose guards have bounds in common, one after another under the one condition, before what uses them.

        A compiler that meets them one by one may wait for some before it asks for others, by what the bounds look like.
        """
        asked = []
        for read in found:
            text, kind, _ = self._element(read, tuple(bound for bound in read.guard if bound not in shared))
            name = self._name()
            self.inner.append(f"{kind} {name} = {self._fill(read, kind)};")
            asked.append(f"    {name} = {text};")
            self._known[self._numbering.of(read)] = Value(name, kind, False)
        self.inner += [f"if ({self.condition(shared)[0]}) {{", *asked, "}"]

    # -- conversions -------------------------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: str) -> Value:
        """Rounded to a dtype, then computed with on."""
        kind = self.wide(element_type(dtype).name)
        if value.type == kind and dtype in ("bool", "int64", "f64", "f32") and not (dtype == "f32" and kind == DOUBLE):
            return Value(value.text, kind, value.uniform) if value.weak else value
        source = self.as_type(value, value.type)
        return self.let(f"{kind}(widen(narrow<{ELEMENT_TYPES[dtype].stored}>({source})))", kind, value.uniform)

    def as_type(self, value: Value, kind: str) -> str:
        """Text of a value in another compute type."""
        if value.constant is not None:
            return literal(_as(value.constant, kind), kind)
        if value.type == kind:
            return value.text
        return f"({value.text} != 0)" if kind == BOOL else f"{kind}({value.text})"

    def _promoted(self, values: list[Value]) -> str:
        """The widest type; constants take the others' unless they are of a higher kind, and then make it a float."""
        strong = [value.type for value in values if not value.weak]
        weak = [value.type for value in values if value.weak]
        found = max(strong or weak, key=_ORDER.index)
        if not strong or found in (SINGLE, DOUBLE):
            return found
        higher = max([found, *weak], key=_ORDER.index)
        return SINGLE if higher == DOUBLE else higher

    # -- functions ---------------------------------------------------------------------------------------------------

    def _call(self, expr: Call) -> Value:
        special = self._one_plus_erf(expr)
        if special is not None:
            return special
        args = [self.value(arg) for arg in expr.args]
        uniform = all(arg.uniform for arg in args)
        entry = FUNCTIONS[expr.function]
        branch = entry.result == "branch"
        kind = self._kind(entry, args[1:] if branch else args)
        if branch:
            texts = [self.as_type(args[0], BOOL), *(self.as_type(arg, kind) for arg in args[1:])]
            return self.let(entry.cuda.format(*texts), kind, uniform)
        if entry.fixed is not None:
            texts = [self.as_type(arg, kind) for arg in args]
            return self.let(entry.cuda.format(*texts), self.wide(entry.fixed), uniform)
        return self._arithmetic(entry, args, kind, uniform)

    def _kind(self, entry: Function, args: list[Value]) -> str:
        """The type in which a function computes, as `tapestry.result_type.compute_type` says."""
        kind = BOOL if entry.truths == "only" else self._promoted(args)
        if entry.result == "float" and kind not in (SINGLE, DOUBLE):
            return DOUBLE if all(arg.weak for arg in args) else SINGLE
        return INT if kind == BOOL and entry.truths != "only" and entry.result in ("same", "bool") else kind

    def _arithmetic(self, entry: Function, args: list[Value], kind: str, uniform: bool) -> Value:
        name = entry.name
        texts = [self.as_type(arg, kind) for arg in args]
        if name == "power" and kind != INT and args[1].constant in _REPEATED:
            return self.let(_REPEATED[int(args[1].constant or 0)].format(texts[0]), kind, uniform)
        if name == "divide" and kind == SINGLE:
            product = self._by_reciprocal(args, texts, uniform)
            if product is not None:
                return product
        body = entry.cuda_quick if self.quick and kind == SINGLE else None
        return self.let((body or entry.cuda).format(*texts), kind, uniform)

    def _by_reciprocal(self, args: list[Value], texts: list[str], uniform: bool) -> Value | None:
        """a / b as a * (1 / b) where b is a power of two (exact), or the same for all elements (relaxed)."""
        divisor = args[1].constant
        if divisor is not None:
            exact = bool(divisor) and math.isfinite(divisor) and abs(math.frexp(divisor)[0]) == 0.5
            if (exact or self.relaxed) and 2.0**-100 < abs(divisor) < 2.0**100:
                return self.let(f"{texts[0]} * {literal(1.0 / divisor, SINGLE)}", SINGLE, uniform)
            return None
        if self.relaxed and args[1].uniform and not uniform:
            inverse = self.let(f"1.0f / {texts[1]}", SINGLE, True)
            return self.let(f"{texts[0]} * {inverse.text}", SINGLE, False)
        return None

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        """What is computed before a node: its direct sub-expressions, but a in place of 1 + erf(a)'s own."""
        inside = self._erf_of(node)
        return children(node) if inside is None else (inside,)

    def _erf_of(self, node: Expr) -> Expr | None:
        """a, of 1 + erf(a), where that may be approximated."""
        if not self.quick or not isinstance(node, Call) or node.function != "add":
            return None
        for one, other in (node.args, node.args[::-1]):
            if isinstance(one, Const) and one.value == 1 and isinstance(other, Call) and other.function == "erf":
                return other.args[0]
        return None

    def _one_plus_erf(self, expr: Call) -> Value | None:
        """1 + erf(a) without cancelling, in one function."""
        inside = self._erf_of(expr)
        value = None if inside is None else self.value(inside)
        if value is None or value.type != SINGLE:
            return None
        return self.let(f"quick_one_plus_error_function({value.text})", SINGLE, value.uniform)


def _as(value: float | int | bool, kind: str) -> float | int | bool:
    """A constant in a compute type."""
    if kind == BOOL:
        return bool(value)
    if kind == INT:
        return int(value)
    return float(value)


def literal(value: float | int | bool, kind: str) -> str:
    """A constant in C++.

    >>> literal(True, "bool"), literal(-3, "Int"), literal(0.1, "float")
    ('true', '(-3ll)', '0x1.99999a0000000p-4f')
    """
    if kind == BOOL:
        return "true" if value else "false"
    if kind == INT:
        wrapped = (int(value) + 2**63) % 2**64 - 2**63
        return "(-0x7fffffffffffffffll - 1)" if wrapped == -(2**63) else _signed(f"{wrapped}ll")
    with np.errstate(over="ignore"):
        number = float(np.float32(value)) if kind == SINGLE else float(value)
    if math.isnan(number):
        return f"{kind}(not_a_number())"
    if math.isinf(number):
        return f"{kind}({'-' * (number < 0)}infinity())"
    return _signed(number.hex() + ("f" if kind == SINGLE else ""))


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text
