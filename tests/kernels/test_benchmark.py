"""`make bench-kernels` where there is no GPU, and the tables it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..files import benchmark

ROOT = Path(__file__).parents[2]
MACHINE = {
    "gpu": "NVIDIA H200",
    "cuda": "13.0",
    "torch": "2.11",
    "cudnn": 91900,
    "date": "2026-11-21",
    "copy_bytes_per_s": 4e12,
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), *arguments]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=hidden, timeout=900)


def case(ours: float, cudnn: float, error: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"bytes": 40_000_000, "ours_us": ours, "cudnn_us": cudnn, "error": error, **more}


def test_without_a_gpu_it_says_so_and_ends_with_2(tmp_path: Path) -> None:
    ended = run("--results", str(tmp_path / "r.json"))
    assert ended.returncode == 2
    assert "bench-kernels needs an NVIDIA GPU" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "r.json").exists()


def test_shares_of_the_copy_rate_are_bytes_over_time() -> None:
    """40 MB at 4 TB/s are 10 us: 20 us are half of the copy rate."""
    cases = {f"table.64x64x64k3/{what}": case(20.0, 100.0) for what in benchmark("kernel_tables").PASSES}
    text = benchmark("kernel_tables").tables({"machine": MACHINE, "cases": cases})
    assert "| 64x64x64k3 | - - - | .10 .10 .10 | - - - | .50 .50 .50 | - - - | .75 .75 .65 |" in text
    assert "No shape is slower than cuDNN" in text


def test_chains_have_a_table_of_their_own() -> None:
    chained = {"ours_chain_us": 16.0, "copy_chain_us": 12.5}
    cases = {f"table.64x64x64k3/{what}": case(20.0, 100.0, **chained) for what in benchmark("kernel_tables").PASSES}
    text = benchmark("kernel_tables").tables({"machine": MACHINE, "cases": cases})
    assert "| 64x64x64k3 | .80 .80 .80 | - - - | .62 .62 .62 | .75 .75 .65 |" in text


def test_what_is_slower_wrong_or_refused_is_listed() -> None:
    cases = {
        "a/forward": case(10.0, 30.0),
        "b/forward": case(30.0, 10.0),
        "c/forward": case(10.1, 10.0),
        "d/weight_gradient": case(5.0, 9.0, error=float("inf")),
        "e/input_gradient": {"bytes": 1, "cudnn_us": 3.0, "ours_failed": "BadConvolution()"},
    }
    text = benchmark("kernel_tables").tables({"machine": MACHINE, "cases": cases})
    assert "1 cases" in text
    assert "| b/forward | 30.0 | 10.0 |" in text
    assert "c/forward" not in text
    assert "- d/weight_gradient: error inf" in text
    assert "- e/input_gradient: BadConvolution()" in text


def test_tables_go_between_the_markers_of_a_page(tmp_path: Path) -> None:
    marked, page = benchmark("marked"), tmp_path / "page.md"
    page.write_text(f"before\n{marked.marked('kernels', 'old')}\nafter\n", encoding="utf-8")
    for text in ("first", "second"):
        marked.into(page, "kernels", text)
    assert page.read_text(encoding="utf-8") == f"before\n{marked.marked('kernels', 'second')}\nafter\n"
    with pytest.raises(SystemExit, match="no marks of models"):
        marked.into(page, "models", "third")


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("kernels", "kernels"),
        ("models", "models"),
        ("solver", "iopddl"),
        ("solver", "packing"),
        ("planner", "goals"),
        ("planner", "people"),
        ("benchmarks", "planner"),
    ],
)
def test_pages_have_their_marks(page: str, name: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert text.index(f"<!-- {name}: begin -->") < text.index(f"<!-- {name}: end -->")


def test_results_of_an_earlier_run_can_be_printed_again(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    cases = {"rows.softmax.8x64.f16": case(20.0, 1.0, torch_us=40.0)}
    path.write_text(json.dumps({"machine": MACHINE, "cases": cases}))
    ended = run("--render", "--results", str(path))
    assert ended.returncode == 0
    assert "| softmax.8x64 | .50 | - | - | .25 - - |" in ended.stdout
