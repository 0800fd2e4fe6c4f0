"""What takes the place of what, as far as the program alone says: the model counts no second buffer for it.

A value that is made element by element of an operand read for the last time takes that operand's place where both have
the same layout. A state's new value takes the place of the state, and so does what is on the way from the one to the
other, or what comes after the last use of the old one. The lowering looks for the same among its steps.
"""

from __future__ import annotations

from ...program import Operation, Program


def replaced(program: Program) -> dict[str, str]:
    """By tensor the one whose place it takes."""
    place = {op.name: k for k, op in enumerate(program.operations)}
    last = {t.name: max((place[r.name] for r in program.consumers[t.name]), default=-1) for t in program.tensors}
    ends = {*program.outputs, *(value for _, value in program.states)}
    updated = {state: value for state, value in program.states if state not in ends}
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for k, op in enumerate(program.operations):
        dying = [name for name in _exchanged(op, program) if last[name] == k and name not in ends]
        for name in reversed(dying):
            if program.tensor(name).role in ("value", "input"):
                found[op.output] = name
            if name in updated or name in origin:
                origin[op.output] = origin.get(name, name)
    for state, value in updated.items():
        maker = program.producer.get(value)
        if origin.get(value) == state:
            found |= {name: state for name, first in origin.items() if first == state}
        elif maker is not None and last[state] < place[maker.name] and _alike(state, value, program):
            found[value] = state
    return found


def _exchanged(op: Operation, program: Program) -> list[str]:
    """Operands of which an operation reads only the element that it writes, of its result's dtype and shape."""
    return [op.operands[k] for k in op.read_in_place if _alike(op.operands[k], op.output, program)]


def _alike(name: str, other: str, program: Program) -> bool:
    one, two = program.tensor(name), program.tensor(other)
    return (one.dtype, one.shape) == (two.dtype, two.shape)
