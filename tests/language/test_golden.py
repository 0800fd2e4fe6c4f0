"""How the example programs are printed (`pytest --update-golden` writes the files anew), and that it is read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

import tapestry as tp
from tapestry.program import Program

from ..files import example

PROGRAMS: dict[str, tuple[str, Mapping[str, int]]] = {
    "mlp": ("forward", {"n": 6, "d": 4, "hidden": 8}),
    "corners": ("corners", {"y": 24, "x": 32}),
    "digits": ("train_step", {"n": 4}),
}


@pytest.mark.parametrize("file", list(PROGRAMS))
def test_an_example_is_printed_as_it_was(file: str, golden: Callable[[str, str], None]) -> None:
    name, settings = PROGRAMS[file]
    program: Program = getattr(example(file), name).bind(**settings)
    golden(file, str(program))
    assert str(tp.parse(str(program), constants=tp.constants_of(program))) == str(program)


def test_another_text_is_refused_with_what_to_do(
    golden: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("what is written is not compared")
    with pytest.raises(AssertionError, match="pytest --update-golden"):
        golden("mlp", "program forward()")
