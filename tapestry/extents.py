"""How long an axis or a dimension may be. Indices and positions are 64-bit integers, and so is the end behind them."""

from __future__ import annotations

from typing import TypeGuard

END = 2**63 - 1
WANTED = "an integer from 0 to 2**63 - 2"


def is_extent(value: object) -> TypeGuard[int]:
    """Whether a value is the number of points of a dimension.

    >>> is_extent(0), is_extent(2**63 - 2), is_extent(2**63 - 1), is_extent(-1), is_extent(True), is_extent(3.0)
    (True, True, False, False, False, False)
    """
    return type(value) is int and 0 <= value < END
