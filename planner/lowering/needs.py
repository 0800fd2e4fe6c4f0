"""What is moved of every tensor for those that read it: the same under any schedule, so that all of them share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...program import Operation, Program, Tensor
from ...records import Width, width_of
from ..sharding.model import maximal
from ..strategy.layouts import Layout, Layouts, united
from .decisions import Decisions, Listing, Unit
from .parts import Part, Reader, Written, apart, by_piece, parts, written_by

# A home is laid out for what is needed of others, if that makes it so much larger at most.
GROWS = 1.5


@dataclass(frozen=True, eq=False)
class Moved:
    """A layout that a tensor is moved to: into its home, which is laid out for it (``home``), or into a copy.

    ``pieces``: whether some of it is made, or read, before the rest.
    """

    need: Layout
    home: bool
    parts: tuple[Part, ...]
    pieces: bool


@dataclass(frozen=True, eq=False)
class Needed:
    """Where a tensor is before it is moved (``have``), and all that it is moved to."""

    have: Layout
    moved: tuple[Moved, ...]

    @property
    def grown(self) -> Layout | None:
        """What its home is laid out for, where that is more than it has."""
        return next((each.need for each in self.moved if each.home), None)


class Needs:
    """The needs of all tasks of a listing."""

    def __init__(self, program: Program, decisions: Decisions, listing: Listing, layouts: Layouts) -> None:
        self.program, self.decisions, self.layouts, self.listing = program, decisions, layouts, listing
        self.units_of: dict[str, list[tuple[int, Unit]]] = {}
        for k, unit in enumerate(listing.units):
            self.units_of.setdefault(unit.op.name, []).append((k, unit))
        self._states_of: dict[str, list[str]] = {}  # by their new value
        for state, value in program.states:
            self._states_of.setdefault(value, []).append(state)
        self._known: dict[str, Needed] = {}
        self._apart: dict[str, bool] = {}
        self._widths: dict[str, Width] = {}
        self._copies: dict[tuple[str, Layout], int] = {}

    def of(self, tensor: Tensor) -> Needed:
        """What a tensor is needed as."""
        if tensor.name not in self._known:
            self._known[tensor.name] = self._of(tensor)
        return self._known[tensor.name]

    def copy(self, name: str, need: Layout) -> int:
        """Which of the layouts that a tensor is moved to, by number, has all of one that is needed; -1: where it is
        has it.
        """
        found = self._copies.get((name, need))
        if found is None:
            known = self.of(self.program.tensor(name))
            moved = (k for k, each in enumerate(known.moved) if need.within(each.need))
            found = self._copies[name, need] = -1 if known.have.satisfies(need) else next(moved)
        return found

    def width(self, name: str) -> Width:
        """Bytes of one element of a tensor."""
        if name not in self._widths:
            self._widths[name] = width_of(self.program, name)
        return self._widths[name]

    def have(self, name: str) -> Layout:
        """Where a tensor is before it is moved."""
        return self.decisions.made(self.program, name)

    def _of(self, tensor: Tensor) -> Needed:
        have, written = self.have(tensor.name), self._written(tensor)
        lacking = [reader for reader in self._readers(tensor) if not have.satisfies(reader.need)]
        by_op: dict[str, list[Layout]] = {}
        for reader in lacking:
            by_op.setdefault(reader.op, []).append(reader.need)
        wanted = maximal([self._moved_for(tensor, have, op, needs) for op, needs in by_op.items()])
        grown = next((need for need in wanted if self._grows(tensor, have, need)), None)
        served: dict[Layout, list[Reader]] = {need: [] for need in wanted}
        for reader in lacking:
            served[next(need for need in wanted if reader.need.within(need))].append(reader)
        found = []
        for need in wanted:
            groups = by_piece(served[need], self.layouts)
            for mine in ([] if need is grown else apart(need, groups, self.layouts)) or [need]:
                within = [group for group in groups if group.need.within(mine)]
                found.append(self._moved(have, mine, within, written, home=need is grown))
        return Needed(have, tuple(found))

    def _moved(
        self, have: Layout, need: Layout, groups: Sequence[Reader], written: Sequence[Written], *, home: bool
    ) -> Moved:
        lacking = self.layouts.without(need, have) if home and len(written) > 1 else need
        pieces = len(written) > 1 or any(group.piece for group in groups)
        return Moved(need, home, tuple(parts(lacking, groups, written, self.layouts)), pieces)

    def _written(self, tensor: Tensor) -> list[Written]:
        """The tasks that leave it; one before all others where it is there before the run."""
        producer = self.program.producer.get(tensor.name)
        if producer is None:
            return [Written(-1, self.have(tensor.name))]
        return written_by([(at, u.piece, u.strategy.writes) for at, u in self.units_of[producer.name]], self.layouts)

    def _moved_for(self, tensor: Tensor, have: Layout, op: str, needs: Sequence[Layout]) -> Layout:
        """What an operation reads that is moved for it: nothing for the pieces that read what is there, unless that
        is where it is moved to.
        """
        if op in self.decisions.pieces:
            strategy = self.decisions.strategies[op]
            whole = strategy.needs[self.program.op_by_name[op].operands.index(tensor.name)]
            if self._grows(tensor, have, whole):
                return whole
        return united(needs, self.layouts)

    def _readers(self, tensor: Tensor) -> list[Reader]:
        """What every task needs that reads it, and the end of the program."""
        found = []
        end = len(self.listing.units)
        for op in self.program.consumers[tensor.name]:
            operand = op.operands.index(tensor.name)
            found += [Reader(k, u.strategy.needs[operand], op.name, u.piece) for k, u in self.units_of[op.name]]
        if tensor.name in self.decisions.ends and self.have(tensor.name).parts is not None:
            found.append(Reader(end, self.decisions.ends[tensor.name], "@end"))
        # The new value of a state ends where the state started.
        states = self._states_of.get(tensor.name, ())
        return found + [Reader(end, self.have(state), f"@{state}") for state in states]

    def _grows(self, tensor: Tensor, have: Layout, need: Layout) -> bool:
        """Whether a needed layout is so little larger than the home that the home is laid out for it (a halo), without
        a copy.
        """
        if tensor.role in ("param", "state", "const") or have.parts is not None:
            return False
        return have.within(need) and need.storage_size <= GROWS * have.storage_size

    def read_apart(self, op: Operation) -> bool:
        """Whether every task that reads what an operation makes, where it is made, reads of one piece only."""
        if op.name not in self._apart:
            self._apart[op.name] = self._read_apart(self.program.tensor(op.output), self.units_of[op.name])
        return self._apart[op.name]

    def _read_apart(self, out: Tensor, units: Sequence[tuple[int, Unit]]) -> bool:
        several = len({unit.piece for _, unit in units}) < len(units)  # tasks of a piece
        if len(units) == 1 or several or out.name in self._states_of or out.name in self.program.outputs:
            return False
        whole, needs = self.have(out.name), list(dict.fromkeys(reader.need for reader in self._readers(out)))
        written = [unit.strategy.writes for _, unit in units]
        if sum(piece.everything.size for piece in written) > whole.everything.size:  # folded of several pieces
            return False
        there = [need for need in needs if whole.satisfies(need)]
        moved = [need for need in needs if need not in there]
        read_apart = all(any(need.within(piece) for piece in written) for need in there)
        return read_apart and not any(self._grows(out, whole, need) for need in moved)
