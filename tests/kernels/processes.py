"""What another process would not know of: what this one remembers of choices is forgotten."""

from __future__ import annotations

from tapestry.kernels.convolution import choices, tuned
from tapestry.kernels.runtime import cache

KEPT = (choices._cut, choices._gradient_cut, choices._way, choices.left_to_cudnn)


def another_process() -> None:
    """From here on choices are read, or made, as another process would."""
    cache.at.cache_clear()
    tuned.forget()
    for remembered in (*KEPT, choices._dealt, choices.version):
        remembered.cache_clear()  # type: ignore[attr-defined]
