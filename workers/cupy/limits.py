"""Where a loop over a dimension begins and ends, as conditions say it: a band of a square costs its width a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...expr import Affine, Bound


@dataclass(frozen=True)
class Limits:
    """The values of a dimension at which conditions may hold: ``lows`` <= value < ``highs``, C++, and in 0:extent."""

    name: str
    extent: int
    lows: tuple[str, ...]
    highs: tuple[str, ...]

    @property
    def told(self) -> bool:
        """Conditions say more than the extent."""
        return bool(self.lows or self.highs)

    @property
    def first(self) -> str:
        return f"first_{self.name}" if self.lows else "0"

    @property
    def end(self) -> str:
        return f"end_{self.name}" if self.highs else str(self.extent)

    def declared(self, kind: str) -> list[str]:
        """Statements that say what `first` and `end` are."""
        lines = [f"{kind} {self.first} = 0;"] if self.lows else []
        for low in self.lows:
            lines.append(f"if ({self.first} < {low}) {self.first} = {low};")
        lines += [f"{kind} {self.end} = {self.extent};"] if self.highs else []
        for high in self.highs:
            lines.append(f"if ({high} < {self.end}) {self.end} = {high};")
        return lines


def limits(
    where: Sequence[Bound], name: str, extent: int, inner: Collection[str], written: Callable[[Affine], str]
) -> Limits:
    """What conditions say of a dimension, all but the ``inner`` ones known; ``written`` gives an index in C++."""
    lows: list[Affine] = []
    highs: list[Affine] = []
    for bound in where:
        sign = bound.expr.coefficient(name)
        rest = bound.expr - Affine.dim(name) * sign
        if abs(sign) != 1 or name in rest.dims or rest.dims & set(inner):
            continue
        if sign > 0:
            lows += [] if bound.lo is None else [bound.lo - rest]
            highs += [] if bound.hi is None else [bound.hi - rest]
        else:
            lows += [] if bound.hi is None else [rest - bound.hi + 1]
            highs += [] if bound.lo is None else [rest - bound.lo + 1]
    return Limits(name, extent, tuple(map(written, lows)), tuple(map(written, highs)))
