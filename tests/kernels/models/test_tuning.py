"""Tuning where there is no GPU: torch on the CPU stands in for the kernels, and a table for the clock.

On a GPU: gpu/test_torch.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tapestry.kernels import conv2d as arrays
from tapestry.kernels import torch as tk
from tapestry.kernels.convolution import prepare, tuned
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import PASSES, Pass, recipes, recipes_of, walk
from tapestry.kernels.cost.contenders import contenders
from tapestry.kernels.errors import KernelError, LaunchError, WrongDevice, WrongType, WrongValue
from tapestry.kernels.models import tuning
from tapestry.kernels.tensors import convolution_calls, library
from tapestry.kernels.tensors.geometry import Geometry

from ..processes import another_process
from ..tuned_kinds import GPU, H200, KINDS, SQUARE, STEM

# -- timing ------------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 96, 3, 2, 1)
        self.grouped = nn.Conv2d(96, 96, 3, padding=1, groups=12, bias=bias)
        self.again = nn.Conv2d(96, 96, 3, padding=1, groups=12, bias=bias)
        self.wide = nn.Conv2d(96, 96, 3, 2, 1, groups=4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.wide(self.again(self.grouped(self.stem(x))))
        return out


Time = Callable[[str, Pass, int], float]  # of a layer's width, a pass, and which cut (-1: cuDNN)


class Bench:
    """A GPU that is none: which cut is wrong or refused, and how long each takes."""

    def __init__(self) -> None:
        self.time: Time = lambda layer, what, number: 10.0 + number if number >= 0 else 20.0
        self.wrong: set[int] = set()
        self.refused: set[int] = set()
        self.compiled: list[Any] = []


@pytest.fixture
def bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()

    class Operands:
        def __init__(self, problem: ConvolutionProblem, what: Pass, biased: bool, device: int, gpu: Any) -> None:
            self.problem, self.what, self.count = problem, what, 0
            self.bias = torch.zeros(1) if biased else None
            self.outs = [torch.zeros(64, dtype=torch.bfloat16)]
            self.truth = torch.randn(64)

        def _call(self, number: int) -> Any:
            def call(_: int) -> Tensor:
                self.outs[0].copy_(self.truth)
                if number in made.wrong:
                    self.outs[0][7] += 1.0 + number
                return self.outs[0]

            call.of = (str(self.problem.width), self.what, number)  # type: ignore[attr-defined]
            return call

        def by(self, cut: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number in made.refused:
                raise LaunchError("too many registers", where="forward")
            return self._call(number)

        def by_cudnn(self) -> Any:
            return self._call(-1)

    class Clock:
        def __init__(self, device: int) -> None:
            pass

        def us(self, call: Any) -> float:
            return made.time(*call.of)

    monkeypatch.setattr(tuning, "Operands", Operands)
    monkeypatch.setattr(tuning, "Clock", Clock)
    monkeypatch.setattr(tuning, "_device", lambda model, example: 0)
    monkeypatch.setattr(tuning, "properties", lambda device: H200)
    monkeypatch.setattr(tuning, "_compile", lambda options, *_: made.compiled.append(options))
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return made


def rows_of(report: tk.Tuned) -> dict[tuple[str, Pass], tk.TunedPass]:
    return {(row.names[0], row.what): row for row in report.passes}


@pytest.mark.parametrize("replaced", [False, True])
def test_the_fastest_of_all_is_kept_and_said(bench: Bench, replaced: bool) -> None:
    """Cut 2 is fastest forward, cuDNN at the weight gradient of width 24; layers are replaced before or after."""
    fast = {("8", "forward", 2): 4.0, ("24", "weight_gradient", -1): 3.0}
    bench.time = lambda *which: fast.get(which, 10.0 + which[2] if which[2] >= 0 else 20.0)
    model, x = Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16()
    if replaced:
        tk.replace_convolutions(model)
    report = tk.tune(model, x)
    rows = rows_of(report)
    passes = {"stem": ("forward", "weight_gradient"), "grouped": PASSES, "wide": PASSES}  # images have no gradient
    assert set(rows) == {(name, what) for name, of in passes.items() for what in of}
    assert {rows["stem", what].problem for what in passes["stem"]} == {STEM}
    assert (STEM, "input_gradient", False) not in bench.compiled[0]
    assert rows["grouped", "forward"].names == ("grouped", "again")
    assert (rows["grouped", "forward"].untuned, rows["grouped", "forward"].tuned) == (10.0, 4.0)
    assert [key for key, row in rows.items() if row.left] == [("wide", "weight_gradient")]
    problem, strided = rows["grouped", "forward"].problem, rows["wide", "forward"].problem
    assert problem == replace(SQUARE, n=4)
    another_process()
    third = bench.compiled[0][problem, "forward", False][2]
    assert recipes(problem, "forward", GPU) == recipes_of(problem, "forward", third, {})
    for what in PASSES:
        first = bench.compiled[0][strided, what, False][0]
        assert recipes(strided, what, GPU) == recipes_of(strided, what, first, {})
        assert convolution_calls.left_on(strided, what, GPU) is (what == "weight_gradient")
        assert not convolution_calls.left_on(problem, what, GPU)
    for what in passes["stem"]:
        flags = {"bias": True} if what == "forward" else {}
        first = bench.compiled[0][STEM, what, bool(flags)][0]
        assert recipes(STEM, what, GPU, flags) == recipes_of(STEM, what, first, flags)
        assert not convolution_calls.left_on(STEM, what, GPU)
    words = str(report)
    assert "8 passes timed on NVIDIA H200 beside cuDNN" in words
    assert "1 by another cut than was guessed, 1 left to cuDNN" in words
    assert "grouped and 1 more" in words
    if not replaced:
        assert "weight gradient by cuDNN" in str(tk.replace_convolutions(model, x))


def test_less_than_a_hundredth_changes_nothing(bench: Bench) -> None:
    bench.time = lambda layer, what, number: 9.95 if number == 1 else 10.0
    report = tk.tune(Net().bfloat16().eval(), torch.randn(4, 3, 28, 28).bfloat16())
    assert {row.what for row in report.passes} == {"forward"}
    assert all(row.untuned == row.tuned == 10.0 and not row.left for row in report.passes)
    assert [row.names[0] for row in report.passes] == ["stem", "grouped", "wide"]
    problem = rows_of(report)["grouped", "forward"].problem
    tuned.forget()
    assert (
        tuned.cut(walk(problem, "forward").problem, "forward", GPU) == bench.compiled[0][problem, "forward", False][0]
    )
    assert tuned.way(STEM, "forward", GPU, True) == bench.compiled[0][STEM, "forward", True][0]


def test_cuts_that_give_other_numbers_or_none_are_not_taken(bench: Bench) -> None:
    bench.wrong, bench.refused = {1}, {0, 3}
    bench.time = lambda layer, what, number: 1.0 if number in (0, 1, 3) else 10.0 + number
    report = tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16(), passes=("forward",), cuts=5)
    assert [row.names[0] for row in report.passes] == ["stem", "grouped", "wide"]
    for row in report.passes:
        flags = {"bias": True} if row.problem == STEM else {}
        cuts = bench.compiled[0][row.problem, "forward", bool(flags)]
        assert row.refused == (cuts[0], cuts[1], cuts[3])
        assert (row.untuned, row.tuned, row.cuts) == (12.0, 12.0, 5)
        assert recipes(row.problem, "forward", GPU, flags) == recipes_of(row.problem, "forward", cuts[2], flags)
    assert "3 cuts gave other numbers or none" in str(report)


def test_what_most_give_is_right(bench: Bench) -> None:
    """A cuDNN that is wrong, as it was seen to be, takes nothing away from five cuts that agree."""
    bench.wrong = {-1, 2}
    bench.time = lambda layer, what, number: 1.0 if number == 2 else 10.0 + number % 9
    report = tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16(), passes=("forward",), cuts=6)
    assert [(len(row.refused), row.tuned) for row in report.passes] == [(1, 10.0)] * 3


def test_where_no_cut_can_be_run_nothing_is_kept(bench: Bench) -> None:
    bench.refused = set(range(9))
    report = tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16())
    assert report.passes == ()
    assert "0 passes timed" in str(report)
    assert tuned.left(SQUARE, "forward", GPU, library.setting()) is None


def test_layers_with_a_bias_have_forward_passes_of_their_own(bench: Bench) -> None:
    model = Net(bias=True).bfloat16()
    model.again = nn.Conv2d(96, 96, 3, padding=1, groups=12, bias=False).bfloat16()
    report = tk.tune(model, torch.randn(4, 3, 28, 28).bfloat16())
    named = Counter((row.names, row.what) for row in report.passes if row.problem.width == 8)
    both = ("grouped", "again")
    assert named == Counter(
        [(("grouped",), "forward"), (("again",), "forward"), (both, "input_gradient"), (both, "weight_gradient")]
    )


@pytest.mark.parametrize("replaced", [False, True])
def test_layers_of_one_group_are_timed_where_they_are_taken(bench: Bench, replaced: bool) -> None:
    """Not matrix products, and of a first layer no input gradient, even where that alone is asked for."""
    model = nn.Sequential(nn.Conv2d(3, 48, 3, 2, 1), nn.Conv2d(48, 64, 3, padding=1), nn.Conv2d(64, 48, 1)).bfloat16()
    x = torch.randn(4, 3, 28, 28).bfloat16()
    if replaced:
        assert tk.replace_convolutions(model).taken == ("0", "1")
    rows = rows_of(tk.tune(model, x))
    assert set(rows) == {("0", "forward"), ("0", "weight_gradient"), *(("1", what) for what in PASSES)}
    assert rows["0", "forward"].problem == replace(STEM, channels_out=48)
    assert rows["1", "input_gradient"].problem == KINDS["one group"]
    assert set(rows_of(tk.tune(model, x, passes=("input_gradient",)))) == {("1", "input_gradient")}


def test_calls_are_planned_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(convolution_calls, "_plans", {("a key",): "a plan"})
    monkeypatch.setattr(convolution_calls.native_calls, "forget", lambda what="convolutions": forgotten.append(what))
    monkeypatch.setattr(arrays, "_prepared", {"a call": "launches"})
    tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16())
    assert (convolution_calls._plans, arrays._prepared) == ({}, {})
    assert forgotten == ["convolutions", "firsts"]


def test_what_was_kept_before_an_error_holds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(convolution_calls.native_calls, "forget", lambda what="convolutions": forgotten.append(what))

    def out_of_memory(layer: str, what: Pass, number: int) -> float:
        if (layer, what) == ("8", "weight_gradient"):
            raise torch.OutOfMemoryError("no more of it")
        return 10.0 if number >= 0 else 5.0

    bench.time = out_of_memory
    with pytest.raises(torch.OutOfMemoryError):
        tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16())
    assert forgotten == ["convolutions", "firsts"]
    assert [convolution_calls.left_on(SQUARE, what, GPU) for what in PASSES] == [True, True, False]


def test_operands_are_not_of_the_models_random_numbers() -> None:
    state = torch.get_rng_state()
    tuning.Operands(KINDS["width 24"], "forward", True, torch.device("cpu"), GPU)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), state)


def test_what_cannot_be_tuned_is_refused() -> None:
    model, x = Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16()
    with pytest.raises(WrongDevice, match="a model and an example on one GPU") as caught:
        tk.tune(model, x)
    assert (caught.value.came, 'x.to("cuda")' in str(caught.value)) == ("cpu", True)
    with pytest.raises(WrongType, match="no tensor in the example"):
        tk.tune(model, ())
    assert issubclass(WrongDevice, KernelError)


@pytest.mark.parametrize("wrong", [{"passes": ("backward",)}, {"cuts": 0}])
def test_wrong_arguments_are_refused(bench: Bench, wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongValue, match="tune"):
        tk.tune(Net().bfloat16(), torch.randn(4, 3, 28, 28).bfloat16(), **wrong)
    assert bench.compiled == []


# -- the operands ------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(PASSES), st.sampled_from(list(KINDS)), st.booleans())
def test_cudnns_call_is_the_convolution_and_its_results_stay(what: Pass, kind: str, biased: bool) -> None:
    """The stand-in for cuDNN on the CPU is torch, asked for the pass of exactly these operands."""
    problem = replace(KINDS[kind], n=2, h=7, w=7)
    operands = tuning.Operands(problem, what, biased, torch.device("cpu"), replace(GPU, l2_bytes=1))  # type: ignore[arg-type]
    geometry = Geometry(problem.stride, problem.padding, problem.dilation, problem.groups)
    first, second, out = operands._at(1)
    function = {
        "forward": lambda: library.forward(first, second, operands.bias, *geometry),
        "input_gradient": lambda: library.input_gradient(first, second, operands.shape, *geometry),
        "weight_gradient": lambda: library.weight_gradient(first, second, operands.shape, *geometry),
    }[what]
    expected = function()
    assert (out.shape, out.dtype, out.stride()) == (expected.shape, expected.dtype, expected.stride())
    torch.testing.assert_close(operands.by_cudnn()(1), expected)


@pytest.mark.parametrize("what", PASSES)
def test_our_call_is_of_the_operands_and_the_cut(what: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = KINDS["width 24"]
    operands = tuning.Operands(problem, what, False, torch.device("cpu"), GPU)  # type: ignore[arg-type]
    asked: list[tuple[Any, ...]] = []

    def note(*given: Any) -> Any:
        asked.append(given)
        return prepare.Steps(())

    for name in PASSES:
        monkeypatch.setattr(prepare, f"{name}_steps", note)
    monkeypatch.setattr(tuning, "described", lambda tensor, name: tensor)
    cut = contenders(problem, what, GPU, 3)[2]
    operands.by(cut)
    assert len(asked) == len(operands.firsts) >= 2
    for i, (of, *operands_given) in enumerate(asked):
        assert (of, operands_given[-1]) == (problem, cut)
        assert all(one is other for one, other in zip(operands_given[:3], operands._at(i), strict=True))
