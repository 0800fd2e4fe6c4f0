"""What the program of a plan was made from, and the proof that it computes the same.

A plan is proved to compute the program that it embeds. Where that was rewritten, the plan names the program as it was
written by its digest, and each change. Given that program again, the changes are made again: the rules, which are
proved by themselves, must give the embedded program. Where that is cheap both are executed, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import msgspec

from ..errors import CheckFailed
from ..program import Program
from ..serialize import program_to_json
from .format import Document, Origin, Rewrite
from .format.digest import digest

if TYPE_CHECKING:
    from ..rewrites import Rewritten

MOST_POINTS = 20_000_000  # of the programs that are executed; about ten seconds


def origin_of(found: Rewritten) -> Origin | None:
    """What a plan says of the program that it was made from; None where it is the same, operations in one order."""
    if found.before.operations == found.program.operations:
        return None
    rewrites = tuple(Rewrite(step.rule, step.at, step.made, step.of) for step in found.steps)
    return Origin(_digest(found.before), len(found.before.operations), rewrites)


def with_origin(document: Document, origin: Origin | None) -> Document:
    """The document of a plan that says so."""
    return msgspec.structs.replace(document, claims=msgspec.structs.replace(document.claims, origin=origin))


def _digest(program: Program) -> str:
    """Of a program without its pins: a plan has further ones."""
    return digest(program_to_json(replace(program, pins=())))


def origins(document: Document) -> Mapping[str, tuple[str, ...]]:
    """Operation -> the operations as written that it computes, where these are not just it."""
    found: dict[str, dict[str, None]] = {}
    for step in document.claims.origin.rewrites if document.claims.origin is not None else ():
        came = {name: None for one in step.of for name in found.get(one, {one: None})}
        found |= dict.fromkeys(step.made, came)
    return {name: tuple(of) for name, of in found.items() if tuple(of) != (name,)}


def origin_text(origin: Origin, operations: int) -> str:
    """``10 operations as written are 8: 2 fuse_pointwise``."""
    counts = Counter(step.rule for step in origin.rewrites)
    listed = ", ".join(f"{count} {rule}" for rule, count in counts.items())
    return f"{origin.operations} operations as written are {operations}: {listed or 'in another order'}"


@dataclass(frozen=True)
class Proved:
    """How the embedded program was found to compute what the written one does."""

    rewrites: int
    executed: bool

    def __str__(self) -> str:
        made = f"made again, {self.rewrites} rewrites give the embedded program" if self.rewrites else "it is embedded"
        run = "executed, both compute the same" if self.executed else "not executed: too large"
        return f"the program as written: {made}{'; ' + run if self.rewrites else ''}"


def prove_origin(document: Document, embedded: Program, written: Program) -> Proved:
    """That the embedded program was made from this one. CheckFailed with what differs."""
    origin = document.claims.origin
    stated = _digest(embedded) if origin is None else origin.program
    if _digest(written) != stated:
        digests = {"made from": stated[:12], "given": _digest(written)[:12]}
        hint = "the same file and settings (--set) as when it was planned"
        raise CheckFailed("the plan was not made from this program", where=written.name, sides=digests, hint=hint)
    if origin is None:
        return Proved(0, False)
    again = _made_again(replace(written, pins=embedded.pins), origin)
    sides: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("operations", embedded.operations, again.operations),
        ("tensors", embedded.tensors, again.tensors),
        ("ends", (embedded.outputs, embedded.states), (again.outputs, again.states)),
    )
    for what, old, new in sides:
        if set(old) != set(new):
            other = next(iter(set(old) ^ set(new)))
            named = {"differs": getattr(other, "name", str(other))}
            raise CheckFailed(f"the rewrites do not give the {what} of the embedded program", sides=named)
    return Proved(len(origin.rewrites), _executed(written, embedded))


def _made_again(written: Program, origin: Origin) -> Program:
    from ..rewrites.applying import carried_out, matches_at
    from ..rewrites.rule import rule_named

    program = written
    for step in origin.rewrites:
        op = program.op_by_name.get(step.at)
        found = () if op is None else matches_at(rule_named(step.rule), program, (op,))
        made = (carried_out(program, [match]) for match in found)
        same = next((one.program for one in made if (one.steps[0].made, one.steps[0].of) == (step.made, step.of)), None)
        if same is None:
            raise CheckFailed(f"{step.rule} does not apply", where=step.at, hint="the plan says what no rule does")
        program = same
    return program


def _executed(written: Program, embedded: Program) -> bool:
    """Whether both were executed; CheckFailed where they compute something else."""
    points = sum(prod(op.extents.values()) for program in (written, embedded) for op in program.operations)
    if points > MOST_POINTS:
        return False
    from ..closeness import assert_close
    from ..inputs import random_inputs
    from ..reference import evaluate

    inputs = random_inputs(written)
    try:
        assert_close(written, inputs, evaluate(embedded, inputs), evaluate(written, inputs))
    except AssertionError as error:
        raise CheckFailed(f"the embedded program computes something else: {error}") from None
    return True
