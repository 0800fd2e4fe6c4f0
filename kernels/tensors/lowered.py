"""Weights that a node of autograd multiplies with as they were lowered, by autocast or within a call.

torch saves the lowered copy then, and frees it in the backward pass; the weight may be written into before that. So it
is here: saved is the copy. Of a weight that is a leaf, which outlives every graph, the node knows the weight itself
besides, for who asks for derivatives of the gradients: these are refused where it was written into.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def save(ctx: Any, x: Tensor | None, w: Tensor, taps: Tensor | None, keep: bool = True) -> None:
    """x, w and `taps`, which is w as it was lowered, or None where it was not; w alone where it is to be kept."""
    lowered = taps is not None
    ctx.save_for_backward(x, w if keep and not (lowered and w.is_leaf) else None, taps)
    ctx.apart = (w, w._version) if lowered and w.is_leaf else None


def saved(ctx: Any, again: bool) -> tuple[Tensor | None, Any, Tensor | None]:
    """The same three. Raises RuntimeError where w is computed with `again` and is not what it was."""
    x, w, taps = ctx.saved_tensors
    if ctx.apart is not None:
        w, version = ctx.apart
        if again and w._version != version:
            raise RuntimeError("a weight was modified by an inplace operation after it was lowered")
    return x, w, taps
