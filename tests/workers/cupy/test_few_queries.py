"""Attention of few queries, whose keys many blocks share, by a kernel that runs on the host."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.dtypes import numpy_dtype
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.few_queries import Limit, all_few, few_queries
from tapestry.workers.cupy.machine import Attention, Heads, Keys

from ...kernels.elementwise.host import needs_compiler
from .host_arrays import host_bytes
from .host_machine import HostMachine

# batches, rows, heads, groups, width; the parts of the keys; keys that the data let be seen
CASES = {
    "one query, four heads a group": (1, 1, 8, 2, 128, (Keys(0, 300, False),), None),
    "one of the data's first keys": (1, 1, 4, 1, 64, (Keys(0, 300, False),), 151),
    "a limit beyond the keys": (2, 1, 2, 2, 64, (Keys(0, 100, False),), 4000),
    "some rows, each a key more": (1, 3, 4, 2, 64, (Keys(0, 150, False), Keys(150, 3, True)), None),
    "more heads than a block has": (1, 1, 16, 1, 64, (Keys(0, 90, False),), None),
    "fewer keys than threads": (1, 2, 2, 1, 128, (Keys(0, 5, False),), None),
}


def held(machine: HostMachine, values: np.ndarray, dtype: str) -> DeviceArray:
    kind = numpy_dtype(dtype)
    found = DeviceArray(machine.memory("", values.size * kind.itemsize), 0, values.shape, kind)
    host_bytes(found)[...] = values.astype(kind).reshape(-1).view(np.uint8)
    return found


def attention(machine: HostMachine, name: str, *, finished: bool) -> tuple[Attention, dict[str, np.ndarray]]:
    """Vectors [batch, row, head, element], drawn."""
    b, rows, heads, groups, width, parts, _ = CASES[name]
    rng, keys = np.random.default_rng(0), sum(part.count for part in parts)
    shapes = {"q": (b, rows, heads, width), "k": (b, keys, groups, width), "v": (b, keys, groups, width)}
    drawn = {side: rng.normal(size=shape).astype(numpy_dtype("bf16")) for side, shape in shapes.items()}
    sides = {
        side: Heads(held(machine, values, "bf16"), 0, *(int(np.prod(values.shape[k:])) for k in (1, 2, 3)))
        for side, values in drawn.items()
    }
    columns = width if finished else width + 2
    nothing = np.zeros((b, rows, heads, columns))
    out = Heads(
        held(machine, nothing, "bf16" if finished else "f32"), 0, rows * heads * columns, heads * columns, columns
    )
    made = Attention(sides["q"], sides["k"], sides["v"], out, b, rows, heads, groups, width, 0.125, parts, finished)
    return made, {side: values.astype(np.float64) for side, values in drawn.items()}


def expected(name: str, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the weights make of the values, and the logs of the weights' sums."""
    _, rows, heads, groups, _, parts, limit = CASES[name]
    k, v = (np.repeat(x, heads // groups, axis=2) for x in (k, v))
    scores = 0.125 * np.einsum("bthe,bshe->bhts", q, k)
    keys = scores.shape[-1]
    for t in range(rows):
        sees = keys - (rows - 1 - t if parts[-1].causal else 0)
        scores[:, :, t, min(sees, keys if limit is None else limit) :] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = np.einsum("bhts,bshe->bthe", weights / weights.sum(axis=-1, keepdims=True), v)
    logs = np.log(weights.sum(axis=-1)) + scores.max(axis=-1)
    return found, logs.swapaxes(1, 2)


@needs_compiler
@pytest.mark.parametrize("finished", [False, True])
def test_blocks_share_keys_and_fold_what_they_found(monkeypatch: pytest.MonkeyPatch, *, finished: bool) -> None:
    machine = HostMachine()
    runs = []
    for name, processors in product(CASES, (1, 12)):
        monkeypatch.setattr(HostMachine, "multiprocessors", processors)
        made, drawn = attention(machine, name, finished=finished)
        limit = CASES[name][-1]
        where = None if limit is None else Limit(held(machine, np.array([0, limit - 3]), "int32"), 1, 3)
        assert all_few([made])
        kernel = few_queries(machine, made, lambda size, dtype: machine.zeros(size, dtype), where)
        runs.append((name, made, drawn, machine.launch(kernel.unit, kernel.arrays)))
    for name, made, drawn, run in runs:
        wanted, logs = expected(name, **drawn)
        for _ in range(2):  # counters are as they were
            host_bytes(made.state.array)[...] = 0xFF
            run()
            found = host_bytes(made.state.array).view(made.state.array.dtype).reshape(made.state.array.shape)
            found = found.astype(np.float64)
            if not finished:
                found, total, most = np.split(found, [made.width, made.width + 1], axis=-1)
                np.testing.assert_allclose((np.log(total) + most)[..., 0], logs, rtol=1e-4, atol=1e-4)
                found = found / total
            np.testing.assert_allclose(found, wanted, atol=6e-3 if finished else 1e-4, err_msg=name)


def test_what_is_not_for_the_kernel() -> None:
    """Many rows, a result over a part of an operand, vectors that are not aligned."""
    made, _ = attention(HostMachine(), "one query, four heads a group", finished=True)
    assert all_few([made])
    assert not all_few([replace(made, rows=16)])
    assert not all_few([replace(made, state=made.key)])
    assert not all_few([made, replace(made, query=replace(made.query, offset=4))])


@tp.program
def one_query(q: bf16[Tensor, "t=1 h e=64"], k: bf16[Tensor, "s g e"], v: bf16[Tensor, "s g e"]) -> Tensor:
    return tp.attention(q, k, v)


@needs_compiler
def test_a_plan_with_one_query_asks_for_it(machine: HostMachine) -> None:
    program = one_query.bind(h=4, g=2, s=300)
    made, inputs = plan(program, "h200x2", mesh=(1,), time_limit=20), random_inputs(program, 3)
    found = made.run(inputs, device="on_host")
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert machine.kernels[0] == "few"
