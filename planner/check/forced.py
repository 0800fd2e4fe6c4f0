"""What must move between ranks whatever the plan, and so how long it takes at least: a product of two inputs.

Within T seconds a group of ranks does no more than its part of the multiplications, so so many groups take part; what
equal parts of a product touch, less one copy of all, came from elsewhere; and links carry no more than their bytes a
second in T. A time in which they would have to carry more is none in which the product is done. docs/planner.md has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import prod, sqrt
from typing import TYPE_CHECKING

from ...expr import MONOIDS, Call, Read
from ...program import Operation
from .case import Case

if TYPE_CHECKING:
    from .bound import Kind


def seconds(case: Case, kinds: Sequence[Kind], stated: float) -> float:
    """The stated time where no plan is that quick by what it has to move; else 0."""
    pinned = [pin.pattern for pin in case.program.pins if pin.target == "tensor"]
    free = {
        tensor.name
        for tensor in case.program.of_role("input")
        if not any(fnmatchcase(tensor.name, pattern) for pattern in pinned)
    }
    for op in case.program.operations:
        sides = _sides(op, free)
        if sides is not None and any(_short(case, op, kinds, sides, group, stated) for group in _groups(case, kinds)):
            return stated
    return 0.0


def _sides(op: Operation, free: set[str]) -> tuple[int, int, int] | None:
    """Extents m, n, k of a sum of products of two inputs, each read whole and with one copy of it at the start."""
    body = op.body
    if not isinstance(body, Call) or body.function != "multiply" or op.monoid != "sum" or op.where:
        return None
    a, b = body.args
    if not isinstance(a, Read) or not isinstance(b, Read) or a.guard or b.guard or a.tensor == b.tensor:
        return None
    if not {a.tensor, b.tensor} <= free or not MONOIDS[op.monoid].matrix:
        return None
    sets = []
    for rows in (a.index, b.index, op.write):
        names = [row.terms[0][0] for row in rows if row.is_affine and len(row.terms) == 1 and row.terms[0][1] == 1]
        if len(names) != len(rows) or len(set(names)) != len(names) or any(row.const for row in rows):
            return None
        sets.append({str(name) for name in names})
    extents = {dim.name: dim.extent for dim in op.dims}
    if any(sum(name in side for side in sets) != 2 for name in extents):
        return None
    m, n, k = (
        prod(extents[name] for name in one & other)
        for one, other in ((sets[0], sets[2]), (sets[1], sets[2]), (sets[0], sets[1]))
    )
    return (m, n, k) if m and n and k else None


def _groups(case: Case, kinds: Sequence[Kind]) -> list[tuple[int, float]]:
    """Ranks of a group at most, and bytes a second that each of all ranks receives from beyond it at most."""
    links, reach = case.document.machine["links"], kinds[0].rates.reach
    found, size = [], 1
    for _, (wider, _) in reach:
        scopes = [scope for scope, (most, _) in reach if most >= wider]
        rates = [float(link["gb_per_s"]) * 1e9 for link in links if link["scope"] in scopes]
        if size < case.ranks and rates:
            found.append((size, max(rates)))
        size = wider
    return found


def _short(
    case: Case,
    op: Operation,
    kinds: Sequence[Kind],
    sides: tuple[int, int, int],
    group: tuple[int, float],
    stated: float,
) -> bool:
    """Whether links would have to carry more than they can in the stated time."""
    (m, n, k), (size, rate) = sides, group
    each = min(kind.rates.each(op, case.program) for kind in kinds)
    parts = m * n * k * each / size / stated if stated > 0 else 0.0
    if parts <= 1:
        return False
    width = min(case.item_bytes(name) for name in (*op.operands, op.output))
    received = parts * _touched(m * n * k / parts, (m, n, k)) - (m * n + m * k + n * k)
    return received * width > case.ranks * rate * stated


def _touched(products: float, sides: tuple[int, int, int]) -> float:
    """Least a + b + c with a b c >= products squared, each at least the products that an element is part of."""
    low = sorted(products / side for side in sides)
    if low[2] <= math.pow(products, 2 / 3):
        return 3 * math.pow(products, 2 / 3)
    if low[1] <= products / sqrt(low[2]):
        return low[2] + 2 * products / sqrt(low[2])
    return low[2] + low[1] + products * products / (low[2] * low[1])
