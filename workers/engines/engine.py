"""The `Engine` interface: who runs the ranks of a plan, in which processes, in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...planner.format import Document, Resolved
from ..result import RunResult
from ..stores.arrays import Array

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Settings:
    """How to run. device: its name, or "module:Class". order: the seed of an adversarial order, None for the fixed
    one. poison: buffers are filled with NaN or garbage first. patience_s: a rank of which nothing is heard for so many
    seconds has failed. repeat: steps, one after another; params are loaded once, states go on. alone: after the steps
    every task is measured by itself, and that is one step more (`alone`). joins: a device may do tasks together.
    """

    device: str
    order: int | None = None
    poison: bool = False
    patience_s: float = PATIENCE_S
    repeat: int = 1
    alone: bool = False
    joins: bool = True


Job = tuple[Resolved, Mapping[str, Array]]


class Engine(ABC):
    """Runs plans."""

    @abstractmethod
    def run(self, document: Document | Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
        """Run a plan on whole arrays of inputs, params and states by name.

        Raises UsageError (inputs or settings that do not fit), TaskError, PeerFailed, Deadlock.
        """

    def run_each(self, jobs: Sequence[Job], settings: Settings) -> list[RunResult]:
        """Several plans, each with its inputs, one after another."""
        return [self.run(plan, inputs, settings) for plan, inputs in jobs]


def resolved(document: Document | Resolved) -> Resolved:
    """The plan resolved, once."""
    return document if isinstance(document, Resolved) else Resolved(document)
