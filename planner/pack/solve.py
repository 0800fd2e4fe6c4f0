"""Packing: what cannot be is proved first, then quick orders, then search."""

from collections.abc import Iterable, Sequence

from .bounds import max_live, pin_conflict, pinned_top
from .greedy import Ints, greedy_packings
from .groups import grouped, share_greedily
from .problem import Buffer, Packing, Witness, peak_of, validated


def pack(buffers: Iterable[Buffer], capacity: int, *, time_limit: float = 60.0, seed: int = 0) -> Packing:
    """Offsets within `capacity`, or why there are none, or `unknown` when the search ends undecided.

    Raises PackError where the buffers contradict themselves (duplicate names, a reuse that is none, negative sizes).
    """
    listed = validated(buffers, capacity)
    bound, instant, live = max_live(listed)
    if bound > capacity:
        names = tuple(b.name for b in live)
        return Packing("infeasible", lower_bound=bound, witness=Witness("live", names, bound, capacity, instant))
    clash = pin_conflict(listed, capacity)
    if clash is not None:
        return Packing("infeasible", lower_bound=bound, witness=clash)
    bound = max(bound, pinned_top(listed))
    best = _best_greedy(listed, enough=capacity)
    if best is not None and peak_of(listed, best) <= capacity:
        return Packing("packed", best, peak_of(listed, best), bound)
    return Packing("unknown", lower_bound=bound)


def minimize_peak(buffers: Iterable[Buffer], *, time_limit: float = 10.0, seed: int = 0) -> Packing:
    """Offsets with the smallest peak found, and the bound below which none is; infeasible only through pins."""
    listed = validated(buffers)
    clash = pin_conflict(listed, None)
    if clash is not None:
        return Packing("infeasible", witness=clash)
    bound = max(max_live(listed)[0], pinned_top(listed))
    best = _best_greedy(listed, enough=bound)
    if best is None:
        return Packing("unknown", lower_bound=bound)
    return Packing("packed", best, peak_of(listed, best), bound)


def _best_greedy(buffers: Sequence[Buffer], enough: int) -> dict[str, int] | None:
    """The lowest packing of the quick orders, the first one that ends at or below `enough`."""
    best: dict[str, int] | None = None
    shared = share_greedily(buffers)
    for pairs in [shared, []] if shared else [[]]:
        groups = grouped(buffers, pairs)
        for offsets in greedy_packings(buffers, groups) if groups is not None else ():
            candidate = _named(buffers, offsets)
            if best is None or peak_of(buffers, candidate) < peak_of(buffers, best):
                best = candidate
            if peak_of(buffers, best) <= enough:
                return best
    return best


def _named(buffers: Sequence[Buffer], offsets: Ints) -> dict[str, int]:
    return {b.name: int(o) for b, o in zip(buffers, offsets, strict=True)}
