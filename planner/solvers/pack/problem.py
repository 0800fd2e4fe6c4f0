"""The packing problem and its answers, as plain values.

A buffer is alive in the half-open interval `[lower, upper)` and holds `size` units (bytes, mostly) at one offset for
all of it. Buffers alive together must not overlap, with one exception: a buffer that `reuses` another (an output
computed in the place of its dying input) may start at that buffer's very offset.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ....errors import UsageError

Status: TypeAlias = Literal["packed", "infeasible", "unknown"]
Reason: TypeAlias = Literal["live", "pins", "search"]


_LARGEST = 2**62  # sums of sizes and ends of lifetimes stay below, so that 64-bit arithmetic is exact


class PackError(UsageError):
    """A packing problem that means nothing: what is wrong, with which buffer, and both sides of it."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` units, alive in `[lower, upper)`, at a multiple of `alignment`.

    `offset` pins the buffer to a place. `reuses` names the dying input whose place this buffer may take: it starts no
    earlier, outlives it, is no larger, and then either begins at exactly the input's offset or overlaps it nowhere.
    """

    name: str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    offset: int | None = None
    reuses: str | None = None

    def __post_init__(self) -> None:
        where = f"buffer {self.name!r}"
        if self.lower >= self.upper:
            raise PackError("its lifetime is empty", where=where, sides={"lower": self.lower, "upper": self.upper})
        if self.size < 0 or self.alignment < 1:
            sides = {"size": self.size, "alignment": self.alignment}
            raise PackError("a size is at least 0 and an alignment at least 1", where=where, sides=sides)
        if self.offset is not None and (self.offset < 0 or self.offset % self.alignment):
            sides = {"offset": self.offset, "alignment": self.alignment}
            raise PackError("it is pinned to no non-negative multiple of its alignment", where=where, sides=sides)

    def meets(self, other: "Buffer") -> bool:
        """Whether the two are alive together at some instant."""
        return self.lower < other.upper and other.lower < self.upper


@dataclass(frozen=True, slots=True)
class Witness:
    """Why nothing fits: `buffers` need `needed` units of `capacity`.

    reason `live`: all alive at `instant`. `pins`: a pinned buffer beyond the capacity, or two pinned onto each other.
    `search`: every canonical arrangement was tried; `buffers` are those of the independent part that has none.
    """

    reason: Reason
    buffers: tuple[str, ...]
    needed: int
    capacity: int
    instant: int | None = None

    def __str__(self) -> str:
        some = ", ".join(self.buffers[:8]) + (f", … ({len(self.buffers)} in all)" if len(self.buffers) > 8 else "")
        match self.reason:
            case "live":
                return f"{self.needed} units alive at {self.instant}, capacity {self.capacity}: {some}"
            case "pins":
                return f"pinned offsets cannot hold within capacity {self.capacity} (need {self.needed}): {some}"
            case "search":
                return f"no arrangement within capacity {self.capacity} exists (exhaustive search): {some}"


@dataclass(frozen=True, slots=True)
class Packing:
    """An answer. `offsets` is complete when `status` is `packed` and empty otherwise.

    `peak` is the end of the highest buffer (0 without offsets). `lower_bound` is proved: no packing has a lower peak.
    """

    status: Status
    offsets: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    lower_bound: int = 0
    witness: Witness | None = None

    @property
    def optimal(self) -> bool:
        """Whether the peak is proved to be the least possible."""
        return self.status == "packed" and self.peak == self.lower_bound


def validated(buffers: Iterable[Buffer], capacity: int | None = None) -> list[Buffer]:
    """The buffers as a list, once names are unique, reuses are legal and every sum fits 64 bits."""
    if capacity is not None and capacity < 0:
        raise PackError(f"the capacity {capacity} is negative")
    listed = list(buffers)
    by_name: dict[str, Buffer] = {}
    for b in listed:
        if b.name in by_name:
            raise PackError("two buffers have this name", where=f"buffer {b.name!r}")
        by_name[b.name] = b
    for b in listed:
        if b.reuses is not None:
            _check_reuse(b, by_name.get(b.reuses))
    reach = sum(b.size + b.alignment for b in listed) + max((b.offset or 0 for b in listed), default=0)
    if reach >= _LARGEST or any(max(-b.lower, b.upper) >= _LARGEST for b in listed):
        raise PackError("numbers too large for exact 64-bit arithmetic", sides={"reach": reach, "below": _LARGEST})
    return listed


def _check_reuse(output: Buffer, source: Buffer | None) -> None:
    where = f"buffer {output.name!r} reuses {output.reuses!r}"
    if source is None or source is output:
        raise PackError("the input is the buffer itself" if source else "no buffer has that name", where=where)
    if output.size > source.size:
        raise PackError("the output is too large", where=where, sides={"output": output.size, "input": source.size})
    if not (source.lower <= output.lower and source.upper <= output.upper):
        raise PackError(
            "the output does not follow on the input",
            where=where,
            sides={"output": f"[{output.lower}, {output.upper})", "input": f"[{source.lower}, {source.upper})"},
            hint="the input begins no later and dies no later than the output",
        )


def peak_of(buffers: Sequence[Buffer], offsets: dict[str, int]) -> int:
    """End of the highest buffer; 0 for none."""
    return max((offsets[b.name] + b.size for b in buffers), default=0)
