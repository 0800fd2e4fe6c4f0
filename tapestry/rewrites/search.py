"""Rules chosen by cost: greedy, the best changes first, with a look at what each would make possible.

A change is judged by the operations that it takes away and those that it brings: the cost of a program is the sum of
its operations' costs. One that makes nothing cheaper is still made where further ones, at what it made or beside that,
win more than it loses.
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
LOOKED_AT = 12  # changes, or sequences of them, without a gain of their own that are followed further, the best first


@dataclass(frozen=True)
class _Gain:
    match: Match
    seconds: float


def improve(
    program: Program,
    rules: Sequence[Rule | str],
    cost: Cost,
    *,
    least: float = 0.0,
    wanted: Wanted | None = None,
    ahead: int = 2,
) -> Rewritten:
    """The program with the changes of these rules that make its cost less, each by more than ``least``; verified.

    ``cost`` is asked for the cost of an operation in a program that has its tensors, ``wanted``, where given, whether a
    change comes into question at all. Where no change gains by itself, up to ``ahead`` that follow one another are made
    together.
    """
    chosen = [rule_named(one) if isinstance(one, str) else one for one in rules]
    found = Rewritten(program, program)
    prices = _Prices(cost)
    asked = _Asked(chosen, wanted)
    for _ in range(ROUNDS):
        now = found.program
        gains = sorted(_gains(now, asked, prices), key=lambda gain: -gain.seconds)
        batch = apart(now, [gain.match for gain in gains if gain.seconds > least])
        more = carried_out(now, batch) if batch else _together(now, asked, prices, gains, least, ahead)
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


@dataclass(frozen=True)
class _Path:
    """Changes that follow one another, and what they gain in all."""

    found: Rewritten
    seconds: float

    def near(self) -> list[Operation]:
        """What the changes made that is still there, and the operations before and after it."""
        program = self.found.program
        made = {name for step in self.found.steps for name in step.made}
        here = [op for op in program.operations if op.name in made]
        before = [program.producer[name] for op in here for name in op.operands if name in program.producer]
        after = [reader for op in here for reader in program.consumers[op.output]]
        return list({op.name: op for op in (*here, *before, *after)}.values())

    def then(self, match: Match, prices: _Prices) -> _Path:
        program = self.found.program
        more = carried_out(program, [match])
        return _Path(self.found.then(more), self.seconds + prices.gain(program, match.change))


def _together(
    program: Program, asked: _Asked, prices: _Prices, gains: Sequence[_Gain], least: float, ahead: int
) -> Rewritten | None:
    """The fewest changes that gain together, and of these the ones that gain most; None if none do."""
    start = _Path(Rewritten(program, program), 0.0)
    paths = [start.then(gain.match, prices) for gain in gains[:LOOKED_AT]]
    for _ in range(ahead - 1):
        further = [
            path.then(match, prices) for path in paths for match in asked.matches(path.found.program, path.near())
        ]
        paths = sorted(further, key=lambda path: -path.seconds)[:LOOKED_AT]
        if paths and paths[0].seconds > least:
            return paths[0].found
    return None


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
