"""The tables of `make bench-kernels`: shares of the copy rate, and the shapes where cuDNN is faster."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import geometric_mean, median
from typing import Any

PASSES = {"forward": "fprop", "input_gradient": "dgrad", "weight_gradient": "wgrad"}
# Of the copy rate, fprop, dgrad, wgrad: what the project set itself.
TARGETS = {
    "64x64x64k3": (0.75, 0.75, 0.65),
    "256x64x64k3": (0.85, 0.85, 0.75),
    "64x1024x16k3": (0.75, 0.75, 0.65),
    "256x1024x16k3": (0.85, 0.85, 0.75),
    "64x64x64k5": (0.60, 0.60, 0.50),
    "256x256x28k5": (0.65, 0.65, 0.50),
}
# Columns of the comparison. Inputs rotate, and outputs but for those of the last column and cuDNN's, to which torch's
# allocator gives the same memory again.
CONTENDERS = {
    "copy": "torch's copy",
    "cudnn": "cuDNN",
    "spio": "Spio, its best",
    "ours": "Tapestry",
    "ours_one_output": "into one output",
}
CHAINED = {"copy": "torch's copy", "cudnn": "cuDNN", "ours": "Tapestry"}
# Slower than this many times cuDNN counts as slower: the spread of two runs of the same thing.
NOISE = 1.02

Cases = Mapping[str, Mapping[str, Any]]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; all columns but the first to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(data: Mapping[str, Any]) -> str:
    """Everything that was measured, as Markdown."""
    machine, cases = data["machine"], data["cases"]
    copy = machine["copy_bytes_per_s"]
    software = f"CUDA {machine['cuda']}, torch {machine['torch']}, cuDNN {machine['cudnn']}"
    head = f"{machine['gpu']}, {software}, {machine['date']}; a copy moves {copy / 1e12:.2f} TB/s."
    parts = [head, _six(cases, copy), _chained(cases, copy), _shapes(cases), _rows(cases, copy)]
    return "\n\n".join(part for part in parts if part)


def _share(case: Mapping[str, Any], who: str, copy: float) -> str:
    return f"{case['bytes'] / copy / case[who] * 1e6:.2f}".removeprefix("0") if who in case else "-"


def _six(cases: Cases, copy: float) -> str:
    """fprop / dgrad / wgrad as shares of the copy rate, for the six problems of the comparison."""
    rows = _compared(cases, copy, [f"{who}_us" for who in CONTENDERS])
    title = "Share of the copy rate (input, output and weights once / time), fprop dgrad wgrad, group width 8, f16:\n\n"
    return title + table(["N x C x H=W, filter", *CONTENDERS.values(), "goal"], rows) if rows else ""


def _chained(cases: Cases, copy: float) -> str:
    """The same problems where launches follow one another in a CUDA graph."""
    if not any("ours_chain_us" in case for case in cases.values()):
        return ""
    rows = _compared(cases, copy, [f"{who}_chain_us" for who in CHAINED])
    title = "The same in a chain, 24 launches in a CUDA graph with inputs and outputs in rotation, time of one:\n\n"
    return title + table(["N x C x H=W, filter", *CHAINED.values(), "goal"], rows)


def _compared(cases: Cases, copy: float, whose: list[str]) -> list[list[str]]:
    """A row for each problem of the comparison that was measured: its shares, then the goal."""
    rows = []
    for name, targets in TARGETS.items():
        found = [cases.get(f"table.{name}/{what}", {}) for what in PASSES]
        if any(found):
            cells = [" ".join(_share(case, who, copy) for case in found) for who in whose]
            rows.append([name, *cells, " ".join(f".{round(100 * share):02d}" for share in targets)])
    return rows


def _shapes(cases: Cases) -> str:
    """How we stand against cuDNN over the whole list, and every case where we are slower."""
    lines, slower, failed = [], [], []
    for what, short in PASSES.items():
        ratios = {}
        for name, case in cases.items():
            if name.endswith("/" + what) and "cudnn_us" in case:
                if "ours_us" in case:
                    ratios[name] = case["cudnn_us"] / case["ours_us"]
                if "ours_us" not in case or not case["error"] <= 1:
                    failed.append(f"{name}: {case.get('ours_failed', 'error ' + str(case.get('error')))}")
        if ratios:
            worst = min(ratios.values())
            mean = geometric_mean(ratios.values())
            lines.append([short, str(len(ratios)), f"{mean:.2f}", f"{median(ratios.values()):.2f}", f"{worst:.2f}"])
            slower += sorted((ratio, name) for name, ratio in ratios.items() if ratio < 1 / NOISE)
    if not lines:
        return ""
    text = "Over the list of shapes, time of cuDNN over ours:\n\n"
    text += table(["pass", "shapes", "geometric mean", "median", "least"], lines)
    if slower:
        text += f"\n\nSlower than cuDNN by more than {100 * (NOISE - 1):.0f} %, {len(slower)} cases:\n\n"
        rows = [[name, f"{cases[name]['ours_us']:.1f}", f"{cases[name]['cudnn_us']:.1f}"] for _, name in sorted(slower)]
        text += table(["shape/pass", "ours, µs", "cuDNN, µs"], rows)
    else:
        text += "\n\nNo shape is slower than cuDNN."
    if failed:
        text += f"\n\nWrong or refused, {len(failed)} cases:\n\n" + "\n".join(f"- {line}" for line in failed)
    return text


def _rows(cases: Cases, copy: float) -> str:
    """Elementwise kernels and norms: share of the copy rate by type, and torch's in the first type there is."""
    dtypes = ("f16", "bf16", "f32")
    kernels: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, case in cases.items():
        if name.startswith("rows.") and "ours_us" in case:
            kernel, _, dtype = name.removeprefix("rows.").rpartition(".")
            kernels.setdefault(kernel, {})[dtype] = case
    rows = []
    for kernel, by_type in sorted(kernels.items()):
        ours = [_share(by_type.get(dtype, {}), "ours_us", copy) for dtype in dtypes]
        theirs = [_share(by_type.get(dtype, {}), "torch_us", copy) for dtype in dtypes]
        rows.append([kernel, *ours, " ".join(theirs)])
    title = "Kernels generated from expressions, and norms, share of the copy rate (bytes once / time):\n\n"
    return title + table(["kernel", *dtypes, "torch, f16 bf16 f32"], rows) if rows else ""
