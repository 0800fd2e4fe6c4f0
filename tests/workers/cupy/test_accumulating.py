"""The CuPy device folds onto partial results, its kernels run on the host: to the values of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.planner.format import Document
from tapestry.program import Program
from tapestry.reference import evaluate

from ...kernels.elementwise.host import needs_compiler
from ..test_accumulating import SEVERAL
from ..test_partial_results import folding, folding_to_several, values
from ..turns import attend, made, narrow_product, product
from ..unchecked import run_unchecked
from .host_machine import HostMachine

pytestmark = needs_compiler


def check_folded(document: Document, program: Program, inputs: Mapping[str, Any], device: str) -> None:
    """In two steps, of which the second is as a device repeats it."""
    found = run_unchecked(document, inputs, device=device, poison=True, repeat=2)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


def check_records(monoid: str, dtype: str, device: str) -> None:
    """A monoid's records, or its several results, in three turns."""
    program = (folding_to_several if (monoid, dtype) in SEVERAL else folding)(monoid, dtype)
    x = values(dtype)
    if monoid == "prod" and not dtype.startswith("int"):
        x = (1 + x / 64).astype(x.dtype)
    check_folded(made(program, 16, 40, on="h200x8"), program, {"x": x}, device)


def check_attention(program: Program, device: str, *, in_place: bool) -> None:
    document = made(program, 8, 24, in_place=in_place, name="attention.state", on="h200x8")
    check_folded(document, program, random_inputs(program, 3), device)


def check_product(program: Program, device: str) -> None:
    document = made(program, 10, 40, name=program.operations[0].name, on="h200x8")
    check_folded(document, program, random_inputs(program, 5), device)


RECORDS = [("sum", "f32"), ("sum", "f16"), ("argmax", "f32"), ("variance", "f32"), ("logsumexp", "f32"), *SEVERAL]


@pytest.mark.parametrize(("monoid", "dtype"), RECORDS)
def test_generated_kernels_fold_onto_records(on_host: str, monoid: str, dtype: str) -> None:
    check_records(monoid, dtype, on_host)


@pytest.mark.parametrize("in_place", [True, False])
def test_kernels_fold_states_of_attention(on_host: str, in_place: bool) -> None:
    check_attention(attend.bind(), on_host, in_place=in_place)


@pytest.mark.usefixtures("on_host")
@pytest.mark.parametrize("program", [product.bind(), narrow_product.bind()], ids=["f32", "bf16"])
def test_products_add_to_what_lies_there(machine: HostMachine, program: Program) -> None:
    """By the library alone: no kernel that adds runs beside it."""
    check_product(program, "on_host")
    assert len(machine.kernels) == 2 * 3
    assert {kernel.split()[0] for kernel in machine.kernels} == {"product"}
