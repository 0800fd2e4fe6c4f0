"""The lazily loaded names: the two tables of each package agree, and every name is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

PACKAGES = ["tapestry", "tapestry.planner", "tapestry.space"]


def typed_names(package: str) -> dict[str, str]:
    """Name -> submodule, from the `if TYPE_CHECKING:` block."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checker_and_run_time_see_the_same_names(package: str) -> None:
    table = vars(importlib.import_module(package))["_NAMES_OF"]
    assert typed_names(package) == {name: module for module, names in table.items() for name in names.split()}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_loads(package: str) -> None:
    module = importlib.import_module(package)
    for name in typed_names(package):
        assert getattr(module, name) is not None
        assert name in dir(module)


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = importlib.import_module(package).nonsense


@pytest.mark.parametrize("package", [*PACKAGES, "tapestry.workers", "tapestry.planner.cli"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    """Starting is light: torch, the solvers, isl, NumPy and CuPy come only with the names that need them."""
    heavy = ["torch", "ortools", "cupy", "islpy", "numpy", "scipy", "networkx", "numba", "pytoulbar2"]
    code = f"import sys, {package}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    assert done.stdout.strip() == "[]"
