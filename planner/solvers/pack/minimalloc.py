"""The CSV of the MiniMalloc benchmarks: `id,lower,upper,size`, one buffer a line; solved files add `offset`.

The instance is that of https://github.com/google/minimalloc.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from ....errors import UsageError
from .problem import Buffer

COLUMNS = ("id", "lower", "upper", "size")
DEFAULT_CAPACITY = 1_048_576
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def read_buffers(path: Path) -> list[Buffer]:
    """The buffers of a file, in its order.

    Raises UsageError, with file and line, for any other header, lines of another length, numbers that are not integers
    of at most 18 digits, negative sizes, empty lifetimes and ids that are empty or appear twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the file cannot be read", where=str(path), witness=str(error)) from error
    rows = csv.reader(text.splitlines())
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        sides = {"expected": ",".join(COLUMNS), "found": ",".join(header)}
        raise UsageError("the header is not that of a packing problem", where=f"{path}:1", sides=sides)
    buffers: dict[str, Buffer] = {}
    for row in rows:
        b = _buffer(row, f"{path}:{rows.line_num}")
        if b.name in buffers:
            raise UsageError(f"the id {b.name!r} appears twice", where=f"{path}:{rows.line_num}")
        buffers[b.name] = b
    return list(buffers.values())


def _buffer(row: Sequence[str], where: str) -> Buffer:
    if len(row) != len(COLUMNS):
        raise UsageError(f"{len(row)} fields instead of {len(COLUMNS)}", where=where, sides={"line": ",".join(row)})
    name, *numbers = row
    if not name:
        raise UsageError("the id is empty", where=where)
    for column, number in zip(COLUMNS[1:], numbers, strict=True):
        if not _INTEGER.fullmatch(number):
            raise UsageError(f"{column} is not an integer of at most 18 digits", where=where, sides={"found": number})
    lower, upper, size = (int(number) for number in numbers)
    if size < 0:
        raise UsageError("the size is negative", where=where, sides={"size": size})
    if lower >= upper:
        raise UsageError("lower is not below upper", where=where, sides={"lower": lower, "upper": upper})
    return Buffer(name, lower, upper, size)


def solution_text(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> str:
    """CSV of the columns of the input and `offset`, in the order of the buffers."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "offset"])
    writer.writerows([b.name, b.lower, b.upper, b.size, offsets[b.name]] for b in buffers)
    return text.getvalue()


def capacity_of(path: Path) -> int:
    """The number before the extension (`A.1048576.csv`), or 1,048,576 where there is none.

    >>> capacity_of(Path("A.2048.csv")), capacity_of(Path("mine.csv"))
    (2048, 1048576)
    """
    named = re.search(r"\.([0-9]{1,18})\.csv$", path.name)
    return int(named.group(1)) if named else DEFAULT_CAPACITY
