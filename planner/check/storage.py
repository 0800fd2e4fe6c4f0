"""Bytes: what elements and records take, and how much a buffer stores, without what plans are made with."""

from __future__ import annotations

from math import prod

from .cells import Form, Runs, last

BYTES = {"bool": 1, "int8": 1, "int32": 4, "int64": 8, "bf16": 2, "f16": 2, "f32": 4, "f64": 8}


def record_size(dtypes: tuple[str, ...]) -> tuple[int, int]:
    """Bytes of a record of such components, and what its address is a multiple of.

    Components stand in order, each at a multiple of its own size; records follow one another without more between them
    than the greatest needs.

    >>> record_size(("f16", "int64")), record_size(("f32",))
    ((16, 8), (4, 4))
    """
    at = 0
    for dtype in dtypes:
        while at % BYTES[dtype]:
            at += 1
        at += BYTES[dtype]
    align = max(BYTES[dtype] for dtype in dtypes)
    return at + -at % align, align


def stored(form: Form) -> int:
    """Elements of the smallest product of unions of intervals around a set, without the gaps of strides."""
    return prod(_spanned(axis) for axis in zip(*form.tiles, strict=True)) if form.tiles else 0


def _spanned(axis: tuple[Runs, ...]) -> int:
    """Integers that lie between the ends of some run."""
    found, end = 0, None
    for run in sorted((run for runs in axis for run in runs), key=lambda run: run.start):
        begin = run.start if end is None else max(run.start, end)
        end = last(run) + 1 if end is None else max(end, last(run) + 1)
        found += max(0, end - begin)
    return found
