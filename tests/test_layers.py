"""What the folders that must stay small may import: an allow-list, which import-linter has no contract for.

`make lint` holds the order of the layers; here it is the exact doors of checker, workers, kernels and language.
"""

from __future__ import annotations

import grimp
import pytest

LANGUAGE_MAY_NOT = ("tapestry.planner", "tapestry.kernels", "tapestry.workers")
COMMAND_LINE = "tapestry.__main__"  # what `python -m tapestry` has to be called; nothing imports it
DOORS = {
    "tapestry.planner.check": (
        "tapestry.planner.format",
        "tapestry.program",
        "tapestry.serialize",  # the program as the document embeds it
        "tapestry.blocks",  # what is true of every block kernel
        "tapestry.expr",
        "tapestry.records",  # what a partial value is made of
        "tapestry.space",
        "tapestry.errors",
        "tapestry.printable",
    ),
    "tapestry.kernels": (
        "tapestry.arithmetic",  # conversions of an expression written out
        "tapestry.dtypes",
        "tapestry.expr",
        "tapestry.program",
        "tapestry.convolution",  # which operations are convolutions
        "tapestry.serialize",  # the program as a plan's document embeds it
        "tapestry.blocks",  # what is true of every block kernel
        "tapestry.space",
        "tapestry.errors",
    ),
    "tapestry.workers": (
        "tapestry.space",
        "tapestry.expr",
        "tapestry.program",
        "tapestry.selection",  # which points of a fold count
        "tapestry.updates",  # where a map says something other than what it is written over
        "tapestry.dtypes",
        "tapestry.result_type",
        "tapestry.arithmetic",
        "tapestry.blocks",
        "tapestry.records",
        "tapestry.errors",
        "tapestry.files",
        "tapestry.imports",  # the files that declare block kernels, which ranks run too
        "tapestry.lazy",
        "tapestry.planner.format",
        "tapestry.kernels",
    ),
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("tapestry", "tapestry.kernels", cache_dir=None)


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("folder", DOORS)
def test_a_folder_imports_only_through_its_doors(graph: grimp.ImportGraph, folder: str) -> None:
    sources = [module for module in graph.modules if within(module, (folder,))]
    strays = [
        f"{source} -> {target}"
        for source in sources
        for target in graph.find_modules_directly_imported_by(source)
        if not within(target, (folder, *DOORS[folder]))
    ]
    assert strays == []


def test_the_language_stands_alone(graph: grimp.ImportGraph) -> None:
    language = [module for module in graph.modules if not within(module, (*LANGUAGE_MAY_NOT, COMMAND_LINE))]
    assert "tapestry.program" in language
    strays = [
        f"{source} -> {target}"
        for source in language
        for target in graph.find_modules_directly_imported_by(source)
        if within(target, LANGUAGE_MAY_NOT)
    ]
    assert strays == []
