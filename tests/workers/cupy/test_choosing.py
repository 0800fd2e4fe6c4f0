"""Which kernel a task gets: matrix products and attention by libraries, plain maps by vectorised kernels, all else by
one of its own. Products and attention are computed here as the libraries are asked to.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.dtypes import numpy_dtype
from tapestry.expr import Affine, Call, Read
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Dim, Operation, Program
from tapestry.program import Tensor as Described
from tapestry.reference import evaluate
from tapestry.result_type import reduced_dtype
from tapestry.space import Box, Region
from tapestry.space.cuts import Block
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..shards import along
from ..unchecked import run_unchecked
from .host_machine import HostMachine

# A third of i or j is more than the kernel of a few rows takes.
SIZES = dict(zip("ijkbtdhes", (40, 32, 56, 3, 33, 48, 4, 16, 17), strict=True))


def contraction(spec: str, dtype: str) -> Program:
    """An einsum as one operation."""
    operands, out = spec.split("->")
    names = [*out, *sorted(set(operands) - {",", *out})]
    parts = operands.split(",")
    reads = tuple(Read(x, tuple(map(Affine.dim, part))) for x, part in zip("xw", parts, strict=True))
    folded = tuple(name for name in names if name not in out)
    dims = tuple(Dim(name, SIZES[name]) for name in names)
    op = Operation("product", dims, "y", tuple(map(Affine.dim, out)), Call("multiply", reads), folded, "sum")
    given = [Described(x, dtype, tuple(SIZES[c] for c in part), "input") for x, part in zip("xw", parts, strict=True)]
    result = Described("y", reduced_dtype("sum", dtype), tuple(SIZES[c] for c in out))
    return Program("contraction", (*given, result), (op,), ("y",))


def cut(op: Operation, parts: int) -> list[Region]:
    """An operation's points cut along its first dimension."""
    return along(op, 0, Block(parts))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize(
    "spec", ["ik,kj->ij", "ki,kj->ij", "ik,jk->ji", "bik,bkj->bij", "td,dhe->the", "the,hed->td", "bthe,bshe->bhts"]
)
def test_sums_of_products_are_matrix_products(machine: HostMachine, spec: str, dtype: str, parts: int) -> None:
    program = contraction(spec, dtype)
    rng = np.random.default_rng(0)
    inputs = {t.name: (rng.random(t.shape) - 0.5).astype(numpy_dtype(dtype)) for t in program.of_role("input")}
    document = plan_partitions(program, load_machine("h200x8"), {"product": cut(program.operations[0], parts)}).document
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert set(machine.kernels) == {"product"}


@needs_compiler
@pytest.mark.parametrize("dim", [None, "h", "t"])
def test_attention_of_dense_heads_is_the_librarys(machine: HostMachine, dim: str | None) -> None:
    """Cut by heads, or by rows: then the keys before the first row are one call, the square behind them another."""

    @tp.program
    def seen(
        q: bf16[Tensor, "t=144 h=4 e=64"], k: bf16[Tensor, "t=144 g=2 e=64"], v: bf16[Tensor, "t=144 g=2 e=64"]
    ) -> Tensor:
        return tp.attention(q, k, v, causal=True)

    program = seen.bind()
    state, finish = program.operations
    t, h = (2 if dim == name else 1 for name in "th")
    shape = [d.extent for d in state.dims]
    boxes = [((i * 144 // t, (i + 1) * 144 // t), (j * 4 // h, (j + 1) * 4 // h)) for i in range(t) for j in range(h)]
    parts = [Box((a, c, 0, 0), (b, d, *shape[2:])).region() for (a, b), (c, d) in boxes]
    shards = {state.name: parts, finish.name: cut(finish, len(parts))}
    rng = np.random.default_rng(0)
    inputs = {x.name: (rng.random(x.shape) - 0.5).astype(numpy_dtype("bf16")) for x in program.of_role("input")}
    document = plan_partitions(program, load_machine("h200x8"), shards).document
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels.count("library attention") == len(parts)


@needs_compiler
def test_without_a_library_everything_has_a_kernel_of_its_own(machine: HostMachine) -> None:
    machine.products = False
    program = contraction("ik,kj->ij", "bf16")
    inputs = {t.name: np.ones(t.shape, numpy_dtype("bf16")) for t in program.of_role("input")}
    document = plan_partitions(program, load_machine("h200x8"), {"product": cut(program.operations[0], 1)}).document
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert found.outputs["y"].astype(float).tolist() == [[56.0] * SIZES["j"]] * 40
    assert set(machine.kernels) == {"general"}
