"""Errors of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import TapestryError, UsageError

T = TypeVar("T")


class TaskError(TapestryError):
    """A task failed on a rank. ``rank``, ``task`` and ``tensor`` say which; the cause is chained."""

    def __init__(self, what: str, *, rank: int, task: int | None = None, name: str = "", tensor: str = "") -> None:
        self.rank, self.task, self.name, self.tensor = rank, task, name, tensor
        place = f"rank {rank}" + ("" if task is None else f", task {task}") + (f" ({name})" if name else "")
        super().__init__(what, where=place, sides={"tensor": tensor} if tensor else None)


class BytesDiffer(TaskError):
    """A rank received more or less by a transfer than the plan says."""


class Silent(TaskError):
    """A rank has not answered for too long."""


@dataclass(frozen=True)
class Place:
    """A task on a rank. As a context, it turns an error inside into a TaskError that names it."""

    rank: int
    task: int | None
    name: str
    tensor: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, TaskError | PeerFailed):
            what = str(error) if isinstance(error, TapestryError) else f"{type(error).__name__}: {error}"
            raise TaskError(what, rank=self.rank, task=self.task, name=self.name, tensor=self.tensor) from error


class PeerFailed(TapestryError):
    """Another rank failed, so this one stopped. ``origin`` failed first, ``cause`` is its error as data."""

    def __init__(self, origin: int, cause: dict[str, Any]) -> None:
        self.origin, self.cause = origin, cause
        super().__init__(f"stopped because rank {origin} failed", sides={"cause": cause["text"]})


class Deadlock(TapestryError):
    """No task can start or end, and some have not run."""


_OF_TASKS = {kind.__name__: kind for kind in (TaskError, BytesDiffer, Silent)}
_OTHERS = {kind.__name__: kind for kind in (UsageError, Deadlock)}


def described(error: BaseException, rank: int) -> dict[str, Any]:
    """An error of a rank as data, for other processes; of a `PeerFailed`, what it stands for."""
    if isinstance(error, PeerFailed):
        return error.cause
    found: dict[str, Any] = {"kind": type(error).__name__, "text": str(error) or repr(error), "at": rank}
    if isinstance(error, TaskError):
        found |= {"task": error.task, "name": error.name, "tensor": error.tensor, "what": error.what}
    return found


def rebuilt(cause: dict[str, Any]) -> TapestryError:
    """The error that `described` describes."""
    if kind := _OF_TASKS.get(cause["kind"]):
        return kind(cause["what"], rank=cause["at"], task=cause["task"], name=cause["name"], tensor=cause["tensor"])
    return _OTHERS.get(cause["kind"], TapestryError)(cause["text"], where=f"rank {cause['at']}")


def ended(rank: int, how: str, said: TapestryError | None) -> TaskError:
    """What to raise where the process of a rank is gone. It goes before what others raised, who only lost it, unless
    one of them saw that rank silent, and ended it.
    """
    if isinstance(said, TaskError) and said.rank == rank:
        return said
    error = TaskError(f"the process was ended{how}", rank=rank)
    if said is not None:
        error.add_note(f"  noticed   {' '.join(str(said).split())[:200]}")
    return error


def placed(error: TaskError, place: Place | None) -> TaskError:
    """The same error, in a task where that is known."""
    if place is None:
        return error
    found = type(error)(error.what, rank=place.rank, task=place.task, name=place.name, tensor=place.tensor)
    for note in getattr(error, "__notes__", ()):
        found.add_note(note)
    return found


def demand(found: T | None, what: str, **where: object) -> T:
    """A buffer that a task needs; TapestryError if the rank stores nothing of it."""
    if found is None:
        raise TapestryError(f"{what} stores nothing", where=", ".join(f"{key} {value}" for key, value in where.items()))
    return found
