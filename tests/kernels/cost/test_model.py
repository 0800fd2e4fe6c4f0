"""The cost model: what it counts and chooses, that equal questions get equal answers, and what choosing by it costs."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from tapestry.kernels.convolution import configuration, weight_gradient_configuration
from tapestry.kernels.convolution.configuration import ForwardConfiguration
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.cost import measurements, model
from tapestry.kernels.cost.facts import FEATURES
from tapestry.kernels.cost.gpu import Gpu, described_gpu, known_gpu
from tapestry.kernels.cost.measurements import Measured, Table
from tapestry.kernels.cost.model import (
    FAMILY,
    Pass,
    candidates,
    choose,
    facts,
    predict_one_s,
    predict_s,
    predicted_s,
)
from tapestry.kernels.runtime.device import DeviceProperties

from ..shapes import SHAPES, TABLE

PASSES: tuple[Pass, ...] = ("forward", "input_gradient", "weight_gradient")


def h200() -> Gpu:
    found = known_gpu("NVIDIA H200")
    assert found is not None
    return found


A100 = DeviceProperties("NVIDIA A100-SXM4-80GB", (8, 0), 108, 40 << 20, 166912, 167936, 65536, 2048, 80 << 30)


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("name", sorted(SHAPES)[::9])
def test_every_shape_gets_a_legal_configuration_and_a_time(name: str, what: Pass) -> None:
    problem, gpu = SHAPES[name], h200()
    chosen = choose(problem, what, gpu)
    assert chosen in (list(candidates(problem, what, gpu)) or [None]) or legal(problem, chosen)
    assert gpu.roofline_s(problem.bytes_moved) < predicted_s(problem, what, gpu) < 1.0


@given(name=st.sampled_from(sorted(SHAPES)), what=st.sampled_from(PASSES), data=st.data())
@settings(max_examples=60)
def test_facts_are_finite_and_times_agree_one_by_one(name: str, what: Pass, data: st.DataObject) -> None:
    problem, gpu = SHAPES[name], h200()
    options = candidates(problem, what, gpu)
    assume(options)
    option = options[data.draw(st.integers(0, len(options) - 1))]
    features = facts(problem, what, option, gpu).features()
    assert len(features) == len(FEATURES)
    assert all(map(math.isfinite, features))
    together = predict_s(problem, what, [options[0], option], gpu)[1]
    assert predict_one_s(problem, what, option, gpu) == pytest.approx(together)


@pytest.mark.parametrize("what", PASSES)
def test_no_configuration_moves_less_than_the_problem_does(what: Pass) -> None:
    """Bytes with halos over the roofline's: at least the inputs, less what no output reads."""
    for problem in TABLE.values():
        for option in list(candidates(problem, what, h200()))[::7]:
            assert facts(problem, what, option, h200()).memory_time > 0.95


def test_what_only_the_plain_kernel_computes_has_no_configuration() -> None:
    problem, gpu = SHAPES["groups.12.width1"], h200()
    assert choose(problem, "forward", gpu) is None
    assert predicted_s(problem, "forward", gpu) > gpu.launch_s


def test_twice_the_images_take_longer() -> None:
    gpu = h200()
    for what in PASSES:
        for problem in (TABLE["table.64x64x64k3"], SHAPES["convnext_t.stage1"], SHAPES["resnext50_32x4d.stage2"]):
            more = replace(problem, n=4 * problem.n)
            assert predicted_s(more, what, gpu) > 1.5 * predicted_s(problem, what, gpu)


def test_other_gpus_are_predicted_by_counting() -> None:
    gpu, problem = described_gpu(A100), TABLE["table.256x64x64k3"]
    assert not gpu.tuned
    assert (gpu.sms, gpu.copy_bytes_per_s) == (108, 1.75e12)
    options = candidates(problem, "weight_gradient", gpu)
    counted = [facts(problem, "weight_gradient", option, gpu).counted_time for option in options]
    seconds = predict_s(problem, "weight_gradient", options, gpu)
    assert seconds == pytest.approx(np.array(counted) * gpu.roofline_s(problem.bytes_moved))
    assert predicted_s(problem, "forward", gpu) > predicted_s(problem, "forward", h200())


def test_an_unknown_gpu_is_like_a_known_one_of_its_size() -> None:
    half = replace(A100, name="something new", sms=66)
    assert described_gpu(half).copy_bytes_per_s == h200().copy_bytes_per_s / 2
    assert known_gpu("something new") is None


def test_the_same_choice_in_another_process_and_hash_seed() -> None:
    names = sorted(SHAPES)[::40]
    code = (
        "import sys; sys.path.insert(0, 'tests/kernels'); from shapes import SHAPES\n"
        "from tapestry.kernels.cost.model import choose, predicted_s; from tapestry.kernels.cost.gpu import known_gpu\n"
        f"for n in {names}:\n"
        " for what in ('forward', 'weight_gradient'):\n"
        "  g = known_gpu('H200'); print(choose(SHAPES[n], what, g), predicted_s(SHAPES[n], what, g).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == 2 * len(names)


def test_tables_survive_json() -> None:
    problem, gpu = SHAPES["padding.7-0-1-3.stride2"], h200()
    rows = []
    for what in PASSES:
        options = tuple(candidates(problem, what, gpu)[:3])
        rows.append(Measured("name", what, problem, options, tuple(float(i) + 0.25 for i in range(len(options)))))
    table = Table("NVIDIA H200", "2026-01-01", 4.2e12, tuple(rows))
    assert measurements.from_json(measurements.to_json(table)) == table


def test_merging_keeps_the_later_time() -> None:
    problem = SHAPES["padding.2.width16"]
    cuts = tuple(candidates(problem, "forward", h200())[:2])
    first = Measured("a", "forward", problem, cuts, (1.0, 2.0))
    second = Measured("a", "forward", problem, cuts[1:], (3.0,))
    assert measurements.merged([first], [second]) == [Measured("a", "forward", problem, cuts, (1.0, 3.0))]


def test_an_unknown_pass_is_refused() -> None:
    entry = {
        "name": "a",
        "pass": "sideways",
        "problem": [1, 8, 8, 8, 1, 1, 1, [1, 1], [1, 1], [0] * 4, "f16"],
        "rows": [],
    }
    text = json.dumps({"gpu": "", "date": "", "copy_bytes_per_s": 1.0, "measured": [entry]})
    with pytest.raises(ValueError, match="sideways"):
        measurements.from_json(text)


def legal(problem: ConvolutionProblem, cut: Any) -> bool:
    shared = h200().shared_per_block
    if isinstance(cut, ForwardConfiguration):
        return configuration.legal(problem, cut, shared)
    cut_of = weight_gradient_configuration.Cut
    return not cut.direct and weight_gradient_configuration.legal(cut_of(problem, cut), shared)


def test_a_measured_problem_gets_what_was_fastest_of_what_is_legal() -> None:
    decided = 0
    for item in measurements.table().measured[:60]:
        times = dict(zip(item.configurations, item.microseconds, strict=True))
        known = [time for cut, time in times.items() if legal(item.problem, cut)]
        chosen = choose(item.problem, item.what, h200(), whole=False)
        decided += len(known) >= 8
        if isinstance(chosen, ForwardConfiguration) and chosen.pairs:
            continue  # other kernels, which promise to be faster than all of these
        assert len(known) < 8 or times[chosen] == min(known)
    assert decided >= 30


def test_times_of_a_problem_are_those_of_the_table() -> None:
    """Of both half precisions: where two have the same cut, the later one's."""
    expected: dict[Any, dict[Any, float]] = {}
    for item in measurements.table().measured:
        known = expected.setdefault((replace(item.problem, dtype="bf16"), item.what), {})
        known.update(zip(item.configurations, item.microseconds, strict=True))
    for (problem, what), times in expected.items():
        for dtype in ("bf16", "f16"):
            assert measurements.microseconds(replace(problem, dtype=dtype), what) == times
    assert len(expected) > 1000
    assert not measurements.microseconds(ConvolutionProblem(3, 31, 33, 64, 8, 3, 3), "forward")


def test_few_measurements_compete_with_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured to be fast is taken, be it a candidate or not; what was slow does not stand in the way."""
    problem = ConvolutionProblem(3, 31, 33, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    usual = choose(problem, "forward", h200())
    assert usual is not None
    other = replace(usual, out_stages=3)
    assert other not in candidates(problem, "forward", h200())
    assert legal(problem, other)
    for us, expected in ((0.1, other), (1e4, usual)):
        model._chosen.cache_clear()
        monkeypatch.setattr(model, "measured_us", lambda *_, us=us: {other: us})
        assert choose(problem, "forward", h200()) == expected
    model._chosen.cache_clear()


def test_every_kernel_was_measured() -> None:
    assert {FAMILY[item.what] for item in measurements.table().measured} == set(FAMILY.values())
