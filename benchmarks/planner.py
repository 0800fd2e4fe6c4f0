"""`make bench-planner`: how long plans take by layers, meshes and programs, each in a fresh process.

Writes a section of docs/benchmarks.md and docs/img/planner.svg.

python benchmarks/planner.py [--only "forward 8b, * on 8x8"] [--out docs]

``--only``: the cases whose name is like this; what was measured of others before stays in docs/benchmarks.json.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from chart import line_chart  # type: ignore[import-not-found, unused-ignore]
from marked import into  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).resolve().parent.parent
DEPTHS = (4, 8, 16, 32)
MESHES = ("8", "2x4", "8x8", "32x8")


class Case(NamedTuple):
    """What is planned, the seconds of the processor that it may take, and the time limit that it is given."""

    program: str
    shape: str
    layers: int
    mesh: str
    allowed_s: float
    limit_s: float = 600.0  # by the clock: what else runs on the machine must not matter

    @property
    def name(self) -> str:
        return f"{self.program} {self.shape}, {self.layers} on {self.mesh}"


CASES = (
    Case("forward", "8b", 1, "2x2x2", 5),
    Case("forward", "8b", 1, "4x4x4", 30),
    *(Case(p, "8b", n, m, 10) for p in ("forward", "train_step") for m in MESHES for n in DEPTHS),
    Case("forward", "70b", 80, "64x8", 60),
    Case("forward", "70b", 80, "512x8", 300, limit_s=3600),
)


def measured(case: Case) -> dict[str, Any]:
    """What `benchmarks/scale.py` says of a case, or why it says nothing."""
    named = {"program": case.program, "shape": case.shape, "layers": case.layers, "mesh": case.mesh}
    arguments = [f"--{name}={value}" for name, value in {**named, "time-limit": case.limit_s}.items()]
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), *arguments]
    print("  " + " ".join(["python", "benchmarks/scale.py", *arguments]), file=sys.stderr)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        return {**named, "failed": (ended.stderr.strip() or "no word").splitlines()[-1]}
    found: dict[str, Any] = json.loads(ended.stdout)
    return {**found, "load": round(os.getloadavg()[0], 1)}


def row(case: Case, found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        cells = [f"no plan: {found['failed'][:60]}", "", "", "", "", "", ""]
    else:
        cells = [
            f"{found['cpu_s']:.1f} s",
            f"{found['check_s']:.1f} s",
            found["status"].split(" (")[0],
            f"{100 * found['model_gap']:.2f} %",
            f"{100 * found['gap']:.1f} %",
            f"{1e3 * found['makespan_s']:.3g} ms",
            f"{found['document_kib']:.0f} KiB",
        ]
    first = [f"{case.program}, {case.shape}", str(case.layers), case.mesh.replace("x", " × "), f"{case.allowed_s:g} s"]
    return "| " + " | ".join([*first, *cells]) + " |"


def section(known: dict[str, dict[str, Any]]) -> str:
    """The text between the marks."""
    head = ["program", "layers", "mesh", "wanted", "plan", "check", "solver", "model_gap", "gap", "makespan", "size"]
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    lines += [row(case, known[case.name]) for case in CASES if case.name in known]
    some = sum(case.name in known for case in CASES)
    return "\n".join(
        [
            f"Measured until {dt.datetime.now(tz=dt.UTC).date()}, {some} of {len(CASES)} cases.{beside(known)}",
            "",
            *lines,
            "",
            *(["![Seconds of the processor against the number of layers](img/planner.svg)"] if figure(known) else []),
        ]
    )


def beside(known: dict[str, dict[str, Any]]) -> str:
    """What else ran on the machine: seconds of the processor are more while caches and cores are shared."""
    loads = [found["load"] for found in known.values() if "load" in found]
    return f" The load of the machine was up to {max(loads):g} on {os.cpu_count()} cores." if loads else ""


def figure(known: dict[str, dict[str, Any]]) -> str | None:
    """Seconds by layers, a line a mesh, of the meshes of which all depths are known."""
    series = {
        mesh.replace("x", " × "): [known[case.name]["cpu_s"] for case in mine]
        for mesh, mine in ((mesh, _forward(mesh)) for mesh in MESHES)
        if all("cpu_s" in known.get(case.name, {}) for case in mine)
    }
    title = "Seconds of the processor to plan, Llama-8B-shaped forward"
    found: str | None = line_chart(title, "decoder layers", list(DEPTHS), series) if series else None
    return found


def _forward(mesh: str) -> list[Case]:
    return [case for case in CASES if case.program == "forward" and case.mesh == mesh and case.layers in DEPTHS]


def main() -> None:
    """Measure, then write what is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="cases whose name is like this")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    page, record = options.out / "benchmarks.md", options.out / "benchmarks.json"
    known: dict[str, dict[str, Any]] = json.loads(record.read_text("utf-8")) if record.exists() else {}
    for case in CASES:
        if fnmatchcase(case.name, options.only):
            known[case.name] = measured(case)
            record.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    into(page, "planner", section(known))
    drawn = figure(known)
    if drawn is not None:
        (options.out / "img" / "planner.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
