"""Sixth proof: the traffic that the plan states is what its transfers move, counted by sets.

Complete source: every rank receives what it needs and does not have, so that with needers N and holders H an element
costs |N \\ H|. Partial source: with d part numbers among the holders of an element, its fold takes d - 1 messages if
it is made where one of the contributions is and d elsewhere, and its result goes to the |N| - 1 other needers: d +
|N| - 1 - [N meets H]. So a reduce-scatter of V bytes over P ranks moves (P - 1) V, an all-reduce 2 (P - 1) V. A
contribution is a record of the fold, which may have more bytes than an element; so is a result that is a larger share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..format.document import Transfer
from .case import Case
from .report import Code, Findings


def received(case: Case, task: Transfer) -> tuple[int, int]:
    """What ranks receive from other ranks in a transfer: contributions to folds, and elements."""
    algebra = case.algebra
    have, need, parts = case.layouts[task.have], case.layouts[task.need], case.parts(task.have)
    ranks = case.participants(task)
    if parts is None:
        return 0, sum(algebra.size(algebra.minus(need[rank], have[rank])) for rank in ranks)
    apart = [_folded(case, group, have, need, parts) for group in case.meeting(task)]
    contributions, elements = map(sum, zip(*apart, strict=True))
    return (contributions + elements, 0) if case.parts(task.need) is not None else (contributions, elements)


def _folded(
    case: Case, ranks: Sequence[int], have: Sequence[int], need: Sequence[int], parts: Sequence[int]
) -> tuple[int, int]:
    """Of a fold among some ranks."""
    algebra, wanted = case.algebra, case.algebra.join(need[rank] for rank in ranks)
    holders: dict[int, list[int]] = {}
    for rank in ranks:
        holders.setdefault(parts[rank], []).append(have[rank])
    contributed = sum(algebra.size(algebra.meet(algebra.join(held), wanted)) for held in holders.values())
    needed = sum(algebra.size(need[rank]) for rank in ranks)
    at_home = algebra.size(algebra.join(algebra.meet(need[rank], have[rank]) for rank in ranks))
    return contributed - at_home, needed - algebra.size(wanted)


def prove(case: Case, findings: Findings) -> None:
    """Finding TRAFFIC; fact: bytes_total."""
    known: dict[tuple[str, str, object], tuple[int, int]] = {}
    moved: Counter[str] = Counter()
    for task in case.tasks:
        if isinstance(task, Transfer):
            key = task.have, task.need, task.ranks
            if key not in known:
                known[key] = received(case, task)
            contributions, elements = known[key]
            moved[task.kind] += contributions * case.record_bytes(task.tensor)
            moved[task.kind] += elements * case.item_bytes(task.tensor)
    stated, total = case.document.traffic, sum(moved.values())
    if stated.bytes_total != total:
        findings.add(Code.TRAFFIC, f"bytes_total is {stated.bytes_total}; the transfers move {total}", witness=(total,))
    for kind in sorted({*moved, *stated.bytes_by_kind}):
        if stated.bytes_by_kind.get(kind, 0) != moved[kind]:
            message = f"bytes_by_kind states {stated.bytes_by_kind.get(kind, 0)} of {kind}; they move {moved[kind]}"
            findings.add(Code.TRAFFIC, message, witness=(moved[kind],))
    findings.facts.update(bytes_total=total)
