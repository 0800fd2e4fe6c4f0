"""`make bench-kernels`: our kernels, cuDNN and, where it is installed, Spio, in one run on one GPU.

Every case is checked against f32 before it is timed. Results are written as they come and a second run goes on where
the first one stopped, so that a time limit loses nothing. Needs an NVIDIA GPU, torch with CUDA, and CuPy.

python benchmarks/kernels.py [--time-limit 300] [--results build/kernels.json] [--doc docs/kernels.md] [--only table]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "kernels"))

SECTIONS = ("table", "wide", "rows", "shapes")
NO_GPU = 2
SAVE_EVERY_S = 5.0


class Results:
    """Results by name, on disk as JSON; those of an earlier run of the same day's code are kept unless `fresh`."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        known = path.exists() and not fresh
        self.data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if known else {"cases": {}}
        self._saved = monotonic()

    def record(self, name: str, case: dict[str, Any]) -> None:
        self.data["cases"][name] = case
        if monotonic() - self._saved > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.data, indent=1, sort_keys=True), encoding="utf-8")
        self._saved = monotonic()


def convolutions(sections: list[str]) -> Iterator[tuple[str, Any, str]]:
    """(section, problem, name/pass) of every convolution, the table's first."""
    from conv_contenders import PASSES  # type: ignore[import-not-found, unused-ignore]
    from shapes import SHAPES, TABLE, WIDE  # type: ignore[import-not-found, unused-ignore]

    shuffled = [item for item in SHAPES.items() if item[0] not in TABLE]
    # What a limit on time leaves over is a sample of the list.
    random.Random(0).shuffle(shuffled)
    for section, problems in (("table", list(TABLE.items())), ("wide", list(WIDE.items())), ("shapes", shuffled)):
        if section in sections:
            yield from ((section, p, f"{name}/{what}") for name, p in problems for what in PASSES)


def measure(results: Results, arguments: argparse.Namespace) -> bool:
    """Time what is missing until the limit; whether everything is there."""
    import conv_contenders as contenders
    from spio_contender import Spio  # type: ignore[import-not-found, unused-ignore]

    from tapestry.kernels.cost.gpu import described_gpu
    from tapestry.kernels.runtime.device import properties

    deadline = monotonic() + arguments.time_limit
    missing = [case for case in convolutions(arguments.only) if case[2] not in results.data["cases"]]
    _compile_ahead([case[1] for case in missing], described_gpu(properties(0)), deadline)
    pools, spio = contenders.Pools(), None
    try:
        spio = Spio()
    except (ImportError, OSError, StopIteration) as error:
        results.data["spio"] = f"not here: {error!r}"
    held: tuple[Any, Any] = (None, None)
    for section, problem, name in missing:
        if monotonic() > deadline:
            return False
        if held[0] is not problem:
            held = (problem, pools.operands(problem))
        case = _convolution(problem, held[1], name, spio if section == "table" else None, arguments.spio_limit)
        results.record(name, case)
        print(name, json.dumps(case), flush=True)
    return not ("rows" in arguments.only and not _rows(results, deadline))


def _convolution(problem: Any, operands: Any, name: str, spio: Any, most: int) -> dict[str, Any]:
    """One pass of one problem by everyone: microseconds, and our worst error over the allowed one."""
    import conv_contenders as contenders
    from gpu_timing import median_us  # type: ignore[import-not-found, unused-ignore]

    what = name.rpartition("/")[2]
    case: dict[str, Any] = {"bytes": problem.bytes_moved}
    try:
        call = contenders.ours(problem, operands)[what]
        case["error"] = round(contenders.worst_error(problem, operands, call, what), 4)
        case["ours_us"] = round(median_us(call), 2)
        if name.startswith("table."):
            case |= _ceilings(problem, operands, what)
    except Exception as error:
        case["ours_failed"] = repr(error)[:300]
    case["cudnn_us"] = round(median_us(contenders.cudnn(problem, operands)[what]), 2)
    if spio is not None and spio.takes(problem):
        try:
            best, tried, there = spio.best_us(problem, operands, what, most)
            case |= {"spio_us": round(best, 2), "spio_configurations": f"{tried} of {there}"}
        except Exception as error:
            case["spio_failed"] = repr(error)[:300]
    return case


def _ceilings(problem: Any, operands: Any, what: str) -> dict[str, float]:
    """Ours into one output, as cuDNN's go; torch's copy of as many bytes; and what a launch takes in a chain."""
    import conv_contenders as contenders
    from gpu_timing import chain_us, median_us

    def copied(i: int) -> None:
        operands.dys[i % len(operands.dys)].copy_(operands.xs[i % len(operands.xs)])

    chained = {"copy": copied, "cudnn": contenders.cudnn(problem, operands)[what]}
    chained["ours"] = contenders.ours(problem, operands)[what]
    return {
        "ours_one_output_us": round(median_us(contenders.ours(problem, operands, one_output=True)[what]), 2),
        "copy_us": round(median_us(copied), 2),
        **{f"{who}_chain_us": round(chain_us(call), 2) for who, call in chained.items()},
    }


def _compile_ahead(problems: list[Any], gpu: Any, deadline: float) -> None:
    from compile_ahead import compile_ahead  # type: ignore[import-not-found, unused-ignore]

    begun = monotonic()
    done, failed = compile_ahead(problems, gpu, deadline)
    print(f"compiled {done} kernels in {monotonic() - begun:.0f} s, {len(failed)} failed", *failed[:5], flush=True)


def compile_only(arguments: argparse.Namespace) -> int:
    """Fill the cache of compiled kernels for a GPU that is not here."""
    from shapes import SHAPES  # type: ignore[import-not-found, unused-ignore]

    from tapestry.kernels.cost.gpu import known_gpu

    gpu = known_gpu(arguments.compile_for)
    if gpu is None:
        print(f"no figures of {arguments.compile_for!r} in kernels/cost/data/gpus.json", file=sys.stderr)
        return NO_GPU
    _compile_ahead(list(SHAPES.values()), gpu, monotonic() + arguments.time_limit)
    return 0


def _rows(results: Results, deadline: float) -> bool:
    from row_contenders import cases  # type: ignore[import-not-found, unused-ignore]

    for name, run in cases():
        if name in results.data["cases"]:
            continue
        if monotonic() > deadline:
            return False
        try:
            case = run()
        except Exception as error:
            case = {"ours_failed": repr(error)[:300]}
        results.record(name, case)
        print(name, json.dumps(case), flush=True)
    return True


def machine() -> dict[str, Any]:
    """The GPU, the software, the date and the copy rate."""
    import torch
    from gpu_timing import copy_bytes_per_s

    return {
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "copy_bytes_per_s": round(copy_bytes_per_s()),
    }


def gpu_is_missing() -> str | None:
    try:
        import torch
    except ImportError as error:
        return f"torch is not installed ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    try:
        import cupy  # noqa: F401
    except ImportError as error:
        return f"CuPy is not installed ({error}): pip install -e '.[cuda13]'"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--time-limit", type=float, default=1800.0, help="seconds; what is missing is left for a next run"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "kernels.json")
    parser.add_argument("--fresh", action="store_true", help="forget the results of an earlier run")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--spio-limit", type=int, default=60, help="configurations of Spio to try for each pass")
    parser.add_argument("--doc", type=Path, help="put the tables between the markers of this file")
    parser.add_argument("--render", action="store_true", help="only write the tables of results that are there")
    parser.add_argument(
        "--compile-for", metavar="GPU", help='only compile what a run on this GPU ("H200") will ask for'
    )
    arguments = parser.parse_args()
    # Compiled kernels lie beside the results, so that both can be taken to the machine with the GPU.
    os.environ.setdefault("TAPESTRY_CACHE", str(ROOT / "build" / "kernel-cache"))
    os.environ.setdefault("SPIO_WORKERS", str(os.cpu_count()))
    if arguments.compile_for:
        return compile_only(arguments)
    if not arguments.render and (missing := gpu_is_missing()):
        print(f"bench-kernels needs an NVIDIA GPU: {missing}", file=sys.stderr)
        return NO_GPU
    results = Results(arguments.results, arguments.fresh)
    done = True
    if not arguments.render:
        import torch

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        results.data["machine"] = machine()
        print(json.dumps(results.data["machine"]), flush=True)
        try:
            done = measure(results, arguments)
        finally:
            results.save()
    from kernel_tables import tables  # type: ignore[import-not-found, unused-ignore]
    from marked import into  # type: ignore[import-not-found, unused-ignore]

    text = tables(results.data)
    print(text)
    if arguments.doc:
        into(arguments.doc, "kernels", text)
    if not done:
        print("the time limit came first: run again to go on", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
