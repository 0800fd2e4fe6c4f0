"""Packing problems of the MiniMalloc benchmarks, each as a user would: one command, timed from its start to its end.

Every solution file is read back and checked. Prints a table; `--doc FILE` also puts it between the
markers of a document.
"""

from __future__ import annotations

import argparse
import csv
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

from marked import into  # type: ignore[import-not-found, unused-ignore]

from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.minimalloc import capacity_of, read_buffers

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT.parent / "shared" / "bench" / "minimalloc"


@dataclass(frozen=True)
class Row:
    """One problem: its buffers, peak and bound with the first seed, and each seed's seconds (None: not packed)."""

    name: str
    buffers: int
    peak: int | None
    bound: int
    seconds: list[float | None]

    def cells(self) -> list[str]:
        """The columns of the table."""
        packed = [s for s in self.seconds if s is not None]
        times = f"{min(packed):.1f} – {max(packed):.1f}" if packed else "–"
        peak = "–" if self.peak is None else f"{self.peak:,}"
        return [self.name, str(self.buffers), f"{self.bound:,}", peak, f"{len(packed)} of {len(self.seconds)}", times]


def solve(file: Path, seed: int, time_limit: float) -> tuple[dict[str, object], float]:
    """The command's JSON and its wall-clock seconds; raises where the solution it wrote is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        solution = Path(folder) / "solution.csv"
        command = [sys.executable, "-c", "from tapestry.planner.cli import main; main()", "bench", "pack", str(file)]
        options = ["--json", "--seed", str(seed), "--time-limit", str(time_limit), "--solution-out", str(solution)]
        began = time.monotonic()
        ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        if not ended.stdout:
            raise RuntimeError(ended.stderr)
        if solution.exists():
            verify(file, solution)
    return json.loads(ended.stdout), seconds


def verify(file: Path, solution: Path) -> None:
    """The offsets as they were written, against the problem as it was given."""
    with solution.open(encoding="utf-8") as lines:
        offsets = {row["id"]: int(row["offset"]) for row in csv.DictReader(lines)}
    faults = check_packing(read_buffers(file), offsets, capacity_of(file))
    if faults:
        raise RuntimeError(f"{file}: {faults[0]}")


def measure(file: Path, seeds: int, time_limit: float) -> Row:
    """One problem with several seeds."""
    answers = [solve(file, seed, time_limit) for seed in range(seeds)]
    seconds = [s if answer["status"] == "packed" else None for answer, s in answers]
    first = answers[0][0]
    return Row(file.name.split(".")[0], first["buffers"], first["peak"], first["lower_bound"], seconds)  # type: ignore[arg-type]


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    head = ["problem", "buffers", "lower bound", "peak", "packed", "seconds"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def report(rows: list[Row], seeds: int, time_limit: float) -> str:
    """The table, with what it was measured on and when."""
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    return (
        f"Measured {dt.date.today().isoformat()} on {machine}: `tapestry bench pack FILE --time-limit {time_limit:g}`, "
        f"seeds 0 to {seeds - 1}, capacity 1,048,576. Seconds are wall-clock for the whole command, fastest and "
        f"slowest seed; every solution file is checked independently.\n\n{table(rows)}"
    )


def main() -> None:
    """Run all problems of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=Path, default=PROBLEMS, help="a folder of CSV files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--doc", type=Path, help="a Markdown file to put the table into")
    arguments = parser.parse_args()
    rows = []
    for file in sorted(arguments.problems.glob("*.csv")):
        rows.append(measure(file, arguments.seeds, arguments.time_limit))
        print(*rows[-1].cells(), sep="\t", file=sys.stderr, flush=True)
    text = report(rows, arguments.seeds, arguments.time_limit)
    print(text)
    if arguments.doc is not None:
        into(arguments.doc, "packing", text)


if __name__ == "__main__":
    main()
