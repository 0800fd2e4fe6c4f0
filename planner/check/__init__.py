"""Independent proof of a plan: knows the plan format and the algebra of index sets, and nothing of how plans are made.

wellformed   every name resolves, every region is inside its space
cover        the shards of every operation cover its domain
in_place     a task that writes over what it reads does so element for element
order        the plan cannot hang; tasks that touch the same memory are ordered
flow         every task's operands are present, current and complete (`folds`: every share of a reduction once, `onto`:
             also where one task folds onto what another left)
ends         inputs and parameters are there at the start; outputs and states end complete
memory       no tier holds more than it can; live buffers never share memory
count        the stated traffic is what the tasks move
moves        transfers are named, and go over the links, as is said
times        the predicted times are those of the tasks at the machine's rates (`rates`)
shardings    operations are sharded as is said, and as pins ask
bound        no plan takes less than the stated bound

Ranks that run the same tasks are proved together (`groups`): what they hold and touch is one column of numbers
(`columns`), and a question about columns is asked once for each row that differs from all others.
"""

from __future__ import annotations

from ...errors import CheckFailed
from ..format.checked import Checked
from ..format.digest import digests
from ..format.document import Document
from ..format.resolve import Resolved
from . import bound, count, cover, ends, flow, in_place, memory, moves, order, shardings, times, wellformed
from .budget import Exhausted
from .case import Case
from .cells import Disagreement
from .groups import Groups
from .rates import Rates, Unpriced
from .report import Code, Findings, Report, Verdict

__all__ = ["Code", "Report", "Verdict", "check", "check_form", "checked"]

_proved: set[str] = set()
"""Digests of the plans that were proved in this process."""


def check(document: Document) -> Report:
    """Prove a plan, or say what is wrong with it. Nothing in the document is trusted beyond its record types."""
    findings = Findings()
    try:
        _prove(document, findings)
    except Disagreement as fault:
        findings.add(Code.DISAGREEMENT, f"the second engine finds that {fault}")
    except Exhausted as spent:
        findings.add(Code.UNPROVEN, f"proving it takes more work than a plan of its size may: {spent}")
    return findings.report()


def checked(plan: Document | Resolved) -> Checked:
    """A plan that may be run. CheckFailed for one that `check` rejects: it would run, and give other values.

    What was proved once in this process is not proved again.
    """
    document = plan.document if isinstance(plan, Resolved) else plan
    digest = digests(document)["plan"]
    if digest not in _proved:
        demand(check(document), "the plan fails its check")
        _proved.add(digest)
    return Checked(plan if isinstance(plan, Resolved) else Resolved(document))


def demand(report: Report, failure: str) -> None:
    """CheckFailed with the first verdict, if there is any."""
    if not report.ok:
        raise CheckFailed(
            f"{failure}: {report.verdicts[0]}",
            hint="it was changed after it was made: plan again; tapestry check lists every verdict",
        )


def _prove(document: Document, findings: Findings) -> None:
    case = wellformed.read(document, findings)
    if case is None:
        return
    findings.facts.update(ranks=case.ranks)
    groups = Groups(case)
    cover.prove(case, findings)
    in_place.prove(groups, findings)
    events = order.events(groups, findings)
    if events is not None:
        clashes = memory.clashes(case)
        order.prove_no_races(groups, events, clashes, findings)
        ends.prove_starts(case, findings)
        ends.prove_ends(case, flow.run(groups, events, clashes, findings), findings)
    memory.prove(case, findings)
    count.prove(case, findings)
    _figures(case, findings, runs=events is not None)
    wellformed.prove_used(document, findings)


def _figures(case: Case, findings: Findings, *, runs: bool) -> None:
    """What the plan says of itself. Only one that ends has times."""
    shardings.prove(case, findings)
    rates = Rates(case.document.machine, case.ranks)
    try:
        known = moves.Moves(case, rates)
        moves.prove(case, known, findings)
        if runs:
            times.prove(case, known, findings)
        bound.prove(case, findings)
    except Unpriced as fault:
        findings.add(Code.MACHINE, str(fault))


def check_form(document: Document) -> Report:
    """The first proofs alone: the document is well-formed and cannot hang. Readers of plans may rely on that much."""
    findings = Findings()
    try:
        case = wellformed.read(document, findings)
        if case is not None:
            order.events(Groups(case), findings)
    except Disagreement as fault:
        findings.add(Code.DISAGREEMENT, f"the second engine finds that {fault}")
    except Exhausted as spent:
        findings.add(Code.UNPROVEN, f"reading it takes more work than a plan of its size may: {spent}")
    return findings.report()
