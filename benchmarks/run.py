"""`make bench`: the figures of the docs, each measured in a fresh process.

Writes docs/benchmarks.md and docs/img/scale.svg.

python benchmarks/run.py [--layers 8 16 32 64] [--out docs]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from chart import line_chart  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 900
LOOKUPS = """## Places that the data say

`python benchmarks/lookup.py`: a step of a compiled plan on one CPU rank, inputs in and outputs out, beside NumPy's
call on the same arrays and beside the same said as a product with one-hot rows; medians of rounds in which the two take
turns."""
LOOKUPS_COST = """A step copies its outputs twice, out of the plan's memory and for the caller; the product is what a
lookup stands for in the program, and what it took before."""


def script(name: str, *arguments: object) -> Any:
    """What a script of this folder prints, as data."""
    return json.loads(printed(name, *arguments))


def printed(name: str, *arguments: object) -> str:
    """What a script of this folder prints."""
    command = [sys.executable, str(ROOT / "benchmarks" / name), *map(str, arguments)]
    print("  " + " ".join(["python", f"benchmarks/{name}", *map(str, arguments)]), file=sys.stderr)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if ended.returncode:
        raise SystemExit(f"{name} failed:\n{ended.stderr}")
    return ended.stdout


def time_to_help(repeat: int = 7) -> float:
    """Seconds until `tapestry --help` has printed, the best of a few."""
    code = "import sys; sys.argv = ['tapestry', '--help']; from tapestry.planner.cli import main; main()"
    times = []
    for _ in range(repeat):
        started = perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=60)
        times.append(perf_counter() - started)
    return min(times)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scale_table(rows: list[dict[str, Any]]) -> str:
    head = ["layers", "operations", "plan", "check", "model_gap", "gap", "makespan", "plan.json", "peak memory"]
    return table(
        head,
        [
            [
                f"{r['layers']}" if r["hbm"] is None else f"{r['layers']}, in {r['hbm']}",
                str(r["operations"]),
                f"{r['plan_s']:.1f} s",
                f"{r['check_s']:.2f} s",
                f"{100 * r['model_gap']:.2f} %",
                f"{100 * r['gap']:.1f} %",
                f"{1e3 * r['makespan_s']:.1f} ms",
                f"{r['document_kib']:.0f} KiB",
                f"{r['peak_mib']:.0f} MiB",
            ]
            for r in rows
        ],
    )


def ranks_table(rows: list[dict[str, Any]]) -> str:
    return table(
        ["layers", "ranks", "tasks", "tasks on ranks", "lower", "check", "plan.json", "peak memory of the check"],
        [
            [
                str(r["layers"]),
                str(r["ranks"]),
                str(r["tasks"]),
                str(r["events"]),
                f"{r['lower_s']:.1f} s",
                f"{r['read_s'] + r['check_s']:.1f} s",
                f"{r['document_kib']:.0f} KiB",
                f"{r['peak_mib']:.0f} MiB",
            ]
            for r in rows
        ],
    )


def rivals_table(cases: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for case in cases for name in case["rivals"]))

    def cell(case: dict[str, Any], name: str) -> str:
        if name not in case["rivals"]:
            return ""
        seconds = case["rivals"][name]
        return "does not fit" if seconds is None else milliseconds(seconds)

    rows = [[f"{case['case']} ({case['where']})", f"**{milliseconds(case['plan_s'])}**"] for case in cases]
    rows = [[*row, *(cell(case, name) for name in names)] for row, case in zip(rows, cases, strict=True)]
    return table(["makespan", "the plan", *names], rows)


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


RANKS = (
    "## Ranks\n\nLowering and checking the same program under a given sharding: tokens over groups of eight ranks, "
    "heads and hidden units within a group (`python benchmarks/scale_check.py --layers 32 --sequence 32`). Seconds "
    "of the processor; `lower` is from the bound program to the text of the plan, pricing and simulation included."
)


def document(
    scale: list[dict[str, Any]],
    ranks: list[dict[str, Any]],
    cases: list[dict[str, Any]],
    help_s: float,
    engine: Any,
    lookups: str,
    planning: str,
) -> str:
    """The page; ``planning`` is its part that `benchmarks/planner.py` writes."""
    today = dt.datetime.now(tz=dt.UTC).date()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = [
        "# Benchmarks",
        f"Measured on {today} by `make bench`: {cores} cores, Python {platform.python_version()}. "
        "Every measurement is a process of its own. Makespans are predicted by the simulator, not run.",
        "## Depth\n\nThe forward pass of `examples/llama.py` (Llama-8B-shaped, 8,192 tokens, bf16) on `h200x8`. "
        "Repeated layers are found and decided once, so that time to plan grows with lowering alone. `model_gap`: how "
        "far the solver's choice may be from the best of its model. `gap`: how far the simulated makespan is from a "
        "bound that no plan can beat (see [planner.md](planner.md)).",
        scale_table(scale),
        "![Seconds to plan and check against the number of layers](img/scale.svg)",
        RANKS,
        ranks_table(ranks),
        "## The plan and what people do by hand\n\nEach sharding is entered as pins and priced by the same simulator.",
        rivals_table(cases),
        f"## Light to start\n\n`tapestry --help`: {help_s:.2f} s.",
    ]
    if engine is not None:
        parts.append(
            "## Light to run\n\n`examples/corners.py` on a 4,096 × 4,096 image, four ranks one after another in one "
            f"process: {engine['engine_s']:.2f} s, the same NumPy calls written by hand {engine['by_hand_s']:.2f} s "
            f"(ratio {engine['ratio']:.2f})."
        )
    parts += [LOOKUPS, lookups.strip(), LOOKUPS_COST]
    parts.insert(parts.index(RANKS), planning)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure everything, then write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    help_s = time_to_help()
    scale = [script("scale.py", "--layers", layers) for layers in options.layers]
    ranks = [
        script("scale_check.py", "--layers", layers, "--sequence", count)
        for layers, count in ((32, 8), (32, 32), (80, 128), (80, 512))
    ]
    tight = [script("scale.py", "--layers", 32, "--hbm", "8GiB")]
    cases = script("rivals.py")
    engine = script("engine.py") if (ROOT / "benchmarks" / "engine.py").exists() else None
    (options.out / "img").mkdir(parents=True, exist_ok=True)
    page = options.out / "benchmarks.md"
    planning = "## Planning" + page.read_text("utf-8").partition("## Planning")[2].partition("\n## Ranks")[0].rstrip()
    page.write_text(
        document([*scale, *tight], ranks, cases, help_s, engine, printed("lookup.py"), planning), encoding="utf-8"
    )
    series = {name: [row[f"{name}_s"] for row in scale] for name in ("plan", "check")}
    title = "Seconds to plan and to check, Llama-8B-shaped forward on eight H200"
    figure = line_chart(title, "decoder layers", [row["layers"] for row in scale], series)
    (options.out / "img" / "scale.svg").write_text(figure, encoding="utf-8")
    print(f"wrote {options.out / 'benchmarks.md'} and {options.out / 'img' / 'scale.svg'}")


if __name__ == "__main__":
    main()
