"""Why this strategy: per operation what it costs, what it moves, and what the next best would cost instead.

All other decisions are held fixed, so the numbers answer "why not that one?". Alternatives are lowered and simulated,
the most promising of each operation, as many as a few seconds allow; of the others work and transfers are added up (A +
B + C of `planner.sharding.model`), without what overlap hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ..errors import CheckFailed, UsageError, close_match
from ..program import Operation
from ..records import width_of
from ..space import Box, Region, count_points
from ..space.cuts import KINDS
from .binding import Binding
from .format import Document, Resolved, Transfer
from .instead import Instead
from .machine.units import format_seconds
from .origin import origins
from .search.question import Question
from .sharding.model import maximal
from .sharding.nodes import sink_node
from .sharding.repetition import find_repetition
from .simulate import PriceBook, Prices
from .strategy.cost import start_seconds
from .strategy.layouts import Layout
from .strategy.mesh import Cut, Mesh
from .strategy.strategies import Strategy
from .strategy.traffic import Move

# Lowered operations in all alternatives together that are simulated, and the most alternatives of one operation.
EFFORT, MANY = 2500, 12
_CHECK = "tapestry check says what is wrong with the plan"


@dataclass(frozen=True)
class Incoming:
    """A tensor that an operation waits for, moved in one transfer or in so many ``parts``.

    ``data_dependent``: a hull, of which the data say what counts.
    """

    tensor: str
    kind: str
    bytes_moved: int
    seconds: float
    data_dependent: bool = False
    parts: int = 1


@dataclass(frozen=True)
class Alternative:
    """Another strategy, all else equal: added seconds and bytes.

    Negative: it alone would save, but not with what it forces elsewhere. ``simulated``: the seconds are those of the
    step; else tasks and transfers added up. ``fits``: into the memory there is, as far as that was tried.
    """

    strategy: str
    extra_s: float
    extra_bytes: int
    simulated: bool = False
    fits: bool = True


@dataclass(frozen=True)
class Held:
    """Of an operation within conditions: the points that hold, of how many, and whether that is exact.

    ``busiest``: the points of the busiest rank over those of an equal share.
    """

    points: int
    of: int
    exact: bool
    busiest: float


@dataclass(frozen=True)
class Row:
    """One operation: chosen strategy, compute time of its slowest rank, transfers into it, next best.

    ``held``: its points, where not all of its index space hold. ``made_of``: the
    operations as written that it computes, where it was made of others (see `tapestry.rewrites`). ``kernels``: what
    would compute it on a device that was asked (`tapestry explain --kernels`). ``pieces``: the tasks that compute it
    one after another. ``shape``: of the slowest shard, where a table of the machine says what such a shape takes.
    """

    op: str
    domain: str
    strategy: str
    compute_s: float
    incoming: tuple[Incoming, ...]
    next_best: Alternative | None
    others: tuple[Alternative, ...]
    made_of: tuple[str, ...] = ()
    held: Held | None = None
    kernels: tuple[str, ...] = ()
    pieces: int = 1
    shape: str = ""


@dataclass(frozen=True)
class Explanation:
    """Rows in program order; prints as a table, and `to_json` gives plain data."""

    objective: str
    rows: tuple[Row, ...]
    binding: Binding | None = None

    def to_json(self) -> dict[str, object]:
        import msgspec

        data: dict[str, object] = msgspec.to_builtins(self)
        return data

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class Explainer:
    """Prices alternatives of single operations in a finished plan."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        document = resolved.document
        self.mesh = Mesh(tuple(document.mesh), tuple(document.mesh_axes), tuple(document.weights or ()))
        self.book = PriceBook.of(document)
        self.question = Question.of(
            resolved.program, self.book.machine, self.mesh, document.claims.objective, book=self.book
        )
        self.table = self.question.table
        self.prices = Prices(resolved, self.book)
        self.origins = origins(document)
        self._chosen: dict[str, Strategy] = {}

    @property
    def document(self) -> Document:
        return self.resolved.document

    @cached_property
    def instead(self) -> Instead:
        """What simulates alternatives."""
        program = self.resolved.program
        homes = {t.name: self.home(t.name) for t in program.of_role("input", "param", "state", "const")}
        strategies = {op.name: self.chosen(op) for op in program.operations}
        return Instead(self.question, strategies, homes, self.document.predicted.makespan_s)

    @cached_property
    def transfers(self) -> dict[str, list[Transfer]]:
        """By target buffer."""
        found: dict[str, list[Transfer]] = {}
        for task in self.document.tasks:
            if isinstance(task, Transfer):
                found.setdefault(task.target, []).append(task)
        return found

    def chosen(self, op: Operation) -> Strategy:
        """The strategy that the plan's shards are, recognised among the candidates or taken as they are."""
        if op.name not in self._chosen:
            self._chosen[op.name] = self._recognised(op)
        return self._chosen[op.name]

    def _recognised(self, op: Operation) -> Strategy:
        if op.name not in self.resolved.computing:
            raise CheckFailed("no task of the plan computes it", where=f"operation {op.name}", hint=_CHECK)
        regions = self.resolved.computed(op.name)
        for cuts in self.table.candidates(op):
            strategy = self.table.strategy(op, cuts)
            if strategy.shards == regions:
                return strategy
        stated = self.document.shardings.get(op.name)  # cut as a pin asks
        if stated is not None and stated.kind in KINDS:
            dims = {axis: dim for dim, axes in stated.partition.items() for axis in axes.split(",")}
            chosen = {axis: Cut(dim, stated.kind) for axis, dim in dims.items()}
            chosen |= {axis: Cut.on(at) for axis, at in (stated.only or {}).items()}
            cuts = tuple(chosen.get(axis) for axis in self.mesh.axes)
            strategy = self.table.strategy(op, cuts)
            if strategy.shards == regions:
                return strategy
        return self.table.explicit(op, regions)

    def home(self, name: str) -> Layout:
        """Where a tensor is before it is moved: its initial layout, or what its operation writes."""
        program = self.resolved.program
        if name in program.producer:
            return self.chosen(program.producer[name]).writes
        initial = next((b.initial for b in self.document.buffers if b.tensor == name and b.initial is not None), None)
        if initial is None:
            raise CheckFailed("no buffer of the plan holds it before the run", where=f"tensor {name}", hint=_CHECK)
        return self.book.layouts.of(program.tensor(name).shape, self.resolved.regions(initial))

    def cost(self, op: Operation, strategy: Strategy) -> tuple[float, int]:
        """Seconds and bytes that depend on one operation's strategy: its work, the moves of what it reads and writes.

        A tensor that several operations read is moved once for all whose needs one layout serves.
        """
        seconds, nbytes = strategy.slowest + self._calls_more(op, strategy), 0
        for name in (*op.operands, op.output):
            have = strategy.writes if name == op.output else self.home(name)
            needs = [self._need(reader, name, op, strategy) for reader in self.resolved.program.consumers[name]]
            needs += [self.home(state) for state, value in self.resolved.program.states if value == name]
            moved = min(self._moves(name, have, [*needs, *end]) for end in self._ends(name, have))
            seconds, nbytes = seconds + moved[0], nbytes + moved[1]
        return seconds, nbytes

    def _calls_more(self, op: Operation, strategy: Strategy) -> float:
        """Seconds that operations of a library call take beyond their shares of one, one of them with a strategy."""
        call = self.prices.calls.get(op.name)
        members = () if call is None else call.operations
        chosen = {one.name: strategy if one is op else self.chosen(one) for one in members}
        return sum(self._alone(one, chosen) for one in members)

    def _alone(self, op: Operation, chosen: Mapping[str, Strategy]) -> float:
        """What an operation takes beyond its share of a call, which it has with those that read the same."""
        mine = chosen[op.name]
        alike = sum(other.needs == mine.needs for other in chosen.values())
        start = start_seconds(op, self.resolved.program, self.book.machine, len(self.document.devices))
        return (self.prices.calls[op.name].shares / alike - 1) * (mine.slowest - start)

    def _computes(self, op: Operation, chosen: Strategy) -> float:
        """Seconds of the slowest rank."""
        call = self.prices.calls.get(op.name)
        if call is None:
            return chosen.slowest
        return chosen.slowest + self._alone(op, {one.name: self.chosen(one) for one in call.operations})

    def _moves(self, name: str, have: Layout, needs: Sequence[Layout]) -> tuple[float, int]:
        """Seconds and bytes of the moves that serve all needs."""
        width = width_of(self.resolved.program, name)
        wanted = maximal([need for need in needs if not have.satisfies(need)])
        moves = [self.book.traffic.move(have, need, width) for need in wanted]
        return sum(move.seconds for move in moves), sum(move.nbytes for move in moves)

    def _ends(self, name: str, have: Layout) -> list[tuple[Layout, ...]]:
        """The layouts in which a partial result may end; nothing to choose for all others."""
        program = self.resolved.program
        last = name in program.outputs or any(value == name for _, value in program.states)
        return (
            list(sink_node(program.tensor(name), self.table, [have]).needs) if last and have.parts is not None else [()]
        )

    def _need(self, reader: Operation, name: str, changed: Operation, strategy: Strategy) -> Layout:
        return (strategy if reader is changed else self.chosen(reader)).needs[reader.operands.index(name)]

    def row(self, op: Operation, simulating: int = 0) -> Row:
        """``simulating``: how many of its alternatives are simulated, those first that look best added up."""
        chosen = self.chosen(op)
        others = self._alternatives(op, chosen, simulating)
        domain = ", ".join(f"{dim.name}:{dim.extent}" for dim in op.dims)
        return Row(
            op.name,
            domain,
            self.name_of(op, chosen),
            self._computes(op, chosen),
            tuple(self._incoming(op)),
            others[0] if others else None,
            tuple(others),
            self.origins.get(op.name, ()),
            _held(op, chosen) if op.where else None,
            pieces=len(self.resolved.computing[op.name]),
            shape=self._shape(op, chosen),
        )

    def _shape(self, op: Operation, chosen: Strategy) -> str:
        rank = chosen.seconds.index(chosen.slowest)
        works, partial = self.book.works, chosen.writes.parts is not None
        return works.shape(op, self.resolved.program, chosen.shards[rank], partial=partial, kind=works.kinds[rank])

    def _alternatives(self, op: Operation, chosen: Strategy, simulating: int) -> list[Alternative]:
        """The best first: those that fit, those that were simulated, then by what the plan was made for."""
        seconds, moved = self.cost(op, chosen)
        found: list[tuple[Alternative, Strategy]] = []
        for cuts in self.table.candidates(op):
            strategy = self.table.strategy(op, cuts)
            if strategy is not chosen:
                other_s, other_bytes = self.cost(op, strategy)
                found.append(
                    (Alternative(self.name_of(op, strategy), other_s - seconds, other_bytes - moved), strategy)
                )
        by_bytes = self.document.claims.objective == "bytes"

        def rank(other: Alternative) -> tuple[bool, bool, float, float]:
            first, second = other.extra_s, float(other.extra_bytes)
            return (not other.fits, not other.simulated, *((second, first) if by_bytes else (first, second)))

        found.sort(key=lambda pair: rank(pair[0]))
        others = [other for other, _ in found]
        for k, (other, strategy) in enumerate(found[:simulating]):
            tried = self.instead.tried(op, strategy)
            others[k] = replace(other, extra_s=tried.extra_s, simulated=True, fits=tried.fits)
        return sorted(others, key=rank)

    def name_of(self, op: Operation, strategy: Strategy) -> str:
        """``cut n over mesh0``; several mesh axes joined by commas; ``on mesh0 = 1`` where the others are idle; ``cut n
        otherwise`` where shards are given one by one.
        """
        named = [(axis, c) for axis, c in zip(self.mesh.axes, strategy.cuts, strict=True) if c is not None]
        parts = [f"{c.dim}{'' if c.kind == 'block' else f' {c.kind}'} over {a}" for a, c in named if c.only is None]
        places = [f"on {axis} = {c.only}" for axis, c in named if c.only is not None]
        if parts or places:
            return ", ".join(["cut " + ", ".join(parts)] * bool(parts) + places)
        given = {name for shard in dict.fromkeys(strategy.shards) for name in _part_of(op, shard)}
        return f"cut {', '.join(name for name in op.extents if name in given)} otherwise" if given else "replicated"

    def _incoming(self, op: Operation) -> Iterator[Incoming]:
        tasks = self.resolved.computing[op.name]
        for number, name in enumerate(op.operands):
            parts: dict[str, list[Move]] = {}
            for buffer in dict.fromkeys(task.reads[number] for task in tasks):
                for transfer in self.transfers.get(buffer, []):
                    move = self.prices.move(transfer)
                    parts.setdefault(move.kind, []).append(move)
            for kind, moves in parts.items():
                nbytes, seconds = sum(move.nbytes for move in moves), sum(move.seconds for move in moves)
                yield Incoming(name, kind, nbytes, seconds, name in op.data_dependent, len(moves))


def _part_of(op: Operation, shard: Region) -> Iterator[str]:
    """The dimensions of which a shard has not all."""
    for grid in shard.grids:
        yield from (name for name, values in zip(op.extents, grid.axes, strict=True) if values.size < op.extents[name])


def _held(op: Operation, chosen: Strategy) -> Held:
    extents = tuple(op.extents.values())
    found = count_points(op, Box.of_shape(extents).region())
    every = sum(chosen.points)
    return Held(found.value, prod(extents), found.exact, max(chosen.points) * chosen.busy / every if every else 1.0)


def explain(resolved: Resolved, op: str | None = None, more: int = 0) -> Explanation:
    """Explain one operation, those of a composite or layer by its name, or all, and then also what holds the plan back.

    more: bytes of memory more on each device, of which it is said what they buy. UsageError where there is no such
    operation.
    """
    explainer = Explainer(resolved)
    names = list(resolved.program.op_by_name)
    wanted = [o for o in resolved.program.operations if op is None or o.name == op or o.name.startswith(f"{op}.")]
    if op is not None and not wanted:
        inside = [name for name, of in origins(resolved.document).items() if op in of]
        within = f"it is computed in {', '.join(inside)}" if inside else None
        hint = within or close_match(op, names) or f"operations: {', '.join(names[:12])}"
        raise UsageError(f"the plan has no operation {op!r}", where="explain", hint=hint)
    binding = Binding.of(resolved, explainer.prices, more) if op is None else None
    rows = tuple(explained(explainer, wanted))
    return Explanation(resolved.document.claims.objective, rows, binding)


def explained(explainer: Explainer, wanted: Sequence[Operation]) -> Iterator[Row]:
    """A row for each operation. What repeats is simulated once, for the first of its kind."""
    program = explainer.resolved.program
    repetition = find_repetition(program)
    place = {op.name: k for k, op in enumerate(program.operations)}
    first = {op.name: program.operations[repetition.representative(place[op.name])] for op in wanted}
    trials = EFFORT // max(1, len(program.operations))
    each = min(MANY, max(1 if trials else 0, trials // max(1, len(set(first.values())))))
    said: dict[str, Mapping[str, Alternative]] = {}
    for op in wanted:
        like = first[op.name]
        if (
            like is op
            or like not in wanted
            or explainer.name_of(like, explainer.chosen(like)) != explainer.name_of(op, explainer.chosen(op))
        ):
            count, trials = min(each, trials), trials - min(each, trials)
            row = explainer.row(op, count)
            said[op.name] = {other.strategy: other for other in row.others}
        else:
            plain = explainer.row(op)
            others = tuple(said.get(like.name, {}).get(other.strategy, other) for other in plain.others)
            row = replace(plain, others=others, next_best=others[0] if others else None)
        yield row


def _lines(explanation: Explanation) -> Iterator[str]:
    if explanation.binding is not None:
        yield from explanation.binding.lines()
    for row in explanation.rows:
        pieces = f" in {row.pieces} pieces" if row.pieces > 1 else ""
        yield f"{row.op} [{row.domain}]: {row.strategy}, computes {format_seconds(row.compute_s)}{pieces}"
        if row.shape:
            yield f"  shape   {row.shape}"
        if row.made_of:
            yield f"  is      {', '.join(row.made_of)} as written"
        if row.kernels:
            yield f"  kernel  {', '.join(row.kernels)}"
        if row.held:
            some = f"{'' if row.held.exact else 'at most '}{row.held.points:,} of {row.held.of:,} points"
            yield f"  holds   {some}, the busiest rank {row.held.busiest:.3f} of an equal share"
        for item in row.incoming:
            taken = format_seconds(item.seconds)
            hull = ", a hull: the data say what of it counts" if item.data_dependent else ""
            parts = f", {item.parts} parts" if item.parts > 1 else ""
            yield f"  moves   {item.tensor}: {item.kind}, {item.bytes_moved:,} B in {taken}{parts}{hull}"
        for other in row.others if len(explanation.rows) == 1 else [row.next_best] if row.next_best else []:
            told = "" if other.simulated else " added up"
            room = "" if other.fits else ", more memory than there is"
            yield f"  instead {other.strategy}: {_signed(other.extra_s)}{told}, {other.extra_bytes:+,} B{room}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "-") + format_seconds(abs(value))
