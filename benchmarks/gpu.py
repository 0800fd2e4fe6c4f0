"""`make bench-gpu`: steps of programs on one, two and four GPUs beside what people have, and beside what was predicted.

python benchmarks/gpu.py build/gpu.json [--machine h200x2] [--only llama1 llama2] [--time-limit 280]
python benchmarks/gpu.py build/gpu.json --doc docs/gpu.md       no GPU: the page of figures that are there

Every figure is from a process of its own with a limit of its own (`gpu_jobs`): plans are made first, then all get ready
side by side, then they are measured, rows of several GPUs first and those of one on all GPUs at once. Results are
written as they come, and a second run goes on where the first one stopped. Needs torch with CUDA, CuPy, and NVIDIA
GPUs; rows of more GPUs than there are here are left out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from gpu_jobs import Job, run  # type: ignore[import-not-found, unused-ignore]
from gpu_rows import ROOT, ROWS, Row  # type: ignore[import-not-found, unused-ignore]

HERE = ROOT / "benchmarks"
NO_GPU = 2


def jobs(folder: Path, machine: str, large: str, gpus: int, only: Sequence[str]) -> list[Job]:
    """Plans, then rows of several GPUs, of one, and last what people write by hand, which takes the longest."""
    rows = [row for row in ROWS if row.gpus <= gpus and (not only or row.name in only)]
    beside = {row.beside for row in rows}
    return [
        *(_planning(row, folder, machine if row.gpus <= 2 else large) for row in rows),
        *(_ours(row, folder) for row in sorted(rows, key=lambda row: row.gpus == 1)),
        *(job for job in _others() if job.name in beside),
    ]


def _planning(row: Row, folder: Path, machine: str) -> Job:
    command = (str(HERE / "gpu_ours.py"), "plan", row.name, "--machine", machine, "--folder", str(folder))
    return Job(f"plan-{row.name}", 0, command, 90)


def _ours(row: Row, folder: Path) -> Job:
    command = (*_processes(row.gpus), str(HERE / "gpu_ours.py"), "run", row.name, "--folder", str(folder))
    return Job(row.name, row.gpus, command, 100, (f"plan-{row.name}",))


def _others() -> list[Job]:
    hand, trained = str(HERE / "gpu_by_hand.py"), str(HERE / "gpu_trained.py")
    long, longer = (("--layers", layers, "--tokens", "32768") for layers in ("4", "8"))
    return [
        Job("hand-8192", 2, (*_processes(2), hand), 70),
        Job("hand-32768", 2, (*_processes(2), hand, *long), 70),
        Job("hand4-8192", 4, (*_processes(4), hand), 70),
        Job("hand4-32768", 4, (*_processes(4), hand, *longer), 70),
        Job("hand-backward", 2, (*_processes(2), hand, "--backward"), 70),
        Job("hand4-backward", 4, (*_processes(4), hand, "--backward"), 70),
        Job("train2-hand", 2, (*_processes(2), trained), 120),
        Job("train4-hand", 4, (*_processes(4), trained), 120),
    ]


def _processes(gpus: int) -> tuple[str, ...]:
    """A process a GPU."""
    if gpus == 1:
        return ()
    run, meet = "torch.distributed.run", ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")
    return ("-m", run, "--nproc-per-node", str(gpus), *meet, "--local-addr", "127.0.0.1")


def _shown(found: dict[str, Any]) -> str:
    """The figures of a job on a line."""
    kept = {name: value for name, value in found.items() if name not in ("tasks", "timeline", "shardings")}
    return json.dumps(kept)[:400]


def save(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def here() -> tuple[dict[str, Any], int]:
    """What was measured on, and how many GPUs it has; 0 where something is missing, which is printed."""
    try:
        import cupy
        import torch
    except ImportError as error:
        print(f"bench-gpu needs torch and CuPy: {error}", file=sys.stderr)
        return {}, 0
    if not torch.cuda.is_available():
        print(f"bench-gpu needs an NVIDIA GPU: torch {torch.__version__} sees none", file=sys.stderr)
        return {}, 0
    facts = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "cupy": cupy.__version__, "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }  # fmt: skip
    return facts, torch.cuda.device_count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--doc", type=Path, help="write the page of the results, and run nothing")
    parser.add_argument(
        "--machine", default="h200x2", help="what plans for up to two GPUs are made for: a name or a file"
    )
    parser.add_argument("--large", default="h200x4", help="what plans for more GPUs are made for: a name or a file")
    parser.add_argument("--only", nargs="+", default=[], choices=[row.name for row in ROWS])
    parser.add_argument("--jobs", nargs="+", default=[], help="only these of all that there is to do for the rows")
    parser.add_argument("--gpus", type=int, default=4, help="at most so many")
    parser.add_argument("--time-limit", type=float, default=280.0, help="seconds after which nothing is begun")
    options = parser.parse_args()
    if options.doc:
        from gpu_tables import write_page  # type: ignore[import-not-found, unused-ignore]

        write_page(json.loads(options.results.read_text(encoding="utf-8")), options.doc)
        return 0
    facts, count = here()
    gpus = min(count, options.gpus)
    if not gpus:
        return NO_GPU
    known = json.loads(options.results.read_text(encoding="utf-8"))["jobs"] if options.results.exists() else {}
    done = {name for name, found in known.items() if "failed" not in found and not name.startswith("plan-")}
    results: dict[str, Any] = {"machine": facts, "gpus": gpus, "jobs": {name: known[name] for name in sorted(done)}}
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        todo = [
            job
            for job in jobs(Path(folder), options.machine, options.large, gpus, options.only)
            if job.name not in done
        ]
        todo = [job for job in todo if not options.jobs or job.name in options.jobs]

        def saved(name: str) -> None:
            save(results, options.results)
            print(name, _shown(results["jobs"][name]), flush=True)

        run(todo, gpus, results["jobs"], monotonic() + options.time_limit, saved)
    return 0


if __name__ == "__main__":
    sys.exit(main())
