"""`python -m tapestry.kernels.cost.cudnn_train times.json`: fit times of cuDNN (`benchmarks/cudnn_times.py`)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..convolution.recipes import PASSES
from .cudnn import FEATURES, Layer
from .fit import Recipe, boost
from .gpu import tuned_gpu
from .train import forest_json
from .trees import Forest, Matrix, Tree, Vector

RECIPE = Recipe(trees=200, depth=4, rate=0.1, least=3, ridge=1.0)
FOLDS, ENOUGH = 5, 100
Row = tuple[Layer, Sequence[float]]


def fitted(rows: Sequence[Row], place: int) -> tuple[float, list[Tree]]:
    """Base and trees of the pass at a place of `PASSES`."""
    features, target = samples(rows, place)
    return boost(features, target, RECIPE)


def samples(rows: Sequence[Row], place: int) -> tuple[Matrix, Vector]:
    """Features, and the logarithm of the time over the roofline."""
    gpu = tuned_gpu()
    times = [times[place] * 1e-6 / gpu.roofline_s(layer.bytes_moved) for layer, times in rows]
    return np.array([layer.features() for layer, _ in rows]), np.log(np.array(times))


def held_out_errors(rows: Sequence[Row], place: int) -> Vector:
    """|log(predicted / measured)| of every row by trees that have not seen it."""
    errors = []
    for fold in range(FOLDS):
        forest = Forest(*fitted([row for i, row in enumerate(rows) if i % FOLDS != fold], place), len(FEATURES))
        features, target = samples(rows[fold::FOLDS], place)
        errors.append(np.abs(forest.many(features) - target))
    return np.concatenate(errors)


def document(rows: Sequence[Row], head: dict[str, Any]) -> str:
    """The model as JSON, with what was measured, a line a layer. Few layers are their own times and no model."""
    fits = enumerate(PASSES) if len(rows) >= ENOUGH else ()
    forests = ",\n".join(f"{json.dumps(what)}: {forest_json(*fitted(rows, i))}" for i, what in fits)
    lines = ",\n".join(json.dumps([list(layer), list(times)]) for layer, times in rows)
    head = {"features": FEATURES, **head}
    return f'{json.dumps(head)[:-1]},\n"forests": {{\n{forests}\n}},\n"measured": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=Path)
    parser.add_argument("--out", type=Path, help="write the model to this file (kernels/cost/data/cudnn.json)")
    parser.add_argument("--head", type=json.loads, default={}, help="what the file says of the machine, as JSON")
    given = parser.parse_args()
    rows = [(Layer(*layer), times) for layer, times in json.loads(given.times.read_text())]
    for place, what in enumerate(PASSES):
        errors = held_out_errors(rows, place)
        median, most = (100 * np.expm1(np.quantile(errors, share)) for share in (0.5, 0.9))
        print(f"{what}: {len(rows)} layers, held out off by {median:.0f} % in the middle, by {most:.0f} % for a tenth")
    if given.out:
        given.out.write_text(document(rows, given.head), encoding="utf-8")


if __name__ == "__main__":
    main()
