"""Everything in one process works without torch; what needs it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys
sys.modules["torch"] = None  # importing it fails from here on
import numpy as np
import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.planner import load_plan, plan
from tapestry.planner.views.html import plan_html
from tapestry.planner.views.text import plan_text

@tp.program
def net(x: f32[Tensor, "n m"], w: f32[Tensor, "m k"]) -> Tensor:
    return tp.softmax(x @ w)

made = plan(net.bind(n=8, m=6, k=4), "cpu-4", mesh=(4,))
made.save(sys.argv[1])
again = load_plan(sys.argv[1])
assert again.check().ok
assert plan_text(again) and plan_html(again) and str(again.explain()) and again.diff(made).same
inputs = {"x": np.ones((8, 6), np.float32), "w": np.ones((6, 4), np.float32)}
(found,) = again.run(inputs).outputs.values()
assert np.allclose(found, 0.25)
for engine in ("torchrun", "ray"):
    try:
        again.run(inputs, engine=engine)
    except UsageError as error:
        assert "tapestry-planner[torch]" in str(error), error
        print(engine, str(error).splitlines()[0])
"""


def test_plan_check_draw_and_run_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "plan.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["torchrun torch is not installed", "ray torch is not installed"]
