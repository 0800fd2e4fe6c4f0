"""What the checker says: enumerated verdicts, each with a place and a witness, and the facts it proved on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...printable import printable

LIMIT = 50


class Code(StrEnum):
    """Everything that can be wrong with a plan. The value is what scripts see; the text is what it means."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Code:
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    PROGRAM = "program", "the embedded program cannot be read"
    MACHINE = "machine", "the embedded machine cannot be read, or the mesh does not fit it"
    REFERENCE = "reference", "something is named that does not exist"
    DUPLICATE = "duplicate", "two things have the same id or name"
    LAYOUT = "layout", "a layout is malformed, or leaves its index space or its buffer"
    STORAGE = "storage", "a buffer's size or offset does not fit what it stores"
    TASK = "task", "a task is malformed: its ranks, lane, kind, operands or buffers"
    CAPACITY = "capacity", "a tier holds less than the plan puts there"
    PEAK = "peak", "peak_bytes is not what the buffers take"
    UNCOVERED = "uncovered", "points of an operation that no task computes"
    OVERCOVERED = "overcovered", "points of a reduction that two different shares contain"
    UNCUTTABLE = "uncuttable", "a shard cuts a dimension that may not be cut"
    DEADLOCK = "deadlock", "tasks that wait for one another for ever"
    RACE = "race", "two tasks touch the same memory, one of them writes, and nothing orders them"
    OVERLAP = "overlap", "two buffers that are live at once share memory"
    IN_PLACE = "in_place", "a task writes over what it reads, and not element for element"
    MISSING = "missing", "a task reads elements that are not there"
    UNFOLDED = "unfolded", "a partial result is used as if it were complete"
    OUTSIDE = "outside", "a task writes elements that its buffer does not hold"
    NOBODY = "nobody", "a transfer needs elements that no participant has"
    PARTS = "parts", "the contributions of a fold do not make up the reduction exactly once"
    RECORD = "record", "a buffer of partial results does not hold the records that its fold takes"
    MONOID = "monoid", "a transfer folds with another monoid than the operation's, or folds nothing"
    INITIAL = "initial", "what is there before the run is not what the program needs"
    OUTPUT = "output", "an output is not complete at the end"
    STATE = "state", "a state does not end complete in its starting layout"
    TRAFFIC = "traffic", "the traffic that the plan states is not what its tasks move"
    KIND = "kind", "a transfer is called what it is not"
    LINKS = "links", "the bytes stated for a kind of link are not what the transfers move over it"
    PREDICTED = "predicted", "the predicted times are not those of the tasks at the machine's rates"
    SHARDING = "sharding", "an operation's tasks do not compute what its stated sharding says"
    PIN = "pin", "what a pin of the program asks for is not kept"
    BOUND = "bound", "the stated bound on all plans is not proved"
    GAP = "gap", "the stated gap is not what lies between the bound and the predicted makespan"
    CLAIM = "claim", "what is claimed cannot be"
    DISAGREEMENT = (
        "disagreement",
        "two engines answer a question about index sets differently: this program is at fault",
    )
    UNPROVEN = "unproven", "an index set is known only as a hull, so nothing can be proved"


@dataclass(frozen=True)
class Verdict:
    """One thing that is wrong: where, and one element, point or byte count that shows it."""

    code: Code
    message: str
    rank: int | None = None
    task: int | None = None
    tensor: str | None = None
    witness: tuple[int, ...] | None = None

    def __str__(self) -> str:
        """One line.

        >>> print(Verdict(Code.MISSING, "matmul reads rows nobody wrote", rank=1, task=7, tensor="x", witness=(3, 0)))
        missing: task 7, rank 1, tensor x: matmul reads rows nobody wrote      witness: (3, 0)
        """
        named = (("task", self.task), ("rank", self.rank), ("tensor", self.tensor))
        place = ", ".join(f"{label} {value}" for label, value in named if value is not None)
        shown = "" if self.witness is None else f"      witness: {self.witness}"
        return printable(f"{self.code.value}: {place + ': ' if place else ''}{self.message}{shown}", line=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code.value,
            "message": self.message,
            "rank": self.rank,
            "task": self.task,
            "tensor": self.tensor,
            "witness": None if self.witness is None else list(self.witness),
        }


def _counted(name: str, count: int) -> str:
    """``4 ranks``, ``1 rank``."""
    words = name.replace("_", " ")
    return f"{count} {words.removesuffix('s') if count == 1 else words}"


@dataclass(frozen=True)
class Report:
    """The outcome of a check: no verdicts, or why not. ``facts`` are figures that the proofs went over."""

    verdicts: tuple[Verdict, ...]
    facts: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0

    @property
    def ok(self) -> bool:
        return not self.verdicts

    @property
    def codes(self) -> frozenset[Code]:
        return frozenset(verdict.code for verdict in self.verdicts)

    def __str__(self) -> str:
        if self.ok:
            return f"ok: {', '.join(_counted(name, value) for name, value in self.facts.items())}"
        more = [f"and {self.left_out} more"] if self.left_out else []
        return "\n".join([*map(str, self.verdicts), *more])

    def to_json(self) -> dict[str, Any]:
        """A JSON object: ok, verdicts, left_out, facts."""
        return {
            "ok": self.ok,
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "left_out": self.left_out,
            "facts": dict(self.facts),
        }


class Findings:
    """Collects verdicts; keeps the first `LIMIT` of each code and counts the rest."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.facts: dict[str, int] = {}
        self.left_out = 0
        self._seen: dict[Code, int] = {}

    def add(
        self,
        code: Code,
        message: str,
        *,
        rank: int | None = None,
        task: int | None = None,
        tensor: str | None = None,
        witness: tuple[int, ...] | None = None,
    ) -> None:
        self._seen[code] = self._seen.get(code, 0) + 1
        if self._seen[code] > LIMIT:
            self.left_out += 1
        else:
            self.verdicts.append(Verdict(code, message, rank, task, tensor, witness))

    def full(self, code: Code) -> bool:
        """Enough of this code has been found: further proof would only repeat it."""
        return self._seen.get(code, 0) >= LIMIT

    def report(self) -> Report:
        return Report(tuple(self.verdicts), dict(self.facts), self.left_out)
