"""Layers that nobody timed before, of timm's models or of none: how good the choices of cuts are, and beside cuDNN.

Every distinct grouped convolution of timm's models is a layer, or what `others` draws of what the kernels take: other
widths and extents, multipliers, dilations, filters. So many are drawn, each with a batch drawn too. Of each
pass up to `--cuts` cuts are timed, in the order in which they are guessed to be fast, and cuDNN, whose `benchmark` is
off, as `tapestry.kernels.torch.tune` times them: between kernels of torch's in a CUDA graph. Rows are written as they
come.

    python benchmarks/timm_layers.py find layers.json                 # needs timm, and no GPU; minutes
    python benchmarks/timm_layers.py others layers.json --many 200 --seed 1
    python benchmarks/timm_layers.py time layers.json rows.jsonl --many 200 --seed 1 --jobs 8 --limit 400
    python benchmarks/timm_layers.py report rows.jsonl

Kernels are compiled first, on all processors: some 2,500 for 200 layers. Timing needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from statistics import geometric_mean
from time import monotonic
from typing import Any

from tapestry.kernels.convolution.problem import DTYPES, MOST_WIDTH, ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES
from tapestry.kernels.cost.measurements import problem_of

BATCHES = (1, 16, 32, 64, 128, 256)
ELEMENTS = (1 << 18, 1 << 27)  # of the larger of input and output: less is nothing but launches, more does not fit
SLOWER = 1.02  # times cuDNN's time
Row = dict[str, Any]


# -- which layers ------------------------------------------------------------------------------------------------------


def grouped(model: Any, extents: tuple[int, ...]) -> Iterator[ConvolutionProblem]:
    """The grouped convolutions of a model on the device "meta" that the kernels compute, of one bf16 image."""
    import torch

    from tapestry.kernels.models.convolutions import convolutions
    from tapestry.kernels.models.replacement import unfit

    images = torch.empty(1, *extents, dtype=torch.bfloat16)
    for met in convolutions(model.to(torch.bfloat16), images):
        if met.layer.groups > 1 and unfit(met.layer) is None:
            yield met.problem


def find(path: Path, pattern: str) -> None:
    """Write the distinct layers of timm's models, and the models that have each."""
    import timm
    import torch

    found: dict[ConvolutionProblem, list[str]] = {}
    for name in timm.list_models(pattern):
        try:
            with torch.device("meta"):
                model = timm.create_model(name)
            for problem in grouped(model, model.default_cfg.get("input_size", (3, 224, 224))):
                found.setdefault(problem, []).append(name)
        except Exception as error:  # models that cannot be made, or called, without memory
            print(f"{name}: left out, {type(error).__name__}", file=sys.stderr)
    rows = [[astuple(problem), names] for problem, names in found.items()]
    path.write_text(json.dumps(rows), encoding="utf-8")
    print(f"{len(rows)} layers")


WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, *range(24, 129, 8))  # channels of a group
MULTIPLIERS = (1, 1, 1, 1, 2, 3, 4)  # channels out for one that enters
FILTERS = ((3, 3),) * 6 + ((5, 5),) * 3 + ((7, 7), (1, 1), (2, 2), (4, 4), (1, 7), (3, 1))
EXTENTS = (7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 112, 128)
GROUPS = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
MOST_CHANNELS = 4096


def others(many: int, seed: int) -> list[ConvolutionProblem]:
    """So many layers of one image that are of no model, the same for the same seed."""
    draw, found = random.Random(seed), list[ConvolutionProblem]()
    while len(found) < many:
        groups, width, times = map(draw.choice, (GROUPS, WIDTHS, MULTIPLIERS))
        if width * times > MOST_WIDTH or groups * width * times > MOST_CHANNELS or groups * width % 8:
            continue
        (r, s), stride, dilation = draw.choice(FILTERS), draw.choice((1, 1, 2)), draw.choice((1, 1, 1, 1, 2))
        h = draw.choice(EXTENTS)
        w = draw.choice((h, h, h, draw.choice(EXTENTS)))
        top, left = dilation * (r - 1) // 2, dilation * (s - 1) // 2
        steps = ((stride, stride), (dilation, dilation), (top, top, left, left))
        problem = ConvolutionProblem(
            1, h, w, groups * width, groups, r, s, *steps, draw.choice(DTYPES), channels_out=groups * width * times
        )
        if problem not in found:
            found.append(problem)
    return found


def drawn(layers: list[ConvolutionProblem], many: int, seed: int) -> list[ConvolutionProblem]:
    """So many layers, each with a batch: the same for the same seed."""
    draw = random.Random(seed)
    order, found = draw.sample(layers, len(layers)), []
    for layer in order:
        one = max(layer.h * layer.w * layer.c, layer.p * layer.q * layer.k)
        fitting = [n for n in BATCHES if ELEMENTS[0] <= n * one <= ELEMENTS[1]]
        if fitting and len(found) < many:
            found.append(replace(layer, n=draw.choice(fitting)))
    return found


# -- timing ------------------------------------------------------------------------------------------------------------


def measure(given: argparse.Namespace) -> None:
    """This process's share: cuDNN prepares all of it first, beside the other processes, then one times at a time."""
    import torch
    from model_steps import alone  # type: ignore[import-not-found, unused-ignore]

    from tapestry.kernels.cost.contenders import contenders
    from tapestry.kernels.cost.cudnn import is_faster
    from tapestry.kernels.cost.gpu import described_gpu
    from tapestry.kernels.models.tuning import ROUNDS, Clock, Operands, agreeing
    from tapestry.kernels.runtime.device import properties

    deadline, gpu = monotonic() + given.limit, described_gpu(properties(0))
    first, step = given.share
    mine = [(problem, what) for problem in chosen(given)[first::step] for what in PASSES]
    with torch.no_grad(), given.rows.open("a", encoding="utf-8") as rows:
        with alone(given.lock, shared=True):
            for problem, what in mine:
                Operands(problem, what, False, 0, gpu).by_cudnn()(0)
        torch.cuda.empty_cache()
        for problem, what in mine:
            if monotonic() > deadline:
                return
            found, operands = contenders(problem, what, gpu, given.cuts), Operands(problem, what, False, 0, gpu)
            with alone(given.lock):
                clock = Clock(0)
                right, refused = agreeing(operands, found)
                calls = [*(call for _, call in right), operands.by_cudnn()]
                *times, by_cudnn = map(
                    min, zip(*[[clock.us(call) for call in calls] for _ in range(ROUNDS)], strict=True)
                )
            row = {"problem": astuple(problem), "pass": what, "times": times, "cudnn": by_cudnn}
            row |= {"left": is_faster(problem, what, gpu), "refused": len(refused), "cuts": [repr(c) for c, _ in right]}
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            del operands
            torch.cuda.empty_cache()


def chosen(given: argparse.Namespace) -> list[ConvolutionProblem]:
    layers = [problem_of(values) for values, _ in json.loads(given.layers.read_text(encoding="utf-8"))]
    return drawn(layers, given.many, given.seed)


def time_all(given: argparse.Namespace) -> None:
    """Compile everything, then time it in processes that each have a share."""
    from tapestry.kernels.convolution.recipes import recipes_of
    from tapestry.kernels.cost.contenders import contenders
    from tapestry.kernels.cost.gpu import described_gpu
    from tapestry.kernels.runtime.device import device_architecture, properties
    from tapestry.kernels.runtime.parallel import compile_all
    from tapestry.kernels.warm_up import bar, once

    gpu = described_gpu(properties(0))
    wanted = once(
        recipe
        for problem in chosen(given)
        for what in PASSES
        for cut in contenders(problem, what, gpu, given.cuts)
        for recipe in recipes_of(problem, what, cut, {})
    )
    with bar(True) as note:
        compile_all(wanted, device_architecture(0), None, note)
    parts = [given.rows.with_name(f"{given.rows.name}.part{number}") for number in range(given.jobs)]
    same = ["--many", given.many, "--seed", given.seed, "--cuts", given.cuts, "--limit", given.limit]
    same += ["--lock", f"{given.rows}.lock", "--share"]
    command = [sys.executable, __file__, "share", str(given.layers)]
    running = [
        subprocess.Popen([*command, str(part), *map(str, [*same, number, given.jobs])])
        for number, part in enumerate(parts)
    ]
    failed = sum(process.wait() != 0 for process in running)
    with given.rows.open("a", encoding="utf-8") as rows:
        for part in parts:
            rows.write(part.read_text(encoding="utf-8") if part.exists() else "")
    for left in (*parts, Path(f"{given.rows}.lock")):
        left.unlink(missing_ok=True)
    report(given.rows)
    if failed:
        raise SystemExit(f"{failed} of {given.jobs} processes failed: their rows end where they did")


# -- what came out -----------------------------------------------------------------------------------------------------


def report(path: Path) -> None:
    """Print the table of docs/kernels.md, and the passes that are slower than cuDNN's."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    print(summary(rows))


def summary(rows: list[Row]) -> str:
    """How the choices did, of every pass: cuDNN's time over that of what is chosen, and what the choice lost."""
    rows = [row for row in rows if row["times"]]
    lines = [f"{len(rows)} passes, {sum(row['refused'] for row in rows)} cuts gave other numbers or none.", ""]
    lines += [
        "| pass | passes | as fast as cuDNN | lost by the choice | at worst |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for what in PASSES:
        lost = [row["times"][0] / min(row["times"]) for row in rows if row["pass"] == what]
        beside = [row["cudnn"] / taken(row) for row in rows if row["pass"] == what]
        if lost:
            speed, loss = geometric_mean(beside), geometric_mean(lost) - 1
            cells = [what.replace("_", " "), str(len(lost)), f"{speed:.2f}", f"{100 * loss:.1f} %"]
            lines.append(f"| {' | '.join(cells)} | {100 * (max(lost) - 1):.0f} % |")
    slower = sorted(
        (row for row in rows if taken(row) > SLOWER * row["cudnn"]), key=lambda row: row["cudnn"] / taken(row)
    )
    lines += ["", f"Slower than cuDNN by more than 2 %: {len(slower)}.", ""]
    lines += [
        f"- {row['problem']} {row['pass']}: {row['times'][0]:.1f} us, cuDNN's {row['cudnn']:.1f}, by the best cut"
        f" {min(row['times']):.1f}"
        for row in slower
    ]
    return "\n".join(lines)


def taken(row: Row) -> float:
    """Microseconds of whoever computes a pass."""
    return float(row["cudnn"] if row["left"] else row["times"][0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("find", "others", "time", "share", "report"))
    parser.add_argument("layers", type=Path, help="of `report`, the rows")
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--models", default="*", help="which of timm's models, with wildcards")
    parser.add_argument("--many", type=int, default=200, help="layers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=5, help="of a pass, at most")
    parser.add_argument("--jobs", type=int, default=4, help="processes")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds of timing")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what in ("time", "share") and given.rows is None:
        parser.error("where to are the rows?")
    if given.what == "find":
        find(given.layers, given.models)
    elif given.what == "others":
        rows = [[astuple(problem), []] for problem in others(given.many, given.seed)]
        given.layers.write_text(json.dumps(rows), encoding="utf-8")
    elif given.what == "report":
        report(given.layers)
    else:
        (time_all if given.what == "time" else measure)(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
