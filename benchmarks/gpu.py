"""`make bench-gpu`: steps of programs on one, two and four GPUs beside what people have, and beside what was predicted.

python benchmarks/gpu.py build/gpu.json [--machine h200x2] [--only llama1 llama2] [--time-limit 230]
python benchmarks/gpu.py build/gpu.json --doc docs/gpu.md       no GPU: the page of figures that are there

Every figure is from a process of its own with a limit of its own; results are written as they come, and a second run
goes on where the first one stopped. Plans are made on the host meanwhile. Needs torch with CUDA, CuPy, and NVIDIA GPUs;
rows of more GPUs than there are here are left out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from gpu_rows import ROOT, ROWS, Row  # type: ignore[import-not-found, unused-ignore]

HERE = ROOT / "benchmarks"
NO_GPU = 2
POLL_S = 0.05
PLANNERS = 4  # at once
LARGE = "h200x8"  # what plans for more than two GPUs are made for


@dataclass(frozen=True)
class Job:
    """A process on so many GPUs, begun after others have ended, that prints objects of JSON: the last one counts."""

    name: str
    gpus: int
    command: tuple[str, ...]
    limit_s: float
    after: tuple[str, ...] = ()


@dataclass
class Running:
    """A job that was begun."""

    job: Job
    gpus: list[int]
    process: subprocess.Popen[bytes]
    folder: Path
    began: float = field(default_factory=monotonic)

    def ended(self) -> bool:
        late = monotonic() - self.began > self.job.limit_s
        if late and self.process.poll() is None:
            self.end()
        return self.process.poll() is not None

    def end(self) -> None:
        """The process and all that it began."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def result(self) -> dict[str, Any]:
        """What it printed last; why there is no more, if it failed."""
        found: dict[str, Any] = {}
        for line in (self.folder / f"{self.job.name}.out").read_text().splitlines():
            with suppress(json.JSONDecodeError):
                found = json.loads(line)
        if self.process.returncode or not found:
            found["failed"] = (
                f"code {self.process.returncode}: {(self.folder / f'{self.job.name}.err').read_text()[-1500:]}"
            )
        return found | {"took_s": round(monotonic() - self.began, 1)}


def jobs(folder: Path, machine: str, gpus: int, only: Sequence[str]) -> list[Job]:
    """Plans first, then rows of one GPU, then of several, each behind the others' figures that it stands beside."""
    rows = [row for row in ROWS if row.gpus <= gpus and (not only or row.name in only)]
    others = {job.name: job for job in _others()}
    found = [_planning(row, folder, machine) for row in rows]
    for row in sorted(rows, key=lambda row: row.gpus > 1):
        if row.beside in others:
            found.append(others.pop(row.beside))
        found.append(_ours(row, folder))
    return found


def _planning(row: Row, folder: Path, machine: str) -> Job:
    for_ = machine if row.gpus <= 2 else LARGE
    command = (str(HERE / "gpu_ours.py"), "plan", row.name, "--machine", for_, "--folder", str(folder))
    return Job(f"plan-{row.name}", 0, command, 90)


def _ours(row: Row, folder: Path) -> Job:
    command = (*_processes(row.gpus), str(HERE / "gpu_ours.py"), "run", row.name, "--folder", str(folder))
    return Job(row.name, row.gpus, command, 100, (f"plan-{row.name}",))


def _others() -> list[Job]:
    hand = str(HERE / "gpu_by_hand.py")
    long = ("--layers", "4", "--tokens", "32768")
    return [
        Job("hand-8192", 2, (*_processes(2), hand), 70),
        Job("hand-32768", 2, (*_processes(2), hand, *long), 70),
        Job("hand4-8192", 4, (*_processes(4), hand), 70),
        Job("hand4-32768", 4, (*_processes(4), hand, *long), 70),
    ]


def _processes(gpus: int) -> tuple[str, ...]:
    """A process a GPU."""
    if gpus == 1:
        return ()
    run, meet = "torch.distributed.run", ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")
    return ("-m", run, "--nproc-per-node", str(gpus), *meet, "--local-addr", "127.0.0.1")


def run(waiting: list[Job], gpus: int, results: dict[str, Any], path: Path, until: float) -> None:
    """All jobs, as many side by side as there are GPUs for; what was not begun in time is said to be so."""
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        _run(waiting, gpus, results, path, until, Path(folder))


def _run(waiting: list[Job], gpus: int, results: dict[str, Any], path: Path, until: float, folder: Path) -> None:
    free, going = list(range(gpus)), list[Running]()
    found = results["jobs"]
    try:
        while waiting or going:
            for one in [one for one in going if one.ended()]:
                going.remove(one)
                free += one.gpus
                found[one.job.name] = one.result()
                save(results, path)
                print(one.job.name, _shown(found[one.job.name]), flush=True)
            for job in list(waiting):
                planning = sum(not one.gpus for one in going)
                room = len(free) >= job.gpus if job.gpus else planning < PLANNERS
                failed = [name for name in job.after if "failed" in found.get(name, {})]
                if failed or monotonic() > until:
                    waiting.remove(job)
                    found[job.name] = {"failed": f"{failed[0]} failed" if failed else "the time was over"}
                elif room and all(name in found for name in job.after):
                    waiting.remove(job)
                    going.append(_begun(job, [free.pop(0) for _ in range(job.gpus)], folder))
                elif job.gpus and not room:
                    break  # what needs more GPUs is not overtaken for ever
            sleep(POLL_S)
    finally:
        for one in going:
            one.end()
        save(results, path)


def _begun(job: Job, gpus: list[int], folder: Path) -> Running:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = [seen[k] if k < len(seen) and seen[k] else str(k) for k in gpus]
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(names), "NCCL_NVLS_ENABLE": "0"}
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    with (folder / f"{job.name}.out").open("w") as said, (folder / f"{job.name}.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, *job.command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=errors,
            env={**os.environ, **visible, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
    return Running(job, gpus, process, folder)


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
    parser.add_argument("--only", nargs="+", default=[], choices=[row.name for row in ROWS])
    parser.add_argument("--jobs", nargs="+", default=[], help="only these of all that there is to do for the rows")
    parser.add_argument("--gpus", type=int, default=4, help="at most so many")
    parser.add_argument("--time-limit", type=float, default=230.0, help="seconds after which nothing is begun")
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
        todo = [job for job in jobs(Path(folder), options.machine, gpus, options.only) if job.name not in done]
        todo = [job for job in todo if not options.jobs or job.name in options.jobs]
        run(todo, gpus, results, options.results, monotonic() + options.time_limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
