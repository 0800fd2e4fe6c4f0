"""Packing: what cannot be is proved first, then quick orders, then search."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic

from .bounds import max_live, pin_conflict, pinned_top
from .greedy import greedy_packings
from .groups import grouped, share_greedily
from .problem import Buffer, Packing, Status, Witness, peak_of, validated


def pack(
    buffers: Iterable[Buffer],
    capacity: int,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    jobs: int | None = None,
    runs: int | None = None,
) -> Packing:
    """Offsets within `capacity`, or why there are none, or `unknown` when `time_limit` seconds decide neither.

    Nor so many `runs` of the search, where they are given: that limit is the same on any machine.

    The answer depends on the buffers, the capacity and the seed; not on `jobs`, the threads that search (all cores by
    default); on the time limit only through `unknown`. Raises PackError where the buffers contradict themselves.
    """
    deadline = monotonic() + time_limit
    listed = validated(buffers, capacity)
    bound, instant, live = max_live(listed)
    if bound > capacity:
        names = tuple(b.name for b in live)
        return Packing("infeasible", lower_bound=bound, witness=Witness("live", names, bound, capacity, instant))
    clash = pin_conflict(listed, capacity)
    if clash is not None:
        return Packing("infeasible", lower_bound=bound, witness=clash)
    bound = max(bound, pinned_top(listed))
    found = _best_greedy(listed, enough=capacity)
    if found is not None and peak_of(listed, found) <= capacity:
        return Packing("packed", found, peak_of(listed, found), bound)
    status, found = _searched(listed, capacity, deadline, seed, jobs, runs)
    match status:
        case "packed" if found is not None:
            return Packing(status, found, peak_of(listed, found), bound)
        case "infeasible":
            names = tuple(b.name for b in listed if b.size)
            return Packing(status, lower_bound=capacity + 1, witness=Witness("search", names, capacity + 1, capacity))
    return Packing("unknown", lower_bound=bound)


def minimize_peak(
    buffers: Iterable[Buffer], *, time_limit: float = 0.0, seed: int = 0, jobs: int | None = None, enough: int = 0
) -> Packing:
    """Offsets with the smallest peak found, and a bound below which there is none; infeasible only through pins.

    With a time limit above 0, search goes on after the quick orders: at the bound first, then halving what is left.
    ``enough``: the first of the quick orders that ends there or below is taken.
    """
    deadline = monotonic() + time_limit
    listed = validated(buffers)
    clash = pin_conflict(listed, None)
    if clash is not None:
        return Packing("infeasible", witness=clash)
    bound = max(max_live(listed)[0], pinned_top(listed))
    best = _best_greedy(listed, max(enough, bound))
    if best is None:
        return Packing("unknown", lower_bound=bound)
    tried = bound
    while tried < peak_of(listed, best) and monotonic() < deadline:
        # Halfway to the deadline each time, so that a hopeless target leaves time for a kinder one.
        status, found = _searched(listed, tried, (monotonic() + deadline) / 2, seed, jobs)
        if found is not None:
            best = found
        if status == "infeasible":
            bound = tried + 1
        low = bound if status != "unknown" else tried + 1
        tried = (low + peak_of(listed, best)) // 2
    return Packing("packed", best, peak_of(listed, best), bound)


def _searched(
    buffers: Sequence[Buffer],
    capacity: int,
    deadline: float,
    seed: int,
    jobs: int | None,
    runs: int | None = None,
) -> tuple[Status, dict[str, int] | None]:
    from .portfolio import hunt  # compiled code, loaded only where the quick orders do not do
    from .search import EXHAUSTED

    threads = jobs or os.cpu_count() or 1
    answer, offsets = hunt(buffers, capacity, deadline=deadline, seed=seed, jobs=threads, runs=runs)
    if offsets is not None:
        return "packed", _named(buffers, offsets)
    return ("infeasible" if answer == EXHAUSTED else "unknown"), None


def _best_greedy(buffers: Sequence[Buffer], enough: int) -> dict[str, int] | None:
    """The lowest packing of the quick orders, the first one that ends at or below `enough`.

    Outputs share the place of their input as far as that goes together. Where that is not so low that no packing
    without sharing could be lower, these are tried as well.
    """
    shared = share_greedily(buffers)
    best = _lowest(buffers, shared, enough)
    if shared and (best is None or peak_of(buffers, best) > max(enough, _apart(buffers))):
        other = _lowest(buffers, [], enough)
        return min((found for found in (best, other) if found is not None), key=partial(peak_of, buffers), default=None)
    return best


def _apart(buffers: Sequence[Buffer]) -> int:
    """No packing in which nothing shares a place has a lower peak."""
    return max_live([replace(b, reuses=None) for b in buffers])[0]


def _lowest(buffers: Sequence[Buffer], pairs: Sequence[tuple[int, int]], enough: int) -> dict[str, int] | None:
    """The lowest packing of the quick orders where these pairs share; None where they contradict each other."""
    best: list[int] | None = None
    groups = grouped(buffers, pairs)
    for offsets, peak in greedy_packings(buffers, groups) if groups is not None else ():
        best = offsets
        if peak <= enough:
            break
    return None if best is None else _named(buffers, best)


def _named(buffers: Sequence[Buffer], offsets: Iterable[int]) -> dict[str, int]:
    return {b.name: int(o) for b, o in zip(buffers, offsets, strict=True)}
