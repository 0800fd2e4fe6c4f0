"""Comments, docstrings and pages name only files, modules and targets that exist."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib import import_module, util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What was decided is told as it was then: only the links of a decision have to hold.
HISTORY = ("docs/decisions/", "CHANGELOG.md", "docs/kernels-notes.md", "docs/models-notes.md")
ROOMS = ("tapestry", "planner", "workers", "kernels")
# Files of the user's, in examples of what one types.
USERS = {"net.py", "file.py", "FILE.py", "scale.cu"}

PATH = re.compile(r"(?<![\w./<{*-])((?:[\w-]+/)*[\w-]+\.(?:py|cu|cuh|hpp|ipynb))(?![\w(*])")
DOTTED = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`")
TARGET = re.compile(r"`make ([a-z-]+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)


@cache
def tracked() -> tuple[str, ...]:
    names = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return tuple(name for name in names.splitlines() if not (ROOT / name).is_symlink())


def files(*suffixes: str) -> list[str]:
    return [name for name in tracked() if name.endswith(suffixes) and not name.startswith(HISTORY)]


def words_of_python(name: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings with their lines."""
    source = (ROOT / name).read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def words_of_cuda(name: str) -> Iterator[tuple[int, str]]:
    for line, text in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        comment = text.partition("//")[2]
        if comment:
            yield line, comment


def words_of_page(name: str) -> Iterator[tuple[int, str]]:
    yield from enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)


@cache
def all_words() -> tuple[tuple[str, int, str], ...]:
    """File, line and text of everything that is written for readers."""
    readers = {words_of_python: (".py",), words_of_cuda: (".cu", ".cuh"), words_of_page: (".md",)}
    return tuple(
        (name, line, text)
        for reader, suffixes in readers.items()
        for name in files(*suffixes)
        for line, text in reader(name)
    )


@cache
def shown_in(page: str) -> frozenset[str]:
    """The files that a page has its reader write."""
    return frozenset(re.findall(r"<!-- file: (\S+) -->", (ROOT / page).read_text(encoding="utf-8")))


def is_file(path: str) -> bool:
    """Whether some tracked file ends in this path, in its own folder or through the links of the package."""
    plain = re.sub(r"^tapestry/(?=(planner|kernels|workers)/)", "", path)
    return any(name == plain or name.endswith(f"/{plain}") for name in tracked())


@cache
def is_name(dotted: str) -> bool:
    """Whether it is a module, or something in one."""
    parts = dotted.split(".")
    parts = parts if parts[0] == "tapestry" else ["tapestry", *parts]
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            known = util.find_spec(module) is not None
        except ModuleNotFoundError:
            known = False
        if known:
            value: object = import_module(module)
            for part in parts[end:]:
                fields = getattr(value, "__annotations__", {})
                if not hasattr(value, part) and part not in fields:
                    return False
                value = getattr(value, part, None)
            return True
    return False


def test_files_that_are_named_exist() -> None:
    wrong = [
        f"{name}:{line}: {path}"
        for name, line, text in all_words()
        for path in PATH.findall(text)
        if path not in USERS | shown_in(name) and not is_file(path)
    ]
    assert wrong == []


def test_modules_that_are_named_exist() -> None:
    wrong = [
        f"{name}:{line}: {dotted}"
        for name, line, text in all_words()
        for dotted in DOTTED.findall(text)
        if not is_name(dotted)
    ]
    assert wrong == []


def test_targets_that_are_named_exist() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    wrong = [
        f"{name}:{line}: make {target}"
        for name, line, text in all_words()
        for target in TARGET.findall(text)
        if target not in made
    ]
    assert wrong == []


@pytest.mark.parametrize("page", [name for name in tracked() if name.endswith(".md")])
def test_links_lead_somewhere(page: str) -> None:
    text = CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    broken = [link for link in LINK.findall(text) if not (ROOT / page).parent.joinpath(link).exists()]
    assert broken == []


def test_a_wrong_name_is_found() -> None:
    """The patterns see what they are meant to see."""
    assert PATH.findall("see planner/gone.py and walk.cuh, not net.json") == ["planner/gone.py", "walk.cuh"]
    assert not is_file("planner/gone.py")
    assert is_file("tapestry/planner/interface.py")
    assert DOTTED.findall("as `planner.gone.Thing` does") == ["planner.gone.Thing"]
    assert not is_name("planner.gone.Thing")
    assert is_name("tapestry.program.Program.producer")
