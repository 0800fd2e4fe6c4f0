"""How many threads a point of a job gets, and what they share: its fold, or the places that its records stand at."""

from __future__ import annotations

from math import isqrt

from ...dtypes import DTYPES
from ...expr import FUNCTIONS
from .jobs import Job
from .machine import THREADS

# Threads that a GPU needs to be busy: with fewer points, several threads share the fold of one.
BUSY = 1 << 17
# Points of a fold that are worth a thread.
SHARE = 8
# Threads that share a fold where neighbours among them have points of their own.
SHARED = 32
# So many threads for one point: to go to 1 of n places takes as long as to look at n. 800 clocks for what is read and
# written again, 12 instructions to look, 4 times 32 at a time on each of 132 multiprocessors (H200).
EVEN = 1 << 20


def sharing(job: Job) -> int:
    """Threads that share one point's fold: a power of two."""
    longest = max((fold.points for fold in job.folds), default=1)
    if job.record is None or job.placed or "commutative" not in job.record.monoid.laws:
        return 1
    wanted = min(longest // SHARE, BUSY // job.points if job.points else 1)
    if along_fold(job) and longest >= 2 * SHARE:
        wanted = max(wanted, longest // SHARE)
    return _power(min(THREADS if along_fold(job) else SHARED, wanted))


def _power(number: int) -> int:
    """The largest power of two that is not larger, at least 1."""
    return 1 << (max(1, number).bit_length() - 1)


def seeing(job: Job) -> int:
    """Threads of a point of which each sees to some of the places that its folds select."""
    ahead = job.placed and all(len(fold.chosen) == 1 and fold.looped for fold in job.folds)
    extent = min((n for name, n in job.kept if name in job.placed), default=1)
    return _power(min(extent, isqrt(EVEN // job.points))) if ahead and job.points else 1


def into_places(job: Job) -> str | None:
    """What folds integers into places that the data say, by all threads at once; None where that is not to be had."""
    if not job.placed or job.record is None or DTYPES[job.record.dtypes[0]].kind != "int":
        return None
    function = job.record.monoid.function
    wide = DTYPES[job.record.dtypes[0]].bytes >= 4
    return FUNCTIONS[function].cuda_into if wide and function is not None else None


def along_fold(job: Job) -> bool:
    """Whether a read finds neighbours in memory along a folded dimension and none along the kept ones."""
    kept = {name for name, _ in job.kept}
    folded = {name for fold in job.folds for name, _ in fold.looped}
    last = [
        {name for name in read.index[-1].dims if read.index[-1].coefficient(name) == 1}
        for read in job.reads()
        if read.index
    ]
    return any(names & folded and not names & kept for names in last) and not any(names & kept for names in last)
