"""`docs/operations.md`: which operations there are, what of each is tested, and which names of other libraries that is.

`make docs-operations` writes the file. A cell is ticked where tests/operations has a test of just that; the tests are
parametrised by the same questions that are asked here, so that a tick without a test cannot be.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

import tapestry as tp
from tapestry.blocks import BLOCKS
from tapestry.dsl.reducer import Reducer
from tapestry.ops.elementwise import Elementwise
from tapestry.program import Block, Program

from . import jax_names
from .cases import CASES, FIRST
from .names import EINOPS, JAX, NUMPY, TORCH

PATH = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
COLUMNS = ("reference", "sharded run", "adjoint", "torch agreement", "GPU kernel")


def columns(name: str) -> tuple[str, ...]:
    """What the tests of an operation's cases prove."""
    mine = [case for case in CASES if case.name == name]
    ticks = [True, True, any(case.differentiates for case in mine), any(case.torch for case in mine)]
    return (*("x" if tick else "" for tick in ticks), "torch's" if _declared(mine[0].program) else "generated")


def _declared(program: Program) -> bool:
    """Whether a block kernel of it is a function of torch's tensors on a GPU."""
    blocks = [op.body for op in program.operations if isinstance(op.body, Block)]
    return any(BLOCKS[block.kernel].bodies is not None for block in blocks)


def summary(name: str) -> str:
    """The first sentence of its docstring."""
    found = getattr(tp, name)
    text = found.__doc__ if isinstance(found, Elementwise | Reducer) else inspect.getdoc(found)
    return (text or "").strip().split("\n")[0].replace("|", "\\|")


def functions(module: object, names: Iterable[str]) -> list[str]:
    """The public functions of a library's module: no classes, no variants in place, no tools of its own."""
    found = [(name, getattr(module, name)) for name in names if not name.startswith("_") and not name.endswith("_")]
    return sorted(name for name, one in found if callable(one) and not inspect.isclass(one))


def libraries() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Library and version -> its names, and those that are covered with what covers them."""
    torchs = functions(torch.nn.functional, dir(torch.nn.functional))
    numpys = functions(np, np.__all__)
    return {
        f"torch.nn.functional (torch {torch.__version__.split('+')[0]})": (torchs, TORCH),
        f"numpy ({np.__version__})": (numpys, NUMPY),
        f"jax.lax (jax {jax_names.VERSION}, written down)": (list(jax_names.LAX), JAX),
        f"einops ({jax_names.EINOPS_VERSION}, written down)": (list(jax_names.EINOPS), EINOPS),
    }


def covered(names: list[str], table: dict[str, str]) -> dict[str, str]:
    """The names that tapestry covers: under the same name where the table says ``=``, else as it says."""
    return {name: f"tp.{name}" if table[name] == "=" else table[name] for name in names if name in table}


def text() -> str:
    """The whole document."""
    lines = ["# Operations", "", _INTRODUCTION, "", f"| operation | {' | '.join(COLUMNS)} | |", "|---" * 7 + "|"]
    for name in sorted(FIRST):
        lines.append(f"| `{name}` | {' | '.join(columns(name))} | {summary(name)} |")
    lines += ["", "## Names of other libraries", "", _NAMES, ""]
    for library, (names, table) in libraries().items():
        found = covered(names, table)
        lines += [f"### {library}: {len(found)} of {len(names)}", ""]
        same = [name for name, ours in found.items() if ours == f"tp.{name}"]
        other = [f"`{name}`: {ours}" for name, ours in found.items() if ours != f"tp.{name}"]
        missing = [name for name in names if name not in found]
        lines += [f"Same name: {', '.join(same)}." if same else "Same name: none.", ""]
        lines += [f"Written otherwise: {'; '.join(other)}.", ""] if other else []
        lines += [f"Not there: {', '.join(missing)}.", ""] if missing else []
    return "\n".join(lines).rstrip() + "\n"


_INTRODUCTION = f"""\
Made by `make docs-operations` from the tests in `tests/operations`: {len(FIRST)} operations, {len(CASES)} cases.

- **reference**: the reference evaluator gives what torch or NumPy do, in f64.
- **sharded run**: planned and run in f32 over two to four ranks, cut at random.
- **adjoint**: `tp.grad` gives torch.autograd's gradient in f64, to 1e-10.
- **torch agreement**: the values are compared with torch's.
- **GPU kernel**: the CuPy device generates its kernels; compiled for the host they agree with the reference in f32.
  *torch's*: a block kernel that is a function of torch's tensors there."""
_NAMES = """\
All public functions of a module are counted, also those that no program of tensors can have (files, printing)."""

if __name__ == "__main__":
    PATH.write_text(text())
