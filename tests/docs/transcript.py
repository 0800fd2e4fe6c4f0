"""Pages that show a terminal: their files are written, their commands run, and what is printed goes into the page.

    python -m tests.docs.transcript           # bring the pages up to date

In a page, a comment `<!-- file: net.py -->` names the file that the next block of code is. A block of the language
`console` holds commands, each on a line after `$ `, and below each what it prints: `tapestry ...`, or
`tapestry ... | head -8`. Blocks of the language `python` run as they are, one after another in one name space.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from tapestry.planner.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial.md", "how-to.md", "commands.md", "machine-files.md", "pin-files.md", "plan-files.md")

_BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


def brought_up_to_date(page: str, folder: Path) -> str:
    """The text of a page with what its commands print today, run one after another in `folder`."""
    names: dict[str, object] = {"__name__": "page"}
    here = patch.object(sys, "path", [str(folder), *sys.path])
    with contextlib.chdir(folder), here, patch.dict(os.environ, {"COLUMNS": "120"}):
        try:
            return _BLOCK.sub(lambda block: _done(block, names), page)
        finally:  # another page may have a file of the same name
            for file in folder.glob("*.py"):
                sys.modules.pop(file.stem, None)


def _done(block: re.Match[str], names: dict[str, object]) -> str:
    whole, text = block[0], block["text"]
    if block["file"]:
        Path(block["file"]).write_text(text, encoding="utf-8")
        return whole
    if block["language"] == "python":
        exec(compile(text, "page.py", "exec"), names)
        return whole
    if block["language"] != "console":
        return whole
    return whole.replace(text, "".join(_commands(text)))


def _commands(text: str) -> Iterator[str]:
    for entry in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
        command, _, _ = entry.partition("\n")
        if command:
            yield f"{command}\n{_printed(command.removeprefix('$ '))}"


def _printed(command: str) -> str:
    """What a command prints on both streams, as a terminal shows it: `tapestry ...` in this process."""
    command, _, lines = command.partition(" | head -")
    name, *arguments = shlex.split(command, comments=True)
    if name != "tapestry":
        raise ValueError(f"a page runs tapestry alone: {command}")
    screen = io.StringIO()
    streams = contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen)
    with streams[0], streams[1], patch.object(sys, "argv", [name, *arguments]), contextlib.suppress(SystemExit):
        main()
    return "".join(f"{line.rstrip()}\n" for line in screen.getvalue().splitlines()[: int(lines) if lines else None])


def main_() -> None:
    for name in PAGES:
        file = DOCS / name
        with tempfile.TemporaryDirectory() as folder:
            file.write_text(brought_up_to_date(file.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main_()
