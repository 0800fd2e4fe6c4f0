"""Rules chosen by cost: greedy, the best changes first, with a look at what each would make possible.

A change is judged by the operations that it takes away and those that it brings: the cost of a program is the sum of
its operations' costs. One that makes nothing cheaper is still made where a second one, at what the first made,
wins more than the first loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..program import Operation, Program
from ..verify import verify
from .applying import Match, Rewritten, Wanted, apart, carried_out, matches_at
from .rule import Change, Rule, rule_named

Cost = Callable[[Program, Operation], float]

ROUNDS = 50
LOOKED_AT = 12  # changes without a gain of their own that are followed by a second one, the least bad first


@dataclass(frozen=True)
class _Gain:
    match: Match
    seconds: float


def improve(
    program: Program, rules: Sequence[Rule | str], cost: Cost, *, least: float = 0.0, wanted: Wanted | None = None
) -> Rewritten:
    """The program with the changes of these rules that make its cost less, each by more than ``least``; verified.

    ``cost`` is asked for the cost of an operation in a program that has its tensors, ``wanted``, where given, whether a
    change comes into question at all.
    """
    chosen = [rule_named(one) if isinstance(one, str) else one for one in rules]
    found = Rewritten(program, program)
    prices = _Prices(cost)
    asked = _Asked(chosen, wanted)
    for _ in range(ROUNDS):
        now = found.program
        gains = sorted(_gains(now, asked, prices), key=lambda gain: -gain.seconds)
        batch = apart(now, [gain.match for gain in gains if gain.seconds > least])
        more = carried_out(now, batch) if batch else _second(now, asked, prices, gains, least)
        if more is None:
            break
        found = found.then(more)
    if found.steps:
        verify(found.program)
    return found


@dataclass(frozen=True)
class _Asked:
    """The rules, and which of their changes come into question."""

    rules: Sequence[Rule]
    wanted: Wanted | None

    def matches(self, program: Program, operations: Sequence[Operation]) -> Iterator[Match]:
        for one in self.rules:
            for match in matches_at(one, program, operations):
                if self.wanted is None or self.wanted(program, match):
                    yield match


def _gains(program: Program, asked: _Asked, prices: _Prices) -> Iterator[_Gain]:
    for match in asked.matches(program, program.operations):
        yield _Gain(match, prices.gain(program, match.change))


def _second(program: Program, asked: _Asked, prices: _Prices, gains: Sequence[_Gain], least: float) -> Rewritten | None:
    """The pair of changes, the second where the first was made, that gains most together; None if none gains."""
    best: tuple[float, Rewritten] | None = None
    for first in gains[:LOOKED_AT]:
        between = carried_out(program, [first.match])
        made = [between.program.op_by_name[name] for name in first.match.change.made]
        for match in asked.matches(between.program, made):
            seconds = first.seconds + prices.gain(between.program, match.change)
            if seconds > least and (best is None or seconds > best[0]):
                best = seconds, between.then(carried_out(between.program, [match]))
    return best[1] if best is not None else None


class _Prices:
    """Costs of operations, each asked for once."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self._known: dict[int, tuple[Operation, float]] = {}

    def gain(self, program: Program, change: Change) -> float:
        """What the operations that go cost more than those that come."""
        gone = sum(self._of(program, program.op_by_name[name]) for name in change.removed)
        if not change.added:
            return gone
        names = {name for op in change.added for name in (*op.operands, op.output)}
        new = {tensor.name: tensor for tensor in change.tensors}
        tensors = tuple(new[name] if name in new else program.tensor(name) for name in sorted(names))
        beside = replace(program, tensors=tensors, operations=change.added, outputs=(), states=(), pins=())
        return gone - sum(self.cost(beside, op) for op in change.added)

    def _of(self, program: Program, op: Operation) -> float:
        known = self._known.get(id(op))
        if known is None or known[0] is not op:
            known = self._known[id(op)] = op, self.cost(program, op)
        return known[1]
