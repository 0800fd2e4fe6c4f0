"""Bytes: what elements and records take, and how much a buffer stores, without what plans are made with."""

from __future__ import annotations

from math import prod

from .cells import Form, Runs, last

BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "int64": 8,
    "f8e4m3": 1, "f8e5m2": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8,
}  # fmt: skip


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


Spans = tuple[tuple[int, int], ...]


def grid(form: Form) -> tuple[Spans, ...]:
    """Per axis the intervals that a dense buffer for a set stores: runs with the gaps of their strides, no more.

    Where two buffers of one dtype have the same, an element lies equally far from the start of either.
    """
    return tuple(_spans(axis) for axis in zip(*form.tiles, strict=True))


def stored(form: Form) -> int:
    """Elements of the smallest product of unions of intervals around a set, without the gaps of strides."""
    return prod(sum(hi - lo for lo, hi in spans) for spans in grid(form)) if form.tiles else 0


def _spans(axis: tuple[Runs, ...]) -> Spans:
    """The intervals from the first to the last of every run, those that touch joined."""
    found: list[tuple[int, int]] = []
    for run in sorted((run for runs in axis for run in runs), key=lambda run: run.start):
        if found and run.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last(run) + 1)
        else:
            found.append((run.start, last(run) + 1))
    return tuple(found)
