"""An independent check of a packing. It shares no code with the packer, only the meaning of a buffer.

The verdicts are those of `Fault`; an empty list means that the packing is valid. Every buffer is compared with all that
are alive when it begins, which covers every two alive together once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .problem import Buffer


class Fault(Enum):
    """What can be wrong with a packing."""

    MISSING = "has no offset"
    UNKNOWN = "is not a buffer of the problem"
    NEGATIVE = "lies below offset 0"
    CAPACITY = "ends above the capacity"
    ALIGNMENT = "is not at a multiple of its alignment"
    PIN = "is not where it is pinned"
    OVERLAP = "overlaps another buffer alive with it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: of which buffer, the other one of an overlap, at which instant of it, and the two sides in words."""

    fault: Fault
    buffer: str
    detail: str
    other: str | None = None
    instant: int | None = None

    def __str__(self) -> str:
        return f"buffer {self.buffer!r} {self.fault.value}: {self.detail}"


def check_packing(buffers: Sequence[Buffer], offsets: Mapping[str, int], capacity: int) -> list[Finding]:
    """Everything wrong with the offsets, single buffers first, then overlaps by time; empty for a valid packing.

    >>> two = [Buffer("a", 0, 2, 8), Buffer("b", 1, 3, 8)]
    >>> check_packing(two, {"a": 0, "b": 8}, capacity=16)
    []
    >>> print(*check_packing(two, {"a": 0, "b": 4}, capacity=16))
    buffer 'b' overlaps another buffer alive with it: at 1, 'b' holds [4, 12) and 'a' holds [0, 8)
    """
    names = {b.name for b in buffers}
    findings = [Finding(Fault.UNKNOWN, name, f"offset {at}") for name, at in offsets.items() if name not in names]
    for b in buffers:
        findings += _alone(b, offsets.get(b.name), capacity)
    return findings + _overlaps([b for b in buffers if b.name in offsets], offsets)


def _alone(b: Buffer, offset: int | None, capacity: int) -> list[Finding]:
    if offset is None:
        return [Finding(Fault.MISSING, b.name, "every buffer needs one")]
    findings = []
    if offset < 0:
        findings.append(Finding(Fault.NEGATIVE, b.name, f"offset {offset}"))
    if offset + b.size > capacity:
        findings.append(Finding(Fault.CAPACITY, b.name, f"{offset} + {b.size} > {capacity}"))
    if offset % b.alignment != 0:
        findings.append(Finding(Fault.ALIGNMENT, b.name, f"offset {offset}, alignment {b.alignment}"))
    if b.offset is not None and offset != b.offset:
        findings.append(Finding(Fault.PIN, b.name, f"offset {offset}, pinned at {b.offset}"))
    return findings


def _overlaps(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> list[Finding]:
    findings = []
    alive: list[Buffer] = []
    for b in sorted((b for b in buffers if b.size > 0), key=lambda b: (b.lower, b.name)):
        alive = [other for other in alive if other.upper > b.lower]
        low, high = offsets[b.name], offsets[b.name] + b.size
        for other in alive:
            begin = offsets[other.name]
            if begin < high and low < begin + other.size and not _in_place(b, other, offsets):
                findings.append(_overlap(b, other, offsets))
        alive.append(b)
    return findings


def _in_place(a: Buffer, b: Buffer, offsets: Mapping[str, int]) -> bool:
    """Whether one is a declared output in the place of the other: same offset, no larger, not dying first."""
    for output, source in ((a, b), (b, a)):
        if output.reuses == source.name and offsets[a.name] == offsets[b.name]:
            return output.size <= source.size and source.lower <= output.lower and source.upper <= output.upper
    return False


def _overlap(b: Buffer, other: Buffer, offsets: Mapping[str, int]) -> Finding:
    mine, its = offsets[b.name], offsets[other.name]
    instant = max(b.lower, other.lower)
    detail = (
        f"at {instant}, {b.name!r} holds [{mine}, {mine + b.size}) and {other.name!r} holds [{its}, {its + other.size})"
    )
    return Finding(Fault.OVERLAP, b.name, detail, other.name, instant)
