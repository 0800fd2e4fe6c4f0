"""Plan and check the decoder layers of `examples/llama.py` on hosts of eight H200, in this process alone.

    python benchmarks/scale.py [--layers 32] [--mesh 8] [--hbm 8GiB] [--program train_step] [--shape 70b]

Prints one object of JSON: seconds of planning and of checking, of the processor from the program's text to the plan's,
gaps, size of the document, peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import llama  # type: ignore[import-not-found]

from tapestry.planner import Machine, load_machine, plan
from tapestry.planner.check import check

SHAPES = {"8b": {}, "70b": {"d": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672}}


def machine(devices: int) -> Machine:
    """So many devices or more: one host of eight, or several."""
    if devices <= 8:
        return load_machine("h200x8")
    return replace(load_machine("h200x8-2node"), hosts=-(-devices // 8))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times in seconds, memory in MiB."""
    layers, hbm, mesh = options.layers, options.hbm, tuple(map(int, options.mesh.split("x")))
    tokens = max(8192, 8 * prod(mesh))
    program = getattr(llama, options.program).bind(layers=layers, tokens=tokens, **SHAPES[options.shape])
    started = perf_counter()
    memory = None if hbm is None else {"hbm": hbm}
    made = plan(program, machine(prod(mesh)), mesh=mesh, memory=memory, time_limit=options.time_limit)
    planned = perf_counter()
    made.to_json()
    spent = process_time()  # of this process: what it took to begin counts
    report = check(made.document)
    checked = process_time()
    if not report.ok:
        raise SystemExit(f"the plan fails its check: {report}")
    claims, bound, predicted = made.document.claims, made.document.bound, made.document.predicted
    return {
        "layers": layers,
        "hbm": hbm,
        "mesh": options.mesh,
        "program": options.program,
        "shape": options.shape,
        "tokens": tokens,
        "status": claims.status,
        "cpu_s": spent,
        "operations": len(program.operations),
        "plan_s": planned - started,
        "check_s": checked - spent,
        "model_gap": claims.model_gap,
        "gap": None if bound is None else bound.gap,
        "bound_s": None if bound is None else bound.bound_s,
        "makespan_s": predicted.makespan_s,
        "document_kib": len(made.to_json()) / 1024,
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    """The most memory this process ever held. Linux counts in KiB, macOS in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def main() -> None:
    """Measure and print one object of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--mesh", default="8")
    parser.add_argument("--hbm", help="memory budget of a device; all it has by default")
    parser.add_argument("--program", default="forward", choices=("forward", "train_step"))
    parser.add_argument("--shape", default="8b", choices=sorted(SHAPES))
    parser.add_argument("--time-limit", type=float, default=60.0)
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
