"""Data goes to stdout, talk to stderr, and what moves only to a terminal."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...files import Content, demand_writable, write_file
from ...printable import printable

STREAM = Path("-")  # stands for stdin where a plan is read, for stdout where something is written


def say(message: str) -> None:
    """A line for whoever is watching."""
    print(printable(message), file=sys.stderr)


@contextmanager
def warnings_said() -> Iterator[None]:
    """Warnings inside as lines for whoever is watching."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        yield


def put(text: str) -> None:
    """A line of data."""
    print(printable(text))


def put_json(value: object) -> None:
    """One object, on stdout."""
    print(json.dumps(value, indent=2))


def demand_place(path: Path, *, force: bool) -> None:
    """Raises what `put_file` would, before there is anything to write."""
    if path != STREAM:
        demand_writable(path, replace=force)


def put_file(path: Path, *content: Content, force: bool) -> None:
    """A file of data, and a line that says so (see `write_file`); for ``-`` the data on stdout."""
    if path == STREAM:
        for part in content:
            sys.stdout.buffer.write(part.encode() if isinstance(part, str) else part)
        sys.stdout.flush()
        return
    write_file(path, *content, replace=force)
    say(f"wrote {path}")


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner while something takes its time; nothing where stderr is not a terminal. Yields what tells the step."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda step: status.update(f"{what}: {step}")
