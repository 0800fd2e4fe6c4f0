"""Python's search for cycles of garbage, made rarer where many objects are made that nearly all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects after which the youngest are looked at, and how often these and then older ones are before all are. With
# Python's own numbers all objects were looked at 14 times while a step of training of 32 layers was planned.
RARELY = (100_000, 20, 100)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Within it garbage in cycles is looked for after `RARELY` new objects, unless that is rarer already."""
    before = gc.get_threshold()
    gc.set_threshold(*(max(pair) if all(pair) else 0 for pair in zip(before, RARELY, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*before)
