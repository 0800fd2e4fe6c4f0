"""What is asked of the planner, with what every part of the search needs to know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from ...program import Pin, Program
from ...serialize import program_to_json
from ..clock import Clock
from ..lowering.decisions import Decisions
from ..machine import Machine
from ..machine.embed import machine_to_json
from ..sharding.bound import Certificate, lower_bound
from ..sharding.repetition import Repetitions, find_repetitions
from ..simulate import PriceBook
from ..strategy.layouts import Layouts
from ..strategy.mesh import Mesh
from ..strategy.rooms import Room, rooms_of
from ..strategy.speeds import limited, weights
from ..strategy.strategies import StrategyTable
from ..strategy.traffic import Traffic
from .shallow import Shallow

if TYPE_CHECKING:
    from ...rewrites import Rewritten
    from .groups import Inner
    from .search import Search

# Of the memory of a rank that what is resident may take, where ranks have no equal shares of it: what is tried.
RESIDENT = (0.9, 0.8)
DEEP = 600  # operations, from which on a few layers are lowered in less time than all of them
FEW = 16  # ranks, for which plans are lowered and simulated about as fast as for one

LESS = 0.995  # of what ranks receive on the best grid, what boxes receive that are worth it where bytes are counted

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Question:
    """A program to be planned on a mesh of a machine. ``book`` and ``table`` remember prices and strategies.

    ``pieces``: whether operations may be computed in pieces. ``form``: what the program is of the one that was asked
    about, where it is another form of it. ``searches`` and ``apart`` remember what groups of ranks were asked by
    themselves, by the rows of a group, and what they said within so many bytes (`groups.within`).
    """

    program: Program
    machine: Machine
    mesh: Mesh
    objective: str
    pins: tuple[Pin, ...]
    seed: int
    jobs: int
    clock: Clock
    say: Progress
    book: PriceBook
    table: StrategyTable
    program_json: dict[str, Any]
    machine_json: dict[str, Any]
    pieces: bool = True
    form: Rewritten | None = None
    searches: dict[tuple[tuple[int, ...], int], Search] = field(default_factory=dict)
    apart: dict[tuple[tuple[int, ...], int, int], Inner | None] = field(default_factory=dict)

    @staticmethod
    def of(
        program: Program,
        machine: Machine,
        mesh: Mesh,
        objective: str = "time",
        pins: tuple[Pin, ...] = (),
        *,
        time_limit: float = 60.0,
        clock: Clock | None = None,
        seed: int = 0,
        jobs: int = 1,
        say: Progress = lambda _: None,
        pieces: bool = True,
        book: PriceBook | None = None,
    ) -> Question:
        """``clock``: one that runs already, in place of a new one of so many seconds. ``book``: prices as those of a
        plan that is there; else as plans are made. Ranks share work by the weights of the mesh, or by their speed.
        """
        clock = clock or Clock(time_limit)
        if book is None:
            mesh = mesh if mesh.weights else replace(mesh, weights=weights(program, machine, mesh.size))
            book = PriceBook(machine, mesh, frugal=objective == "bytes")
        boxed = LESS if objective == "bytes" and not mesh.weights else 0.0
        table = StrategyTable(program, mesh, book.works, book.layouts, boxed=boxed)
        plain_machine = msgspec.json.decode(msgspec.json.encode(machine_to_json(machine)))
        return Question(
            program, machine, mesh, objective, pins, seed, jobs, clock, say, book, table, program_to_json(program),
            plain_machine, pieces,
        )  # fmt: skip

    def on(self, mesh: Mesh, clock: Clock) -> Question:
        """The same question about another mesh, of whose ranks nothing is known yet."""
        mesh = mesh if mesh.weights else replace(mesh, weights=weights(self.program, self.machine, mesh.size))
        book = PriceBook(self.machine, mesh, frugal=self.objective == "bytes")
        table = StrategyTable(self.program, mesh, book.works, book.layouts)
        return replace(self, mesh=mesh, clock=clock, book=book, table=table, searches={}, apart={})

    def in_boxes(self, share: float) -> Question:
        """The same question with contractions in boxes, too, that move at most this share of what grids do."""
        table = StrategyTable(self.program, self.mesh, self.book.works, self.book.layouts, boxed=share)
        return replace(self, table=table, searches={}, apart={})

    def of_form(self, form: Rewritten) -> Question:
        """The same question about another form of the program."""
        boxed = self.table.boxed
        table = StrategyTable(form.program, self.mesh, self.book.works, self.book.layouts, boxed=boxed)
        made = program_to_json(form.program)
        return replace(self, program=form.program, table=table, program_json=made, form=form, searches={}, apart={})

    @cached_property
    def repetitions(self) -> Repetitions:
        """The stretches of the program that repeat."""
        return find_repetitions(self.program)

    @cached_property
    def shallow(self) -> Shallow:
        """The program with few of its layers."""
        return Shallow(self.program, self.repetitions)

    def of_few_layers(self, decisions: Decisions) -> Question | None:
        """The same question about a few layers of a deep program; None where what is decided of the others differs."""
        few = self.shallow.program if len(self.program.operations) > DEEP else None
        alike = few is not None and all(
            decisions.strategies[left] is decisions.strategies[kept]
            and decisions.pieces.get(left) is decisions.pieces.get(kept)
            for left, kept in self.shallow.instead
        )
        return replace(self, program=few) if few is not None and alike else None

    @cached_property
    def bound(self) -> Certificate:
        """On all plans of the program; once the time is up, what is soon proved of them."""
        return lower_bound(self.program, self.machine, self.mesh.size, soon=self.clock.up)

    @property
    def layouts(self) -> Layouts:
        return self.book.layouts

    @property
    def pricing(self) -> Traffic:
        return self.book.traffic

    @property
    def toil(self) -> int:
        """What a trial takes: its operations, each as often as it takes longer than for a few ranks."""
        return max(1, len(self.program.operations)) * self.crowd

    @property
    def crowd(self) -> int:
        """How much longer lowering and simulating take than for a few ranks."""
        return max(1, self.mesh.size // FEW)

    @property
    def tier(self) -> str:
        return self.machine.device.compute_tier.name

    @property
    def hopeless(self) -> bool:
        """Whether what is there before the run, shared out equally, is more than the memory: in any form, on any mesh
        of so many ranks.
        """
        there = sum(tensor.nbytes for tensor in self.program.of_role("input", "param", "state", "const"))
        more = sum(room.spare * len(room.ranks) for room in self.rooms)
        return there > self.capacity * self.mesh.size + more

    @property
    def capacity(self) -> int:
        """Bytes that every rank may use of its compute tier; those of some ``rooms`` may use more."""
        first = [0, *(start for other in self.machine.others for start, _ in other.ranges)]
        return min(self.machine.capacity_bytes(self.tier, number) for number in first if number < self.mesh.size)

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """The ranks told apart by what they may use, where some may use more."""
        return rooms_of(self.machine, self.tier, self.mesh.size)

    @property
    def within_memory(self) -> list[Question]:
        """The same question with less work for ranks that have no room for a share of what is resident in proportion to
        their speed, and this one.
        """
        budgets = [self.capacity] * self.mesh.size
        for room in self.rooms:
            for rank in room.ranks:
                budgets[rank] += room.spare
        there = sum(tensor.nbytes for tensor in self.program.of_role("param", "state", "const"))
        speeds = self.mesh.weights or (1,) * self.mesh.size
        tried = {
            limited(speeds, [int(share * budget) for budget in budgets], there): None
            for share in (RESIDENT if self.rooms else ())
        }
        mine = [Fraction(weight, sum(speeds)) for weight in speeds]
        others = [found for found in tried if [Fraction(weight, sum(found)) for weight in found] != mine]
        return [*map(self._with_weights, others), self]

    def _with_weights(self, found: tuple[int, ...]) -> Question:
        return self.on(replace(self.mesh, weights=found), self.clock)
