"""Launches whose operands may lie elsewhere each time: prepared once, told new addresses as they run.

Where the addresses stand among the arguments is found by preparing the launches twice, the second time with every
operand moved by a distance of its own, and comparing. That holds for pointers and for tensor maps alike, whatever else
the arguments are; launches for which it does not (a word that differs in another way, an operand that is nowhere) are
prepared anew for every new set of addresses.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from .module import Prepared

Addresses = tuple[int, ...]
Make = Callable[[Addresses], "Sequence[Prepared]"]
APART = 1 << 40  # bytes: farther than two operands on one GPU lie from each other
KEPT = 1024  # sets of addresses that launches are kept for


class Launches(Protocol):
    """Launches of one kind of call."""

    def run(self, addresses: Addresses, stream: int) -> None:
        """Queue them on a stream, their operands at these addresses."""


class Place(NamedTuple):
    """A word of the arguments of the launch `number` that holds the address of an operand, plus `offset`."""

    number: int
    words: memoryview
    word: int
    operand: int
    offset: int


class Moving:
    """Launches whose addresses are written into their arguments. Safe to run from several threads."""

    __slots__ = ("_at", "_launches", "_places", "_turn")

    def __init__(self, launches: Sequence[Prepared], places: Sequence[Place], addresses: Addresses) -> None:
        """`launches` are prepared for `addresses`."""
        self._launches, self._places, self._at = tuple(launches), tuple(places), addresses
        self._turn = threading.Lock()

    def run(self, addresses: Addresses, stream: int) -> None:
        """Queue them on a stream; the driver copies the arguments before it returns."""
        with self._turn:
            if addresses != self._at:
                self._at = ()  # an exception in between leaves them to be written again
                for _, words, word, operand, offset in self._places:
                    words[word] = addresses[operand] + offset
                self._at = addresses
            for launch in self._launches:
                launch.launch(stream)

    def described(self) -> bytes:
        """The launches in words, as `described` packs them."""
        return described(self._launches, self._places)


class Anew:
    """Launches that are prepared for each set of addresses, at the cost of the oldest where there are many."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._known: dict[Addresses, Sequence[Prepared]] = {}

    def run(self, addresses: Addresses, stream: int) -> None:
        """Queue them on a stream."""
        found = self._known.get(addresses)
        if found is None:
            found = self._make(addresses)
            if len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)), None)
            self._known[addresses] = found
        for launch in found:
            launch.launch(stream)


def launches(make: Make, addresses: Addresses) -> Launches:
    """Launches that `make` prepares; those of all later calls are aligned as `addresses` are. Raises as it does."""
    here = make(addresses)
    moved = tuple(address + (number + 1) * APART for number, address in enumerate(addresses))
    places = _places(here, make(moved), addresses)
    return Anew(make) if places is None else Moving(here, places, addresses)


def described(launches: Sequence[Prepared], places: Sequence[Place] = ()) -> bytes:
    """Launches in 64-bit words, as `native/launch.h` reads them."""
    known = [launch.described() for launch in launches]
    found = [known[0].context, len(known)]
    for number, launch in enumerate(known):
        moved = [word for place in places if place.number == number for word in place[2:]]
        attributes = struct.unpack(f"<{len(launch.attributes) // 8}Q", launch.attributes)
        found += [launch.function, *launch.numbers]
        for words in (attributes, launch.words, launch.offsets, moved):
            found += [len(words), *words]
    return struct.pack(f"<{len(found)}Q", *(word % (1 << 64) for word in found))


def _places(here: Sequence[Prepared], there: Sequence[Prepared], addresses: Addresses) -> list[Place] | None:
    """Where addresses stand, by what became of them; None where something else changed, or an operand is nowhere."""
    found: list[Place] = []
    for launch, (one, other) in enumerate(zip(here, there, strict=True)):
        for word, before, after in _changed(one.words, other.words):
            number, rest = divmod(after - before, APART)
            if rest or not 1 <= number <= len(addresses):
                return None
            found.append(Place(launch, one.words, word, number - 1, before - addresses[number - 1]))
    if {place.operand for place in found} != set(range(len(addresses))):
        return None
    return found


def _changed(one: memoryview, other: memoryview) -> Iterator[tuple[int, int, int]]:
    for word, (before, after) in enumerate(zip(one, other, strict=True)):
        if before != after:
            yield word, before, after
