"""What names look like: tensors and operations may have dots ("layers.0.wq"), dimensions and axes are identifiers."""

from __future__ import annotations

import re

from .errors import UsageError

_WORDS = {"True", "False", "inf", "nan"}  # numbers, to a reader of expressions
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)


def is_name(text: object) -> bool:
    """Whether a string can name a tensor or an operation: letters, digits and underscores, parts joined by dots.

    >>> is_name("layers.0.wq"), is_name("0.wq"), is_name("a b")
    (True, False, False)
    """
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and text not in _WORDS


def check_name(text: str, what: str) -> str:
    """The name itself. UsageError when it is not one; ``what`` says what it should name."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} cannot be {what}",
            hint='use letters, digits and underscores, parts joined by dots: "layers.0.wq"',
        )
    return text
