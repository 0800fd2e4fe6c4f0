"""The bridge to isl: texts that isl reads, the context they live in, and grids read back from isl's sets.

isl is loaded by the first call. All isl objects of a process live in one context: isl is not thread safe, but islpy
holds the interpreter lock for the whole of each call, so calls never overlap. An object is used only in the process
that made it, and crosses processes as text. Work under a limit gets a context of its own, so that it stops nobody else.
Dimensions are called c0, c1, ... inside (isl reserves words such as ``mod`` in any letter case).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from ..errors import TooHard
from ..expr.conditions import foregone
from ..expr.index import Affine, Bound, Table
from .intset import IntSet
from .region import Grid, Region

if TYPE_CHECKING:
    import islpy

OPERATION_LIMIT = 2_000_000  # isl's own unit of work; some seconds where it counts points
# For one question about sets, over the square of its dimensions: what an operation takes grows with them, from about a
# microsecond to 50 in thirty dimensions, and with the numbers in its tableau.
PROOF_LIMIT = 18_000_000


@cache
def context() -> islpy.Context:
    """The context of this process."""
    import islpy

    made = islpy.Context()
    made.set_max_operations(_limit[-1])
    return made


_limit = [0]  # isl's operations for the question that is being asked; 0 is no limit


@contextmanager
def within_limit(question: str, dims: int) -> Iterator[None]:
    """What isl is asked inside, in so many dimensions, may take so much work; TooHard, with the question, beyond."""
    _limit.append(PROOF_LIMIT // max(3, dims) ** 2)
    _count_anew()
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("islpy"):  # which need not have been imported
            hint = "guard the read (x.get[...]), give ranges (tp.indices(i=...)), or compute its index in two steps: "
            hint += "fewer dimensions in one read or condition, and smaller factors, take less work"
            hard = TooHard(f"{question} takes more work than it may", hint=hint)
            try:
                raise hard from None
            finally:
                hard.__context__ = None  # isl's errors refuse ==, and who follows a chain of errors compares them
        raise
    finally:
        _limit.pop()
        _count_anew()


def _count_anew() -> None:
    """From here, under the present limit. A context that nobody has asked for yet is left unmade."""
    if context.cache_info().currsize:
        context().reset_operations()
        context().set_max_operations(_limit[-1])


def read_set(text: str) -> islpy.Set:
    """Parse isl's notation of a set."""
    import islpy

    return islpy.Set.read_from_str(context(), text)


def read_map(text: str) -> islpy.Map:
    """Parse isl's notation of a relation."""
    import islpy

    return islpy.Map.read_from_str(context(), text)


def count_within(points: islpy.Set, operations: int = OPERATION_LIMIT) -> int | None:
    """isl's count of a set, or None when it would take more than so many of isl's operations."""
    import islpy

    apart = islpy.Context()
    copy = islpy.Set.read_from_str(apart, str(points))
    apart.set_max_operations(operations)
    try:
        found = copy.count_val()
    except islpy.Error:
        return None
    finally:
        apart.set_max_operations(0)
    return int(found.to_python()) if found.is_int() else None


def names_of(count: int, prefix: str = "c") -> tuple[str, ...]:
    """Safe names for isl's dimensions."""
    return tuple(f"{prefix}{k}" for k in range(count))


def affine_text(expr: Affine, alias: Mapping[str, str]) -> str:
    """A quasi-affine expression in isl's notation.

    >>> affine_text(2 * Affine.dim("p") - (Affine.dim("r") + 1) // 3, {"p": "c0", "r": "c1"})
    '2*c0 + -1*floor((1*c1 + 1)/3) + 0'
    """
    parts = []
    for atom, c in expr.terms:
        if isinstance(atom, Table):
            raise TypeError(f"isl knows no table; its cases are told apart before: {expr}")
        inner = alias[atom] if isinstance(atom, str) else f"floor(({affine_text(atom.inner, alias)})/{atom.divisor})"
        parts.append(f"{c}*{inner}")
    return " + ".join([*parts, str(expr.const)])


def bound_text(bound: Bound, alias: Mapping[str, str]) -> str:
    """A condition in isl's notation: with tables, one of the cases that their values make."""
    table = next(bound.expr.tables, None)
    if table is not None:
        return _cases_text(bound, table, alias)
    expr = affine_text(bound.expr, alias)
    sides = [] if bound.lo is None else [f"{bound.lo} <= {expr}"]
    return " and ".join([*sides, *([] if bound.hi is None else [f"{expr} < {bound.hi}"])]) or "true"


def _cases_text(bound: Bound, table: Table, alias: Mapping[str, str]) -> str:
    cases = []
    for lo, hi, value in table.runs:
        rest = Bound(bound.expr.fixed(table, value), bound.lo, bound.hi)
        known = foregone(rest)
        if known is not False:
            sides = [Bound(table.inner, lo, hi), *([] if known else [rest])]
            cases.append(" and ".join(bound_text(side, alias) for side in sides))
    return f"({' or '.join(f'({case})' for case in cases) or 'false'})"


def intset_text(values: IntSet, name: str) -> str:
    """Membership of ``name`` in a set of integers, in isl's notation."""
    parts = []
    for run in values.runs:
        stride = "" if run.step == 1 else f" and ({name} - {run.start}) mod {run.step} = 0"
        parts.append(f"({run.start} <= {name} < {run.stop}{stride})")
    return f"({' or '.join(parts) or 'false'})"


def grid_text(grid: Grid, names: Sequence[str]) -> str:
    """Membership of a point in a grid, in isl's notation."""
    return " and ".join(intset_text(axis, name) for axis, name in zip(grid.axes, names, strict=True)) or "true"


def region_text(region: Region, names: Sequence[str]) -> str:
    """Membership of a point in a region, in isl's notation."""
    return " or ".join(f"({grid_text(grid, names)})" for grid in region.grids) or "false"


def set_text(names: Sequence[str], condition: str) -> str:
    return f"{{ [{', '.join(names)}] : {condition} }}"


def rows_text(names: Sequence[str], rows: Iterable[str], condition: str) -> str:
    """The relation that takes a point to its rows where the condition holds."""
    return f"{{ [{', '.join(names)}] -> [{', '.join(rows)}] : {condition} }}"


def union_text(texts: Sequence[str]) -> str:
    """The union of relations between the same spaces."""
    return f"{{ {'; '.join(text[1:-1].strip() for text in texts)} }}"


def point_of(values: islpy.Set) -> tuple[int, ...] | None:
    """The least element (first in the order of the dimensions), or None when empty."""
    if values.is_empty():
        return None
    import islpy

    point = values.lexmin().sample_point()
    count = values.dim(islpy.dim_type.set)
    return tuple(int(point.get_coordinate_val(islpy.dim_type.set, k).to_python()) for k in range(count))


def hull_of(values: islpy.Set) -> list[tuple[int, int]] | None:
    """Half-open bounds of every dimension, or None where one is unbounded. The set is not empty."""
    import islpy

    found = []
    for k in range(values.dim(islpy.dim_type.set)):
        lo, hi = values.dim_min_val(k), values.dim_max_val(k)
        if not (lo.is_int() and hi.is_int()):
            return None
        found.append((int(lo.to_python()), int(hi.to_python()) + 1))
    return found


def grid_of(values: islpy.Set) -> Grid | None:
    """The set as one grid of single runs, or None where it is none."""
    if values.is_empty():
        return None
    hull = hull_of(values)
    if hull is None:
        return None
    steps = [max(1, int(values.get_stride(k).to_python())) for k in range(len(hull))]
    runs = [range(lo, hi, step if hi - lo > 1 else 1) for (lo, hi), step in zip(hull, steps, strict=True)]
    grid = Grid(tuple(IntSet((run,)) for run in runs))
    names = names_of(len(hull))
    return grid if read_set(set_text(names, grid_text(grid, names))).is_equal(values) else None
