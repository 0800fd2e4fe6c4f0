"""What a task takes by its shape, from a measured table, by code of the checker's own.

Three numbers say the shape of a product of matrices, of attention, and of a convolution without groups; all follow from
how many points a task has and how many elements it touches. Between the sizes of the table seconds are linear in each
of the three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from ...blocks import BLOCKS
from ...program import Block, Operation

AXES = ("rows", "columns", "folded")
Shape = tuple[float, float, float]


def of(op: Operation, kernel: str, points: int, touched: Sequence[int]) -> Shape | None:
    """Of a task that touches so many elements, first those it writes, then those of each operand; None where it has
    none.

    What an element of a result folds is the last number, how often one of the larger operand is used the middle one. A
    block leaves records, which are not cut.
    """
    written, *read = touched
    if isinstance(op.body, Block):
        whole = len(op.dims) - BLOCKS[op.body.kernel].uncut
        record = prod(dim.extent for place, dim in enumerate(op.dims) if place >= whole)
        return written / record, points / written, float(record)
    if kernel == "conv":
        return _of_windows(op, points, touched)
    uses = points / max(1, *read)
    return written / uses, uses, points / written


def _of_windows(op: Operation, points: int, touched: Sequence[int]) -> Shape | None:
    """Outputs, channels out and elements of a window, of a convolution whose three tensors share no dimension."""
    found = _windowed(op)
    if found is None:
        return None
    filters, result, _ = found
    sizes = dict(zip((op.output, *op.operands), touched, strict=True))
    outputs = points / sizes[filters]
    wide = sizes[result] / outputs
    return outputs, wide, sizes[filters] / wide


def _windowed(op: Operation) -> tuple[str, str, int] | None:
    """The tensors of filters and of results, and the places of a window.

    Every point is one element of the filter tensor at one output; which tensor that is shows in where the taps are.
    """
    having = {op.output: [row.dims for row in op.write]}
    having |= {read.tensor: [row.dims for row in read.index] for read in op.reads}
    if len(having) != 3 or len(op.reads) != 2:
        return None
    every = {name: frozenset[str]().union(*rows) for name, rows in having.items()}
    moved = [(name, row) for name, rows in having.items() if name != op.output for row in rows if len(row) > 1]
    if frozenset.intersection(*every.values()) or len({name for name, _ in moved}) != 1:
        return None
    [(image, _), *_] = moved
    [factor] = {*op.operands} - {image}
    swept = frozenset[str]().union(*(row for _, row in moved))
    at, tapped = swept & every[op.output], swept & every[factor]
    if not at or not tapped or at & tapped or at | tapped != swept:
        return None
    steps = dict.fromkeys(swept, 1)
    for read in op.reads:
        for row in read.index if read.tensor == image else ():
            steps |= {str(atom): abs(step) for atom, step in row.terms if len(row.dims) > 1 and str(atom) in swept}
    outputs, taps = (prod(op.extents[name] for name in names) for names in (at, tapped))
    reached, window = (prod(op.extents[name] * steps[name] for name in names) for names in (at, tapped))
    return (op.output, factor, outputs) if reached < window else (factor, op.output, taps)


def rows_of_windows(op: Operation) -> tuple[str, bool] | None:
    """Of a product of windows that share no element: the tensor that is read in them, and whether they have to be
    written out as rows of a matrix before it is one; None of anything else."""
    found = _windowed(op)
    if found is None or op.where or any(read.guard for read in op.reads):
        return None
    [image] = [read for read in op.reads if any(len(row.dims) > 1 for row in read.index)]
    along: list[str] = []
    for row in image.index:
        reach = 1
        for step, name in sorted((abs(step), str(atom)) for atom, step in row.terms):
            if name not in op.extents or (step < reach and op.extents[name] > 1):
                return None
            reach = max(reach, step * (op.extents[name] - 1) + 1)
        along += [str(atom) for atom, _ in sorted(row.terms, key=lambda term: abs(term[1]), reverse=True)]
    kinds = "".join("r" if name in op.reduce_dims else "k" for name in along)
    return image.tensor, bool(kinds.strip("r").strip("k")) or kinds[0] == kinds[-1]


def few_queries(op: Operation) -> bool:
    """Whether at most four queries of attention see the same keys: no shape says that."""
    if not isinstance(op.body, Block) or op.body.kernel != "attention":
        return False
    kept = op.dims[: len(op.dims) - BLOCKS["attention"].uncut - BLOCKS["attention"].folded]
    _, keys, *_ = op.reads
    known = {name for row in keys.index for name in row.dims}
    return prod(dim.extent for dim in kept if dim.name not in known) <= 4


def seconds_of(tables: Sequence[Mapping[str, Any]], op: Operation, points: int, touched: Sequence[int]) -> float:
    """Beyond the start of a task, by the tables of its class, those for smaller windows first; 0 where they say nothing
    of it, as of convolutions with groups, and of more channels than were measured.
    """
    conv = tables[0]["kernel"] == "conv"
    shape, found = of(op, tables[0]["kernel"], points, touched), _windowed(op) if conv else None
    if shape is None:
        return 0.0
    places, (outputs, wide, folded) = 0 if found is None else found[2], shape
    windows = [table.get("window", 0) for table in tables]
    above = next((k for k, window in enumerate(windows) if window >= places), len(tables) - 1)
    if not conv or not above or windows[above] <= places:
        parts = [(1.0, tables[above], folded)]
    else:
        share = (places - windows[above - 1]) / (windows[above] - windows[above - 1])
        weighed = ((1 - share, above - 1), (share, above))
        parts = [(part, tables[k], folded / places * windows[k]) for part, k in weighed]
    if conv and any(depth > table["folded"][-1] for _, table, depth in parts):
        return 0.0
    return sum(part * seconds(table, (outputs, wide, depth)) for part, table, depth in parts)


def seconds(table: Mapping[str, Any], shape: Shape) -> float:
    """Beyond the start of a task. More rows of a product than the table has may count as columns instead."""
    rows, columns, folded = shape
    last, first = table["rows"][-1], table["columns"][0]
    shapes = [shape]
    if table["kernel"] == "matmul" and rows > last:
        shapes.append((last, max(first, columns) * rows / last, folded))
    return min(_read(table, each) for each in shapes)


def _read(table: Mapping[str, Any], shape: Shape) -> float:
    values: list[float] = table["seconds"]
    for axis, size in zip(AXES, shape, strict=True):
        values = _along(table[axis], size, values)
    return values[0]


def _along(sizes: Sequence[int], size: float, values: Sequence[float]) -> list[float]:
    """The table without its first axis, at a size of that axis."""
    planes = _planes(values, len(sizes))
    if size >= sizes[-1]:
        return [value * (size / sizes[-1]) for value in planes[-1]]
    right = next(k for k, known in enumerate(sizes) if size < known)
    if not right:
        return list(planes[0])
    share = (size - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
    return [(1 - share) * low + share * high for low, high in zip(*planes[right - 1 : right + 1], strict=True)]


def _planes(values: Sequence[float], count: int) -> list[Sequence[float]]:
    step = len(values) // count
    return [values[k * step : (k + 1) * step] for k in range(count)]


def faults(table: Mapping[str, Any], at: str) -> Iterator[str]:
    """Sizes that increase, and as many seconds as there are shapes, which fall along no axis but of convolutions."""
    window = table.get("window", 0)
    if type(window) is not int or not 0 <= window < 1 << 62:
        yield f"{at}.window is not a whole number"
    lengths = []
    for name in AXES:
        axis = table.get(name)
        sizes = [size for size in axis if type(size) is int and 0 < size < 1 << 62] if isinstance(axis, list) else []
        if not sizes or sizes != axis or any(a >= b for a, b in pairwise(sizes)):
            yield f"{at}.{name} is not a list of whole numbers above 0 that increase"
            return
        lengths.append(len(sizes))
    known = table.get("seconds")
    found = known if isinstance(known, list) and len(known) == prod(lengths) else []
    if not found or not all(type(each) in (int, float) and 0 < each < 1e300 for each in found):
        yield f"{at}.seconds are not {prod(lengths)} numbers above 0"
    elif table.get("kernel") != "conv" and not _rises(lengths, found):
        yield f"{at}.seconds fall along an axis"


def _rises(lengths: Sequence[int], values: Sequence[float]) -> bool:
    if not lengths:
        return True
    planes = _planes(values, lengths[0])
    upward = all(a <= b for low, high in pairwise(planes) for a, b in zip(low, high, strict=True))
    return upward and all(_rises(lengths[1:], plane) for plane in planes)
