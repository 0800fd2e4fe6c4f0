"""The same arguments give the same bytes: in another process, under another hash seed, in any order of asking."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
sys.path.insert(0, "examples")
from tapestry.planner import plan
if sys.argv[1] == "llama":
    import llama
    made = plan(llama.forward.bind(layers=3), "h200x8", mesh={"data": 4, "model": 2}, seed=5)
else:
    import corners
    made = plan(corners.corners.bind(y=427, x=640), "cpu-4", mesh=(4,), seed=5)
sys.stdout.buffer.write(made.to_json())
"""


@cache
def planned(example: str, hash_seed: str) -> bytes:
    """The plan as a fresh process writes it."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, example], cwd=ROOT, env=environment, capture_output=True, check=True, timeout=300
    )
    return ended.stdout


@pytest.mark.parametrize("example", ["corners", "llama"])
def test_plans_are_the_same_bytes_whatever_the_hash_seed(example: str) -> None:
    first, second = (planned(example, seed) for seed in ("1", "4242"))
    assert first.startswith(b'{\n  "format": "tapestry.plan/3"')
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()


def test_a_plan_knows_no_time_and_no_place() -> None:
    text = planned("corners", "1").decode()
    assert "wall_s" not in text
    assert str(ROOT) not in text
    assert str(Path.home()) + "/" not in text
