"""Divisors known at launch, as the kernels divide by them: `tapestry::Divisor` of divisor.cuh."""

from __future__ import annotations

import struct

BYTES = 12


def divisor(value: int) -> tuple[int, int, int]:
    """(value, factor, shift): n // value == (n * factor // 2**32 + n) >> shift for 0 <= n < 2**31.

    Granlund and Montgomery, Division by Invariant Integers using Multiplication (1994), figure 4.1.

    >>> factor, shift = divisor(7)[1:]
    >>> [((n * factor >> 32) + n) >> shift for n in (0, 6, 7, 2**31 - 1)] == [0, 0, 1, (2**31 - 1) // 7]
    True
    """
    if not 1 <= value < 2**31:
        raise ValueError(f"a divisor is an integer from 1 to 2**31 - 1, not {value}")
    shift = (value - 1).bit_length()
    return value, (((1 << shift) - value) << 32) // value + 1, shift


def packed(value: int) -> bytes:
    """The structure in memory, `BYTES` long."""
    return struct.pack("<iII", *divisor(value))
