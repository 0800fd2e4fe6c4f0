"""Over how many blocks a row is spread: what that costs, counted for each number of blocks that can form a cluster.

A row takes as long as its bytes at the rate that the blocks in flight ask for, and the time in which a block neither
reads nor writes: the first bytes on their way, and a meeting for each fold. Other blocks on the same multiprocessor,
and those elsewhere that are not in step, fill most of that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ..cost.gpu import fitted, tuned_gpu

if TYPE_CHECKING:
    from .plan import RowPlan

CLUSTERS = (1, 2, 4, 8, 16)  # blocks that may form one: 16 only where the driver is asked for it


@dataclass(frozen=True)
class RowFit:
    """The constants of the prediction; `data/gpus.json` says what each is and where it comes from."""

    copy_bytes_per_s: float
    one_bytes_per_s: float
    cache_bytes_per_s: float
    cached_bytes: float
    latency_s: float
    meeting_s: float
    cluster_meeting_s: float
    cluster_block_s: float
    exposed: float


FIT = fitted(RowFit, "rows")


def multiprocessors(blocks: int) -> int:
    """Those that clusters of so many blocks can have: large ones, within one part of the GPU, leave some idle."""
    return tuned_gpu().clustered_sms if blocks >= 8 else tuned_gpu().sms


def rows_at_a_time(plan: RowPlan) -> int:
    """Rows that all multiprocessors together have room for."""
    return max(1, multiprocessors(plan.cluster) * plan.resident // plan.cluster) * plan.rows_a_block


def seconds(plan: RowPlan) -> float:
    """Predicted time of a plan, to be compared with that of other plans of the same program."""
    program, blocks, slots = plan.program, plan.cluster, rows_at_a_time(plan)
    busy = min(-(-program.rows // plan.turns), slots)
    rate = min(
        FIT.copy_bytes_per_s,
        FIT.one_bytes_per_s * min(multiprocessors(blocks), ceil(busy / plan.rows_a_block) * blocks),
    )
    folds = sum(stage.monoid is not None for stage in program.stages)
    meeting = folds * (FIT.meeting_s + (FIT.cluster_meeting_s + FIT.cluster_block_s * blocks if blocks > 1 else 0.0))
    waves = ceil(program.rows / (slots * plan.turns)) * plan.turns
    moved = max(program.bytes_moved / rate, program.rows * plan.fetched / FIT.cache_bytes_per_s)
    exposed = FIT.exposed * (waves - 1) * (meeting + FIT.latency_s / plan.turns) / plan.resident
    return moved + _again(plan, busy, folds, rate) + FIT.latency_s + meeting + exposed


def _again(plan: RowPlan, busy: int, folds: int, rate: float) -> float:
    """Seconds for what every stage after the first reads again."""
    part = (plan.chunks - plan.kept - plan.parked) / plan.chunks
    row = plan.streamed * plan.chunks * plan.spread
    again = plan.program.rows * row * part * folds
    found = FIT.cache_bytes_per_s if busy * row <= FIT.cached_bytes else FIT.copy_bytes_per_s
    return again / min(rate, found)
