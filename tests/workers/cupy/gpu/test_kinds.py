"""Plans of every kind that the search makes, on GPUs: a step, and one as the device repeats it."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.planner.format import Document, Resolved
from tapestry.program import Program
from tapestry.workers.cupy.machine import Machine

from ....gpus import gpus
from ....planner.search.named import CASES, Named
from ...kinds import KINDS, Made, inputs_of, made
from ...test_accumulating import SEVERAL
from ...test_partial_results import CASES as FOLDS
from ...turns import attend, narrow_product, product
from ...unchecked import run_unchecked
from .. import test_accumulating as turns
from .executed import Job, launched, needs_gpu, needs_two, wrong

pytestmark = needs_gpu


@tp.program
def narrow_attention(
    q: bf16[Tensor, "t=96 h=2 d=64"], k: bf16[Tensor, "s=160 h=2 d=64"], v: bf16[Tensor, "s=160 h=2 d=64"]
) -> Tensor:
    """What a library has."""
    return tp.attention(q, k, v)


def job_of(kind: Made) -> Job:
    program, document = kind
    return program, document, inputs_of(program)


def check_steps(kind: Made, steps: int, order: int | None = None) -> None:
    job = program, document, inputs = job_of(kind)
    found = run_unchecked(Resolved(document, program), inputs, device="cupy", poison=True, repeat=steps, order=order)
    fault = wrong(job, found, steps=steps)
    assert not fault, fault


@pytest.mark.parametrize("kind", KINDS)
def test_all_ranks_on_one(kind: str) -> None:
    check_steps(made(kind), 2)
    check_steps(made(kind), 1, order=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ways_of_sharding_that_have_names(case: Named) -> None:
    """All ranks on one GPU, as many as the plan has. (The moments of AdamW pile up the roundings of steps.)"""
    check_steps((case.program, case.plan().document), 1)


@needs_two[1]
@pytest.mark.long
def test_a_process_each() -> None:
    jobs = [job_of(made(kind)) for kind, (ranks, _) in KINDS.items() if ranks <= gpus()]
    faults = [wrong(*pair, steps=2) for pair in zip(jobs, launched(jobs, "cupy", repeat=2), strict=True)]
    assert not any(faults), next(filter(None, faults))


@needs_two[1]
@pytest.mark.long
def test_ways_of_sharding_that_have_names_a_process_each() -> None:
    kinds = [(case.program, document) for case in CASES for document in [case.plan().document] if fits(document)]
    jobs = [job_of(kind) for kind in kinds]
    faults = [wrong(*pair) for pair in zip(jobs, launched(jobs, "cupy"), strict=True)]
    assert not any(faults), next(filter(None, faults))


def fits(document: Document) -> bool:
    return len(document.devices) <= gpus()


# -- folds onto partial results ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("monoid", "dtype"), [*FOLDS, *SEVERAL])
def test_every_monoid_is_folded_in_turns(monoid: str, dtype: str) -> None:
    turns.check_records(monoid, dtype, "cupy")


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("program", [attend.bind(), narrow_attention.bind()], ids=["f32", "bf16"])
def test_states_of_attention_are_folded_in_turns(program: Program, in_place: bool) -> None:
    turns.check_attention(program, "cupy", in_place=in_place)


@pytest.mark.parametrize("program", [product.bind(), narrow_product.bind()], ids=["f32", "bf16"])
def test_products_add_to_what_lies_there(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    monkeypatch.setattr(Machine, "worth", 1)
    turns.check_product(program, "cupy")
