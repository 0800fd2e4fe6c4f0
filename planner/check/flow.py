"""Third proof: what every task reads is there, current and complete.

An abstract run in one order that lanes, waits and meetings allow; when there are no races (see `order`) every other
allowed order gives the same. Per rank and buffer it knows which elements hold their final value, and for partial
results which *share* (points of the operation) each element has folded. Writing to memory forgets whatever other
buffers held there. The ranks of a group go through it together, as columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..format.document import Compute, Copy, Task, Transfer
from . import onto
from .algebra import EMPTY
from .folds import Contribution, Fold, fold_fault, share_of
from .groups import Group, Groups, Touch
from .held import Held, Memories
from .order import Event
from .report import Code, Findings
from .shape import Shape, Share


class Flow:
    """The state of all memories, and the proofs that each task's reads are met."""

    def __init__(self, groups: Groups, clashes: dict[str, frozenset[str]], findings: Findings) -> None:
        self.case, self.groups, self.findings, self.clashes = groups.case, groups, findings, clashes
        self.columns, self.memories = groups.columns, Memories(groups.case.algebra)
        self._nothing = [self.columns.number([0] * len(group.ranks)) for group in groups.all]
        self._memory: list[dict[str, int]] = [{} for _ in groups.all]
        self._filled: list[set[str]] = [set() for _ in groups.all]
        self._over: list[dict[str, list[tuple[str, int]]]] = [{} for _ in groups.all]
        self._folds: dict[Fold, tuple[Code, str, int] | None] = {}
        self._faults: dict[object, tuple[Code, str, int] | None] = {}
        self._shares: dict[int, tuple[tuple[int, Share], ...]] = {}

    def fill(self) -> None:
        """The initial contents. Buffers that start filled at the same place are an overlap."""
        for buffer in self.case.document.buffers:
            if buffer.initial is not None:
                for group in self.groups.all:
                    regions = self.groups.regions(buffer.initial, group)
                    self._write(group, buffer.name, regions, regions, self._nothing[group.number])

    def run(self, events: list[Event]) -> None:
        for position, number in events:
            task = self.case.tasks[position]
            meeting = self.groups.of(position) if number is None else (self.groups.all[number],)
            for group in meeting:
                self._read(task, group, self.groups.touches(position, group))
            if isinstance(task, Transfer):
                self._moved(task, meeting)
            for group in meeting:
                self._wrote(task, group, self.groups.touches(position, group))

    def held(self, rank: int, buffer: str) -> Held:
        """What a buffer holds on a rank."""
        group, k = self.groups.of_rank[rank]
        return self.memories.held(self.columns.values(self._held(group, buffer))[k])

    def overwriter(self, rank: int, buffer: str) -> str:
        """The buffer that was last written over what this one held on a rank."""
        group, k = self.groups.of_rank[rank]
        writers = self._over[group.number].get(buffer, [])
        return next((name for name, hit in reversed(writers) if self.columns.values(hit)[k]), "")

    def missing(self, buffer: str, layout: str) -> Iterator[tuple[int, int]]:
        """Ranks on which a buffer does not hold the final values of its region of a layout, with what is missing."""
        for group in self.groups.all:
            complete = self._ask(self.memories.complete, self._held(group, buffer))
            lacking = self._ask(self.case.algebra.minus, self.groups.regions(layout, group), complete)
            values = self.columns.values(lacking)
            yield from ((group.ranks[k], values[k]) for k in self.columns.nonzero(lacking))

    def _held(self, group: Group, buffer: str) -> int:
        return self._memory[group.number].get(buffer, self._nothing[group.number])

    def _ask(self, function: object, *columns: int) -> int:
        return self.columns.apply(function, columns)  # type: ignore[arg-type]

    # Reads

    def _read(self, task: Task, group: Group, touches: tuple[Touch, ...]) -> None:
        shares = isinstance(task, Copy) or (isinstance(task, Transfer) and self.case.parts(task.have) is not None)
        prior = task.prior if isinstance(task, Compute) else None
        for touch in touches:
            if not touch.write:
                self._present(task, group, touch, shares or touch.buffer == prior)
                if isinstance(task, Compute) and touch.buffer == prior:
                    self._apart(task, group, touch)

    def _present(self, task: Task, group: Group, touch: Touch, shares: bool) -> None:
        """What is read is complete, or, where shares of a reduction will do (folds, copies), there."""
        algebra, held = self.case.algebra, self._held(group, touch.buffer)
        missing = self._ask(algebra.minus, touch.regions, self._ask(self.memories.complete, held))
        if shares and not self.columns.empty(missing):
            missing = self._ask(algebra.minus, missing, self._ask(self.memories.shares, held))
        for k in self.columns.nonzero(missing):
            rank, lacking = group.ranks[k], self.columns.values(missing)[k]
            code, why, shown = self._absent(rank, touch.buffer, lacking)
            what = task.op if isinstance(task, Compute) else task.kind if isinstance(task, Transfer) else "copy"
            message, tensor = f"{what} reads buffer {touch.buffer} {why}", self.case.buffers[touch.buffer].tensor
            witness = algebra.witness(shown)
            self.findings.add(code, message, rank=rank, task=task.id, tensor=tensor, witness=witness)

    def _apart(self, task: Compute, group: Group, touch: Touch) -> None:
        """Points are folded onto shares of the reduction that have none of them."""
        asked = touch.regions, self._held(group, touch.buffer), self.groups.regions(task.shards, group)
        for fault, why in (
            (onto.folded_twice, "which has some of them already"),
            (onto.finished, "where it is finished"),
        ):
            wrong = self.columns.apply(fault, asked, self.case.shape_of(task), self.memories)
            for k in self.columns.nonzero(wrong):
                message = f"{task.op} folds points onto buffer {touch.buffer}, {why}"
                witness = self.case.algebra.witness(self.columns.values(wrong)[k])
                tensor = self.case.buffers[touch.buffer].tensor
                self.findings.add(
                    Code.PARTS, message, rank=group.ranks[k], task=task.id, tensor=tensor, witness=witness
                )

    def _absent(self, rank: int, buffer: str, missing: int) -> tuple[Code, str, int]:
        """Why elements are not there, worst first, and which."""
        meet, held = self.case.algebra.meet, self.held(rank, buffer)
        lost = meet(missing, held.lost)
        if lost != EMPTY:
            return Code.OVERLAP, f"after {self.overwriter(rank, buffer)} was written over it", lost
        shares = meet(missing, self.case.algebra.join(region for region, _ in held.pieces))
        if shares != EMPTY:
            return Code.UNFOLDED, "where it holds a share of the reduction only", shares
        return Code.MISSING, "where nothing was written", missing

    # Transfers

    def _moved(self, task: Transfer, meeting: tuple[Group, ...]) -> None:
        """Somebody has what is needed; contributions that are folded make up the reduction exactly once."""
        algebra, wanted = self.case.algebra, self.case.wanted(task)
        missing = algebra.minus(wanted, algebra.join(self.case.distinct(task.have, task.ranks)))
        if missing != EMPTY:
            needs = self.case.layouts[task.need]
            rank = next(r for r in self.case.participants(task) if algebra.meet(needs[r], missing))
            message = f"{task.kind} needs elements that no participant has"
            self.findings.add(
                Code.NOBODY, message, rank=rank, task=task.id, tensor=task.tensor, witness=algebra.witness(missing)
            )
        if self.case.parts(task.have) is not None:
            self._folded(task, meeting, wanted)

    def _folded(self, task: Transfer, meeting: tuple[Group, ...], wanted: int) -> None:
        """Each of the shares that parts are folded to by itself, where there are such."""
        shape = self.case.shape(self.case.program.producer[task.tensor])
        given = tuple(self._given(task, group, wanted) for group in meeting)
        onward = self.case.parts(task.need)
        key = shape.number, given, onward is not None
        if key not in self._faults or onward is not None:
            folds = self._by_share(shape, given, onward is not None)
            found = map(self._fault, (shape for _ in folds), folds.values())
            self._faults[key] = next((fault for fault in found if fault is not None), None)
            self._shares = {number: self._share(shape, fold) for number, fold in folds.items()} if onward else {}
        fault = self._faults[key]
        if fault is not None:
            code, message, where = fault
            witness = self.case.algebra.witness(where)
            self.findings.add(code, message, task=task.id, tensor=task.tensor, witness=witness)

    def _share(self, shape: Shape, fold: Fold) -> tuple[tuple[int, Share], ...]:
        """What a fold leaves, where that is not finished."""
        shares = share_of(self.case.algebra, shape, fold)
        return tuple((elements, Share(shape.number, points)) for elements, points in shares)

    def _given(self, task: Transfer, group: Group, wanted: int) -> tuple[int, int, int, int]:
        """What the ranks of a group give to a fold: columns of part numbers, of pieces, of finished elements, and of
        the numbers of the shares that come of it.
        """
        algebra, held = self.case.algebra, self._held(group, task.source)
        asked = self.columns.apply(algebra.meet, (self.groups.regions(task.have, group),), wanted)
        pieces = self._ask(self.memories.cut, held, asked)
        whole = self._ask(algebra.minus, asked, self._ask(self.memories.reach, pieces))
        finished = self._ask(algebra.meet, whole, self._ask(self.memories.complete, held))
        return self.groups.parts(task.have, group), pieces, finished, self._onward(task, group)

    def _onward(self, task: Transfer, group: Group) -> int:
        """The column of the numbers of the shares that come of a fold; 0 where all of it is finished."""
        if self.case.parts(task.need) is None:
            return self.columns.number(0 for _ in group.ranks)
        return self.groups.parts(task.need, group)

    def _by_share(self, shape: Shape, given: tuple[tuple[int, int, int, int], ...], onward: bool) -> dict[int, Fold]:
        """The folds of a transfer, by the number of the share that comes of each."""
        contributions: dict[int, set[Contribution]] = {}
        for columns in given:
            for part, pieces, finished, number in {*zip(*map(self.columns.values, columns), strict=True)}:
                found = contributions.setdefault(number, set())
                found |= {Contribution(part, region, share.points) for region, share in self.memories.pieces(pieces)}
                found |= {Contribution(part, finished, None)} if finished else set()
        return {number: Fold(shape.number, frozenset(found), onward) for number, found in contributions.items()}

    def _fault(self, shape: Shape, fold: Fold) -> tuple[Code, str, int] | None:
        if fold not in self._folds:
            self._folds[fold] = fold_fault(self.case.algebra, shape, fold)
        return self._folds[fold]

    # Writes

    def _wrote(self, task: Task, group: Group, touches: tuple[Touch, ...]) -> None:
        for touch in touches:
            if touch.write:
                complete, pieces = self._result(task, group, touch)
                self._bounded(task, group, touch)
                self._same_task(task, group, touch, touches)
                self._write(group, touch.buffer, touch.regions, complete, pieces)

    def _result(self, task: Task, group: Group, touch: Touch) -> tuple[int, int]:
        """Columns of the written elements that hold their final value, and of those that stand for a share."""
        if isinstance(task, Compute):
            return self._computed(task, group, touch)
        if isinstance(task, Transfer) and self.case.parts(task.need) is not None:
            return self._nothing[group.number], self._larger(task, group, touch)
        if isinstance(task, Transfer):
            return touch.regions, self._nothing[group.number]
        source = self._held(group, task.source)
        pieces = self._ask(self.memories.cut, source, touch.regions)
        finished = self._ask(self.memories.complete, source)
        unfolded = self._ask(self.case.algebra.minus, self._ask(self.memories.reach, pieces), finished)
        return self._ask(self.case.algebra.minus, touch.regions, unfolded), pieces

    def _larger(self, task: Transfer, group: Group, touch: Touch) -> int:
        """The column of the pieces that ranks hold once shares were folded to larger ones."""
        numbers, meet = self.columns.values(self._onward(task, group)), self.case.algebra.meet
        found = []
        for number, region in zip(numbers, self.columns.values(touch.regions), strict=True):
            pieces = ((meet(elements, region), share) for elements, share in self._shares.get(number, ()))
            found.append(
                self.memories.number_of_pieces(tuple((some, share) for some, share in pieces if some != EMPTY))
            )
        return self.columns.number(found)

    def _computed(self, task: Compute, group: Group, touch: Touch) -> tuple[int, int]:
        """Records are not finished, whatever they stand for; an element is where its whole reduction was folded."""
        shape, points = self.case.shape_of(task), self.groups.regions(task.shards, group)
        buffer = self.case.buffers[touch.buffer]
        record = self.case.program.records.get(buffer.tensor)
        complete = self._nothing[group.number]
        if task.prior is not None:
            asked = touch.regions, self._held(group, task.prior), points
            if buffer.record is None:
                complete = self.columns.apply(onto.complete, asked, shape, self.memories)
            joined = self.columns.apply(onto.pieces, asked, shape, self.memories)
            pieces = self.columns.apply(onto.unfinished, (touch.regions, complete, joined), self.memories)
        else:
            if buffer.record is None:
                complete = self.columns.apply(_complete, (points,), shape)
            pieces = self.columns.apply(_shared, (touch.regions, complete, points), shape.number, self.memories)
        if record is not None and buffer.record is None:
            for k in self.columns.nonzero(pieces):
                message = (
                    f"{task.op} leaves a share of its reduction, records of {', '.join(record)}, "
                    f"in buffer {buffer.name}"
                )
                self.findings.add(Code.RECORD, message, rank=group.ranks[k], task=task.id, tensor=buffer.tensor)
        return complete, pieces

    def _bounded(self, task: Task, group: Group, touch: Touch) -> None:
        """A task writes only what its buffer is laid out for."""
        extra = self._ask(self.case.algebra.minus, touch.regions, self.groups.held(touch.buffer, group))
        for k in self.columns.nonzero(extra):
            message = f"it writes elements that buffer {touch.buffer} is not laid out for"
            tensor = self.case.buffers[touch.buffer].tensor
            witness = self.case.algebra.witness(self.columns.values(extra)[k])
            self.findings.add(Code.OUTSIDE, message, rank=group.ranks[k], task=task.id, tensor=tensor, witness=witness)

    def _same_task(self, task: Task, group: Group, touch: Touch, touches: tuple[Touch, ...]) -> None:
        """What a task reads and what it writes are live together, but for what it says that it writes over."""
        over = task.over if isinstance(task, Compute) else None
        for other in touches:
            if other.buffer in self.clashes[touch.buffer] and other.buffer != over:
                writing = {*self.columns.nonzero(touch.regions)}
                for k in self.columns.nonzero(other.regions):
                    if k in writing:
                        message = f"it writes buffer {touch.buffer} over {other.buffer}, which it reads"
                        tensor = self.case.buffers[other.buffer].tensor
                        self.findings.add(Code.OVERLAP, message, rank=group.ranks[k], task=task.id, tensor=tensor)

    def _write(self, group: Group, buffer: str, regions: int, complete: int, pieces: int) -> None:
        if self.columns.empty(regions):
            return
        memory, filled = self._memory[group.number], self._filled[group.number]
        for other in self.clashes[buffer] & filled:
            self._over[group.number].setdefault(other, []).append(
                (buffer, self._ask(self.memories.hit, memory[other], regions))
            )
            memory[other] = self._ask(self.memories.overwritten, memory[other], regions)
            if self.columns.empty(self._ask(self.memories.occupied, memory[other])):
                filled.remove(other)
        filled.add(buffer)
        memory[buffer] = self._ask(self.memories.written, self._held(group, buffer), regions, complete, pieces)


def _complete(points: int, shape: Shape) -> int:
    return shape.written(points).complete


def _shared(region: int, complete: int, points: int, shape: int, memories: Memories) -> int:
    """The pieces that a task writes: none where all that it writes is complete."""
    return 0 if complete == region else memories.number_of_pieces(((region, Share(shape, points)),))


def run(groups: Groups, events: list[Event], clashes: dict[str, frozenset[str]], findings: Findings) -> Flow:
    """The memories at the end. Findings MISSING, UNFOLDED, OVERLAP, OUTSIDE, NOBODY, PARTS."""
    flow = Flow(groups, clashes, findings)
    flow.fill()
    flow.run(events)
    return flow
