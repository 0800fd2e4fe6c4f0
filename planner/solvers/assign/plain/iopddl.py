"""The contest's file format of sharding problems (JSON, gzipped or not), and choices as JSON lists.

    {"problem": {"name": …,
      "nodes": {"intervals": [[from, to), …], "costs": [[per strategy], …], "usages": [[per strategy], …]},
      "edges": {"nodes": [[u, v], …], "costs": [[row-major over the strategies of u and v], …]},
      "usage_limit": …}}

Costs of about 1e18 mean forbidden. Nothing is repaired: a file that is wrong anywhere is refused with the place.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from .....errors import UsageError
from ..problem import FORBIDDEN, AssignmentProblem, Costs, Ints, InvalidProblem, Usages

_LARGEST = 2**63 - 1


class _Nodes(msgspec.Struct):
    intervals: list[tuple[int, int]]
    costs: list[list[int]]
    usages: list[list[int]]


class _Edges(msgspec.Struct):
    nodes: list[tuple[int, int]]
    costs: list[list[int]]


class _Problem(msgspec.Struct):
    nodes: _Nodes
    edges: _Edges
    usage_limit: int
    name: str = ""


class _File(msgspec.Struct):
    problem: _Problem


class UnreadableFile(UsageError):
    """A file that is not what it should be; the message names the file and the place in it."""


def read_problem(path: str | Path) -> AssignmentProblem:
    """Reads and validates a problem; raises UnreadableFile with the place of the first thing that is wrong."""
    where = str(path)
    try:
        parsed = msgspec.json.decode(_content(Path(path)), type=_File).problem
    except msgspec.ValidationError as error:
        raise UnreadableFile(f"not an iopddl problem: {error}", where=where) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"not JSON: {error}", where=where, hint="NaN and Infinity are not JSON") from None
    try:
        return _problem(parsed)
    except InvalidProblem as error:
        raise UnreadableFile(error.what, where=f"{where}, {error.where}", sides=error.sides) from None


def _content(path: Path) -> bytes:
    """The file's bytes, unpacked where it is gzipped."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except (EOFError, zlib.error) as error:
        hint = "the file is truncated or damaged: copy it again"
        raise UnreadableFile(f"its gzip stream is broken: {error}", where=str(path), hint=hint) from None


def _problem(parsed: _Problem) -> AssignmentProblem:
    nodes, edges = parsed.nodes, parsed.edges
    n = len(nodes.costs)
    for what, given in (("intervals", len(nodes.intervals)), ("usages", len(nodes.usages))):
        _expect(given == n, f"nodes.{what}", f"{given} {what}", f"{n} nodes with costs")
    _expect(parsed.usage_limit >= 0, "usage_limit", str(parsed.usage_limit), "at least 0")
    intervals = _table(nodes.intervals, "nodes.intervals")
    rows = np.arange(n)
    amounts = _vectors(nodes.usages, "nodes.usages")
    usages = Usages(rows, np.zeros(n, dtype=np.int64), intervals[:, 0].copy(), intervals[:, 1].copy(), amounts)
    return AssignmentProblem(
        costs=_vectors(nodes.costs, "nodes.costs", cap=FORBIDDEN),
        edges=_table(edges.nodes, "edges.nodes"),
        edge_costs=_vectors(edges.costs, "edges.costs", cap=FORBIDDEN),
        limits=np.array([min(parsed.usage_limit, _LARGEST // 4)], dtype=np.int64),
        usages=usages,
        resource_names=("memory",),
    )


def _table(pairs: Sequence[tuple[int, int]], place: str) -> Ints:
    flat = Costs(np.arange(0, 2 * len(pairs) + 1, 2), _array([*chain.from_iterable(pairs)], place, None))
    return flat.values.reshape(-1, 2)


def _vectors(vectors: Sequence[Sequence[int]], place: str, cap: int | None = None) -> Costs:
    lengths = np.fromiter(map(len, vectors), dtype=np.int64, count=len(vectors))
    first = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Costs(first, _array([*chain.from_iterable(vectors)], place, cap))


def _array(values: list[int], place: str, cap: int | None) -> Ints:
    """Exact 64-bit integers; what is above the cap is the cap."""
    try:
        array = np.array(values, dtype=np.int64)
    except OverflowError:
        _expect(cap is not None, place, f"{max(values, key=abs)}", "integers of 64 bits")
        array = np.array([min(value, _LARGEST) for value in values], dtype=np.int64)
    return array if cap is None else np.minimum(array, cap)


def _expect(holds: bool, where: str, found: str, expected: str) -> None:
    if not holds:
        raise InvalidProblem(
            "the problem contradicts itself", where=where, sides={"found": found, "expected": expected}
        )


def choice_text(choice: Sequence[int]) -> str:
    """A choice as a JSON list of strategy indices."""
    return json.dumps(list(choice)) + "\n"


def read_choice(path: str | Path) -> tuple[int, ...]:
    """Reads a file of what `choice_text` gives."""
    try:
        return tuple(msgspec.json.decode(_content(Path(path)), type=list[int]))
    except msgspec.MsgspecError as error:
        raise UnreadableFile(f"not a JSON list of strategy indices: {error}", where=str(path)) from None
