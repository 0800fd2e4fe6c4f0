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
    parts = [
        _head(results["machine"]),
        _steps(results["jobs"], results.get("gpus", 0)),
        _where(results["jobs"]),
        *_tasks(results["jobs"]),
    ]
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
CuPy {machine["cupy"]}, NCCL without multicast. Steps follow one another without a pause, ours and the others' timed by
the same code: on one GPU they take turns of 0.4 seconds in one process, as many such rows at once as there are GPUs; on
several each has a process of its own on each of its GPUs, alone there. All processes are ready before the first is
measured. Medians, without the first turn of each and the first quarter of every other. Inputs and weights stay in
place: inputs are planned as weights are.
Plans are for the packaged machines `h200x2` and, for more than two GPUs, `h200x4`, programs rewritten where the planner
holds that for quicker; a step is one launch of a graph on each GPU. `python benchmarks/gpu.py build/gpu.json --doc
docs/gpu.md` writes such a page of one run's results."""


def _steps(jobs: dict[str, Any], gpus: int) -> str:
    lines = [_line(row, jobs) for row in ROWS if row.name in jobs]
    missing = [f"{row.title}, {row.gpus} GPUs" for row in ROWS if row.name not in jobs and 1 < row.gpus <= gpus]
    left = f"\n\nThe time of this run was over before: {'; '.join(missing)}." if missing else ""
    head = ["program", "GPUs", "step", "predicted", "measured / predicted", "the best of others", "others / ours",
            "wanted", "floor"]  # fmt: skip
    return f"""## Steps

Milliseconds. The floor is the bound that no plan can beat on the machine as it was probed (see
[planner.md](planner.md)); it is of a chip at work, whose products of matrices its power limits. Others: torch as it is
and compiled (f32 without TF32) on one GPU; by hand with NCCL on several, DDP and FSDP2 of torch for AdamW; each eager,
compiled or as a CUDA graph, whichever is quicker.

{_table(head, lines)}{left}"""


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
    head = ["program", "GPUs", "not computing, predicted", "measured", "on the other GPU", "MB moved", "cuts"]
    lines = []
    for row in rows:
        found = jobs[row.name]
        cuts = sorted(found["shardings"].items(), key=lambda cut: -cut[1]) if row.gpus > 1 else []
        lines.append([
            row.title, str(row.gpus), _ms(found["predicted_exposed_s"]), _ms(found["exposed_s"]), _least(row, found),
            f"{found['bytes_moved'] / 1e6:.0f}", "; ".join(f"{count} {cut}" for cut, count in cuts[:4]),
        ])  # fmt: skip
    return f"""## Where the time goes

Milliseconds of a step in which a GPU computes nothing (transfers that nothing hides, and gaps), of the GPU that waits
longest and of the one that waits least: what only one of them waits is for the other, which takes longer for as much.
Bytes between GPUs, and how many operations are cut how.

{_table(head, lines)}"""


def _least(row: Row, found: dict[str, Any]) -> str:
    return _ms(found["exposed_least_s"]) if row.gpus > 1 and "exposed_least_s" in found else ""


def _tasks(jobs: dict[str, Any]) -> Iterator[str]:
    for row in ROWS:
        if row.name in BY_TASK and "tasks" in jobs.get(row.name, {}):
            head = f"### {row.title}, {row.gpus} GPU{'s' * (row.gpus > 1)}"
            said = "Rank 0, all layers together; tasks that one kernel does are one line."
            yield "\n\n".join([head, said, _by_task(jobs[row.name]["tasks"])])


def _by_task(tasks: list[list[Any]]) -> str:
    """Tasks of rank 0 of one name, the number of the layer left out, added up; what one kernel does is one line."""
    groups: dict[str, list[float]] = {}
    for names, predicted, measured in done_together(tasks):
        line = _named([_alike(name) for name in names])
        count, before, after = groups.get(line, [0, 0.0, 0.0])
        groups[line] = [count + 1, before + predicted, after + measured]
    lines = [
        [name, f"{count:.0f}", f"{1e6 * before:.1f}", f"{1e6 * after:.1f}", f"{after / before:.2f}" if before else ""]
        for name, (count, before, after) in sorted(groups.items(), key=lambda item: -item[1][2])
    ]
    return _table(["task", "times", "predicted, µs", "measured, µs", "ratio"], lines)


def done_together(tasks: list[list[Any]]) -> Iterator[tuple[list[str], float, float]]:
    """The tasks of rank 0 that are done one by one, or within a later one of their lane: names, and the sums of the
    seconds that were predicted and measured.
    """
    waiting: dict[str, list[tuple[str, float, float]]] = {}
    for rank, lane, name, predicted, measured, kernel in tasks:
        if rank == 0 and predicted is not None and measured is not None:
            mine = waiting.setdefault(lane, [])
            mine.append((name, predicted, measured))
            if not kernel.startswith("within "):
                names, *seconds = zip(*waiting.pop(lane), strict=True)
                yield list(names), sum(seconds[0]), sum(seconds[1])


def _named(names: list[str]) -> str:
    """Several names as one, what they begin with said once.

    >>> _named(["layers.*.norm.mean", "layers.*.norm.scale"])
    'layers.*.norm.mean, scale'
    """
    first, *others = names
    parts = [name.split(".") for name in names]
    same = 0
    while others and all(len(part) > same + 1 and part[same] == parts[0][same] for part in parts):
        same += 1
    return ", ".join([first, *(".".join(part[same:]) for part in parts[1:])])


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
