"""What every test of the project shares: which folders pytest walks, in which order, and how hypothesis draws."""

import gc
import os
import re
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# The code of these folders is reached through `tapestry/`, once (docs/decisions/0001-symlinked-packages.md).
collect_ignore = ["planner", "kernels", "workers", "build"]

# Tests start hundreds of interpreters: each would compile the whole package where no bytecode is to be kept, as in many
# containers.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False

# Times say more about the machine than about the code; the same draws every time, except when fuzzing.
settings.register_profile(
    "tapestry",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="TAPESTRY_FUZZ" not in os.environ,
)
settings.load_profile("tapestry")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the texts that tests hold theirs against anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Hold a text against the file ``golden/NAME.txt`` beside the test; lines of files are left out of it."""
    folder = request.path.parent / "golden"

    def hold(name: str, text: str) -> None:
        found = re.sub(r" +# [^\n]*", "", text).rstrip() + "\n"
        file = folder / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            file.write_text(found, encoding="utf-8")
        written = file.read_text(encoding="utf-8") if file.exists() else ""
        assert found == written, f"{file} says otherwise; if it is to say so: pytest --update-golden, and read the diff"

    return hold


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked `long` come first, so that no worker is left alone with one."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at it again, nor as often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
