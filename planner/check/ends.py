"""What a program is promised and promises: inputs and parameters at the start, outputs and states at the end."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ...program import Tensor
from ..format.document import Buffer
from .algebra import EMPTY
from .case import Case
from .flow import Flow
from .report import Code, Findings


def prove_starts(case: Case, findings: Findings) -> None:
    """Finding INITIAL: inputs start as one copy of each element (unless pinned); all else that is read starts whole."""
    starts = _starts(case)
    pinned = [pin.pattern for pin in case.program.pins if pin.target == "tensor" and not pin.forbid]
    for tensor in case.program.of_role("input", "param", "state", "const"):
        filled = starts.get(tensor.name, [])
        _room(case, filled, findings)
        joined = case.algebra.join(case.algebra.join(case.distinct(str(b.initial), None)) for b in filled)
        _complete(case, tensor, bool(filled), joined, findings)
        if tensor.role != "input" or any(fnmatchcase(tensor.name, pattern) for pattern in pinned):
            continue
        held = sum(case.algebra.size(region) for b in filled for region in case.layouts[str(b.initial)])
        copies = held - case.algebra.size(joined)
        if copies:
            message = f"an input starts as one copy, this has {copies} elements more"
            findings.add(Code.INITIAL, message, tensor=tensor.name, witness=(copies,))


def _room(case: Case, filled: list[Buffer], findings: Findings) -> None:
    for b in filled:
        for rank, extra in case.beyond(str(b.initial), b.layout, None):
            message = f"buffer {b.name} is not laid out for what it starts with"
            witness = case.algebra.witness(extra)
            findings.add(Code.INITIAL, message, rank=rank, tensor=b.tensor, witness=witness)


def _starts(case: Case) -> dict[str, list[Buffer]]:
    """Tensor -> its buffers that hold something before the run."""
    starts: dict[str, list[Buffer]] = {}
    for b in case.document.buffers:
        if b.initial is not None:
            starts.setdefault(b.tensor, []).append(b)
    return starts


def _complete(case: Case, tensor: Tensor, filled: bool, there: int, findings: Findings) -> None:
    used = filled or case.program.consumers[tensor.name] or tensor.name in case.program.outputs
    missing = case.algebra.minus(_whole(case, tensor.name), there)
    if used and missing != EMPTY:
        message = "not all of it is there at the start"
        findings.add(Code.INITIAL, message, tensor=tensor.name, witness=case.algebra.witness(missing))


def prove_ends(case: Case, flow: Flow, findings: Findings) -> None:
    """Findings OUTPUT, STATE, OVERLAP: outputs are complete where they end, states end complete as they started, and
    what the program does not update is still there.
    """
    for name, buffer in sorted(case.document.outputs.items()):
        _ended(case, flow, name, buffer, case.buffers[buffer].layout, Code.OUTPUT, findings)
    starts = _starts(case)
    for name, buffer in sorted(case.document.states.items()):
        if len(starts.get(name, ())) != 1:
            names = ", ".join(b.name for b in starts.get(name, ())) or "none"
            findings.add(Code.STATE, f"one buffer must hold it at the start; these do: {names}", tensor=name)
            continue
        (start,) = starts[name]
        if case.buffers[buffer].tier != start.tier:
            message = f"it starts in {start.tier} and ends in {case.buffers[buffer].tier}"
            findings.add(Code.STATE, message, tensor=name)
        _ended(case, flow, name, buffer, str(start.initial), Code.STATE, findings)
    for tensor in case.program.of_role("param", "state", "const"):
        if tensor.name not in case.document.states:
            for start in starts.get(tensor.name, ()):
                _kept(case, flow, start, findings)


def _ended(case: Case, flow: Flow, name: str, buffer: str, layout: str, code: Code, findings: Findings) -> None:
    """Every rank's region holds final values, and together they are the whole tensor."""
    algebra = case.algebra
    missing = algebra.minus(_whole(case, name), algebra.join(case.distinct(layout, None)))
    if missing != EMPTY:
        message = f"buffer {buffer} has no place for all of it on any rank"
        findings.add(code, message, tensor=name, witness=algebra.witness(missing))
    for rank, missing in flow.missing(buffer, layout):
        held = flow.held(rank, buffer)
        lost = algebra.meet(missing, held.lost)
        why = f"was overwritten by {flow.overwriter(rank, buffer)}" if lost else "is not complete at the end"
        where, shown = (Code.OVERLAP, lost) if lost else (code, missing)
        findings.add(where, f"buffer {buffer} {why}", rank=rank, tensor=name, witness=algebra.witness(shown))


def _kept(case: Case, flow: Flow, start: Buffer, findings: Findings) -> None:
    """What the program does not update is there for the next run as it was for this one."""
    algebra = case.algebra
    for rank, missing in flow.missing(start.name, str(start.initial)):
        held = flow.held(rank, start.name)
        role = case.program.tensor(start.tensor).role
        by = f" by {flow.overwriter(rank, start.name)}" if algebra.meet(missing, held.lost) else ""
        message = f"buffer {start.name} of a {role} that the program does not update was overwritten{by}"
        witness = algebra.witness(missing)
        findings.add(Code.OVERLAP, message, rank=rank, tensor=start.tensor, witness=witness)


def _whole(case: Case, tensor: str) -> int:
    return case.algebra.whole(case.program.tensor(tensor).shape)
