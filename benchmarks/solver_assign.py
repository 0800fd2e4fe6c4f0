"""Sharding problems of the iopddl contest, each as a user would: one command within the contest's limit, timed whole.

The first is solved once before, so that compiled loops are there: in a fresh checkout compiling them would take most of
its time. Every solution file is read back and checked. Prints a table; `--doc FILE` also puts it between the
markers of a document.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marked import into  # type: ignore[import-not-found, unused-ignore]

from tapestry.planner.solvers.assign.check import check_choice
from tapestry.planner.solvers.assign.plain.iopddl import read_choice, read_problem

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT.parent / "shared" / "bench" / "iopddl"
STARTUP_S = 4.0  # of the contest's limit, for the interpreter to start and the file to be written
DEFAULT_LIMIT_S = 60.0  # where the scoreboard does not know the problem


@dataclass(frozen=True)
class Row:
    """One problem: what the contest knows of it, what the command printed, and its wall-clock seconds."""

    name: str
    nodes: int
    limit_s: float
    contest: int | None
    answer: dict[str, Any]
    seconds: float

    def cells(self) -> list[str]:
        """The columns of the table."""
        gap = self.answer["gap"]
        return [
            self.name,
            f"{self.nodes:,}",
            _number(self.contest),
            _number(self.answer["cost"]),
            _number(self.answer["bound"]),
            "–" if gap is None else "0" if gap == 0 else f"{100 * gap:.2g} %",
            str(self.answer["certified_by"]),
            _number(self.answer["claimed_bound"]),
            self.answer["claimed_by"] or "–",
            "–" if self.answer["first_s"] is None else f"{self.answer['first_s']:.1f}",
            f"{self.seconds:.1f} of {self.limit_s:g}",
        ]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def measure(file: Path, known: dict[str, Any], seed: int, jobs: int) -> Row:
    """One problem; raises where the solution it wrote is wrong."""
    limit = float(known.get("contest_timeout_s", DEFAULT_LIMIT_S))
    with tempfile.TemporaryDirectory() as folder:
        solution = Path(folder) / "choice.json"
        command = [sys.executable, "-c", "from tapestry.planner.cli import main; main()", "bench", "iopddl", str(file)]
        options = ["--json", "--seed", str(seed), "--jobs", str(jobs), "--time-limit", str(limit - STARTUP_S)]
        began = time.monotonic()
        ended = subprocess.run(
            [*command, *options, "--solution-out", str(solution)], capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if not ended.stdout:
            raise RuntimeError(ended.stderr)
        answer = json.loads(ended.stdout)
        problem = read_problem(file)
        if answer["cost"] is not None:
            cost, faults = check_choice(problem, read_choice(solution))
            if faults or cost != answer["cost"]:
                raise RuntimeError(f"{file}: {faults or cost}")
    return Row(file.name.split(".")[0], problem.node_count, limit, known.get("contest_best"), answer, seconds)


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    head = ["problem", "nodes", "contest's best", "cost", "bound", "gap", "bound by", "claimed bound", "claimed by"]
    head += ["first answer s", "seconds"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def report(rows: list[Row], seed: int, jobs: int) -> str:
    """The table, with what it was measured on and when."""
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    command = f"`tapestry bench iopddl FILE --jobs {jobs} --seed {seed}`"
    return (
        f"Measured {dt.date.today().isoformat()} on {machine}: {command} "
        "within the contest's time limit (it ran on 8 cores). Seconds are wall-clock for the whole command, reading "
        f"included, compiled loops kept from before; every solution file is checked independently.\n\n{table(rows)}"
    )


def main() -> None:
    """Run all problems of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=Path, default=PROBLEMS, help="a folder of problems and scoreboard.json")
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--doc", type=Path, help="a Markdown file to put the table into")
    arguments = parser.parse_args()
    board = arguments.problems / "scoreboard.json"
    known = json.loads(board.read_text(encoding="utf-8")) if board.exists() else {}
    found = {file.name.split(".")[0]: file for file in sorted(arguments.problems.glob("*.json*")) if file != board}
    files = {name: file for name, file in found.items() if not arguments.only or name in arguments.only}
    for name, file in list(files.items())[:1]:
        measure(file, known.get(name, {}), arguments.seed, arguments.jobs)
    rows = []
    for name, file in files.items():
        rows.append(measure(file, known.get(name, {}), arguments.seed, arguments.jobs))
        print(*rows[-1].cells(), sep="\t", file=sys.stderr, flush=True)
    text = report(rows, arguments.seed, arguments.jobs)
    print(text)
    if arguments.doc is not None:
        into(arguments.doc, "iopddl", text)


if __name__ == "__main__":
    main()
