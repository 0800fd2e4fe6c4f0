"""Training of compiled models for `models.py`: compiled side by side, timed in turns when nobody compiles.

Compiling takes a minute or two of one processor for each model and contender, and most of the work of the others. So
that happens in a process for each, side by side, which leave what they compiled in torch's cache on disk; a process for
each model then finds it there, and times all contenders in turns, alone. Models that are not compiled when seven
tenths of the time given are over are ended, so that those that are ready are timed; what one has found is written
before the next begins.

A step is timed three ways: `compile`, called as a user calls it; `compile_issue`, the host's part of that, from the
call to its return with an idle GPU before it; and `compile_graph`, captured as a CUDA graph, which is the GPU's part.

    python benchmarks/model_compile.py efficientnet_b4 part.json [--contenders cudnn ours] [--ahead] [--lock file]
        [--profile folder]

times one model in this process, or compiles the contenders of it ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from model_steps import (  # type: ignore[import-not-found, unused-ignore]
    DEVICE,
    KNOWN,
    Contender,
    Step,
    alone,
    by_host,
    captured,
    created,
    first_s,
    in_turns,
    issued,
)

CONTENDERS = ("cudnn", "ours", "everything")
READY = 0.7  # of the time given: what is not compiled by then is not timed
PROFILED = 3  # steps
Found = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """How models are measured: so many at a time; until when they may compile, and until when they may be timed."""

    jobs: int
    ready: float
    over: float
    folder: Path
    profile: Path | None
    contenders: tuple[str, ...]

    def run(self, name: str, what: str, until: float, *arguments: str) -> Found:
        """What a process finds of a model, which is ended when its time is over. ``what`` names its file."""
        part = self.folder / f"{name}.{what}.json"
        command = [sys.executable, __file__, name, str(part), "--lock", str(self.folder / "lock"), *arguments]
        threads = max(1, (os.cpu_count() or 1) // (self.jobs * len(self.contenders)))
        process = subprocess.Popen(
            command, env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)}, stdout=subprocess.DEVNULL
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - monotonic()))
        finally:
            process.kill()
            process.wait()
        return json.loads(part.read_text(encoding="utf-8")) if part.exists() else {}


def measure(
    names: Iterable[str], limit: float, jobs: int, note: Callable[[str, Found], None], profile: Path | None,
    contenders: Iterable[str] = CONTENDERS,
) -> None:  # fmt: skip
    """Measure models, so many at a time, within `limit` seconds; what is found of one is told `note`."""
    begun = monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        asked = Asked(jobs, begun + READY * limit, begun + limit, Path(folder), profile, tuple(contenders))
        list(pool.map(lambda name: _measured(name, asked, note), names))


def _measured(name: str, asked: Asked, note: Callable[[str, Found], None]) -> None:
    whose = asked.contenders
    with ThreadPoolExecutor(len(whose)) as pool:
        ahead = list(pool.map(lambda who: asked.run(name, who, asked.ready, "--ahead", "--contenders", who), whose))
    took = {who: found["compile_s"] for who, found in zip(whose, ahead, strict=True) if found}
    if len(took) == len(whose):
        profile = ("--profile", str(asked.profile)) if asked.profile else ()
        timed = asked.run(name, "all", asked.over, "--contenders", *whose, *profile)
        note(name, {"compile_s": took, **timed})
    elif took:
        note(name, {"compile_s": took})


class Compiled:
    """The contenders of a model, compiled, and what is found of their steps."""

    def __init__(self, name: str, part: Path, contenders: Iterable[str] = CONTENDERS) -> None:
        self.part, self.found, self.sizes = part, {}, KNOWN[name]
        self.found["batch"], self.found["extent"] = self.sizes.batch, self.sizes.extent
        self.steps: dict[str, Step] = {who: self._step(name, who) for who in contenders}

    def _step(self, name: str, who: str) -> Step:
        import torch

        from tapestry.kernels.torch import fuse_for_training, replace_convolutions
        from tapestry.kernels.warm_up import warm_up

        model = created(name)
        contender = Contender(model, self.sizes)
        if who != "cudnn":
            report = replace_convolutions(model) if who == "ours" else fuse_for_training(model).convolutions
            self.found["taken"], self.found["left"] = len(report.taken), len(report.left)
            with torch.autocast(DEVICE, torch.bfloat16):
                warm_up(model, contender.images)
        return contender.training(torch.compile(model))  # type: ignore[no-any-return]

    def ready(self) -> float:
        """Seconds until the first steps are over."""
        import torch

        from tapestry.kernels.tensors import native_calls

        took = sum(first_s(step) for step in self.steps.values())
        self.found["native"] = native_calls.wait()
        for step in self.steps.values():
            step()  # some are compiled again for the second
        torch.cuda.empty_cache()
        return took

    def timed(self) -> None:
        """Each is kept as it comes."""
        self.keep("training_compile_ms", by_host(self.steps))
        self.keep("training_compile_issue_ms", issued(self.steps))
        try:
            times = in_turns({who: captured(step, compiled=True) for who, step in self.steps.items()})
        except RuntimeError as error:  # there are steps that cannot be captured
            self.keep("compile_graph_failed", str(error)[:400])
        else:
            self.keep("training_compile_graph_ms", times)

    def profile(self, folder: Path) -> None:
        """Microseconds a step of every kernel, and of every operator on the host, as JSON."""
        import torch
        from torch.profiler import ProfilerActivity

        folder.mkdir(parents=True, exist_ok=True)
        for who, step in self.steps.items():
            step()
            with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profile:
                for _ in range(PROFILED):
                    step()
                torch.cuda.synchronize()
            rows = [
                (
                    row.key,
                    *(value / PROFILED for value in (row.count, row.self_cpu_time_total, row.self_device_time_total)),
                )
                for row in profile.key_averages()
            ]
            written = json.dumps({"name, calls, host us, device us": rows}, indent=0)
            (folder / f"{self.part.stem}.{who}.profile.json").write_text(written, encoding="utf-8")

    def keep(self, what: str, value: Any) -> None:
        """Write it beside what was found before."""
        self.found[what] = value
        whole = self.part.with_suffix(".new")
        whole.write_text(json.dumps(self.found), encoding="utf-8")
        whole.replace(self.part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(KNOWN))
    parser.add_argument("part", type=Path, help="what is found is written there")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--ahead", action="store_true", help="compile alone, for a process that comes later")
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    with alone(given.lock, shared=True):
        compiled = Compiled(given.name, given.part, given.contenders)
        took = compiled.ready()
    if given.ahead:
        compiled.keep("compile_s", took)
        return 0
    with alone(given.lock):
        compiled.timed()
        if given.profile:
            compiled.profile(given.profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
