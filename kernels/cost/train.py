"""`python -m tapestry.kernels.cost.train`: fit the trees to the measurements, say how good they are, write the model.

Regret is what choosing by the model costs: time of the chosen configuration over the time of the fastest of all that
were measured, less one. It is taken on problems the trees have not seen: the problems are dealt into folds, and each
fold is predicted by trees fitted to the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import measurements
from .facts import FEATURES
from .fit import Recipe, boost
from .gpu import Gpu, known_gpu
from .measurements import Measured, Table
from .model import PAIRS, Configuration, facts, family_of
from .trees import Forest, Matrix, Tree, Vector

FOLDS = 5
BEGIN, END = "<!-- regret: begin -->", "<!-- regret: end -->"
RECIPE = Recipe()
# Problems of which none but the cuts that were guessed to be fastest were timed, by name. Trees that learn from those
# take cuts that nobody timed to be as fast: forward passes of timm's layers in five folds lost 3.5 % by the choice, 2.3
# without.
GUESSED = "timm."
# What is far slower than the best is never chosen: how much slower need not be learned as well.
NEAR, FAR = 1.25, 2.0


@dataclass(frozen=True)
class Sample:
    """The rows of one problem and kernel: features [configurations, features], seconds, and what counting predicts."""

    family: str
    item: Measured
    features: Matrix
    target: Vector
    weight: Vector


def samples(measured: Sequence[Measured], gpu: Gpu) -> list[Sample]:
    """Features and targets: log(time / roofline) less the logarithm of the prediction by counting.

    Of pairs of channels only what walks rows one by one counts, the rest was timed otherwise; and one row is enough,
    as they are compared with other kernels and not with each other.
    """
    found = [
        _sample(family, part, gpu)
        for item in measured
        for family, part in _by_family(item).items()
        if len(part.configurations) > (family != PAIRS)
    ]
    return [one for one in found if one.family == PAIRS or not one.item.name.startswith(GUESSED)]


def _by_family(item: Measured) -> dict[str, Measured]:
    rows: dict[str, list[tuple[Configuration, float]]] = {}
    for cut, us in zip(item.configurations, item.microseconds, strict=True):
        if getattr(cut, "leaving", 1) == 1:
            rows.setdefault(family_of(item.what, cut), []).append((cut, us))
    return {
        family: replace(item, configurations=tuple(cut for cut, _ in found), microseconds=tuple(us for _, us in found))
        for family, found in rows.items()
    }


def _sample(family: str, item: Measured, gpu: Gpu) -> Sample:
    features = np.array([facts(item.problem, item.what, cut, gpu).features() for cut in item.configurations])
    times = np.array(item.microseconds)
    target = np.log(times * 1e-6 / gpu.roofline_s(item.problem.bytes_moved)) - features[:, 0]
    weight = np.where(times <= NEAR * times.min(), 1.0, np.where(times <= FAR * times.min(), 0.4, 0.1))
    return Sample(family, item, features, target, weight)


def fitted(chosen: Sequence[Sample], recipe: Recipe = RECIPE) -> tuple[float, list[Tree]]:
    """Trees for the rows of all samples together."""
    parts = [(sample.features, sample.target, sample.weight) for sample in chosen]
    features, target, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    return boost(features, target, recipe, weight)


def regret(sample: Sample, forest: Forest) -> float:
    """Time of the configuration the forest would choose over the time of the fastest, less one."""
    predicted = sample.features[:, 0] + forest.many(sample.features)
    times = sample.item.microseconds
    return times[int(np.argmin(predicted))] / min(times) - 1.0


def held_out(chosen: Sequence[Sample], recipe: Recipe = RECIPE) -> dict[str, list[float]]:
    """Regret by pass, and the error of log(time) under "error", each problem predicted by trees that have not seen it.

    Problems are dealt into folds by extents, so that the passes of one problem stay together.
    """
    keys = sorted({_key(sample) for sample in chosen})
    fold = {key: place % FOLDS for place, key in enumerate(keys)}
    found: dict[str, list[float]] = {"error": []}
    for left_out in range(FOLDS):
        seen = [sample for sample in chosen if fold[_key(sample)] != left_out]
        forest = Forest(*fitted(seen, recipe), len(FEATURES))
        for sample in chosen:
            if fold[_key(sample)] == left_out:
                found.setdefault(sample.item.what, []).append(regret(sample, forest))
                found["error"] += list(np.abs(forest.many(sample.features) - sample.target))
    return found


def _key(sample: Sample) -> tuple[Any, ...]:
    problem = sample.item.problem
    return (
        problem.r,
        problem.s,
        problem.width,
        problem.stride,
        problem.dilation,
        problem.h,
        problem.w,
        problem.c,
        problem.n,
    )


def families(chosen: Sequence[Sample]) -> dict[str, list[Sample]]:
    """The samples by the kernel that was timed."""
    found: dict[str, list[Sample]] = {}
    for sample in chosen:
        found.setdefault(sample.family, []).append(sample)
    return found


def document(chosen: Sequence[Sample], recipe: Recipe = RECIPE) -> str:
    """The model as JSON: the features' names, and for each kernel base and trees."""
    forests = {family: forest_json(*fitted(part, recipe)) for family, part in families(chosen).items()}
    lines = ",\n".join(f"{json.dumps(family)}: {text}" for family, text in sorted(forests.items()))
    return f'{{"features": {json.dumps(list(FEATURES))},\n"forests": {{\n{lines}\n}}}}\n'


def forest_json(base: float, trees: Sequence[Tree]) -> str:
    """A forest as JSON, a line a tree."""
    lines = ",\n".join(json.dumps(_tree_json(tree), separators=(",", ":")) for tree in trees)
    return f'{{"base": {base:.6g}, "trees": [\n{lines}\n]}}'


def _tree_json(tree: Tree) -> dict[str, Any]:
    return {
        "feature": tree.feature,
        "threshold": [float(f"{value:.9g}") for value in tree.threshold],
        "left": tree.left,
        "right": tree.right,
        "value": [float(f"{value:.5g}") for value in tree.value],
    }


def report(read: Table, chosen: Sequence[Sample]) -> str:
    """Held-out regret of every pass, beside that of counting alone, as Markdown."""
    pairs = [sample for sample in chosen if sample.family == PAIRS]
    chosen = [sample for sample in chosen if sample.family != PAIRS]
    count = sum(len(sample.item.microseconds) for sample in chosen)
    rows = [
        "| pass | problems | mean | 90th percentile | worst | by counting alone, mean |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    errors: list[float] = []
    for part in families(chosen).values():
        found = held_out(part)
        errors += found.pop("error")
        rows += [_row(what, values, [s for s in part if s.item.what == what]) for what, values in sorted(found.items())]
    head = (
        f"{count} measurements of {len(chosen)} problems and passes, {read.gpu}, {read.date}. Time lost by\n"
        "choosing with the model, over the fastest configuration, on problems that were held out:\n"
    )
    tail = f"\nThe time itself is predicted with a median error of {100 * np.median(errors):.0f} %"
    if pairs:
        median, many = 100 * np.median(held_out(pairs)["error"]), sum(len(sample.item.microseconds) for sample in pairs)
        tail += f", that of {many} cuts of channel pairs with one of {median:.0f} %"
    tail += "."
    return "\n".join([head, *rows, tail])


def _row(what: str, regrets: Sequence[float], part: Sequence[Sample]) -> str:
    counted = [s.item.microseconds[int(np.argmin(s.features[:, 0]))] / min(s.item.microseconds) - 1 for s in part]
    shares = (np.mean(regrets), np.quantile(regrets, 0.9), np.max(regrets), np.mean(counted))
    cells = [what.replace("_", " "), str(len(regrets)), *(f"{100 * share:.1f} %" for share in shares)]
    return f"| {' | '.join(cells)} |"


def into(document: Path, text: str) -> None:
    """Replace what stands between the markers of a document."""
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, help="measurements other than the committed ones")
    parser.add_argument("--out", type=Path, help="write the model to this file (kernels/cost/data/model.json)")
    parser.add_argument("--doc", type=Path, help="put the regret between the markers of this file (docs/kernels.md)")
    parser.add_argument("--no-report", action="store_true", help="fit only: say nothing of the regret")
    arguments = parser.parse_args()
    read = measurements.from_json(arguments.table.read_text()) if arguments.table else measurements.table()
    gpu = known_gpu(read.gpu)
    if gpu is None:
        parser.error(f"no figures of {read.gpu!r} in data/gpus.json")
    chosen = samples(read.measured, gpu)
    if arguments.out:
        arguments.out.write_text(document(chosen), encoding="utf-8")
    if arguments.no_report:
        return
    text = report(read, chosen)
    if arguments.doc:
        into(arguments.doc, text)
    print(text)


if __name__ == "__main__":
    main()
