"""Check plans of the decoder layers of `examples/llama.py` on hundreds and thousands of ranks.

    python benchmarks/scale_check.py [--layers 32] [--sequence 32] [--tensor 8] [-o plan.json]
    python benchmarks/scale_check.py --check plan.json

The shardings are given, not solved for: tokens are cut over groups of ranks (``sequence``), heads and hidden units over
the ranks of a group (``tensor``), norms and sums over all; what follows from them (transfers, buffers, tasks, waits) is
lowered as for every plan. Prints one object of JSON: seconds of the processor and peak memory, the check's in a process
of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import llama  # type: ignore[import-not-found]
from scale import peak_mib  # type: ignore[import-not-found, unused-ignore]

from tapestry.planner import load_machine
from tapestry.planner.check import check
from tapestry.planner.format.codec import decode, encode
from tapestry.planner.search.explicit import plan_partitions
from tapestry.space import Box, Region

AXES = {"wq": "dhe", "wk": "dge", "wv": "dge", "wo": "hed", "w_gate": "df", "w_up": "df", "w_down": "fd"}
WITHIN = "hgf"  # heads, groups of heads and hidden units: cut over the ranks of a group


def planned(layers: int, sequence: int, tensor: int) -> bytes:
    """The plan as text, for hosts of eight devices."""
    ranks = sequence * tensor
    machine = replace(load_machine("h200x8-2node"), hosts=-(-ranks // 8))
    program = llama.forward.bind(layers=layers, tokens=max(8192, 8 * ranks))
    known: dict[Sequence[tuple[str, int]], list[Region]] = {}

    def cut(dims: Sequence[tuple[str, int]]) -> list[Region]:
        if dims not in known:
            known[dims] = [_shard(dims, rank, sequence, tensor) for rank in range(ranks)]
        return known[dims]

    shards = {op.name: cut(tuple((dim.name, dim.extent) for dim in op.dims)) for op in program.operations}
    named = {t.name: AXES[t.name.split(".")[-1]] for t in program.of_role("param") if t.name.split(".")[-1] in AXES}
    homes = {name: cut(tuple(zip(axes, program.tensor(name).shape, strict=True))) for name, axes in named.items()}
    tokens = cut(tuple(zip("td", program.tensor("x").shape, strict=True)))
    ends = dict.fromkeys(program.outputs, tokens)
    return encode(plan_partitions(program, machine, shards, homes={**homes, "x": tokens}, ends=ends).document)


def _shard(dims: Sequence[tuple[str, int]], rank: int, sequence: int, tensor: int) -> Region:
    group, member = divmod(rank, tensor)
    grouped = any(name in WITHIN for name, _ in dims)
    ends = []
    for name, n in dims:
        k, parts = (member, tensor) if name in WITHIN else (0, 1)
        if name == "t":
            k, parts = (group, sequence) if grouped else (rank, sequence * tensor)
        ends.append((k * n // parts, (k + 1) * n // parts))
    return Box(*zip(*ends, strict=True)).region()


def checked(path: Path) -> dict[str, Any]:
    """Seconds to read and to check a plan, and the most memory that took."""
    text = path.read_bytes()
    started = process_time()
    document = decode(text)
    read = process_time()
    report = check(document)
    done = process_time()
    if not report.ok:
        raise SystemExit(f"the plan fails its check: {report}")
    facts = {"ranks": report.facts["ranks"], "tasks": report.facts["tasks"], "events": report.facts["events"]}
    times = {"read_s": read - started, "check_s": done - read}
    return {**facts, **times, "document_kib": len(text) / 1024, "peak_mib": peak_mib()}


def main() -> None:
    """Measure and print one object of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--tensor", type=int, default=8)
    parser.add_argument("-o", "--out", type=Path, help="keep the plan")
    parser.add_argument("--check", type=Path, help="a plan that is there")
    options = parser.parse_args()
    if options.check is not None:
        print(json.dumps(checked(options.check)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.out or Path(folder) / "plan.json"
        started = process_time()
        path.write_bytes(planned(options.layers, options.sequence, options.tensor))
        spent = process_time() - started
        command = [sys.executable, str(Path(__file__)), "--check", str(path)]
        found = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    print(json.dumps({"layers": options.layers, **found, "lower_s": spent}))


if __name__ == "__main__":
    main()
