"""Values computed again instead of kept: which, so that they take least time for the memory that they free.

A value is idle from one use to the next where that is more than ``gap`` operations later (what a step of training keeps
of its forward pass for the backward pass). An idle value is kept, or forgotten and computed again by a copy of its
operation right before its next use; what that copy reads is idle until then itself, and kept or computed again in turn.

    x -> a -> b -> loss -> d_b (reads a, b) -> d_a (reads x, a)         nothing forgotten
    x -> a -> b -> loss -> a' -> b' -> d_b (a', b') -> d_a (x, a')      a and b forgotten

What is kept is said by two numbers. Values whose computation takes more than so many seconds a byte are kept. Of the
others, where all that goes on is one value (between layers), that is kept whenever so many bytes were forgotten since
the last that was. Ways that differ in these numbers and in ``gap`` are compared by the memory of every instant and the
seconds of all copies; those that no other one beats are what a planner can choose from. Along a chain of n equal
layers, layers that are forgotten between two that are kept come out as about the square root of n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ..program import Operation, Program
from ..rewrites import RULES, Rewritten
from ..rewrites.applying import carried_out, matches_at
from ..rewrites.forms import kept as seen_outside
from ..rewrites.forms import known_operation
from ..verify import verify
from .sharding.replaced import replaced

AGAIN, COPY = "compute_again", "copy_again"
GAPS = (6, 16, 48)
LEVELS = 10  # values of seconds a byte that are tried
HALVINGS = 6  # of the bytes that may be forgotten in a row
NARROW = 0.1  # what else goes on beside a value that is kept between layers, as a share of it


@dataclass(frozen=True)
class Way:
    """What is computed again: by tensor the instants, operations by number, at which a copy stands right before.

    ``peak``: the most bytes of values at an instant, nothing cut; ``seconds``: of all copies.
    """

    again: tuple[tuple[str, tuple[int, ...]], ...]
    peak: int
    seconds: float


def ways(program: Program, seconds: Callable[[Operation], float]) -> list[Way]:
    """The ways that no other one beats in memory and time, the quickest first; that of no copies is the first."""
    found = list(dict.fromkeys(_tried(program, seconds)))
    best: list[Way] = []
    for way in sorted(found, key=lambda way: (way.seconds, way.peak)):
        if not best or way.peak < best[-1].peak:
            best.append(way)
    return best


def spread(found: Sequence[Way], shares: Sequence[float]) -> list[Way]:
    """Of the ways the quickest ones that take at most these shares of the memory of the first, and the leanest."""
    chosen = [next((way for way in found if way.peak <= share * found[0].peak), found[-1]) for share in shares]
    return [way for way in dict.fromkeys((*chosen, found[-1])) if way.again]


def recomputed(program: Program, way: Way) -> Rewritten:
    """The program with the copies: a step of the rule ``compute_again`` for each; verified."""
    found = Rewritten(program, program)
    number = {op.name: k for k, op in enumerate(program.operations)}
    again = dict(way.again)
    for op in reversed(program.operations):
        latest = op
        for at in again.get(op.output, ()):
            now = found.program
            late = [r.name for r in now.consumers[latest.output] if number[r.name] >= at]
            match = next(m for m in matches_at(RULES[AGAIN], now, (latest,)) if m.change.removed == (late[0],))
            found = found.then(carried_out(now, [match]))
            latest = match.change.added[0]
            number[latest.name] = at
    verify(found.program)
    return found


def fetched_again(program: Program, gap: int = GAPS[1]) -> Rewritten:
    """The program with copies of params and states for those that read them more than ``gap`` operations later.

    A rank that keeps a part of a weight then fetches the rest for the forward pass, and again for the backward pass.
    """
    found = Rewritten(program, program)
    at = {op.name: k for k, op in enumerate(program.operations)}
    place = replaced(program)
    for tensor in program.of_role("param", "state"):
        readers = [op for op in program.consumers[tensor.name] if place.get(op.output) != tensor.name]
        late = next((b for a, b in pairwise(readers) if at[b.name] - at[a.name] > gap), None)
        if late is not None:
            now = found.program
            here = matches_at(RULES[COPY], now, (now.op_by_name[late.name],))
            match = next((one for one in here if one.change.added[0].operands == (tensor.name,)), None)
            found = found if match is None else found.then(carried_out(now, [match]))
    verify(found.program)
    return found


@dataclass(eq=False)
class _Values:
    """The values of a program by number: when each is made and used, what it takes, and what making it reads."""

    program: Program
    seconds: Callable[[Operation], float]
    size: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    reads: list[tuple[int, ...]] = field(default_factory=list)
    uses: list[list[int]] = field(default_factory=list)
    fixed: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        program = self.program
        at = {op.output: k for k, op in enumerate(program.operations)}
        end = len(at)
        place = replaced(program)  # what states become, in their place, takes none
        states = {tensor.name for tensor in program.of_role("state")}
        for op in program.operations:
            readers = program.consumers[op.output]
            stays = seen_outside(program, op.output)
            self.size.append(0 if place.get(op.output) in states else program.tensor(op.output).nbytes)
            self.cost.append(self.seconds(op))
            self.reads.append(tuple(at[name] for name in op.operands if name in at))
            self.uses.append([at[reader.output] for reader in readers] + [end] * stays)
            self.fixed.append(stays or not all(map(known_operation, (op, *readers))))

    def idle(self, value: int, gap: int) -> bool:
        return not self.fixed[value] and len(stretches(value, self.uses[value], gap)) > 1


def stretches(made: int, uses: Sequence[int], gap: int) -> list[tuple[int, int]]:
    """First and last instant of each stretch of uses that are no more than ``gap`` apart; from the making to the first
    use it is one.

    >>> stretches(0, [2, 1, 30, 31], 6)
    [(0, 2), (30, 31)]
    """
    found = [(made, min(uses, default=made))]
    for use in sorted(uses):
        first, last = found[-1]
        found[-1:] = [(first, use)] if use - last <= gap else [(first, last), (use, use)]
    return found


def _tried(program: Program, seconds: Callable[[Operation], float]) -> Iterator[Way]:
    values = _Values(program, seconds)
    yield _way(values, set(range(len(values.size))), GAPS[0])
    for gap in GAPS:
        idle = [v for v in range(len(values.size)) if values.idle(v, gap)]
        if not idle:
            continue
        prices = _prices(values, set(idle))
        between = _between(values, idle, gap)
        for limit in _levels(sorted({prices[v] for v in idle})):
            cheap = [v for v in idle if prices[v] <= limit]
            total = sum(values.size[v] for v in cheap)
            for room in (0, *(total >> k for k in range(HALVINGS, -1, -1)), total + 1):
                kept = set(idle).difference(cheap) | _checkpoints(values, cheap, between, room)
                yield _way(values, kept, gap)


def _levels(prices: Sequence[float]) -> list[float]:
    """At most so many of the prices, the least and the greatest among them."""
    count = min(LEVELS, len(prices))
    return [prices[(len(prices) - 1) * k // max(1, count - 1)] for k in range(count)]


def _prices(values: _Values, idle: set[int]) -> dict[int, float]:
    """Seconds a byte of computing each idle value again from others that may be kept."""
    total: list[float] = []
    for value, cost in enumerate(values.cost):
        total.append(cost + sum(total[read] for read in values.reads[value] if read not in idle))
    return {value: total[value] / max(1, values.size[value]) for value in idle}


def _between(values: _Values, idle: Sequence[int], gap: int) -> set[int]:
    """The idle values beside which nothing of size goes on, when they are made."""
    end = len(values.size)
    ends = [stretches(value, values.uses[value], gap)[0][1] for value in range(end)]
    change = [0] * (end + 1)
    for value in range(end):
        change[value] += values.size[value]
        change[min(ends[value], end)] -= values.size[value]
    alive = list(accumulate(change))
    return {v for v in idle if alive[v] - values.size[v] <= NARROW * values.size[v]}


def _checkpoints(values: _Values, cheap: Sequence[int], between: set[int], room: int) -> set[int]:
    """Of the cheap values those to be kept, so that about ``room`` bytes are forgotten in a row."""
    kept, forgotten = set(), 0
    for value in cheap:
        forgotten += values.size[value]
        if value in between and forgotten > room:
            kept.add(value)
            forgotten = 0
    return kept


def _way(values: _Values, kept: set[int], gap: int) -> Way:
    """What there is at every instant, and what is computed again, where all idle values but these are forgotten."""
    uses = [list(mine) for mine in values.uses]
    end = len(uses)
    change = [0] * (end + 2)
    again: list[tuple[str, tuple[int, ...]]] = []
    spent = 0.0
    for value in reversed(range(end)):
        stays = value in kept or values.fixed[value]
        lives = stretches(value, uses[value], end + 1 if stays else gap)
        for first, last in lives:
            change[first] += values.size[value]
            change[last + 1] -= values.size[value]
        for first, _ in lives[1:]:
            spent += values.cost[value]
            for read in values.reads[value]:
                uses[read].append(first)
        if lives[1:]:
            name = values.program.operations[value].output
            again.append((name, tuple(first for first, _ in lives[1:])))
    return Way(tuple(again), max(accumulate(change), default=0), spent)
