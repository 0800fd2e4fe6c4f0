"""The tables of `make bench-models`: whole models beside cuDNN, with the goals beside the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_tables import table  # type: ignore[import-not-found, unused-ignore]

LOSSES = ("first", "last", "cudnn_again", "ours", "norms")
TRAINING = ("training_graph_ms", "training_eager_ms")
FUSED_GOALS = {"efficientnet_b0": 1.5, "mobilenetv3_large_100": 1.5}

Cases = Mapping[str, Mapping[str, Any]]
Goals = Mapping[str, float | None]


def tables(data: Mapping[str, Any], goals: Goals) -> str:
    """Everything that was measured, as Markdown. `goals` are those of training in a CUDA graph, by model, or None."""
    cases = {name: data["models"][name] for name in goals if name in data["models"]}
    parts = [_head(data["machine"]), _training(cases, goals), _everything(cases), _inference(cases), _first(cases)]
    parts.append(_losses(cases))
    missing = [name for name in goals if name not in cases]
    failed = [
        f"- {name}, {what.removesuffix('_failed')}: {case[what]}"
        for name, case in cases.items()
        for what in case
        if what.endswith("failed")
    ]
    if missing:
        parts.append(f"Not measured in this run: {', '.join(missing)}.")
    if failed:
        parts.append("\n".join(["Failed:", "", *failed]))
    return "\n\n".join(part for part in parts if part)


def _head(machine: Mapping[str, Any]) -> str:
    how = "on" if machine["cudnn_benchmark"] else "off"
    software = f"torch {machine['torch']}, cuDNN {machine['cudnn']} (`cudnn.benchmark` {how}), timm {machine['timm']}"
    return f"{machine['gpu']}, {software}, {machine['date']}."


def _pair(case: Mapping[str, Any], what: str, ours: str = "ours") -> list[str]:
    """Milliseconds of cuDNN's and of ours, and how many times as fast ours is."""
    times = case.get(what, {})
    return [f"{times['cudnn']:.1f}", *_beside(times, ours)] if "cudnn" in times else ["-", "-", "-"]


def _beside(times: Mapping[str, float], ours: str) -> list[str]:
    """Milliseconds of one of ours, and how many times as fast as cuDNN's it is."""
    return [f"{times[ours]:.1f}", f"{times['cudnn'] / times[ours]:.2f}"] if ours in times else ["-", "-"]


def _training(cases: Cases, goals: Goals) -> str:
    three = ["cuDNN", "ours", "×", "+ norms", "×"]
    head = ["model, batch", "layers", "norms", *three, "goal", *three, "compile: cuDNN", "ours", "×"]
    head += ["compile, graph: cuDNN", "ours", "×"]
    head[3], head[9] = "graph: cuDNN", "eager: cuDNN"
    rows = []
    for name, case in cases.items():
        if "taken" not in case:
            continue
        layers = f"{case['taken']} of {case['taken'] + case['left']}"
        graph, eager = ([*_pair(case, what), *_beside(case.get(what, {}), "norms")] for what in TRAINING)
        rest = [*eager, *_pair(case, "training_compile_ms"), *_pair(case, "training_compile_graph_ms")]
        goal = "-" if goals[name] is None else f"{goals[name]:.2f}"
        rows.append([f"{name}, {case['batch']}", layers, str(case.get("norms", "-")), *graph, goal, *rest])
    title = (
        "Training, forward and backward, ms: `ours` has our convolutions alone, `+ norms` fused norms too. The"
        " goal of eager and of\ncompiled models is 1.00. `compile, graph` are compiled steps captured as CUDA"
        " graphs:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _measured(head: list[str], rows: list[list[str]]) -> str:
    """A table without the columns that nobody measured."""
    kept = [number for number in range(len(head)) if any(row[number] != "-" for row in rows)]
    return str(table([head[number] for number in kept], [[row[number] for number in kept] for row in rows]))


REST = ("norms", "excitations", "biases")  # what is fused, one after the other


def _everything(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        if "everything_graph_ms" in case:
            cells = [cell for kind in ("graph", "eager") for cell in _one_by_one(case[f"everything_{kind}_ms"])]
            rows.append([name, *(str(case[what]) for what in REST), *cells])
    head = ["model", *REST, "graph: + norms", "+ excitations", "+ biases", "×", "eager: + norms"]
    title = (
        "Training with fused norms, with squeeze-and-excitations by kernels too, and with gradients of biases as well,"
        " ms,\nand how many times as fast as with norms alone that is:\n\n"
    )
    return title + table([*head, *head[5:8]], rows) + "\n" if rows else ""


def _one_by_one(times: Mapping[str, float]) -> list[str]:
    last = next(times[what] for what in reversed(REST) if what in times)
    return [*(f"{times[what]:.1f}" if what in times else "-" for what in REST), f"{times['norms'] / last:.2f}"]


def _inference(cases: Cases) -> str:
    head = [
        "model",
        "graph: cuDNN",
        "fused",
        "×",
        "eager: cuDNN",
        "fused",
        "×",
        "compiled, graph: cuDNN",
        "fused",
        "×",
        "goal",
        "autocast, eager: cuDNN",
        "replaced",
        "×",
        "error: bf16",
        "fused",
    ]
    rows = []
    for name, case in cases.items():
        if "fused_graph_ms" not in case and "inference_eager_ms" not in case:
            continue
        pairs = [text for what in ("graph", "eager", "compile") for text in _pair(case, f"fused_{what}_ms", "fused")]
        goal = f"{FUSED_GOALS[name]:.2f}" if name in FUSED_GOALS else "-"
        errors = [f"{value:.4f}" for value in case.get("fused_error", {}).values()] or ["-", "-"]
        rows.append([name, *pairs, goal, *_pair(case, "inference_eager_ms"), *errors])
    title = (
        "Inference, ms: the model in bf16 beside `fuse_for_inference` of it; and under autocast, replaced layers alone."
        " Errors are of the\nresults, relative, against the model in f32:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _first(cases: Cases) -> str:
    rows = [
        [name, *(f"{case[what]:.1f}" for what in ("first_cudnn_s", "warm_up_s", "first_ours_s")), str(case["kernels"])]
        for name, case in cases.items()
        if "first_ours_s" in case
    ]
    head = ["model", "cuDNN", "ours: `warm_up`", "then the first step", "kernels"]
    title = "The first step of training, s, with nothing compiled before; the goal is 5 s on 16 cores:\n\n"
    return title + table(head, rows) if rows else ""


def _losses(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        if loss := case.get("loss"):
            cells = [f"{loss[what]:.4f}" if what in loss else "-" for what in LOSSES]
            rows.append([name, *cells])
    head = [
        "model",
        "first loss",
        "last",
        "largest difference of two runs of cuDNN's",
        "of ours from the first",
        "of + norms",
    ]
    return "Losses of 100 steps of SGD on one batch:\n\n" + table(head, rows) if rows else ""
