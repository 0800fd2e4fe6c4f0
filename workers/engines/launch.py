"""Starting torchrun on this machine: plans and inputs go to the ranks as files, results come back as files.

The folder of a launch holds one folder a job: plan.json, inputs.safetensors and, after the run, outputs.safetensors
and result.json, or one error-RANK.json per rank that failed. It is removed whatever happens.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...errors import TapestryError
from ...imports import DECLARING, declaring_files, import_declared
from ...planner.format import Document, Resolved
from ...planner.format.codec import decode, encode
from ...program import Program
from ..devices import device_place
from ..faults import described, ended, placed, rebuilt
from ..result import Event, RunResult, Step
from ..stores.arrays import Array
from ..stores.inputs import checked_inputs
from ..stores.tensors import read_tensors, write_tensors
from .doing import Doing, doing_path, last_done
from .engine import Settings
from .group import Group, group
from .parent import launching, watch
from .process import run_rank

Job = tuple[Document, Mapping[str, Array]]

_FIGURES = ("bytes_moved", "baseline_bytes")

# How torchrun tells of a rank that a signal ended. SIGTERM is its own, sent to the others.
_ENDED = re.compile(r"rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*-(\d+)")


def launch(jobs: Sequence[Job], settings: Settings) -> list[RunResult]:
    """Run plans one after another in one torchrun with as many processes as the largest needs.

    Raises what the rank that failed first raised: TaskError, UsageError.
    """
    ranks, programs = 1, list[Program]()
    with TemporaryDirectory(prefix="tapestry-") as name:
        folders = []
        for k, (document, inputs) in enumerate(jobs):
            resolved = Resolved(document)
            ranks = max(ranks, resolved.size)
            programs.append(resolved.program)
            folders.append(Path(name) / f"job{k:05d}")
            folders[-1].mkdir()
            (folders[-1] / "plan.json").write_bytes(encode(document))
            write_tensors(folders[-1] / "inputs.safetensors", checked_inputs(resolved.program, inputs))
        with launching(Path(name)):
            _torchrun(Path(name), ranks, settings, declaring_files(programs))
        return [_result(folder) for folder in folders]


def _torchrun(folder: Path, ranks: int, settings: Settings, declaring: str) -> None:
    """Start the ranks and wait; whatever interrupts the wait ends them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--max-restarts", "0"]
    command += ["--log-dir", str(folder / "logs")]  # its own would stay behind
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    command += ["-m", "tapestry.workers", str(folder), device_place(settings.device)]
    command += ["--repeat", str(settings.repeat), "--patience", str(settings.patience_s)]
    command += ["--poison"] if settings.poison else []
    environment = _environment(declaring)
    with (folder / "torchrun.log").open("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            code = process.wait()
        except BaseException:
            _end(process)
            raise
        if code:
            log.seek(0)
            raise _first_error(folder, code, log.read())


def _environment(declaring: str) -> dict[str, str]:
    """One thread a rank, sockets on the loopback, this very package on the path, the files of block kernels."""
    root = str(Path(__file__).absolute().parents[3])  # of the package, through the link if it is one
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path, DECLARING: declaring}
    return {**os.environ, **own}


def _end(process: subprocess.Popen[Any]) -> None:
    """Ask torchrun to end its ranks, then insist."""
    for how, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def _first_error(folder: Path, code: int, log: str) -> TapestryError:
    """The error of the rank that failed first; what torchrun said if none was left."""
    # Whichever rank wrote it, it is the first failure that was raised.
    said = next((rebuilt(json.loads(path.read_text())) for path in sorted(folder.glob("job*/error-*.json"))), None)
    gone = [(int(rank), int(how)) for rank, how in _ENDED.findall(log) if int(how) != signal.SIGTERM]
    if gone:
        rank, how = gone[0]
        error = ended(rank, f" by {signal.Signals(how).name}", said)
        return error if error.task is not None else placed(error, last_done(folder, rank))
    lines = [line for line in log.splitlines() if line.strip()]
    return said or TapestryError(f"torchrun ended with code {code}", sides={"last words": "\n".join(lines[-8:])})


def _result(folder: Path) -> RunResult:
    data = json.loads((folder / "result.json").read_text())
    outputs = {name: array.copy() for name, array in read_tensors(folder / "outputs.safetensors").items()}
    steps = [Step(wall, [Event(*event) for event in events]) for wall, events in data["steps"]]
    return RunResult(outputs, steps=steps, **{name: data[name] for name in _FIGURES})


# -- in a rank ---------------------------------------------------------------------------------------------------


def serve(folder: Path, settings: Settings) -> None:
    """Run the jobs of a folder as one rank of torchrun; errors are left in the job's folder."""
    watch(folder)
    import_declared()
    here = group()
    signal.signal(signal.SIGTERM, lambda *_: told_to_end(here))
    for job in sorted(folder.glob("job*")):
        try:
            _serve_one(job, here, settings)
        except Exception as error:
            (job / f"error-{here.rank}.json").write_text(json.dumps(described(error, here.rank)))
            raise
    here.close()


def told_to_end(group: Group) -> None:
    """What SIGTERM does to a rank. torchrun sends it to all that are left when one has ended.

    A failure that was published is on its way to the job's folder: it ends this process, after it is written there.
    """
    if group.failure() is None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_one(job: Path, here: Group, settings: Settings) -> None:
    document = decode((job / "plan.json").read_bytes(), str(job / "plan.json"))
    inputs = read_tensors(job / "inputs.safetensors")
    result = run_rank(document, inputs, here, settings, Doing(doing_path(job, here.rank)))
    if here.rank == 0:
        write_tensors(job / "outputs.safetensors", result.outputs)
        figures = {name: getattr(result, name) for name in _FIGURES}
        steps = [(step.wall_s, [astuple(event) for event in step.events]) for step in result.steps]
        (job / "result.json").write_text(json.dumps(figures | {"steps": steps}))
