"""How a row program runs: threads a row, elements a thread, rows a block or blocks a row, and where the row stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal, NamedTuple

from ...expr import reads
from ..cost.gpu import tuned_gpu
from ..elementwise.plan import ACCESS, IN_FLIGHT, SMALL, Load, access_width, classify
from ..errors import WrongValue
from .program import COLUMN, ROW, RowProgram
from .spread import CLUSTERS, FIT, rows_at_a_time, seconds

HELD_WORDS = 64  # registers of a thread that may hold the row as it lies in memory
REGISTERS, THREADS = tuned_gpu().registers_per_sm, tuned_gpu().threads_per_sm  # of a multiprocessor
HELD_BYTES = REGISTERS * 4 // 2  # of a block: half the registers of a multiprocessor
PARKED_BYTES = 208 << 10  # of a block in a cluster, in shared memory
SHARED_BYTES, STATIC_BYTES = (
    tuned_gpu().shared_per_sm,
    4 << 10,
)  # of a multiprocessor; of a block, beside what is parked
GROUPS = 4  # in which these arrive
SPREAD_BYTES = 32 << 10  # of a row, from which on several blocks may share it
KEPT = 16  # elements of a thread whose intermediate values may be kept from stage to stage
LATE_WORDS = 24  # above this, what is the same for every row is fetched where it is used
LEAST_CLUSTERED = 64  # threads of a block in a cluster
FIRST_CACHE = 128 << 10  # bytes that stay there from row to row
MOST_TURNS = 16  # rows that a cluster takes one after another
BLOCK = 128  # threads of a block whose rows are shorter than that
MOST_THREADS = 1024  # of a block
REREAD_THREADS = 1024  # of a row that does not stay in registers
OTHER_REGISTERS = 40  # of a thread, beside those that hold the row

Storage = Literal["registers", "shared", "again"]


class Part(NamedTuple):
    """Vectors of each thread, and where they stay: in shared memory, in registers, or nowhere (``again``: every stage
    reads them).
    """

    storage: Storage
    first: int
    vectors: int


@dataclass(frozen=True)
class RowPlan:
    """A row is spread over ``lanes`` threads of each of ``cluster`` blocks, ``chunks`` vectors a thread; ``rows`` rows
    a thread, all loads first.

    Of the vectors, ``kept`` stay in registers, ``parked`` in shared memory; what is left is read again by every stage.
    ``late``: weights are fetched where they are used. A cluster takes ``turns`` rows one after another, so that weights
    that are not late are fetched once for all of them, and each row while the one before is written.
    """

    program: RowProgram
    vector: int
    loads: tuple[Load, ...]
    lanes: int = 1
    chunks: int = 1
    rows: int = 1
    kept: int = 0
    parked: int = 0
    late: bool = False
    cluster: int = 1
    turns: int = 1

    def is_weight(self, load: Load) -> bool:
        """The same for every row, different along it. Of a single row nothing is."""
        return load.kind != "uniform" and ROW not in load.offset.dims and self.program.rows > 1

    def is_streamed(self, load: Load) -> bool:
        """Different from row to row, and along it."""
        return load.kind != "uniform" and not self.is_weight(load)

    @property
    def held(self) -> bool:
        """Whether the row is read once."""
        return self.kept + self.parked == self.chunks

    @property
    def parts(self) -> tuple[Part, ...]:
        """The vectors by where they stay."""
        counts: Sequence[tuple[Storage, int]] = (
            ("shared", self.parked), ("registers", self.kept), ("again", self.chunks - self.kept - self.parked),
        )  # fmt: skip
        found, first = [], 0
        for storage, count in counts:
            found += [Part(storage, first, count)] if count else []
            first += count
        return tuple(found)

    @property
    def arriving(self) -> tuple[Part, ...]:
        """The same for the first stage: what is copied to shared memory in groups, worked on while the next arrive."""
        found = []
        for part in self.parts:
            size = -(-part.vectors // GROUPS) if part.storage == "shared" else part.vectors
            for first in range(0, part.vectors, size):
                found.append(Part(part.storage, part.first + first, min(size, part.vectors - first)))
        return tuple(found)

    @property
    def spread(self) -> int:
        """Threads of a row."""
        return self.lanes * self.cluster

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes if self.lanes > 32 else BLOCK

    @property
    def rows_a_block(self) -> int:
        return self.threads // self.lanes * self.rows

    @property
    def blocks(self) -> int:
        return -(-self.program.rows // (self.rows_a_block * self.turns)) * self.cluster

    @property
    def forgetful(self) -> bool:
        """Whether stages compute from the row's words anew, so that no thread keeps many intermediate values."""
        return self.vector * self.kept * self.rows > KEPT

    @property
    def alone(self) -> bool:
        """Whether a multiprocessor takes one block only: rows that are read again stay in the second cache then."""
        streamed = (load.layout.type.bytes for load in self.loads if self.is_streamed(load))
        return not self.held and not self.parked and 264 * self.program.width * sum(streamed) > FIT.cached_bytes

    @property
    def exact(self) -> bool:
        """Whether the vectors of the threads are those of the row, none too many."""
        return self.spread * self.chunks * self.vector == self.program.width

    @property
    def streamed(self) -> int:
        """Bytes of one vector of what differs from row to row."""
        return sum(self.vector * load.layout.type.bytes for load in self.loads if self.is_streamed(load)) or ACCESS

    @property
    def fetched(self) -> float:
        """Bytes that come to a row's multiprocessors, from memory or the second cache."""
        width = self.program.width
        weights = width * sum(load.layout.type.bytes for load in self.loads if self.is_weight(load))
        if self.cluster == 1 and weights <= FIRST_CACHE:
            weights = 0
        return self.streamed * width / self.vector + weights / (1 if self.late else self.turns)

    @property
    def parked_loads(self) -> dict[int, int]:
        """For each load whose vectors are parked, where they begin in shared memory, in bytes."""
        found, at = {}, 0
        for k, load in enumerate(self.loads):
            if self.parked and load.kind != "uniform" and not (self.late and self.is_weight(load)):
                found[k] = at
                at += -(-4 * _load_words(load, self.vector) * self.lanes * self.parked // 16) * 16
        return found

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        words = sum(_load_words(self.loads[k], self.vector) for k in self.parked_loads)
        return 4 * words * self.lanes * self.parked + 16 * len(self.parked_loads)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has room for."""
        registers = 8 * -(-(OTHER_REGISTERS + self.kept * self.rows * _words(self, late=self.late)) // 8)
        shared = 1 if self.alone else SHARED_BYTES // (self.shared + STATIC_BYTES)
        return max(1, min(shared, 32, THREADS // self.threads, REGISTERS // (registers * self.threads)))


def make_row_plan(
    program: RowProgram, *, lanes: int | None = None, rows: int | None = None, cluster: int | None = None
) -> RowPlan:
    """The plan of a row program. ``lanes`` (a power of two up to 32, or a multiple of 32 up to 1024), ``rows`` (1 to
    8) and ``cluster`` (blocks a row: 1, 2, 4, 8 or 16, with at least 64 lanes and one row each) override the choice.
    """
    _check_choices(lanes, rows, cluster)
    vector = _vector(program)
    draft = RowPlan(program, vector, tuple(classify(program.loop, read, vector) for read in program.reads))
    if cluster is None:
        many = lanes is None and rows is None and draft.streamed * program.width > SPREAD_BYTES * vector
        plans = [plan for n in CLUSTERS[1:] for plan in _clustered(draft, n, None)] if many else []
    else:
        plans = _clustered(draft, cluster, lanes) if cluster > 1 else []
    if cluster in (None, 1):
        plans.append(_alone(draft, lanes, rows))
    return min(plans, key=lambda plan: (seconds(plan), plan.cluster))


def _check_choices(lanes: int | None, rows: int | None, cluster: int | None) -> None:
    if lanes is not None and not _allowed(lanes):
        raise WrongValue("lanes", expected="a power of two up to 32, or a multiple of 32 up to 1024", came=lanes)
    if rows is not None and not 1 <= rows <= 8:
        raise WrongValue("rows", expected="1 to 8", came=rows)
    if cluster is not None and cluster not in CLUSTERS:
        raise WrongValue("cluster", expected=", ".join(map(str, CLUSTERS)), came=cluster)
    if cluster is not None and cluster > 1 and (rows or 1) > 1:
        raise WrongValue("rows of a cluster", expected=1, came=rows)
    if cluster is not None and cluster > 1 and lanes is not None and lanes < LEAST_CLUSTERED:
        raise WrongValue("lanes of a block in a cluster", expected=f"{LEAST_CLUSTERED} or more", came=lanes)


def _alone(draft: RowPlan, lanes: int | None, rows: int | None) -> RowPlan:
    """Rows of one block, or several rows a block."""
    vectors = -(-draft.program.width // draft.vector)
    words = _words(draft, late=True)
    lanes = lanes or _lanes(draft, vectors, words)
    chunks = -(-vectors // lanes)
    held = chunks * words <= HELD_WORDS and lanes * chunks * words * 4 <= HELD_BYTES
    late = held and chunks * _words(draft, late=False) > LATE_WORDS
    count = rows or (_rows(draft, chunks) if held else 1)
    return replace(draft, lanes=lanes, chunks=chunks, rows=count, kept=chunks if held else 0, late=late)


def _clustered(draft: RowPlan, cluster: int, lanes: int | None) -> list[RowPlan]:
    """A row for ``cluster`` blocks: in registers, or in shared memory, all of it or half; in turns where it is held."""
    vectors = -(-draft.program.width // (draft.vector * cluster))
    words = max(1, _words(draft, late=True))
    shapes = [(lanes or max(LEAST_CLUSTERED, _lanes(draft, vectors, words)), 0), (lanes or 512, PARKED_BYTES // 2)]
    shapes.append((lanes or 1024, PARKED_BYTES))
    plans = [_part(draft, cluster, *shape, late) for shape in shapes for late in (True, False)]
    held = [plan for plan in plans if plan.held]
    return [*held, *map(_in_turns, held)] or [_part(draft, cluster, lanes or 1024, PARKED_BYTES, late=True)]


def _part(draft: RowPlan, cluster: int, lanes: int, parked_bytes: int, late: bool) -> RowPlan:
    """A row for ``lanes`` threads of each block, so much of it in shared memory and the rest in registers."""
    chunks = -(-draft.program.width // (draft.vector * cluster * lanes))
    words = max(1, _words(draft, late=late))
    parked = min(chunks, parked_bytes // (4 * lanes * words))
    room = min(HELD_WORDS, REGISTERS // lanes - OTHER_REGISTERS) // words
    kept = chunks - parked if chunks - parked <= room else 0  # what is loaded again needs registers on its way
    return replace(draft, lanes=lanes, chunks=chunks, kept=kept, parked=parked, late=late, cluster=cluster)


def _in_turns(plan: RowPlan) -> RowPlan:
    """As many rows one after another as leave each place several clusters, so that none waits long for the last."""
    return replace(plan, turns=max(1, min(MOST_TURNS, plan.program.rows // (4 * rows_at_a_time(plan)))))


def _allowed(lanes: int) -> bool:
    return lanes in (1, 2, 4, 8, 16, 32) or (lanes % 32 == 0 and 32 < lanes <= 1024)


def _vector(program: RowProgram) -> int:
    """Elements that fill one access of what is streamed, and divide the row."""
    loop = program.loop
    sizes = [
        loop.layouts[r.tensor].type.bytes
        for stage in program.stages for r in reads(stage.body)
        if r.index and COLUMN in r.index[0].dims and (ROW in r.index[0].dims or program.rows == 1)
    ]  # fmt: skip
    written = [output for output in program.outputs if COLUMN in output.offset.dims]
    sizes += [output.layout.type.bytes for output in written]
    if any(output.offset.coefficient(COLUMN) != 1 for output in written) and program.width > 1:
        return 1
    return gcd(ACCESS // max(sizes, default=4), program.width)


def _words(plan: RowPlan, *, late: bool) -> int:
    """Registers that one vector of everything along the row takes."""
    taken = [load for load in plan.loads if load.kind != "uniform" and not (late and plan.is_weight(load))]
    return sum(_load_words(load, plan.vector) for load in taken)


def _load_words(load: Load, vector: int) -> int:
    """Registers that one vector of a load takes."""
    return -(-vector * load.layout.type.bytes // 4)


def _lanes(plan: RowPlan, vectors: int, words: int) -> int:
    """Few threads too many, about `IN_FLIGHT` bytes for each, few warps at a barrier (weights from measurements)."""
    wanted = max(1, min(8, IN_FLIGHT // plan.streamed))
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
    wanted = max(1, IN_FLIGHT // 2 // (plan.streamed * chunks))
    rows = min(4, room, wanted)
    while rows > 1 and plan.program.rows < rows * SMALL:
        rows //= 2
    return rows


def store_width(plan: RowPlan, offset_index: int) -> int:
    """Elements one access may write of an output."""
    output = plan.program.outputs[offset_index]
    return access_width(output.offset, COLUMN, plan.vector, output.layout)
