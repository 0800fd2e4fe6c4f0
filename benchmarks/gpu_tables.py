"""The page of `make bench-gpu`, from its results: tables in Markdown, and the timeline of a run as a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_rows import ROWS, Row  # type: ignore[import-not-found, unused-ignore]

PICTURE = "llama2"
BY_TASK = ("llama1", "llama2", "convnet16x1", "corners1")
CLOSE = 0.10


def write_page(results: dict[str, Any], page: Path) -> None:
    """The page, and beside it img/gpu-timeline.svg."""
    parts = [_head(results["machine"]), _steps(results["jobs"]), _where(results["jobs"]), *_tasks(results["jobs"])]
    drawing = results["jobs"].get(PICTURE, {}).get("timeline")
    if drawing:
        picture = page.parent / "img" / "gpu-timeline.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(drawing, encoding="utf-8")
        words = "Predicted above measured, on one axis: the step of the first Llama on two GPUs"
        parts.append(f"## The step on two GPUs\n\n![{words}](img/gpu-timeline.svg)")
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _head(machine: dict[str, Any]) -> str:
    return f"""# On GPUs

Measured on {machine["date"]} by `make bench-gpu`: {machine["gpu"]}, CUDA {machine["cuda"]}, torch {machine["torch"]},
CuPy {machine["cupy"]}, NCCL without multicast. Every figure is of a process of its own, all in one run: the median of
the later three quarters of the steps of a second or more, inputs and weights in place. Plans are for the packaged
machine `h200x2`, programs rewritten where the planner holds that for quicker; steps are replayed as one graph on each
GPU. `python benchmarks/gpu.py build/gpu.json --doc docs/gpu.md` makes this page of the results."""


PAUSES = """**Read the rows of Llama with care.** Between two steps of ours the host puts the inputs back, and the chip
rests; torch's steps follow one another. Products of matrices are limited by the chip's power, and after a rest they run
at 790 instead of 690 TFLOP/s, past the floor, which was measured under load. Without rests, measured the same day:
52.0 ms on one GPU, after two seconds of load (torch.compile 53.8 likewise); on two GPUs 27.0 ms a launch of the graph
and 28.0 eight in a row; with weights sharded 29.2 and 29.0. So the first row misses its 51 ms, and whether the two
others reach what is wanted is decided by the temperature of the chips. The other programs compute in f32, or wait for
memory, and are not limited so."""


def _steps(jobs: dict[str, Any]) -> str:
    lines = [_line(row, jobs) for row in ROWS if row.name in jobs]
    head = ["program", "GPUs", "step", "predicted", "measured / predicted", "the best of others", "others / ours",
            "wanted", "floor"]  # fmt: skip
    return f"""## Steps

Milliseconds. The floor is the bound that no plan can beat on the machine as it was probed (see
[planner.md](planner.md)). Others: torch as it is and compiled (f32 without TF32) on one GPU; by hand with NCCL, eager
or as a CUDA graph, whichever is quicker, on two.

{PAUSES}

{_table(head, lines)}"""


def _line(row: Row, jobs: dict[str, Any]) -> list[str]:
    found = jobs[row.name]
    name, best = rival(row, jobs)
    if "step_s" not in found:
        why = found.get("failed", "not run").strip().splitlines()[-1][:80]
        return [row.title, str(row.gpus), f"failed: {why}".replace("|", "/"), "", "", _other(name, best), "", "", ""]
    step = found["step_s"]
    ratio = step / found["predicted_s"]
    near = f"{ratio:.2f}" if abs(ratio - 1) <= CLOSE else f"**{ratio:.2f}**"
    gain = "" if best is None else f"{best / step:.2f}"
    return [
        row.title, str(row.gpus), _ms(step), _ms(found["predicted_s"]), near, _other(name, best), gain,
        wanted(row, step, best), _ms(found["bound_s"]),
    ]  # fmt: skip


def _other(name: str, best: float | None) -> str:
    return "" if best is None else f"{_ms(best)} {name}"


def rival(row: Row, jobs: dict[str, Any]) -> tuple[str, float | None]:
    """The quickest of those that a row is held against."""
    if row.model:
        taken = jobs.get(row.name, {}).get("others", {})
        first = min(taken, key=lambda name: taken[name], default="")
        return first, taken.get(first)
    found = jobs.get(row.beside, {})
    if "one GPU" in row.rivals:
        return "one GPU", found.get("step_s")
    known = {name: value for name, value in found.items() if name.split(",")[0] in row.rivals}
    best = min(known, key=lambda name: known[name], default="")
    return best, known.get(best)


def wanted(row: Row, step: float, best: float | None) -> str:
    """What was asked, and whether it is so."""
    asked: list[tuple[str, bool]] = []
    if row.most_s is not None:
        asked.append((f"<= {_ms(row.most_s)}", step <= row.most_s))
    if best is not None:
        asked.append((f"{row.factor:g} x", best / step >= row.factor))
    return ", ".join(f"{text} {'yes' if met else '**no**'}" for text, met in asked)


def _where(jobs: dict[str, Any]) -> str:
    rows = [row for row in ROWS if "step_s" in jobs.get(row.name, {})]
    head = ["program", "GPUs", "not computing, predicted", "measured", "MB moved", "cuts"]
    lines = []
    for row in rows:
        found = jobs[row.name]
        cuts = sorted(found["shardings"].items(), key=lambda cut: -cut[1]) if row.gpus > 1 else []
        lines.append([
            row.title, str(row.gpus), _ms(found["predicted_exposed_s"]), _ms(found["exposed_s"]),
            f"{found['bytes_moved'] / 1e6:.0f}", "; ".join(f"{count} {cut}" for cut, count in cuts[:4]),
        ])  # fmt: skip
    return f"""## Where the time goes

Milliseconds of a step in which a GPU computes nothing (transfers that nothing hides, and gaps), bytes between GPUs, and
how many operations are cut how.

{_table(head, lines)}"""


def _tasks(jobs: dict[str, Any]) -> Iterator[str]:
    for row in ROWS:
        if row.name in BY_TASK and "tasks" in jobs.get(row.name, {}):
            yield (
                f"### {row.title}, {row.gpus} GPU{'s' * (row.gpus > 1)}\n\nRank 0, all layers together.\n\n"
                + _by_task(jobs[row.name]["tasks"])
            )


def _by_task(tasks: list[list[Any]]) -> str:
    """Tasks of rank 0 of one name, the number of the layer left out, added up."""
    groups: dict[str, list[float]] = {}
    for rank, _, name, predicted, measured in tasks:
        if rank == 0 and predicted is not None and measured is not None:
            count, before, after = groups.get(_alike(name), [0, 0.0, 0.0])
            groups[_alike(name)] = [count + 1, before + predicted, after + measured]
    lines = [
        [name, f"{count:.0f}", f"{1e6 * before:.1f}", f"{1e6 * after:.1f}", f"{after / before:.2f}" if before else ""]
        for name, (count, before, after) in sorted(groups.items(), key=lambda item: -item[1][2])
    ]
    return _table(["task", "times", "predicted, µs", "measured, µs", "ratio"], lines)


def _alike(name: str) -> str:
    """A name without the number of its layer.

    >>> _alike("layers.12.attention.q")
    'layers.*.attention.q'
    """
    return re.sub(r"\.\d+\.", ".*.", name)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}" if seconds < 0.1 else f"{1e3 * seconds:.1f}"
