"""Errors of commands, in one place: a message on stderr and the exit code of its class, never a traceback. Where one
JSON object was asked for, it is the error."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from ...errors import TapestryError
from ...printable import printable
from .talk import put_json

P = ParamSpec("P")

INTERRUPTED = 130


class Terminated(KeyboardInterrupt):
    """SIGTERM, made to unwind as Ctrl-C does: processes are ended and temporary files removed."""

    exit_code = 143


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command, its errors turned into messages and exit codes. TAPESTRY_DEBUG=1 lets them through."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        if os.environ.get("TAPESTRY_DEBUG") == "1":
            return command(*args, **kwargs)
        try:
            command(*args, **kwargs)
        except (typer.Exit, BrokenPipeError):  # a chosen end, or a reader such as `head` that has gone
            raise
        except TapestryError as error:
            if kwargs.get("json"):
                put_json(error.to_json())
            _leave(full_text(error), error.exit_code)
        except Terminated as ended:
            _leave("terminated", ended.exit_code)
        except KeyboardInterrupt:
            _leave("interrupted", INTERRUPTED)
        except Exception as error:
            _leave(_unexpected(error), 1)

    return run


def terminated(_signum: int, _frame: object) -> None:
    """A handler for `signal.signal`."""
    raise Terminated


def full_text(error: TapestryError) -> str:
    """The message and the notes that were added on the way."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def _leave(message: str, code: int) -> None:
    print(printable(f"error: {message}"), file=sys.stderr)
    raise typer.Exit(code)


def _unexpected(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no further message"
    return f"internal: {type(error).__name__}: {text} (a bug: please report it; TAPESTRY_DEBUG=1 shows where it arose)"
