"""The table of operations is the one that the tests make, and has every operation."""

from __future__ import annotations

import re

import pytest

import tapestry

from .cases import FIRST
from .coverage import PATH, covered, libraries, text

# Operations whose tests stand elsewhere: what they compute is no comparison with a library.
ELSEWHERE = {"rotary"}


def public_operations() -> set[str]:
    table: dict[str, str] = vars(tapestry)["_NAMES_OF"]
    return {name for module, names in table.items() if module.startswith("ops.") for name in names.split()}


def test_the_table_is_the_tests() -> None:
    written, made = (document.partition("## Names of other libraries") for document in (PATH.read_text(), text()))
    assert written[0] == made[0], "run `make docs-operations`"
    if all(f"### {library}:" in written[2] for library in libraries()):  # the versions that it was made with
        assert written[2] == made[2], "run `make docs-operations`"


def test_every_operation_has_a_case() -> None:
    assert public_operations() - FIRST.keys() <= ELSEWHERE


@pytest.mark.parametrize("library", libraries())
def test_what_covers_a_name_is_there(library: str) -> None:
    names, table = libraries()[library]
    assert table.keys() <= set(names)
    for ours in covered(names, table).values():
        found = re.match(r"tp\.(\w+)", ours)
        assert found is None or found[1] in FIRST or found[1] in dir(tapestry)
