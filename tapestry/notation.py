"""Expressions as readable algebra, ``x[n, c, 2*p + r] * w[k, c, r]``; `tapestry.parse` reads it back.

guarded read     (x[p - 1] if 0 <= p - 1 and p - 1 < 8 else 0.0)
condition        [s - t < 1]                  an index as a number    index(p)
conversion       f32(e)                       functions               exp(e), where(c, a, b)
operators, loosest first: comparisons;  |  ^  &  << >>  + -  * / // %  - ~ (unary)  **
"""

from __future__ import annotations

from collections.abc import Sequence

from .expr import FUNCTIONS, Bound, Call, Cast, Const, Expr, IndexValue, Read
from .expr.scalar import listed, spelled
from .program import Block, Operation

COMPARE, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, POWER, ATOM = range(1, 11)

_LEVELS = {
    COMPARE: "< <= > >= == !=", OR: "|", XOR: "^", AND: "&", SHIFT: "<< >>", SUM: "+ -", PRODUCT: "* / // %",
    POWER: "**",
}  # fmt: skip
BINARY: dict[str, int] = {symbol: level for level, symbols in _LEVELS.items() for symbol in symbols.split()}


def format_expr(expr: Expr, level: int = 0) -> str:
    """The expression as text, in parentheses where it binds more loosely than ``level``.

    >>> from tapestry.expr import Affine
    >>> x = Read("x", (Affine.dim("n"),))
    >>> format_expr(Call("multiply", (Call("add", (x, Const(1))), x)))
    '(x[n] + 1) * x[n]'
    """
    text = spelled(expr, _pieces)
    return f"({text})" if _binds(expr) < level else text


def _pieces(expr: Expr) -> Sequence[str | Expr]:
    if isinstance(expr, Call):
        return _call(expr)
    if isinstance(expr, Cast):
        return [f"{expr.dtype}(", expr.arg, ")"]
    if isinstance(expr, Read):
        return [format_read(expr)]
    if isinstance(expr, Const):
        return [format_number(expr.value)]
    return [f"index({expr.index})" if isinstance(expr, IndexValue) else f"[{format_bounds(expr.bounds)}]"]


def _call(call: Call) -> Sequence[str | Expr]:
    symbol, own = _symbol(call), _binds(call)
    if not symbol:
        return [f"{call.function}(", *listed(call.args), ")"]
    if len(call.args) == 1:
        return [symbol, *_within(call.args[0], UNARY)]
    left, right = own + 1 if own in (COMPARE, POWER) else own, own if own == POWER else own + 1
    return [*_within(call.args[0], left), f" {symbol} ", *_within(call.args[1], right)]


def _within(expr: Expr, level: int) -> Sequence[str | Expr]:
    return ["(", expr, ")"] if _binds(expr) < level else [expr]


def _symbol(call: Call) -> str:
    """The operator that a call is written with, if any: a sign before a number would be the number's own."""
    symbol = FUNCTIONS[call.function].symbol if call.function in FUNCTIONS else ""
    return "" if len(call.args) == 1 and isinstance(call.args[0], Const) else symbol


def _binds(expr: Expr) -> int:
    """How tightly an expression holds together."""
    if isinstance(expr, Const):
        return 0 if format_number(expr.value).startswith("-") else ATOM
    symbol = _symbol(expr) if isinstance(expr, Call) else ""
    if not isinstance(expr, Call) or not symbol:
        return ATOM
    return UNARY if len(expr.args) == 1 else BINARY[symbol]


def format_read(read: Read) -> str:
    """A read; guarded ones say where they hold and what stands elsewhere."""
    text = f"{read.tensor}[{', '.join(map(str, read.index))}]"
    return f"({text} if {format_bounds(read.guard)} else {format_number(read.fill)})" if read.guard else text


def format_bounds(bounds: Sequence[Bound]) -> str:
    """Conditions joined by ``and``."""
    return " and ".join(map(str, bounds))


def format_number(value: float | int | bool) -> str:
    """Python's own text: True, 3, 0.5, inf, -inf, nan."""
    return repr(value)


def format_operation(op: Operation) -> str:
    """The operation as one line of algebra: ``y[n, k] = sum[c] x[n, c] * w[c, k]  where s - t < 1``."""
    if isinstance(op.body, Block):
        attributes = "".join(f", {name}={value!r}" for name, value in op.body.attributes)
        body = f"{op.body.kernel}({', '.join(map(format_read, op.body.reads))}{attributes})"
    else:
        body = format_expr(op.body)
    fold = f"{op.monoid}[{', '.join(op.reduce_dims)}] " if op.monoid else ""
    where = f"  where {format_bounds(op.where)}" if op.where else ""
    return f"{op.output}[{', '.join(map(str, op.write))}] = {fold}{body}{where}"
