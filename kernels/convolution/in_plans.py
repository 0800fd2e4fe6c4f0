"""The grouped convolutions of a plan: one problem for every shard of the operations that are convolutions.

A shard of output rows p0:p1 reads the rows that its windows meet, and what they miss of the image is its padding, so
that a shard is a problem of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...convolution import Convolution, convolution
from ...program import Operation, Program
from ..errors import KernelError, WrongValue
from .problem import DTYPES, ConvolutionProblem

Box = Mapping[str, tuple[int, int]]


def problem_of(found: Convolution, box: Box, dtype: str) -> ConvolutionProblem:
    """The convolution of the points of a shard. Raises `KernelError` for what the kernels do not compute."""
    rows, columns = found.rows, found.columns
    h, top, bottom = rows.within(box[rows.output], box[rows.tap])
    w, left, right = columns.within(box[columns.output], box[columns.tap])
    n, channels, r, s = (
        high - low for low, high in map(box.__getitem__, (found.batch, found.channel, rows.tap, columns.tap))
    )
    if found.per != found.width:
        raise WrongValue("a group of other channels out than in", expected=found.width, came=found.per)
    if channels % found.width or box[found.channel][0] % found.width:
        raise WrongValue("a shard that cuts a group", where=found.channel, expected=found.width, came=channels)
    if box[found.inner] != (0, found.width):
        raise WrongValue("a shard of the channels of a group", where=found.inner, came=box[found.inner])
    gaps = (rows.gap if r > 1 else 1, columns.gap if s > 1 else 1)
    return ConvolutionProblem(
        n, h, w, channels, channels // found.width, r, s, (rows.step, columns.step), gaps,
        (top, bottom, left, right), dtype,
    )  # fmt: skip


def problems(plan: Any) -> dict[str, tuple[ConvolutionProblem, ...]]:
    """Operation -> the distinct problems of its shards, for every grouped convolution of a plan or program.

    `plan` is a plan, its document, or what that is as plain mappings (not folded: `tapestry.planner` unfolds what it
    loads). Operations the kernels do not compute are left out. Raises `WrongValue` for what is no plan, and UsageError
    naming the place of what is malformed in one.
    """
    from ...serialize import program_from_json

    document = _part(plan, "document") or plan
    program = _part(document, "program") or document
    if not isinstance(program, Mapping) or not {"tensors", "operations"} <= set(program):
        raise WrongValue("not a plan", where="warm_up", expected="a plan or its document", came=type(plan).__name__)
    if any("repeat" in item for item in (*program["operations"], *program["tensors"])):
        raise WrongValue("a folded document", where="warm_up", expected="a plan", hint="load it with tapestry.planner")
    read = program_from_json(program)
    found: dict[str, tuple[ConvolutionProblem, ...]] = {}
    for operation in read.operations:
        made = dict.fromkeys(_attempts(operation, read, _shards(document, operation)))
        if made:
            found[operation.name] = tuple(made)
    return found


def _attempts(operation: Operation, program: Program, boxes: Sequence[Box]) -> Iterator[ConvolutionProblem]:
    found = convolution(operation, program)
    dtypes = {program.tensor(name).dtype for name in (*operation.operands, operation.output)}
    if found is None or len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return
    (dtype,) = dtypes
    for box in boxes:
        try:
            yield problem_of(found, box, dtype)
        except KernelError:
            continue


def _shards(document: Any, operation: Operation) -> list[Box]:
    """The points of every rank, where they are boxes; the whole operation where there are no tasks."""
    dims = operation.extents
    layouts = _part(document, "layouts") or {}
    tasks = [task for task in _part(document, "tasks") or () if _part(task, "op") == operation.name]
    regions = [region for task in tasks for region in _part(layouts[_part(task, "shards")], "regions")]
    if not tasks:
        return [{name: (0, extent) for name, extent in dims.items()}]
    boxes = (_box(region) for region in dict.fromkeys(regions))
    return [dict(zip(dims, box, strict=True)) for box in boxes if box is not None and len(box) == len(dims)]


def _box(region: str) -> list[tuple[int, int]] | None:
    pieces = [piece.split(":") for piece in region.split(",")]
    if not all(len(piece) == 2 and all(side.strip().isdecimal() for side in piece) for piece in pieces):
        return None
    box = [(int(low), int(high)) for low, high in pieces]
    return box if all(low < high for low, high in box) else None


def _part(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
