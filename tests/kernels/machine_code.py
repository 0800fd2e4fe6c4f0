"""What the assembler made of a kernel, read from the image: enough of the 128-bit instructions to follow its loads.

An instruction waits for the scoreboards in its wait mask (bits 116 to 121) and, where it answers later, names the one
it will release (bits 110 to 112; 7 is none). Opcode and predicate are bits 0 to 15. The encoding is not documented; it
is that of sm_90 as `nvdisasm -hex` prints it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

Fact = tuple[int, bool]  # a predicate and its value

BYTES = 16
LOAD_MATRICES, LOAD_SHARED, PRODUCT, BARRIER, BRANCH, EXIT = 0x83B, 0x984, 0x23C, 0x9A7, 0x947, 0x94D
LOADS = (LOAD_MATRICES, LOAD_SHARED)
MOVES = (0x202, 0x224)  # of a register to another, by either unit
ALWAYS, NO_SCOREBOARD = 7, 7
QUIET = {*LOADS, PRODUCT, BRANCH, EXIT, 0x918}  # that leave the predicates alone; 0x918 does nothing
SETS_ALL = 0x804  # predicates from a register
ARRIVAL = 0x0810  # of a barrier: one arrival, no bytes


@dataclass(frozen=True)
class Instruction:
    """One instruction at a byte address."""

    address: int
    low: int
    high: int

    @property
    def opcode(self) -> int:
        return self.low & 0xFFF

    @property
    def predicate(self) -> Fact | None:
        """What must hold for it to happen: a predicate's number and value. None where it always does."""
        number = self.low >> 12 & 7
        return None if number == ALWAYS else (number, not self.low >> 15 & 1)

    @property
    def clear(self) -> bool:
        """Whether nothing but `predicate` decides whether it happens: branches have a second one."""
        return self.opcode != BRANCH or self.high >> 23 & 0xF == ALWAYS

    @property
    def sets(self) -> frozenset[int]:
        """The predicates that it may set: more rather than less."""
        if self.opcode in QUIET or self.arrives:
            return frozenset()
        return frozenset(range(7)) if self.opcode == SETS_ALL else frozenset({self.high >> 17 & 7, self.high >> 20 & 7})

    @property
    def waits(self) -> frozenset[int]:
        """The scoreboards that it waits for."""
        return frozenset(board for board in range(6) if self.high >> 52 + board & 1)

    @property
    def releases(self) -> int | None:
        """The scoreboard that tells of its result."""
        board = self.high >> 46 & 7
        return None if board == NO_SCOREBOARD else board

    @property
    def arrives(self) -> bool:
        """Whether it gives a stage back: an arrival at a barrier in shared memory, without bytes."""
        return self.opcode == BARRIER and self.high >> 16 & 0xFFFF == ARRIVAL

    @property
    def target(self) -> int:
        """Where a branch goes."""
        offset = (self.low >> 16 & 0xFF) << 2 | (self.low >> 34 | (self.high & 0x3FFFF) << 30) << 10
        return self.address + BYTES + offset - (1 << 58 if offset >> 57 else 0)


def instructions(image: bytes, entry: str) -> list[Instruction]:
    """The machine code of a kernel of a cubin."""
    body = dict(_sections(image))[f".text.{entry}"]
    return [Instruction(at, *struct.unpack_from("<QQ", body, at)) for at in range(0, len(body), BYTES)]


def _sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + index * size) for index in range(count)]
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        yield image[start : image.index(b"\0", start)].decode("ascii"), image[offset : offset + length]


def arrivals_before_their_loads(code: list[Instruction]) -> list[int]:
    """Addresses of arrivals that some path reaches while what was loaded last is still on its way.

    Shared memory answers a warp in order: where the last load is answered, all are. On every path the scoreboard of the
    last load, of matrices or words, is followed until an instruction waits for it, and with it what its predicate and
    those of branches have shown, so that a load under a condition is not followed where the condition fails.
    """
    place = {instruction.address: index for index, instruction in enumerate(code)}
    seen: set[tuple[int, State]] = set()
    queue: list[tuple[int, State]] = [(0, State())]
    early = set()
    while queue:
        index, state = queue.pop()
        if (index, state) in seen:
            continue
        seen.add((index, state))
        at = code[index]
        state = state.waited(at.waits)
        if at.arrives and state.board is not None:
            early.add(at.address)
        queue += [(place[address], after) for address, after in _followers(at, state) if address in place]
    return sorted(early)


@dataclass(frozen=True)
class State:
    """At a point of a path: the scoreboard of an unanswered load, and predicates that are known."""

    board: int | None = None
    known: frozenset[Fact] = frozenset()

    def waited(self, boards: frozenset[int]) -> State:
        return replace(self, board=None) if self.board in boards else self

    def forgets(self, predicates: frozenset[int]) -> State:
        return replace(self, known=frozenset(fact for fact in self.known if fact[0] not in predicates))

    def where(self, number: int, value: bool) -> Iterator[State]:
        """The state with one more fact; none where the contrary is known."""
        if (number, not value) not in self.known:
            yield replace(self, known=self.known | {(number, value)})


def _followers(at: Instruction, state: State) -> Iterator[tuple[int, State]]:
    """The instructions that may come next, by address, and what is known there."""
    following = at.address + BYTES
    if at.opcode not in (BRANCH, EXIT, *LOADS):
        yield following, state.forgets(at.sets)
        return
    happens = [state] if at.predicate is None else list(state.where(*at.predicate))
    for after in happens:
        if at.opcode == BRANCH:
            yield at.target, after
        elif at.opcode in LOADS:
            yield following, replace(after, board=at.releases)
    if at.predicate is not None:
        yield from ((following, after) for after in state.where(at.predicate[0], not at.predicate[1]))
    if not at.clear:
        yield following, state
