"""Small messages between GPUs of one host in a single kernel: it waits until the others are ready, copies, and tells.

A copy engine takes 7 us to begin and a meeting 3, so that 1 MB took twice as long as its bytes do. A kernel of few
blocks has copied as much meanwhile; of more than `SMALL` bytes the engines are as quick, and take no multiprocessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd

import numpy as np

from ...space import Region
from ..device import Stored
from .arrays import DeviceArray
from .machine import Lines, Meeting, Unit
from .moving import Rows, lines_of, picks, rows_of

SMALL = 1 << 21  # bytes of all messages of a rank in a transfer
STRETCHES = 64  # of rows that one kernel goes through
THREADS, EACH = 256, 4  # words that a thread has on their way at once
BLOCKS = 64  # at most, so that what is computed meanwhile has room
ENTRY = "exchange"

_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}

# Every block waits for the others' flags by itself. The last one that is done counts the meetings and tells: what the
# others wrote is seen by whoever sees the flag, since each made it visible before it took its number.
SOURCE = """struct Meeting { unsigned* held; unsigned long long offset, tell, hear; };

__device__ void tell(const Meeting& m, const unsigned long long* table, const unsigned number, const unsigned count) {
    const unsigned rank = threadIdx.x;
    if (rank < 64 && (m.tell >> rank & 1ull)) {
        unsigned* flag = reinterpret_cast<unsigned*>(table[rank] + m.offset) + number;
        __threadfence_system();
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
    }
}

__device__ void hear(const Meeting& m, const unsigned long long* table, const unsigned number, const unsigned count) {
    const unsigned rank = threadIdx.x;
    if (rank < 64 && (m.hear >> rank & 1ull)) {
        const unsigned* flag = reinterpret_cast<const unsigned*>(table[number] + m.offset) + rank;
        unsigned seen;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        } while (int(seen - count) < 0);
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS)
ENTRY(const unsigned long long* table, const unsigned number, const unsigned long long* rows, const unsigned stretches,
      unsigned* done, unsigned* held0, const unsigned long long offset0, const unsigned long long tell0,
      const unsigned long long hear0, unsigned* held1, const unsigned long long offset1,
      const unsigned long long tell1, const unsigned long long hear1) {
    const Meeting before = {held0, offset0, tell0, hear0}, after = {held1, offset1, tell1, hear1};
    const unsigned count = held0 ? *held0 + 1u : 0u;
    if (held0) {
        if (blockIdx.x == 0) tell(before, table, number, count);
        hear(before, table, number, count);
    }
    for (unsigned k = 0; k < stretches; ++k) {
        const unsigned long long* one = rows + 6 * k;
        const char* source = reinterpret_cast<const char*>(one[0]);
        char* target = reinterpret_cast<char*>(one[2]);
        const unsigned words = unsigned(one[4]), all = words * unsigned(one[5]), step = gridDim.x * THREADS;
        for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < all; i += EACH * step) {
            WORD held[EACH];
            for (unsigned j = 0; j < EACH; ++j) {
                const unsigned at = i + j * step;
                if (at < all) held[j] = reinterpret_cast<const WORD*>(source + at / words * one[1])[at % words];
            }
            for (unsigned j = 0; j < EACH; ++j) {
                const unsigned at = i + j * step;
                if (at < all) reinterpret_cast<WORD*>(target + at / words * one[3])[at % words] = held[j];
            }
        }
    }
    __shared__ bool last;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1u;
    __syncthreads();
    if (!last) return;
    __threadfence_system();
    const unsigned next = held1 ? *held1 + 1u : 0u;
    __syncthreads();
    if (threadIdx.x == 0) {
        *done = 0u;
        if (held0) *held0 = count;
        if (held1) *held1 = next;
    }
    if (held1) {
        tell(after, table, number, next);
        hear(after, table, number, next);
    }
}
"""


@dataclass(frozen=True)
class Copied:
    """A copy between arrays of GPUs, or of page-locked memory."""

    lines: Lines
    arrays: tuple[DeviceArray, DeviceArray]


def copied(source: Stored, target: Stored, region: Region) -> list[Copied] | None:
    """The copies of the elements of a region that both store; None where one side is NumPy's."""
    if isinstance(source.array, np.ndarray) or isinstance(target.array, np.ndarray):
        return None
    arrays = source.array, target.array
    return [Copied(lines_of(pick, source, target), arrays) for pick in picks(region, source.grid, target.grid)]


@dataclass(frozen=True)
class Exchange:
    """What one kernel does: a meeting, copies of rows, a meeting. ``width``: bytes of a word of all rows."""

    before: Meeting | None
    rows: tuple[Rows, ...]
    after: Meeting | None
    width: int
    arrays: tuple[DeviceArray, ...]

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes * rows.count for rows in self.rows)

    @property
    def meetings(self) -> list[Meeting]:
        return [one for one in (self.before, self.after) if one is not None]

    def unit(self) -> Unit:
        """The kernel and its blocks."""
        words = -(-self.nbytes // self.width)
        source = f"#define ENTRY {ENTRY}_{self.width}\n#define WORD {_WORDS[self.width]}\n"
        source += f"#define THREADS {THREADS}u\n#define EACH {EACH}u\n{SOURCE}"
        return Unit(source, f"{ENTRY}_{self.width}", max(1, min(BLOCKS, -(-words // (THREADS * EACH)))), THREADS)

    def table(self) -> bytes:
        """The stretches of rows: where they come from and go to, each with its step, words of a row, rows. Behind them
        stands how many blocks are done.
        """
        found = [(r.source, r.source_step, r.target, r.target_step, r.nbytes // self.width, r.count) for r in self.rows]
        return np.array([*chain(*found), 0], np.uint64).tobytes()

    def arguments(self, table: int) -> list[int]:
        """Of the kernel, whose table lies at an address."""
        [first, *_] = self.meetings
        of_meetings = [
            value
            for one in (self.before, self.after)
            for value in ((one.held, one.offset, one.tell, one.hear) if one else (0, 0, 0, 0))
        ]
        done = table + len(self.rows) * 6 * 8
        return [first.table.pointer, first.number, table, len(self.rows), done, *of_meetings]


def exchanged(before: Meeting | None, copies: Sequence[Copied], after: Meeting | None) -> Exchange | None:
    """Copies between two meetings as one kernel; None where there is too much of them, or where it is no gain."""
    rows: list[Rows] = []
    for one in copies:
        found = _rows(one.lines)
        if found is None:
            return None
        rows += found
    made = Exchange(
        before,
        tuple(rows),
        after,
        gcd(16, *(one.lines.width for one in copies)),
        tuple(array for one in copies for array in one.arrays),
    )
    alone = not made.meetings or len(rows) + len(made.meetings) < 2
    return None if alone or made.nbytes > SMALL or len(rows) > STRETCHES else made


def _rows(lines: Lines) -> list[Rows] | None:
    if not all(lines.extents):
        return []
    if len(lines.extents) == 1:
        nbytes = lines.extents[0] * lines.width
        return [Rows(lines.source, nbytes, lines.target, nbytes, nbytes, 1)]
    return rows_of(lines)
