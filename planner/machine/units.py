"""Bytes and seconds as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

from ...errors import UsageError

_UNITS = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}
_BY_FOLDED_NAME = {unit.lower(): size for unit, size in _UNITS.items()}
_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})\s*([A-Za-z]*)")


def parse_bytes(text: str | int) -> int:
    """Bytes from "3.5GiB", "80 GB", "4096" or an int. kB, MB, GB, TB are decimal; KiB, MiB, GiB, TiB binary.

    Exact: a text that is not a whole number of bytes is an error, as is a negative one.

    >>> parse_bytes("3.5GiB"), parse_bytes("80GB"), parse_bytes("0")
    (3758096384, 80000000000, 0)
    """
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise UsageError(f"a size in bytes is text such as '3.5GiB' or an int, not {text!r}")
    if isinstance(text, int):
        return _whole(Fraction(text), text)
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size in bytes", hint="a number and a unit: 4096, 512MiB, 3.5GiB, 80GB")
    number, unit = match.groups()
    scale = _BY_FOLDED_NAME.get(unit.lower() or "b")
    if scale is None:
        raise UsageError(f"{text!r} has the unknown unit {unit!r}", hint="units: " + ", ".join(_UNITS))
    return _whole(Fraction(number) * scale, text)


def parse_budgets(text: str) -> int | dict[str, int]:
    """Budgets of memory: "8GiB" of the tier that compute uses, "hbm=3.5GiB,host=0" of the tiers named.

    >>> parse_budgets("8GiB"), parse_budgets("hbm=3.5GiB, host=0")
    (8589934592, {'hbm': 3758096384, 'host': 0})
    """
    if "=" not in text:
        return parse_bytes(text)
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    tiers = [tier.strip() for tier, _ in pairs]
    if len(set(tiers)) < len(tiers) or not all(tiers):
        raise UsageError(f"{text!r} does not name each tier once", hint="write 8GiB or hbm=3.5GiB,host=64GiB")
    return {tier: _budget(tier, size) for tier, (_, size) in zip(tiers, pairs, strict=True)}


def _budget(tier: str, size: str) -> int:
    try:
        return parse_bytes(size)
    except UsageError as error:
        raise UsageError(error.what, where=tier, sides=error.sides, hint=error.hint) from error


def _whole(size: Fraction, text: str | int) -> int:
    if size < 0:
        raise UsageError(f"{text!r} is negative; a size in bytes is not")
    if size.denominator != 1:
        raise UsageError(f"{text!r} is not a whole number of bytes", sides={"it is": f"{float(size)} B"})
    return int(size)


def format_bytes(size: int) -> str:
    """A byte count for reading, in binary units with at most four significant digits.

    >>> format_bytes(3758096384), format_bytes(12), format_bytes(1536)
    ('3.5 GiB', '12 B', '1.5 KiB')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(size) >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.4g} {unit}"
    return f"{size} B"


def format_seconds(seconds: float) -> str:
    """Seconds for reading, to three digits.

    >>> format_seconds(0.00215), format_seconds(0), format_seconds(1.5e-6), format_seconds(12)
    ('2.15 ms', '0 s', '1.5 µs', '12 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"
