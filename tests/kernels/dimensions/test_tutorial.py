"""docs/typed-dimensions.md is executed: what should run runs, what should not compile does not, and says why."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapestry.kernels.errors import KernelError

from .toolchain import compile_text, compiler

compiler()
PAGE = Path(__file__).parents[3] / "docs" / "typed-dimensions.md"
BLOCK = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    kind: str  # "", "declare", "fails" or "generated"
    text: str
    line: int


def blocks() -> list[Block]:
    page = PAGE.read_text()
    return [Block(m[1], m[2], m[3], page.count("\n", 0, m.start()) + 2) for m in BLOCK.finditer(page)]


def chosen(language: str, *kinds: str) -> list[Block]:
    return [block for block in blocks() if block.language == language and block.kind in kinds]


def program(bodies: list[Block], header: str = "") -> str:
    """One function a block, all called by main; the page's own line numbers."""
    declared = [f'#line {block.line} "page.md"\n{block.text}' for block in chosen("cpp", "declare")]
    functions = [f'void block_{i}() {{\n#line {block.line} "page.md"\n{block.text}}}' for i, block in enumerate(bodies)]
    calls = " ".join(f"block_{i}();" for i in range(len(bodies)))
    return "\n".join(["#include <cassert>", *declared, header, *functions, f"int main() {{ {calls} }}"])


def python_blocks() -> dict[str, object]:
    names: dict[str, object] = {}
    for block in chosen("python", ""):
        exec(compile(block.text, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("standard", [17, 20])
def test_the_blocks_compile_and_run(tmp_path: Path, standard: int) -> None:
    header = python_blocks()["header"]
    assert isinstance(header, str)
    binary = tmp_path / "page"
    bodies = chosen("cpp", "", "generated")
    assert len(bodies) > 10
    done = compile_text(program(bodies, header), "-Wno-unused", "-o", str(binary), standard=standard)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([binary], capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("block", chosen("cpp", "fails"), ids=lambda block: f"line {block.line}")
def test_a_block_that_fails_says_what_the_page_says(block: Block) -> None:
    reason = block.text.splitlines()[0].removeprefix("// ")
    done = compile_text(program([block]), "-fsyntax-only", "-Wno-unused")
    assert done.returncode != 0
    assert reason in done.stderr


@pytest.mark.parametrize("block", chosen("python", "fails"), ids=lambda block: f"line {block.line}")
def test_a_specification_that_fails_says_what_the_page_says(block: Block) -> None:
    reason = block.text.splitlines()[0].removeprefix("# ")
    with pytest.raises(KernelError, match=re.escape(reason)):
        exec(compile(block.text, str(PAGE), "exec"), python_blocks())


def test_every_block_of_the_page_is_tested() -> None:
    known = {("cpp", kind) for kind in ("", "declare", "fails", "generated")} | {("python", ""), ("python", "fails")}
    assert {(block.language, block.kind) for block in blocks()} == known
    assert PAGE.read_text().count("```") == 2 * len(blocks())
