"""Errors as arguments: what was asked, where, both sides, a witness, and what to do about it.

Every error a user can provoke is a `TapestryError`; its class says how the command line exits. The text of an error is

    what (where)
      side one
      side two      witness: ...
      hint    what to do
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from .printable import printable


class TapestryError(Exception):
    """An error that is the user's to mend, not a bug.

    `what` is one sentence. `where` names the place (operation, tensor, file and line). `sides` are the two halves of
    the failed comparison, as label -> text. `witness` is one concrete counter-example. `hint` says what to do.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        sides: Mapping[str, object] | None = None,
        witness: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.where, self.witness, self.hint = what, where, witness, hint
        self.sides = dict(sides or {})
        super().__init__(what)

    def to_json(self) -> dict[str, object]:
        """Its class, its exit code and its parts; what is not said is None."""
        sides = {label: str(text) for label, text in self.sides.items()}
        parts = {"what": self.what, "where": self.where, "sides": sides, "witness": self.witness, "hint": self.hint}
        return {"error": type(self).__name__, "exit_code": self.exit_code, **parts}

    def __str__(self) -> str:
        """The message as the user reads it.

        >>> print(TapestryError("x is read outside its shape", where="blur (net.py:3)", sides={"reads": 9, "holds": 8}))
        blur (net.py:3): x is read outside its shape
          reads   9
          holds   8
        """
        rows = [(label, str(text)) for label, text in self.sides.items()]
        if self.witness and rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]}      witness: {self.witness}")
        elif self.witness:
            rows.append(("witness", self.witness))
        if self.hint:
            rows.append(("hint", self.hint))
        width = max((len(label) for label, _ in rows), default=0)
        head = f"{self.where}: {self.what}" if self.where else self.what
        return printable("\n".join([head, *(f"  {label:<{width}}   {text}" for label, text in rows)]))


class UsageError(TapestryError):
    """What was asked cannot be understood: an unknown name, a malformed file, arguments that contradict one another."""

    exit_code = 2


class NoSuchAttribute(UsageError, AttributeError):
    """An attribute that tensors do not have; also Python's own error, so that `hasattr` answers."""


class ProgramError(UsageError):
    """A program that means nothing: verify's verdict, with the place and a witness."""


class ReadOutOfBounds(ProgramError):
    """A read that leaves its tensor at some point of the operation's index space."""


class IndexOutside(TapestryError):
    """A value of the data that is an index and outside of its axis, 0:``extent``.

    ``place`` is where the value stood, as "ids[17]"; ``read`` what was to be read there.
    """

    def __init__(self, value: int, extent: int, place: str = "an index", read: str = "") -> None:
        super().__init__(
            f"{place} is {value}, outside of the axis that it is an index of",
            sides={**({"reads": read} if read else {}), "holds": f"[0, {extent - 1}]" if extent else "nothing"},
            hint="read with .get[...], which gives a fill there, or .clamped[...], which takes the nearest element",
        )


class TooHard(ProgramError):
    """A question about index sets that takes more work to answer than it may: neither proved nor refuted."""


class Infeasible(TapestryError):
    """No plan exists within the given machine, mesh, pins and memory."""

    exit_code = 3


class TimeLimit(TapestryError):
    """No plan was found within the time limit, and none was proved impossible."""

    exit_code = 4


class CheckFailed(TapestryError):
    """A plan, or a run of it, does not do what it says."""

    exit_code = 1


def close_match(name: str, known: list[str]) -> str | None:
    """The hint for a misspelt name, or None where there is nothing to offer.

    >>> close_match("h20", ["cpu-4", "h200", "h200x8"])
    "did you mean 'h200'? known: cpu-4, h200, h200x8"
    >>> close_match("toaster", ["cpu-4", "h200"])
    'known: cpu-4, h200'
    """
    if not known:
        return None
    listed = "known: " + ", ".join(known)
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? {listed}" if near else listed
