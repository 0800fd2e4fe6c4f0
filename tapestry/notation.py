"""Expressions as readable algebra, ``x[n, c, 2*p + r] * w[k, c, r]``; `tapestry.parse` reads it back.

guarded read     (x[p - 1] if 0 <= p - 1 and p - 1 < 8 else 0.0)
condition        [s - t < 1]                  an index as a number    index(p)
conversion       f32(e)                       functions               exp(e), where(c, a, b)
operators, loosest first: comparisons;  |  &  + -  * / // %  - ~ (unary)  **
"""

from __future__ import annotations

from collections.abc import Sequence

from .expr import FUNCTIONS, Bound, Call, Cast, Const, Expr, IndexValue, Read
from .program import Block, Operation

COMPARE, OR, AND, SUM, PRODUCT, UNARY, POWER, ATOM = range(1, 9)

_LEVELS = {COMPARE: "< <= > >= == !=", OR: "|", AND: "&", SUM: "+ -", PRODUCT: "* / // %", POWER: "**"}
BINARY: dict[str, int] = {symbol: level for level, symbols in _LEVELS.items() for symbol in symbols.split()}


def format_expr(expr: Expr, level: int = 0) -> str:
    """The expression as text, in parentheses where it binds more loosely than ``level``.

    >>> from tapestry.expr import Affine
    >>> x = Read("x", (Affine.dim("n"),))
    >>> format_expr(Call("multiply", (Call("add", (x, Const(1))), x)))
    '(x[n] + 1) * x[n]'
    """
    if isinstance(expr, Call):
        return _call(expr, level)
    if isinstance(expr, Read):
        return format_read(expr)
    if isinstance(expr, Const):
        text = format_number(expr.value)
        return f"({text})" if level and text.startswith("-") else text
    if isinstance(expr, Cast):
        return f"{expr.dtype}({format_expr(expr.arg)})"
    return f"index({expr.index})" if isinstance(expr, IndexValue) else f"[{format_bounds(expr.bounds)}]"


def _call(call: Call, level: int) -> str:
    symbol = FUNCTIONS[call.function].symbol if call.function in FUNCTIONS else ""
    if not symbol or (len(call.args) == 1 and isinstance(call.args[0], Const)):
        return f"{call.function}({', '.join(map(format_expr, call.args))})"
    if len(call.args) == 1:
        text, own = symbol + format_expr(call.args[0], UNARY), UNARY
    else:
        own = BINARY[symbol]
        left = own + 1 if own in (COMPARE, POWER) else own
        text = (
            f"{format_expr(call.args[0], left)} {symbol} {format_expr(call.args[1], own if own == POWER else own + 1)}"
        )
    return f"({text})" if own < level else text


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
