"""What is chosen for convolutions, kept on disk: the same as chosen anew, and made of the same types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapestry.kernels.convolution import choices, wide
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, recipes, walk
from tapestry.kernels.cost import cudnn, depthwise, model
from tapestry.kernels.cost.gpu import Gpu, known_gpu, tuned_gpu
from tapestry.kernels.runtime import kept

from ..processes import another_process

SQUARE = ConvolutionProblem(64, 14, 14, 384, 48, 3, 3, padding=(1, 1, 1, 1))
LAYERS = {
    "width 8": SQUARE,
    "strided": replace(SQUARE, stride=(2, 2), dtype="bf16"),
    "depthwise": replace(SQUARE, groups=384),
    "depthwise 7 x 7": replace(SQUARE, n=256, h=56, w=56, c=96, groups=96, r=7, s=7, padding=(3, 3, 3, 3)),
    "width 24": replace(SQUARE, c=336, groups=14),
    "width 24, strided": replace(SQUARE, c=336, groups=14, stride=(2, 2)),
    "width 48, measured nowhere": replace(SQUARE, n=37, c=480, groups=10),
    "a channel multiplier": replace(SQUARE, groups=48, channels_out=768),
    "no octets": replace(SQUARE, c=36, groups=3),
}


def _chosen(problem: ConvolutionProblem, gpu: Gpu) -> dict[str, Any]:
    found: dict[str, Any] = {"gradient": choices.gradient_cut(problem, gpu)}
    for what in ("forward", "input_gradient"):
        for fused in (False, True):
            found[f"{what} {fused}"] = choices.sweeps(problem, what, gpu, fused)
        found[what] = choices.cut(walk(problem, what).problem, what, gpu)
    return found | {f"{what} by cuDNN": choices.left_to_cudnn(problem, what, gpu) for what in PASSES}


def _anew(problem: ConvolutionProblem) -> dict[str, Any]:
    """The same by what chooses, without a disk."""
    gpu = tuned_gpu()
    found: dict[str, Any] = {"gradient": wide.gradient_cut(problem, gpu) or depthwise.choose(problem, gpu)}
    for what in ("forward", "input_gradient"):
        for fused in (False, True):
            found[f"{what} {fused}"] = wide.cuts(problem, what, gpu, fused)
        found[what] = model.choose(walk(problem, what).problem, what, gpu)
    return found | {f"{what} by cuDNN": cudnn.is_faster(problem, what, gpu) for what in PASSES}


def _refuse(*given: Any) -> Any:
    pytest.fail("chosen again")


@pytest.mark.parametrize("problem", LAYERS.values(), ids=LAYERS)
def test_what_is_read_is_what_would_be_chosen(
    problem: ConvolutionProblem, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _anew(problem)
    assert _chosen(problem, tuned_gpu()) == expected
    another_process()
    for where, name in ((model, "choose"), (depthwise, "choose"), (wide, "way"), (wide, "gradient_cut")):
        monkeypatch.setattr(where, name, _refuse)
    monkeypatch.setattr(cudnn, "is_faster", _refuse)
    found = _chosen(problem, tuned_gpu())
    assert found == expected
    assert repr(found) == repr(expected)  # of the same types: a column's number prints otherwise than an integer


@pytest.mark.parametrize("problem", LAYERS.values(), ids=LAYERS)
def test_an_h100_is_chosen_for_as_an_h200(problem: ConvolutionProblem, folder: Path) -> None:
    """Its multiprocessors are the same. Counting, as for others, would choose otherwise: that of one is shown."""
    h100 = known_gpu("H100")
    assert h100 is not None
    assert _chosen(problem, h100) == _chosen(problem, tuned_gpu())
    if problem is LAYERS["depthwise 7 x 7"]:
        assert model.choose(problem, "forward", h100) != model.choose(problem, "forward", tuned_gpu())


def test_a_second_process_asks_for_the_same_kernels_without_the_cost_model(folder: Path) -> None:
    code = (
        "import sys, json; from tapestry.kernels.convolution.problem import ConvolutionProblem\n"
        "from tapestry.kernels.convolution import choices; from tapestry.kernels.convolution.recipes import *\n"
        "from tapestry.kernels.cost.gpu import tuned_gpu\n"
        f"problem = {SQUARE!r}\n"
        "found = [(r.name, r.source) for what in PASSES for r in recipes(problem, what, tuned_gpu())]\n"
        "print(json.dumps([found, 'tapestry.kernels.cost.model' in sys.modules]))"
    )
    said = [json.loads(subprocess.check_output([sys.executable, "-c", code], timeout=900)) for _ in range(2)]
    assert [loaded for _, loaded in said] == [True, False]
    expected = [[recipe.name, recipe.source] for what in PASSES for recipe in recipes(SQUARE, what, tuned_gpu())]
    assert [found for found, _ in said] == [expected] * 2


def _other_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    other = known_gpu("A100")
    assert other is not None
    assert choices.cut(SQUARE, "forward", other) == "now"


def _other_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choices.cut(replace(SQUARE, dtype="bf16"), "forward", tuned_gpu()) == "now"


def _other_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", _one_byte_more)
    assert choices.cut(SQUARE, "forward", tuned_gpu()) == "now"


_read = Path.read_bytes


def _one_byte_more(path: Path) -> bytes:
    return _read(path) + b" " * (path.name == "cuts.json")


@pytest.mark.parametrize("otherwise", [_other_gpu, _other_problem, _other_version])
def test_what_was_chosen_for_others_is_not_taken(
    otherwise: Callable[[pytest.MonkeyPatch], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = choices.cut(SQUARE, "forward", tuned_gpu())
    another_process()
    monkeypatch.setattr(model, "choose", lambda *given: "now")
    assert choices.cut(SQUARE, "forward", tuned_gpu()) == usual
    another_process()
    otherwise(monkeypatch)


def test_tests_keep_nothing() -> None:
    """What a test makes the model say is not for others to read."""
    assert kept._store() is None
