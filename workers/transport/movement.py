"""What moves from rank to rank: the messages of one transfer, and the buffers that they join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...dtypes import numpy_dtype
from ...planner.format import Message, Resolved, Transfer
from ...planner.format.messages import moves
from ...space import Box, Region
from ..device import DType, Stored
from ..faults import Place, demand
from ..memory import Memory, buffer_dtype
from ..result import name_of
from ..whole import final_regions
from .counting import Key

Buffers = Mapping[int, Stored | None]


@dataclass(frozen=True)
class Movement:
    """Messages between ranks. ``sources`` and ``targets`` are the buffers of those ranks that this process holds.

    dtype, parts: of what the target holds, elements or larger shares, and of the records that are folded. monoid:
    messages of phase 0 carry parts to be folded by it into the receiver's target, in the order of their numbers; those
    of phase 1 carry on what was folded, from the sender's target. None: all messages carry complete elements, in phase
    0. tag: the same on all ranks, and told apart from that of every other movement of a run.
    """

    messages: tuple[Message, ...]
    dtype: DType
    parts: DType
    monoid: str | None
    tag: int
    lane: str
    place: Place
    sources: Buffers
    targets: Buffers

    @staticmethod
    def of(resolved: Resolved, task: Transfer, memories: Mapping[int, Memory], tag: int = 0) -> Movement:
        """A transfer of the plan, as the ranks of this process take part in it."""
        partial = resolved.layout(task.have).parts is not None
        return Movement(
            tuple(m for m in resolved.messages(task) if m.src in memories or m.dst in memories),
            buffer_dtype(resolved.buffers[task.target], resolved.program),
            buffer_dtype(resolved.buffers[task.source], resolved.program),
            task.monoid if partial else None,
            tag,
            task.lane,
            Place(-1, task.id, name_of(task), task.tensor),
            {rank: memory[task.source] for rank, memory in memories.items()},
            {rank: memory[task.target] for rank, memory in memories.items()},
        )

    @staticmethod
    def to_rank_0(
        resolved: Resolved, tensor: str, buffer: str, memories: Mapping[int, Memory], target: Stored | None, tag: int
    ) -> Movement:
        """A finished tensor on its way into a whole array, every element from one rank that holds it."""
        described = resolved.program.tensor(tensor)
        held = final_regions(resolved, tensor, buffer)
        whole = Box.of_shape(described.shape).region()
        messages = moves(held, [whole, *(Region() for _ in held[1:])])
        return Movement(
            tuple(m for m in messages if m.src in memories or target is not None),
            numpy_dtype(described.dtype),
            numpy_dtype(described.dtype),
            None,
            tag,
            "",
            Place(-1, None, "", tensor),
            {rank: memory[buffer] for rank, memory in memories.items()},
            {0: target} if target is not None else {},
        )

    def at(self, rank: int) -> Place:
        """What an error on a rank names."""
        return replace(self.place, rank=rank)

    def folded(self, message: Message) -> bool:
        """Whether a message carries a part to be folded."""
        return self.monoid is not None and message.phase == 0

    def contributions(self, root: int) -> list[Message]:
        """What a rank folds, in the order of part numbers."""
        return sorted((m for m in self.messages if m.dst == root and self.folded(m)), key=lambda m: m.part or 0)

    def source(self, message: Message) -> Stored:
        """Where a message is read."""
        buffers = self.targets if message.phase else self.sources
        return demand(buffers[message.src], "the buffer that is sent from", rank=message.src)

    def target(self, rank: int) -> Stored:
        """Where a rank's messages are written."""
        return demand(self.targets[rank], "the buffer that is received into", rank=rank)

    def received(self, messages: Iterable[Message]) -> Counter[Key]:
        """Bytes that ranks receive from other ranks by some of the messages: the elements of the buffers they read."""
        found: Counter[Key] = Counter()
        for m in messages:
            if m.remote:
                found[Key(self.place.task, m.src, m.dst)] += m.region.size * self.source(m).array.dtype.itemsize
        return found

    def dtype_of(self, message: Message) -> DType:
        """What a message carries: records to be folded, or elements."""
        return self.parts if self.folded(message) else self.dtype
