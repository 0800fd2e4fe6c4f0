"""The in-process engine: all ranks in one process, in a fixed order or in a seeded adversarial one."""

from __future__ import annotations

from collections.abc import Mapping

from ...planner.format import Document, Resolved
from ..numpy.blas import single_threaded
from ..numpy.folding import Array
from ..numpy.scratch import Scratch
from ..rank import Rank, gather
from ..result import RunResult
from ..stores.inputs import checked_inputs
from .adversary import Shuffled
from .order import Ordered


def run_local(
    document: Document | Resolved, inputs: Mapping[str, Array], *, order: int | None = None, poison: bool = False
) -> RunResult:
    """Run a plan with all ranks in this process.

    inputs: whole arrays of inputs, params and states by name. order: None runs one rank as far as it gets, then the
    next; a seed runs tasks, and reads and writes of messages, in a random order that the lanes and waits allow.
    poison: buffers are filled with NaN or garbage first. Raises UsageError (inputs), TaskError (a task fails),
    Deadlock.
    """
    resolved = document if isinstance(document, Resolved) else Resolved(document)
    checked = checked_inputs(resolved.program, inputs)
    scratch = Scratch()
    ranks = [Rank(resolved, number, poison=poison, scratch=scratch) for number in range(resolved.size)]
    for rank in ranks:
        rank.load(checked)
        rank.bind()
    run = Ordered(resolved, ranks) if order is None else Shuffled(resolved, ranks, order)
    with single_threaded():
        run.run_all()
    return RunResult(
        gather(resolved, ranks), run.bytes_moved, run.elapsed(), sorted(run.events, key=lambda e: e.start_s)
    )
