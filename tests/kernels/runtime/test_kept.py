"""Results kept on disk: what comes back is what was computed, by this version, whatever lies there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.kernels.runtime.cache import Cache, Record
from tapestry.kernels.runtime.kept import kept

pytestmark = pytest.mark.usefixtures("choices_on_disk")


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


@dataclass(frozen=True)
class Other:
    only: Any


def some_version() -> str:
    return "1"


def another_process(answer: Callable[[Any], Any], version: Callable[[], str] = some_version) -> Callable[[Any], Any]:
    """A function that remembers nothing: of one name, whatever it computes."""

    def compute(given: Any) -> Any:
        return answer(given)

    found: Callable[[Any], Any] = kept(version, Pair, Other)(compute)
    return found


def fails(given: Any) -> Any:
    pytest.fail(f"computed again for {given!r}")


questions = count()
numbers = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
results = st.recursive(
    numbers,
    lambda parts: st.lists(parts, max_size=3).map(tuple) | st.builds(Pair, parts, parts) | st.builds(Other, parts),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results)
def test_later_processes_find_what_was_computed(result: Any) -> None:
    asked = next(questions)
    assert another_process(lambda _: result)(asked) == result
    found = another_process(fails)(asked)
    assert found == result
    assert repr(found) == repr(result)  # 1 == True == 1.0


def test_other_arguments_and_versions_are_computed() -> None:
    assert another_process(lambda given: given)("a") == "a"
    assert another_process(lambda given: given)("b") == "b"
    assert another_process(lambda given: "newer", lambda: "2")("a") == "newer"
    assert another_process(fails)("a") == "a"


@pytest.mark.parametrize(
    "head",
    [{}, {"result": {}}, {"result": {"Pair": [1]}}, {"result": {"Gone": [1]}}, {"result": {"Pair": 3}}],
    ids=json.dumps,
)
def test_whole_files_of_other_contents_are_computed_again(own_cache: Path, head: dict[str, Any]) -> None:
    assert another_process(lambda _: Pair(1, 2))("a") == Pair(1, 2)
    (path,) = own_cache.glob("*.kernel")
    Cache(own_cache).put(path.stem, Record(b"", head))
    assert another_process(lambda _: Pair(3, 4))("a") == Pair(3, 4)
    assert another_process(fails)("a") == Pair(3, 4)


def test_damaged_files_are_computed_again(own_cache: Path) -> None:
    another_process(lambda _: Pair(1, 2))("a")
    (path,) = own_cache.glob("*.kernel")
    path.write_bytes(path.read_bytes()[:-1])
    assert another_process(lambda _: Pair(3, 4))("a") == Pair(3, 4)
    assert another_process(fails)("a") == Pair(3, 4)


def test_a_process_computes_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", "off")
    asked = Counter[str]()
    found = another_process(lambda given: asked.update([given]))
    for _ in range(3):
        found("a")
    assert asked == {"a": 1}
    assert not own_cache.exists()


def test_many_processes_at_once_all_have_the_answer(own_cache: Path) -> None:
    code = (
        "from tapestry.kernels.runtime.kept import kept\n"
        "@kept(lambda: '1')\n"
        "def square(number): return number, number * number\n"
        "print([square(number) for number in range(200)])"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {process.communicate(timeout=900)[0].strip() for process in running}
    assert said == {str([(number, number * number) for number in range(200)])}
    assert len(list(own_cache.glob("*.kernel"))) == 200
    assert not list(own_cache.glob("*.tmp"))
