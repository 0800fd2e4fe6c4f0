"""Times configurations of convolutions on one GPU for the cost model's table (kernels/cost/data/measurements.json).

Before it is timed a problem's first configuration is checked against f32 and the others against the first; those that
are wrong are reported and left out. With a limit on time,
problems come in a fixed shuffled order, so that what is measured is a sample of the list whenever it ends. Run

python benchmarks/kernel_measure.py --time-limit 400 --out build/measurements.json
python -m tapestry.kernels.cost.train --table build/measurements.json --out kernels/cost/data/model.json
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "kernels"))


def problems(share: float, parts: Sequence[str] = ()) -> list[tuple[str, Any]]:
    """The table's problems, then a sample of the list in an order that has nothing to do with shape.

    With `parts`, those alone whose names hold one of them.
    """
    from shapes import SHAPES, TABLE  # type: ignore[import-not-found, unused-ignore]

    rest = [item for item in SHAPES.items() if item[0] not in TABLE]
    random.Random(1).shuffle(rest)
    found = [*TABLE.items(), *rest[: int(share * len(rest))]]
    return [item for item in found if not parts or any(part in item[0] for part in parts)]


def selection(name: str, problem: Any, what: str, gpu: Any, arguments: argparse.Namespace) -> list[Any]:
    """Configurations to try: all where there are few, else those that the model puts first and a sample of the rest."""
    from tapestry.kernels.cost.model import candidates, predict_s

    options = list(candidates(problem, what, gpu))
    if len(options) <= arguments.all_of:
        return options
    order = sorted(range(len(options)), key=predict_s(problem, what, options, gpu).tolist().__getitem__)
    leading, rest = order[: arguments.leading], order[arguments.leading :]
    picked = [*leading, *random.Random(name).sample(rest, min(arguments.sampled, len(rest)))]
    return [options[i] for i in picked]


def sources(problem: Any, what: str, cut: Any) -> list[tuple[str, str]]:
    """(kernel, source) of a configuration."""
    from tapestry.kernels.convolution.recipes import forward_recipe, walk, weight_gradient_recipes

    if what == "weight_gradient":
        return [(recipe.name, recipe.source) for recipe in weight_gradient_recipes(problem, cut)]
    walked = walk(problem, what)
    recipe = forward_recipe(walked.problem, cut, {"transposed": what == "input_gradient", "taps": walked.taps})
    return [(recipe.name, recipe.source)]


def walked(problem: Any, what: str) -> Any:
    """The problem that the configurations of a pass are for."""
    from tapestry.kernels.convolution.recipes import walk

    return problem if what == "weight_gradient" else walk(problem, what).problem


def measure(arguments: argparse.Namespace) -> tuple[list[Any], float]:
    """(what was measured, copy rate)."""
    import conv_contenders as contenders  # type: ignore[import-not-found, unused-ignore]
    import torch
    from compile_ahead import compile_all  # type: ignore[import-not-found, unused-ignore]
    from gpu_timing import copy_bytes_per_s  # type: ignore[import-not-found, unused-ignore]

    from tapestry.kernels.cost.gpu import described_gpu
    from tapestry.kernels.cost.measurements import Measured
    from tapestry.kernels.runtime.device import properties

    deadline, gpu = monotonic() + arguments.time_limit, described_gpu(properties(0))
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    pairs = [(n, p, what) for n, p in problems(arguments.share, arguments.named) for what in arguments.passes]
    cases = [(n, p, what, walked(p, what)) for n, p, what in pairs]
    chosen = {(n, what): selection(n, walk, what, gpu, arguments) for n, _, what, walk in cases}
    wanted = dict.fromkeys(r for n, p, what, _ in cases for cut in chosen[n, what] for r in sources(p, what, cut))
    begun = monotonic()
    done, failed = compile_all(wanted, begun + 0.7 * arguments.time_limit)
    print(
        f"compiled {done} of {len(wanted)} in {monotonic() - begun:.0f} s; failed {len(failed)}",
        *failed[:3],
        flush=True,
    )
    copy, pools, found = copy_bytes_per_s(), contenders.Pools(), []
    held: tuple[Any, Any] = (None, None)
    for name, problem, what, walk in cases:
        if monotonic() > deadline:
            break
        try:
            if held[0] is not problem:
                held = (problem, pools.operands(problem))
        except RuntimeError as error:  # a kernel before has broken the context: what was measured is kept
            print(f"stopped at {name} {what}: {error!r}"[:300], flush=True)
            break
        kept, times = _times(name, problem, what, chosen[name, what], held[1], deadline)
        if len(kept) > 1:
            found.append(Measured(name, what, walk, kept, times))
    return found, copy


def _times(
    name: str, problem: Any, what: str, options: list[Any], operands: Any, deadline: float
) -> tuple[tuple[Any, ...], tuple[float, ...]]:
    """The options that compute the right thing, and their times in microseconds."""
    import conv_contenders as contenders
    from gpu_timing import median_us

    kept, times, wrong = [], [], []
    expected = None
    for cut in options:
        if monotonic() > deadline:
            break
        try:
            call = contenders.ours(problem, operands, cut)[what]
            if expected is None:
                error = contenders.worst_error(problem, operands, call, what)
                expected = operands.outs[what][0].clone() if error <= 1 else None
            else:
                error = contenders.worst_difference(problem, operands, call, what, expected)
            if not error <= 1:
                wrong.append(f"{cut}: error {error}")
                continue
            times.append(round(median_us(call, 13), 2))
            kept.append(cut)
        except Exception as error:
            wrong.append(f"{cut}: {error!r}"[:300])
    best = min(times, default=0.0)
    print(f"{name} {what}: {len(kept)} timed, best {best:.1f} us, {len(wrong)} wrong", *wrong[:1], flush=True)
    return tuple(kept), tuple(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--share", type=float, default=1.0, help="share of the list of shapes")
    parser.add_argument(
        "--named", nargs="+", default=[], metavar="PART", help="only shapes whose name holds one of these"
    )
    parser.add_argument("--all-of", type=int, default=48, help="try all configurations where there are no more")
    parser.add_argument("--leading", type=int, default=20, help="configurations of a problem that the model puts first")
    parser.add_argument("--sampled", type=int, default=12, help="and others")
    parser.add_argument("--passes", nargs="+", default=["forward", "input_gradient", "weight_gradient"])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "measurements.json")
    parser.add_argument("--merge", type=Path, help="a table whose other entries are kept")
    arguments = parser.parse_args()
    from kernels import gpu_is_missing  # type: ignore[import-not-found, unused-ignore]

    if missing := gpu_is_missing():
        print(f"measuring needs an NVIDIA GPU: {missing}", file=sys.stderr)
        return 2
    import torch

    from tapestry.kernels.cost import measurements

    found, copy = measure(arguments)
    if arguments.merge:
        found = measurements.merged(measurements.from_json(arguments.merge.read_text()).measured, found)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    table = measurements.Table(torch.cuda.get_device_name(), today, round(copy), tuple(found))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(measurements.to_json(table), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
