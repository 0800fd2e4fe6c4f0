"""Third proof: what every task reads is there, current and complete.

An abstract run in one order that lanes, waits and meetings allow; when there are no races (see `order`) every other
allowed order gives the same. Per rank and buffer it knows which elements hold their final value, and for partial
results which *share* (points of the operation) each element has folded. Writing to memory forgets whatever other
buffers held there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..format.document import Compute, Copy, Task, Transfer
from .algebra import EMPTY, Share
from .case import Case, Touch
from .folds import Contribution, Fold, fold_fault
from .order import Event
from .report import Code, Findings


@dataclass
class Held:
    """What a buffer holds on a rank: elements with their final value, and pieces that stand for a share of a reduction.

    ``lost`` is what was there until another buffer (``to``) was written over it.
    """

    complete: int = EMPTY
    pieces: list[tuple[int, Share]] = field(default_factory=list)
    lost: int = EMPTY
    to: str = ""


class Flow:
    """The state of all memories, and the proofs that each task's reads are met."""

    def __init__(self, case: Case, clashes: dict[str, frozenset[str]], findings: Findings) -> None:
        self.case, self.findings, self.clashes = case, findings, clashes
        self.memory: list[dict[str, Held]] = [{} for _ in case.everyone]
        self.filled: list[set[str]] = [set() for _ in case.everyone]
        self._folds: dict[Fold, tuple[Code, str, int] | None] = {}

    def fill(self) -> None:
        """The initial contents. Buffers that start filled at the same place are an overlap."""
        for buffer in self.case.document.buffers:
            if buffer.initial is not None:
                for rank, region in enumerate(self.case.layouts[buffer.initial]):
                    self._write(rank, buffer.name, region)

    def run(self, events: list[Event]) -> None:
        for position, rank in events:
            task = self.case.tasks[position]
            touches = self.case.touches(position)
            ranks = self.case.participants(task) if rank is None else (rank,)
            for here in ranks:
                self._read(task, here, touches[here])
            if isinstance(task, Transfer):
                self._moved(task)
            for here in ranks:
                self._wrote(task, here, touches[here])

    def held(self, rank: int, buffer: str) -> Held:
        return self.memory[rank].setdefault(buffer, Held())

    # Reads

    def _read(self, task: Task, rank: int, touches: tuple[Touch, ...]) -> None:
        shares = isinstance(task, Copy) or (isinstance(task, Transfer) and self.case.parts(task.have) is not None)
        for touch in touches:
            if not touch.write:
                self._present(task, rank, touch, shares)

    def _present(self, task: Task, rank: int, touch: Touch, shares: bool) -> None:
        """What is read is complete, or, where shares of a reduction will do (folds, copies), there."""
        algebra, held = self.case.algebra, self.held(rank, touch.buffer)
        missing = algebra.minus(touch.region, held.complete)
        if missing != EMPTY and shares:
            missing = algebra.minus(missing, algebra.join(region for region, _ in held.pieces))
        if missing == EMPTY:
            return
        code, why, shown = self._absent(held, missing)
        what = task.op if isinstance(task, Compute) else task.kind if isinstance(task, Transfer) else "copy"
        message, tensor = f"{what} reads buffer {touch.buffer} {why}", self.case.buffers[touch.buffer].tensor
        self.findings.add(code, message, rank=rank, task=task.id, tensor=tensor, witness=algebra.witness(shown))

    def _absent(self, held: Held, missing: int) -> tuple[Code, str, int]:
        """Why elements are not there, worst first, and which."""
        meet = self.case.algebra.meet
        lost = meet(missing, held.lost)
        if lost != EMPTY:
            return Code.OVERLAP, f"after {held.to} was written over it", lost
        shares = meet(missing, self.case.algebra.join(region for region, _ in held.pieces))
        if shares != EMPTY:
            return Code.UNFOLDED, "where it holds a share of the reduction only", shares
        return Code.MISSING, "where nothing was written", missing

    # Transfers

    def _moved(self, task: Transfer) -> None:
        """Somebody has what is needed; contributions that are folded make up the reduction exactly once."""
        algebra, have = self.case.algebra, self.case.layouts[task.have]
        ranks = self.case.participants(task)
        wanted = self.case.wanted(task)
        missing = algebra.minus(wanted, algebra.join(have[rank] for rank in ranks))
        if missing != EMPTY:
            rank = next(r for r in ranks if algebra.meet(self.case.layouts[task.need][r], missing))
            message = f"{task.kind} needs elements that no participant has"
            self.findings.add(
                Code.NOBODY, message, rank=rank, task=task.id, tensor=task.tensor, witness=algebra.witness(missing)
            )
        parts = self.case.parts(task.have)
        if parts is not None:
            self._folded(task, ranks, wanted, parts)

    def _folded(self, task: Transfer, ranks: tuple[int, ...], wanted: int, parts: tuple[int, ...]) -> None:
        algebra, have = self.case.algebra, self.case.layouts[task.have]
        given = []
        for rank in ranks:
            asked, held = algebra.meet(have[rank], wanted), self.held(rank, task.source)
            pieces = self._pieces(rank, task.source, asked)
            whole = algebra.minus(asked, algebra.join(region for region, _ in pieces))
            given += [Contribution(parts[rank], region, share.points) for region, share in pieces]
            if algebra.meet(whole, held.complete):
                given.append(Contribution(parts[rank], algebra.meet(whole, held.complete), None))
        shape = self.case.shape(self.case.program.producer[task.tensor])
        fold = Fold(shape.number, frozenset(given))
        if fold not in self._folds:
            self._folds[fold] = fold_fault(algebra, shape, fold)
        fault = self._folds[fold]
        if fault is not None:
            code, message, where = fault
            self.findings.add(code, message, task=task.id, tensor=task.tensor, witness=algebra.witness(where))

    def _pieces(self, rank: int, buffer: str, region: int) -> list[tuple[int, Share]]:
        meet = self.case.algebra.meet
        found = ((meet(piece, region), share) for piece, share in self.held(rank, buffer).pieces)
        return [(piece, share) for piece, share in found if piece != EMPTY]

    # Writes

    def _wrote(self, task: Task, rank: int, touches: tuple[Touch, ...]) -> None:
        pieces: list[tuple[int, Share]] = []
        for touch in touches:
            if not touch.write:
                continue
            if isinstance(task, Compute):
                shape, points = self.case.shape_of(task), self.case.layouts[task.shards][rank]
                if self._complete(task, rank, touch) != touch.region:
                    pieces = [(touch.region, Share(shape.number, points))]
                    self._kept(task, rank, touch)
            elif isinstance(task, Copy):
                pieces = self._pieces(rank, task.source, touch.region)
            self._bounded(task, rank, touch)
            self._same_task(task, rank, touch, touches)
            self._write(rank, touch.buffer, touch.region, self._complete(task, rank, touch), pieces)

    def _complete(self, task: Task, rank: int, touch: Touch) -> int:
        """The written elements that hold their final value."""
        if isinstance(task, Compute):
            if self.case.buffers[touch.buffer].record is not None:
                return EMPTY  # records are not finished, whatever they stand for
            return self.case.shape_of(task).written(self.case.layouts[task.shards][rank]).complete
        if isinstance(task, Copy):
            shares = self.case.algebra.join(region for region, _ in self._pieces(rank, task.source, touch.region))
            unfolded = self.case.algebra.minus(shares, self.held(rank, task.source).complete)
            return self.case.algebra.minus(touch.region, unfolded)
        return touch.region

    def _kept(self, task: Compute, rank: int, touch: Touch) -> None:
        """A share of a reduction whose records are not elements of the tensor is kept in records."""
        buffer = self.case.buffers[touch.buffer]
        record = self.case.program.records.get(buffer.tensor)
        if record is not None and buffer.record is None:
            message = (
                f"{task.op} leaves a share of its reduction, records of {', '.join(record)}, in buffer {buffer.name}"
            )
            self.findings.add(Code.RECORD, message, rank=rank, task=task.id, tensor=buffer.tensor)

    def _bounded(self, task: Task, rank: int, touch: Touch) -> None:
        """A task writes only what its buffer is laid out for."""
        extra = self.case.algebra.minus(touch.region, self.case.held(touch.buffer)[rank])
        if extra != EMPTY:
            message = f"it writes elements that buffer {touch.buffer} is not laid out for"
            tensor, witness = self.case.buffers[touch.buffer].tensor, self.case.algebra.witness(extra)
            self.findings.add(Code.OUTSIDE, message, rank=rank, task=task.id, tensor=tensor, witness=witness)

    def _same_task(self, task: Task, rank: int, touch: Touch, touches: tuple[Touch, ...]) -> None:
        """What a task reads and what it writes are live together."""
        for other in touches:
            if other.buffer in self.clashes[touch.buffer]:
                message = f"it writes buffer {touch.buffer} over {other.buffer}, which it reads"
                tensor = self.case.buffers[other.buffer].tensor
                self.findings.add(Code.OVERLAP, message, rank=rank, task=task.id, tensor=tensor)

    def _write(
        self,
        rank: int,
        buffer: str,
        region: int,
        complete: int | None = None,
        pieces: list[tuple[int, Share]] | None = None,
    ) -> None:
        if region == EMPTY:
            return
        algebra, held = self.case.algebra, self.held(rank, buffer)
        for other in self.clashes[buffer] & self.filled[rank]:
            self._forget(self.memory[rank][other], buffer)
        self.filled[rank] -= self.clashes[buffer]
        self.filled[rank].add(buffer)
        complete = region if complete is None else complete
        kept = ((algebra.minus(piece, region), share) for piece, share in held.pieces)
        held.pieces = [(piece, share) for piece, share in kept if piece != EMPTY] + (pieces or [])
        held.complete = algebra.join((algebra.minus(held.complete, region), complete))
        held.lost = algebra.minus(held.lost, region)

    def _forget(self, held: Held, to: str) -> None:
        there = self.case.algebra.join((held.complete, *(piece for piece, _ in held.pieces)))
        held.lost, held.to = self.case.algebra.join((held.lost, there)), to
        held.complete, held.pieces = EMPTY, []


def run(case: Case, events: list[Event], clashes: dict[str, frozenset[str]], findings: Findings) -> Flow:
    """The memories at the end. Findings MISSING, UNFOLDED, OVERLAP, OUTSIDE, NOBODY, PARTS."""
    flow = Flow(case, clashes, findings)
    flow.fill()
    flow.run(events)
    return flow
