"""How a row program runs: threads a row, elements a thread, rows a block, and whether the row stays in registers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from ...expr import reads
from ..elementwise.plan import ACCESS, IN_FLIGHT, Load, access_width, classify
from ..errors import WrongValue
from .program import COLUMN, ROW, RowProgram

HELD_WORDS = 64  # registers of a thread that may hold the row as it lies in memory
HELD_BYTES = 128 << 10  # of a row: half the registers of a multiprocessor
KEPT = 16  # elements of a thread whose intermediate values may be kept from stage to stage
LATE_WORDS = 24  # above this, what is the same for every row is fetched where it is used
BLOCK = 128  # threads of a block whose rows are shorter than that
MOST_THREADS = 1024  # of a block
REREAD_THREADS = 1024  # of a row that does not stay in registers
CACHED_BYTES = 40e6  # of rows that are worked on at a time, 264 blocks, so that the second cache holds them


@dataclass(frozen=True)
class RowPlan:
    """``lanes`` threads hold a row in ``chunks`` vectors each; ``rows`` rows a thread, all loads first.

    ``held``: the row is read once and stays in registers; otherwise every stage reads it again. ``late``: weights are
    fetched where they are used.
    """

    program: RowProgram
    vector: int
    lanes: int
    chunks: int
    rows: int
    held: bool
    late: bool
    loads: tuple[Load, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes if self.lanes > 32 else BLOCK

    @property
    def rows_a_block(self) -> int:
        return self.threads // self.lanes * self.rows

    @property
    def blocks(self) -> int:
        return -(-self.program.rows // self.rows_a_block)

    @property
    def forgetful(self) -> bool:
        """Whether stages compute from the row's words anew, so that no thread keeps many intermediate values."""
        return self.held and self.vector * self.chunks * self.rows > KEPT

    @property
    def alone(self) -> bool:
        """Whether a multiprocessor takes one block only: rows that are read again stay in the second cache then."""
        streamed = (load.layout.type.bytes for load in self.loads if ROW in load.offset.dims)
        return not self.held and 264 * self.program.width * sum(streamed) > CACHED_BYTES

    @property
    def exact(self) -> bool:
        """Whether the vectors of the threads are those of the row, none too many."""
        return self.lanes * self.chunks * self.vector == self.program.width


def make_row_plan(program: RowProgram, *, lanes: int | None = None, rows: int | None = None) -> RowPlan:
    """The plan of a row program. ``lanes`` (a power of two up to 32, or a multiple of 32 up to 1024) and ``rows``
    (1 to 8) override the choice.
    """
    if lanes is not None and not _allowed(lanes):
        raise WrongValue("lanes", expected="a power of two up to 32, or a multiple of 32 up to 1024", came=lanes)
    if rows is not None and not 1 <= rows <= 8:
        raise WrongValue("rows", expected="1 to 8", came=rows)
    vector = _vector(program)
    loads = tuple(classify(program.loop, read, vector) for read in program.reads)
    draft = RowPlan(program, vector, 1, 1, 1, True, False, loads)
    vectors = -(-program.width // vector)
    words = _words(draft, late=True)
    lanes = lanes or _lanes(draft, vectors, words)
    chunks = -(-vectors // lanes)
    held = chunks * words <= HELD_WORDS and lanes * chunks * words * 4 <= HELD_BYTES
    late = held and chunks * _words(draft, late=False) > LATE_WORDS
    count = rows or (_rows(draft, chunks) if held else 1)
    return replace(draft, lanes=lanes, chunks=chunks, rows=count, held=held, late=late)


def _allowed(lanes: int) -> bool:
    return lanes in (1, 2, 4, 8, 16, 32) or (lanes % 32 == 0 and 32 < lanes <= 1024)


def is_weight(load: Load) -> bool:
    """The same for every row, different along it."""
    return load.kind != "uniform" and ROW not in load.offset.dims


def _vector(program: RowProgram) -> int:
    """Elements that fill one access of what is streamed, and divide the row."""
    loop = program.loop
    sizes = [
        loop.layouts[r.tensor].type.bytes
        for stage in program.stages for r in reads(stage.body)
        if r.index and {ROW, COLUMN} <= r.index[0].dims
    ]  # fmt: skip
    written = [output for output in program.outputs if COLUMN in output.offset.dims]
    sizes += [output.layout.type.bytes for output in written]
    if any(output.offset.coefficient(COLUMN) != 1 for output in written) and program.width > 1:
        return 1
    return gcd(ACCESS // max(sizes, default=4), program.width)


def _words(plan: RowPlan, *, late: bool) -> int:
    """Registers that one vector of everything along the row takes."""
    taken = [load for load in plan.loads if load.kind != "uniform" and not (late and is_weight(load))]
    return sum(-(-plan.vector * load.layout.type.bytes // 4) for load in taken)


def _streamed(plan: RowPlan) -> int:
    """Bytes of one vector of what differs from row to row."""
    return sum(plan.vector * load.layout.type.bytes for load in plan.loads if ROW in load.offset.dims) or ACCESS


def _lanes(plan: RowPlan, vectors: int, words: int) -> int:
    """Few threads too many, about `IN_FLIGHT` bytes for each, few warps at a barrier (weights from measurements)."""
    wanted = max(1, min(8, IN_FLIGHT // _streamed(plan)))
    candidates = [n for n in (1, 2, 4, 8, 16, 32, *range(64, MOST_THREADS + 1, 32)) if n < 2 * vectors]
    if vectors >= 8:
        candidates = [n for n in candidates if n >= 8]
    room = {n: min(HELD_WORDS, HELD_BYTES // (4 * n)) for n in candidates}
    fitting = [n for n in candidates if -(-vectors // n) * max(1, words) <= room[n]]
    if not fitting:
        return REREAD_THREADS

    def cost(lanes: int) -> tuple[float, int]:
        chunks = -(-vectors // lanes)
        waste = chunks * lanes / vectors
        apart = max(chunks / wanted, wanted / chunks)  # too few bytes in flight, or too many registers
        barrier = 0.0125 * (lanes // 32) * (lanes > 32)
        return waste * (1 + 0.06 * (apart - 1) + barrier), lanes

    return int(min(fitting, key=cost))


def _rows(plan: RowPlan, chunks: int) -> int:
    """Rows a thread, so that short rows too have enough bytes in flight."""
    room = max(1, HELD_WORDS // 2 // max(1, chunks * _words(plan, late=False)))
    wanted = max(1, IN_FLIGHT // 2 // (_streamed(plan) * chunks))
    rows = min(4, room, wanted)
    while rows > 1 and plan.program.rows < rows * 132 * 16:
        rows //= 2
    return rows


def store_width(plan: RowPlan, offset_index: int) -> int:
    """Elements one access may write of an output."""
    output = plan.program.outputs[offset_index]
    return access_width(output.offset, COLUMN, plan.vector, output.layout)
