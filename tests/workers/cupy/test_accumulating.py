"""The CuPy device folds onto partial results, its kernels run on the host: to the values of the reference."""

from __future__ import annotations

import pytest

from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.program import Program
from tapestry.reference import evaluate

from ...kernels.elementwise.host import needs_compiler
from ..test_accumulating import SEVERAL
from ..test_partial_results import folding, folding_to_several, values
from ..turns import attend, made, narrow_product, product
from ..unchecked import run_unchecked
from .host_machine import HostMachine

pytestmark = needs_compiler


@pytest.mark.parametrize(
    ("monoid", "dtype"), [("sum", "f32"), ("sum", "f16"), ("argmax", "f32"), ("variance", "f32"), ("logsumexp", "f32")]
)
def test_generated_kernels_fold_onto_records(machine: HostMachine, monoid: str, dtype: str) -> None:
    program, x = folding(monoid, dtype), values(dtype)
    document = made(program, 16, 40, on="h200x8")
    found = run_unchecked(document, {"x": x}, device="on_host", poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize(("monoid", "dtype"), SEVERAL)
def test_generated_kernels_fold_onto_several_results(machine: HostMachine, monoid: str, dtype: str) -> None:
    program, x = folding_to_several(monoid, dtype), values(dtype)
    found = run_unchecked(made(program, 16, 40, on="h200x8"), {"x": x}, device="on_host", poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize("in_place", [True, False])
def test_kernels_fold_states_of_attention(machine: HostMachine, in_place: bool) -> None:
    program, inputs = attend.bind(), random_inputs(attend.bind(), 3)
    document = made(program, 8, 24, in_place=in_place, name="attention.state", on="h200x8")
    found = run_unchecked(document, inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


@pytest.mark.parametrize("program", [product.bind(), narrow_product.bind()], ids=["f32", "bf16"])
def test_products_add_to_what_lies_there(machine: HostMachine, program: Program) -> None:
    """By the library alone: no kernel that adds runs beside it."""
    inputs = random_inputs(program, 5)
    document = made(program, 10, 40, name=program.operations[0].name, on="h200x8")
    found = run_unchecked(document, inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert len(machine.kernels) == 3
    assert {kernel.split()[0] for kernel in machine.kernels} == {"product"}
