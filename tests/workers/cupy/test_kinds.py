"""Kinds of plans on the CuPy device, its kernels run on the host: tasks that are parts of shards, or of some ranks."""

from __future__ import annotations

import pytest

from tapestry.planner.format import Resolved
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..kinds import inputs_of, made
from ..unchecked import run_unchecked

pytestmark = needs_compiler


@pytest.mark.parametrize("kind", ["the inside first", "equal pieces", "two branches", "two stages"])
def test_what_the_program_means(on_host: str, kind: str) -> None:
    program, document = made(kind)
    inputs = inputs_of(program)
    found = run_unchecked(Resolved(document, program), inputs, device=on_host, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert found.bytes_moved == document.traffic.bytes_total
