"""Over how many blocks a row is spread: what that costs, counted for each number of blocks that can form a cluster.

A row takes as long as its bytes at the rate that the blocks in flight ask for, and the time in which a block neither
reads nor writes: the first bytes on their way, and a meeting for each fold. Other blocks on the same multiprocessor,
and those elsewhere that are not in step, fill most of that time.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import RowPlan

CLUSTERS = (1, 2, 4, 8, 16)  # blocks that may form one: 16 only where the driver is asked for it

# One H200. Clusters lie within a group of 16 or 18 multiprocessors, so that large ones leave some idle.
MULTIPROCESSORS = {1: 132, 2: 132, 4: 132, 8: 128, 16: 128}
COPY_RATE = 4.2e12  # bytes a second
ONE_RATE = 64e9  # that one multiprocessor can ask for
CACHE_RATE = 5.5e12  # of what is found in the second cache
CACHED_BYTES = 40e6  # of rows in work, so that the second cache holds them until they are read again
LATENCY = 2e-6  # until the first bytes are there, and for the last to leave
MEETING = 0.5e-6  # of a block
REMOTE = 0.8e-6, 0.1e-6  # of a cluster: once, and for each block
EXPOSED = 0.2  # of the time in which a block moves nothing, what no other fills


def rows_at_a_time(plan: RowPlan) -> int:
    """Rows that all multiprocessors together have room for."""
    return max(1, MULTIPROCESSORS[plan.cluster] * plan.resident // plan.cluster) * plan.rows_a_block


def seconds(plan: RowPlan) -> float:
    """Predicted time of a plan, to be compared with that of other plans of the same program."""
    program, blocks, slots = plan.program, plan.cluster, rows_at_a_time(plan)
    busy = min(-(-program.rows // plan.turns), slots)
    rate = min(COPY_RATE, ONE_RATE * min(MULTIPROCESSORS[blocks], ceil(busy / plan.rows_a_block) * blocks))
    folds = sum(stage.monoid is not None for stage in program.stages)
    meeting = folds * (MEETING + (REMOTE[0] + REMOTE[1] * blocks if blocks > 1 else 0.0))
    waves = ceil(program.rows / (slots * plan.turns)) * plan.turns
    moved = max(program.bytes_moved / rate, program.rows * plan.fetched / CACHE_RATE)
    exposed = EXPOSED * (waves - 1) * (meeting + LATENCY / plan.turns) / plan.resident
    return moved + _again(plan, busy, folds, rate) + LATENCY + meeting + exposed


def _again(plan: RowPlan, busy: int, folds: int, rate: float) -> float:
    """Seconds for what every stage after the first reads again."""
    part = (plan.chunks - plan.kept - plan.parked) / plan.chunks
    row = plan.streamed * plan.chunks * plan.spread
    again = plan.program.rows * row * part * folds
    return again / (min(rate, CACHE_RATE) if busy * row <= CACHED_BYTES else min(rate, COPY_RATE))
