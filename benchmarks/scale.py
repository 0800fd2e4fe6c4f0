"""Plan and check the decoder layers of `examples/llama.py` on h200x8, in this process alone.

    python benchmarks/scale.py [--layers 32] [--mesh 8] [--hbm 8GiB]

Prints one object of JSON: seconds of planning and of checking, gaps, size of the document, peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import llama  # type: ignore[import-not-found]

from tapestry.planner import plan
from tapestry.planner.check import check


def measure(layers: int, mesh: tuple[int, ...], hbm: str | None) -> dict[str, Any]:
    """Times in seconds, memory in MiB."""
    program = llama.forward.bind(layers=layers)
    started = perf_counter()
    made = plan(program, "h200x8", mesh=mesh, memory=None if hbm is None else {"hbm": hbm})
    planned = perf_counter()
    report = check(made.document)
    checked = perf_counter()
    if not report.ok:
        raise SystemExit(f"the plan fails its check: {report}")
    claims, bound, predicted = made.document.claims, made.document.bound, made.document.predicted
    return {
        "layers": layers,
        "hbm": hbm,
        "operations": len(program.operations),
        "plan_s": planned - started,
        "check_s": checked - planned,
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
    options = parser.parse_args()
    mesh = tuple(map(int, options.mesh.split("x")))
    print(json.dumps(measure(options.layers, mesh, options.hbm)))


if __name__ == "__main__":
    main()
