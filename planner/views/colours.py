"""Colours of ranks and of kinds of work, and the hatching of what a rank needs but does not own."""

from __future__ import annotations

from ...drawing.svg import tag

# Told apart with any colour vision: the set of Okabe and Ito (2008), its yellow darkened for white paper.
_RANKS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a200", "#7a828c")
_KINDS = {
    "matmul": "#0072b2",
    "conv": "#0072b2",
    "attention": "#7b4fa3",
    "slopes": "#7b4fa3",
    "elementwise": "#7fb2d6",
    "reduce": "#009e73",
    "gather": "#2d7d6b",
    "copy": "#8a6d4b",
}
_MOVES = {
    "all_gather": "#d55e00",
    "reduce_scatter": "#e69f00",
    "all_reduce": "#c2410c",
    "all_to_all": "#b8a200",
    "broadcast": "#cc79a7",
    "shift": "#e0723c",
}
OTHER_MOVE = "#e8954a"


def rank_colour(rank: int) -> str:
    """The first eight ranks have colours of their own; the others share them."""
    return _RANKS[rank % len(_RANKS)]


def kind_colour(kind: str) -> str:
    """Of a kernel class, a transfer's kind, or a copy: work is cool, moves are warm."""
    return _KINDS.get(kind) or _MOVES.get(kind, OTHER_MOVE)


def hatch(rank: int) -> str:
    """The name of a rank's hatching, as a fill."""
    return f"url(#hatch-{rank % len(_RANKS)})"


def hatching(rank: int) -> str:
    """Its definition: oblique lines, turned from rank to rank, so that overlaps can be told apart."""
    stripe = tag("rect", width=2.4, height=6, fill=rank_colour(rank))
    turn = f"rotate({45 if rank % 2 == 0 else -45})"
    return tag(
        "pattern",
        stripe,
        id=f"hatch-{rank % len(_RANKS)}",
        width=5,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform=turn,
    )
