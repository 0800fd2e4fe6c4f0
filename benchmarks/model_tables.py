"""The tables of `make bench-models`: whole models beside cuDNN, with the goals beside the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_tables import table  # type: ignore[import-not-found, unused-ignore]

BESIDE = ("cudnn", "cudnn_again", "ours", "norms", "everything")  # whose losses are held against others'
FUSED = ("norms", "everything")  # what is fused in training beside convolutions
TRAINING = ("training_graph_ms", "training_eager_ms")
COMPILING = ("training_compile_ms", "training_compile_graph_ms")
COMPILED = ("cuDNN", "ours", "×", "everything", "×")
FUSED_GOALS = {"efficientnet_b0": 1.5, "mobilenetv3_large_100": 1.5}

GIB = 1 << 30

Cases = Mapping[str, Mapping[str, Any]]
Goals = Mapping[str, float | None]


def tables(data: Mapping[str, Any], goals: Goals) -> str:
    """Everything that was measured, as Markdown. `goals` are those of training in a CUDA graph, by model, or None."""
    cases = {name: data["models"][name] for name in goals if name in data["models"]}
    parts = [_head(data["machine"]), _training(cases, goals), _memory(cases), _inference(cases), _first(cases)]
    parts += [_other_ways(cases), _losses(cases)]
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


def _beside(times: Mapping[str, float], ours: str) -> list[str]:
    """Milliseconds of one of ours, and how many times as fast as cuDNN's it is."""
    return [f"{times[ours]:.1f}", f"{times['cudnn'] / times[ours]:.2f}"] if ours in times else ["-", "-"]


def _training(cases: Cases, goals: Goals) -> str:
    times = ["cuDNN", "ours", "×", "+ norms", "×", "everything", "×"]
    head = ["model, batch", "layers", "norms", "excitations", "biases", *_of("graph", times), "goal"]
    head += [*_of("eager", times), *_of("compile", COMPILED), *_of("compile, graph", COMPILED)]
    rows = []
    for name, case in cases.items():
        if "taken" not in case:
            continue
        taken = [f"{case['taken']} of {case['taken'] + case['left']}"]
        taken += [str(case.get(what, "-")) for what in ("norms", "excitations", "biases")]
        graph, eager = (_each(case, what, ("ours", *FUSED)) for what in TRAINING)
        compiled = [cell for what in COMPILING for cell in _each(case, what, ("ours", "everything"))]
        goal = "-" if goals[name] is None else f"{goals[name]:.2f}"
        rows.append([f"{name}, {case['batch']}", *taken, *graph, goal, *eager, *compiled])
    title = (
        "Training, forward and backward, ms: `ours` has our convolutions alone, `+ norms` fused norms too, `everything`"
        " is `fuse_for_training`.\nThe goal of eager and of compiled models is 1.00. `compile, graph` are compiled"
        " steps captured as CUDA graphs:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _of(kind: str, columns: Sequence[str]) -> list[str]:
    """The heads of columns, the first of which says what they are of."""
    return [f"{kind}: {columns[0]}", *columns[1:]]


def _each(case: Mapping[str, Any], what: str, contenders: Sequence[str]) -> list[str]:
    """Milliseconds of cuDNN's, and of each of ours with how many times as fast it is."""
    times = case.get(what, {})
    if "cudnn" not in times:
        return ["-"] * (1 + 2 * len(contenders))
    return [f"{times['cudnn']:.1f}", *(cell for who in contenders for cell in _beside(times, who))]


def _measured(head: list[str], rows: list[list[str]]) -> str:
    """A table without the columns that nobody measured."""
    kept = [number for number in range(len(head)) if any(row[number] != "-" for row in rows)]
    return str(table([head[number] for number in kept], [[row[number] for number in kept] for row in rows]))


def _memory(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        if sizes := case.get("memory_bytes"):
            ours = [sizes.get(who) for who in ("ours", *FUSED)]
            cells = [cell for size in ours for cell in _share(size, sizes["cudnn"])]
            rows.append([name, f"{sizes['cudnn'] / GIB:.2f}", *cells])
    head = ["model", "cuDNN", "ours", "of cuDNN's", "+ norms", "of cuDNN's", "everything", "of cuDNN's"]
    title = "The most memory that an eager step of training has beside weights and images, GiB:\n\n"
    return title + _measured(head, rows) if rows else ""


def _share(size: int | None, of: int) -> list[str]:
    return ["-", "-"] if size is None else [f"{size / GIB:.2f}", f"{size / of:.2f}"]


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
        pairs = [text for what in ("graph", "eager", "compile") for text in _each(case, f"fused_{what}_ms", ("fused",))]
        goal = f"{FUSED_GOALS[name]:.2f}" if name in FUSED_GOALS else "-"
        errors = [f"{value:.4f}" for value in case.get("fused_error", {}).values()] or ["-", "-"]
        rows.append([name, *pairs, goal, *_each(case, "inference_eager_ms", ("ours",)), *errors])
    title = (
        "Inference, ms: the model in bf16 beside `fuse_for_inference` of it; and under autocast, replaced layers alone."
        " Errors are of the\nresults, relative, against the model in f32:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _first(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        if "first_ours_s" in case:
            fused = [f"{case['fuse_s']:.1f}" if "fuse_s" in case else "-"]
            cells = [f"{case['first_cudnn_s']:.1f}", *fused, f"{case['warm_up_s']:.1f}", f"{case['first_ours_s']:.1f}"]
            rows.append([name, *cells, str(case["kernels"])])
    head = ["model", "cuDNN", "ours: `fuse_for_training`", "then `warm_up`", "then the first step", "kernels"]
    title = (
        "The first step of training, s, with nothing compiled before; the goal is 5 s on 16 cores for `warm_up` and the"
        " step:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _other_ways(cases: Cases) -> str:
    rows = []
    kinds = ("callables_ms", "halves_graph_ms", "halves_eager_ms")
    for name, case in cases.items():
        if any(kind in case for kind in kinds):
            cells = [cell for kind in kinds for cell in _each(case, kind, ("everything",))]
            rows.append([f"{name}, {case['batch']}", *cells])
    pair = ["cuDNN", "everything", "×"]
    head = ["model, batch", *_of("callables", pair), *_of("bf16, graph", pair), *_of("bf16, eager", pair)]
    title = (
        "Training, ms: `callables` are forward and backward as `torch.cuda.make_graphed_callables` captures them, under"
        " autocast;\n`bf16` are models of bf16 altogether, parameters too, without autocast:\n\n"
    )
    return title + _measured(head, rows) if rows else ""


def _losses(cases: Cases) -> str:
    rows = []
    for name, case in cases.items():
        if loss := case.get("loss"):
            wanted = ["first", "last", *BESIDE[1:], *(f"{who}_exact" for who in BESIDE)]
            rows.append([name, *(f"{loss[what]:.4f}" if what in loss else "-" for what in wanted)])
    order, *others = "cuDNN's in torch's own order", "ours", "+ norms", "everything"
    head = ["model", "first loss", "last", f"from cuDNN's: {order}", *others]
    head += ["from f32: cuDNN's", "in torch's own order", *others]
    title = "Losses of 100 steps of SGD on one batch, and the largest differences of the curves:\n\n"
    return title + _measured(head, rows) if rows else ""
