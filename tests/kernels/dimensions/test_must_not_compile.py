"""Mixing dimensions does not compile, and the error says why; the right twin of every mistake does compile.

All mistakes are compiled in one run of the host compiler, each in its own namespace with its own dimensions, and each
error is taken to the mistake whose line asked for it.
"""

import functools
import re

import pytest

from .mistakes import MISTAKES, PRELUDE
from .toolchain import compile_text, compiler

compiler()
NAMES = list(MISTAKES)
ASKED = re.compile(r"case_(\d+)\.cpp:\d+")


def translation_unit(bodies: list[str]) -> str:
    """One namespace and one function a body; diagnostics name it as the file case_N.cpp."""
    lines = [f"#include <tapestry/{name}.cuh>" for name in ("compound", "fragment", "tensor")]
    lines.append("using namespace tapestry;")
    for number, body in enumerate(bodies):
        lines += [f"namespace case_{number} {{", f'#line 1 "prelude_{number}.cpp"', PRELUDE]
        lines += [f'#line 1 "case_{number}.cpp"', f"void body() {{ {body} }}", "}"]
    return "\n".join(lines)


def errors_by_case(stderr: str) -> dict[int, list[str]]:
    """The messages of every case. A message inside a header belongs to the last line of a case that is named."""
    found: dict[int, list[str]] = {}
    case = -1
    for line in stderr.splitlines():
        if named := ASKED.search(line):
            case = int(named[1])
        if ": error: " in line:
            found.setdefault(case, []).append(line.split(": error: ", 1)[1])
    return found


@functools.cache
def diagnostics() -> dict[int, list[str]]:
    text = translation_unit([mistake.wrong for mistake in MISTAKES.values()])
    done = compile_text(text, "-fsyntax-only", "-fmax-errors=0", "-fdiagnostics-show-template-tree")
    assert done.returncode != 0
    return errors_by_case(done.stderr)


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_refused_for_its_reason(name: str) -> None:
    messages = diagnostics().get(NAMES.index(name), [])
    assert messages, f"this compiles: {MISTAKES[name].wrong}"
    assert any(MISTAKES[name].phrase in message for message in messages), messages


def test_no_error_belongs_to_nobody() -> None:
    assert set(diagnostics()) <= set(range(len(NAMES)))


@pytest.mark.parametrize("standard", [17, 20])
def test_the_twins_compile(standard: int) -> None:
    text = translation_unit([mistake.right for mistake in MISTAKES.values()])
    done = compile_text(text, "-fsyntax-only", standard=standard)
    assert done.returncode == 0, done.stderr
