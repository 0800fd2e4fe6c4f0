"""`docs/parallelisms.md`: each way of sharding that has a name, as declared, as planned, and the bytes that moves.

`make docs-parallelisms` writes the file; a test holds it against the plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tapestry.planner import Plan

from .named import CASES, Named, declaration

PATH = Path(__file__).resolve().parents[3] / "docs" / "parallelisms.md"


def text() -> str:
    """The whole document."""
    lines = [_INTRODUCTION]
    for case in CASES:
        lines += ["", *section(case)]
    return "\n".join(lines) + "\n"


def section(case: Named) -> Iterator[str]:
    """One name: when it is the optimum, what was asked, and what the plan is."""
    made, program = case.plan(), case.program
    document = made.document
    kinds = ", ".join(f"{nbytes:,} B {kind}" for kind, nbytes in document.traffic.bytes_by_kind.items())
    yield f"## {case.name[0].upper()}{case.name[1:]}"
    yield from ("", case.why, "", "```python", declaration(program), "```", "")
    shapes = (zip(tensor.axes, tensor.shape, strict=True) for tensor in program.tensors if tensor.role != "value")
    extents = ", ".join(f"{axis} = {size}" for axis, size in dict(pair for shape in shapes for pair in shape).items())
    yield f"- asked: {extents}; {case.machine}, as a mesh of {' x '.join(map(str, case.mesh))}"
    for partition, ops in partitions(made).items():
        yield f"- {partition}: {', '.join(f'`{op}`' for op in ops)}"
    yield f"- before the run: {'; '.join(lying(made))}"
    yield f"- moved: {document.traffic.bytes_total:,} B, {case.form} ({kinds})"


def partitions(made: Plan) -> dict[str, list[str]]:
    """Operations by how they are cut, those over a single point left out."""
    found: dict[str, list[str]] = {}
    for op, sharding in made.document.shardings.items():
        if made.program.op_by_name[op].dims:
            over = ", ".join(f"{dim} over {axes}" for dim, axes in sharding.partition.items())
            kind = f" ({sharding.kind})" if over and sharding.kind != "block" else ""
            alone = ", ".join(f"{axis} = {at}" for axis, at in (sharding.only or {}).items())
            there = f"whole on {alone} alone" if alone else "whole on every rank"
            found.setdefault(f"cut {over}{kind}" if over else there, []).append(op)
    return found


def lying(made: Plan) -> Iterator[str]:
    """Tensors by how many shares of them there are, one to a rank."""
    document = made.document
    found: dict[int, list[str]] = {}
    for buffer in document.buffers:
        if buffer.initial is not None:
            shares = len(set(document.layouts[buffer.initial].regions))
            found.setdefault(shares, []).append(f"`{buffer.tensor}`")
    for shares, tensors in found.items():
        yield f"{', '.join(tensors)} " + ("whole on every rank" if shares == 1 else f"in {shares} shares")


_INTRODUCTION = """\
# Ways of sharding that have names

Nothing in the planner knows these names. Each is what it finds for a plain declaration on a machine on which that is
the quickest; the bytes that all ranks together receive are those of the closed form. Extents are small, and the
machines are described so that bytes, arithmetic and memory stand in the relation in which they do in earnest. Devices
compute or transfer: where they do both at once, transfers are cut up as well, to hide behind the work of other pieces.

Written by `make docs-parallelisms` from the plans of `tests/planner/search/named.py`, which hold each of them against
its name and its form. P ranks; T tokens of d elements, b bytes each; W the bytes of all weights."""

if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
