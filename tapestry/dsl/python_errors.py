"""What Python itself refuses in a line of the user's while a program is traced: said with the line and the expression.

``x.shape()`` and ``tp.mean[k](x)`` reach no code of ours. An error that the user's code raises stays as it is.
"""

from __future__ import annotations

import dis
import linecache
from types import CodeType, TracebackType

from ..errors import UsageError
from .caller import is_users, place

_RAISING = {dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]}
_HINTS = {
    "is not subscriptable": "tp.sum, prod, max, min, any, all, argmax and argmin fold over indices; tp.mean takes axes",
    "is not callable": "shape, dtype, axes, ndim and T are written without parentheses",
}


def refused_by_python(error: TypeError | AttributeError) -> UsageError | None:
    """The error as one of ours, if Python raised it in a line of the user's; else None."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or not is_users(step.tb_frame) or type(error) not in (TypeError, AttributeError):
        return None
    if step.tb_frame.f_code.co_code[step.tb_lasti] in _RAISING:
        return None
    shown = _expression(step.tb_frame.f_code, step)
    hint = next((hint for text, hint in _HINTS.items() if str(error).endswith(text)), None)
    return UsageError(f"{shown}: {error}" if shown else str(error), where=place(step.tb_frame), hint=hint)


def _expression(code: CodeType, step: TracebackType) -> str:
    """The expression that was being evaluated, if it stands in one line that can be read."""
    line, last, start, end = list(code.co_positions())[step.tb_lasti // 2]
    if line is None or line != last or start is None or end is None:
        return ""
    return linecache.getline(code.co_filename, line).encode()[start:end].decode(errors="replace")
