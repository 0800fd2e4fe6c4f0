"""The launch that adds the partial sums of a weight gradient's splits in a fixed order (fold_quadruples.cu)."""

from __future__ import annotations

from math import ceil

from .launch import Launch

TEXT = "fold_quadruples.cu"
NAMES = ("fold_quadruples_partial", "fold_quadruples_rounded")
FOLD_BATCH, MOST_FOLD_WARPS, LANES = 8, 16, 32


def launch(quadruples: int, splits: int, workspace: int, out: int, *further: bytes) -> Launch:
    """Adds so many splits of quadruples of elements from a workspace into `out`."""
    warps = min(MOST_FOLD_WARPS, ceil(splits / FOLD_BATCH))
    return Launch((ceil(quadruples / LANES),), (LANES * warps,), (workspace, splits, quadruples, out, *further))
