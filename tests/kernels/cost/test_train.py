"""Training: what it learns, what choosing by it costs on problems it has not seen, and what is shipped."""

import numpy as np
import pytest

from tapestry.kernels.cost import measurements, train
from tapestry.kernels.cost.facts import FEATURES
from tapestry.kernels.cost.gpu import Gpu, known_gpu
from tapestry.kernels.cost.measurements import Measured
from tapestry.kernels.cost.model import candidates, facts, forests

from ..shapes import SHAPES

pytestmark = pytest.mark.long


def h200() -> Gpu:
    found = known_gpu("NVIDIA H200")
    assert found is not None
    return found


def made_up(seed: int) -> list[Measured]:
    """Times that follow from the facts, with a law that counting alone does not know: small rows are slow."""
    random = np.random.default_rng(seed)
    found = []
    for name in sorted(SHAPES)[seed::12]:
        problem = SHAPES[name]
        options = candidates(problem, "forward", h200())
        rows = [facts(problem, "forward", option, h200()) for option in options]
        times = [r.counted_time * r.roofline_us * (1.5 if r.channel_bytes < 100 else 1.0) for r in rows]
        noisy = np.array(times) * np.exp(random.normal(0, 0.01, len(times)))
        found.append(Measured(name, "forward", problem, tuple(options), tuple(noisy.tolist())))
    return found


def test_training_learns_a_law_that_counting_does_not_know() -> None:
    chosen = train.samples(made_up(0), h200())
    found = train.held_out(chosen)
    counted = [s.item.microseconds[int(np.argmin(s.features[:, 0]))] / min(s.item.microseconds) - 1 for s in chosen]
    assert np.mean(found["forward"]) <= max(0.02, 0.7 * float(np.mean(counted)))
    assert float(np.median(found["error"])) < 0.05


def test_regret_is_measured_against_the_fastest() -> None:
    sample = train.samples(made_up(1)[:1], h200())[0]
    times = sample.item.microseconds
    forest = train.Forest(0.0, [], len(FEATURES))
    assert train.regret(sample, forest) == times[int(np.argmin(sample.features[:, 0]))] / min(times) - 1


def test_the_shipped_model_is_what_training_gives() -> None:
    """Up to rounding, which may differ between machines by a digit of a leaf."""
    chosen = train.samples(measurements.table().measured, h200())
    for family, part in train.families(chosen).items():
        again = train.Forest(*train.fitted(part), len(FEATURES))
        for sample in part:
            assert forests()[family].many(sample.features) == pytest.approx(again.many(sample.features), abs=0.02)


def test_held_out_regret_of_the_committed_measurements() -> None:
    """On problems the trees have not seen, against the fastest of all configurations that were timed."""
    for part in train.families(train.samples(measurements.table().measured, h200())).values():
        found = train.held_out(part)
        del found["error"]
        for what, regrets in found.items():
            assert np.mean(regrets) <= 0.05, what
