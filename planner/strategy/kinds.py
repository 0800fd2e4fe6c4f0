"""What a library would call a transfer, which chooses the measured curve of the link that times it."""

from __future__ import annotations

from .layouts import Layout
from .pairs import Pair


def complete_kind(have: Layout, need: Layout, pair: Pair) -> str:
    """What a library would call the transfer of complete data."""
    if have.holders == 1:
        return "broadcast" if pair.alike else "sends"
    if pair.alike and have.disjoint and pair.lacking == len(need.sizes):
        return "all_gather"
    if have.disjoint and need.disjoint and need.total == have.total:
        return "all_to_all"
    if need.part_count == 1 and pair.inside:
        return "shift" if have.near(need) else "all_gather"
    return "sends"


def partial_kind(need: Layout) -> str:
    """What a library would call the transfer that folds partial data; to larger shares, what most there is to do."""
    if need.parts is not None:
        names = {partial_kind(share) for share in need.by_part}
        return next((name for name in ("all_reduce", "reduce_scatter", "reduce") if name in names), "reduce_scatter")
    if need.holders == 1:
        return "reduce"
    if need.disjoint:
        return "reduce_scatter"
    return "all_reduce"
