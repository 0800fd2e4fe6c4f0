"""Third proof: what every task reads is there, current and complete.

An abstract run in one order that lanes, waits and meetings allow; when there are no races (see `order`) every other
allowed order gives the same. Per rank and buffer it knows which elements hold their final value, and for partial
results which *share* (points of the operation) each element has folded. Writing to memory forgets whatever other
buffers held there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...space import Box
from ..format.model import Compute, Copy, Task, Transfer
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

    @property
    def anything(self) -> bool:
        return self.complete != EMPTY or bool(self.pieces)


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
        what = task.op if isinstance(task, Compute) else task.kind if isinstance(task, Transfer) else "copy"
        buffer, tensor = touch.buffer, self.case.buffers[touch.buffer].tensor
        lost = algebra.meet(missing, held.lost)
        partial = algebra.meet(missing, algebra.join(region for region, _ in held.pieces))
        if lost != EMPTY:
            code, shown, message = (
                Code.OVERLAP,
                lost,
                f"{what} reads buffer {buffer} after {held.to} was written over it",
            )
        elif partial != EMPTY:
            code, shown, message = (
                Code.UNFOLDED,
                partial,
                f"{what} reads buffer {buffer}, which holds a share of the reduction there",
            )
        else:
            code, shown, message = Code.MISSING, missing, f"{what} reads elements that buffer {buffer} does not hold"
        self.findings.add(code, message, rank=rank, task=task.id, tensor=tensor, witness=algebra.witness(shown))

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
                if shape.written(points).complete != touch.region:
                    pieces = [(touch.region, Share(shape.number, points))]
            elif isinstance(task, Copy):
                pieces = self._pieces(rank, task.source, touch.region)
            self._bounded(task, rank, touch)
            self._same_task(task, rank, touch, touches)
            self._write(rank, touch.buffer, touch.region, self._complete(task, rank, touch), pieces)

    def _complete(self, task: Task, rank: int, touch: Touch) -> int:
        """The written elements that hold their final value."""
        if isinstance(task, Compute):
            return self.case.shape_of(task).written(self.case.layouts[task.shards][rank]).complete
        if isinstance(task, Copy):
            shares = self.case.algebra.join(region for region, _ in self._pieces(rank, task.source, touch.region))
            unfolded = self.case.algebra.minus(shares, self.held(rank, task.source).complete)
            return self.case.algebra.minus(touch.region, unfolded)
        return touch.region

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

    # The end

    def end(self) -> None:
        """Outputs are complete where they end; states end complete as they started."""
        for name, buffer in sorted(self.case.document.outputs.items()):
            self._ended(name, buffer, self.case.held(buffer), Code.OUTPUT)
        starts = {b.tensor: b for b in self.case.document.buffers if b.initial is not None}
        for name, buffer in sorted(self.case.document.states.items()):
            start = starts.get(name)
            if start is None:
                self.findings.add(Code.STATE, "no buffer holds it at the start", tensor=name)
                continue
            if self.case.buffers[buffer].tier != start.tier:
                message = f"it starts in {start.tier} and ends in {self.case.buffers[buffer].tier}"
                self.findings.add(Code.STATE, message, tensor=name)
            self._ended(name, buffer, self.case.layouts[str(start.initial)], Code.STATE)

    def _ended(self, name: str, buffer: str, regions: tuple[int, ...], code: Code) -> None:
        algebra = self.case.algebra
        whole = algebra.number(Box.of_shape(self.case.program.tensor(name).shape).region())
        missing = algebra.minus(whole, algebra.join(regions))
        if missing != EMPTY:
            message = f"buffer {buffer} has no place for all of it on any rank"
            self.findings.add(code, message, tensor=name, witness=algebra.witness(missing))
        for rank, region in enumerate(regions):
            held = self.held(rank, buffer)
            missing = algebra.minus(region, held.complete)
            if missing != EMPTY:
                over = algebra.meet(missing, held.lost) != EMPTY
                message = f"buffer {buffer} " + (
                    f"was overwritten by {held.to}" if over else "is not complete at the end"
                )
                where = Code.OVERLAP if over else code
                self.findings.add(where, message, rank=rank, tensor=name, witness=algebra.witness(missing))


def prove(case: Case, events: list[Event], clashes: dict[str, frozenset[str]], findings: Findings) -> None:
    """Findings INITIAL, MISSING, UNFOLDED, OVERLAP, OUTSIDE, NOBODY, PARTS, OUTPUT, STATE."""
    _starts(case, findings)
    flow = Flow(case, clashes, findings)
    flow.fill()
    flow.run(events)
    flow.end()


def _starts(case: Case, findings: Findings) -> None:
    """Inputs start as one copy of each element (unless pinned); params, states and constants start whole."""
    from fnmatch import fnmatchcase

    algebra = case.algebra
    pinned = [pin.pattern for pin in case.program.pins if pin.target == "tensor"]
    for tensor in case.program.of_role("input", "param", "state", "const"):
        mine = [b for b in case.document.buffers if b.tensor == tensor.name and b.initial is not None]
        used = case.program.consumers[tensor.name] or tensor.name in case.program.outputs
        regions = [region for b in mine for region in case.layouts[str(b.initial)]]
        whole = algebra.number(Box.of_shape(tensor.shape).region())
        missing = algebra.minus(whole, algebra.join(regions))
        if missing != EMPTY and (used or mine):
            message = "not all of it is there at the start"
            findings.add(Code.INITIAL, message, tensor=tensor.name, witness=algebra.witness(missing))
        copies = sum(map(algebra.size, regions)) - algebra.size(algebra.join(regions))
        if copies and tensor.role == "input" and not any(fnmatchcase(tensor.name, pattern) for pattern in pinned):
            findings.add(
                Code.INITIAL, f"an input starts as one copy, this has {copies} elements more", tensor=tensor.name
            )
        for b in mine:
            for rank, region in enumerate(case.layouts[str(b.initial)]):
                extra = algebra.minus(region, case.held(b.name)[rank])
                if extra != EMPTY:
                    message = f"buffer {b.name} is not laid out for what it starts with"
                    findings.add(Code.INITIAL, message, rank=rank, tensor=tensor.name, witness=algebra.witness(extra))
