"""Generated programs: their gradients beside those that torch takes of the same program said point by point.

Integers become f32 where they meet functions of floats: such programs agree to that, all others to f64.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.autodiff.backward import axis_names, cotangents
from tapestry.dsl.tensor import Tensor, base_at
from tapestry.dsl.trace import OpDraft, Trace, named, tracing
from tapestry.dtypes import DTYPES
from tapestry.expr import MONOIDS
from tapestry.program import Block, Operation, Program
from tapestry.reference import evaluate
from tapestry.testing import inputs_for, programs
from tapestry.testing.widening import in_f64
from tapestry.verify import verify

from . import torch_meaning

pytestmark = pytest.mark.long


def differentiable(program: Program) -> bool:
    """Every fold to a float has a derivative; integers are not folded over triangles: torch lacks their identity."""
    return all(map(partial(_differentiable, program), program.operations))


def _differentiable(program: Program, op: Operation) -> bool:
    if op.monoid is None or isinstance(op.body, Block) or MONOIDS[op.monoid].derivative:
        return True
    return DTYPES[program.tensor(op.output).dtype].kind != "float" and not op.where


def weights_of(program: Program) -> dict[str, np.ndarray]:
    """What each float output counts for in the loss."""
    floats = [name for name in program.outputs if program.tensor(name).dtype == "f64"]
    return {
        name: np.cos(1.0 + np.arange(program.tensor(name).size)).reshape(program.tensor(name).shape) for name in floats
    }


def replayed(trace: Trace, program: Program) -> dict[str, Tensor]:
    """Adds the tensors and operations of a bound program to a trace; the handles by name."""
    found: dict[str, Tensor] = {}
    for tensor in program.tensors:
        axes = axis_names(tensor)
        found[tensor.name] = trace.add_tensor(tensor.name, tensor.dtype, tensor.shape, axes, tensor.role, tensor.data)
    keys = {name: handle.key for name, handle in found.items()}
    trace.ops += [OpDraft(named(op, op.name, keys), op.name) for op in program.operations]
    return found


def gradient_program(program: Program) -> tuple[Program, list[str]]:
    """The program with the gradient of its weighted outputs along every float that comes in."""
    trace = Trace("gradient", "gradient (generated)")
    with tracing(trace):
        handles = replayed(trace, program)
        terms = [tp.sum(handles[name] * tp.constant(w, "f64")) for name, w in weights_of(program).items()]
        loss = terms[0]
        for term in terms[1:]:
            loss = loss + term
        names = [t.name for t in program.of_role("input", "param", "state") if t.dtype == "f64"]
        found = cotangents(trace, [d.operation for d in trace.ops], loss.key, [handles[name].key for name in names])
        records = {name: trace.tensors[found[handles[name].key]].record for name in names}
        grads = {
            f"grad.{name}": Tensor(trace, r.shape, r.dtype, r.axes, base_at(r.name), r.name)
            for name, r in records.items()
        }
        made = trace.finish({"loss_of_it": loss, **grads}, {}, {})
    verify(made)
    return made, names


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(programs(), st.data())
def test_gradients_are_those_of_torch(drawn: Program, data: st.DataObject) -> None:
    program = in_f64(drawn)
    assume(differentiable(program) and weights_of(program))
    made, names = gradient_program(program)
    assume(names)
    inputs = {name: np.asarray(x, dtype=np.float64) if program.tensor(name).dtype == "f64" else x
              for name, x in data.draw(inputs_for(program)).items()}  # fmt: skip
    leaves = {name: torch.tensor(x, requires_grad=name in names) for name, x in inputs.items()}
    values = torch_meaning.outputs(program, leaves)
    loss = sum((values[name] * torch.tensor(w)).sum() for name, w in weights_of(program).items())
    assume(isinstance(loss, torch.Tensor) and bool(torch.isfinite(loss)))
    if loss.requires_grad:
        loss.backward()
    found = evaluate(made, inputs)
    for name in names:
        grad = leaves[name].grad
        wanted = np.zeros(leaves[name].shape) if grad is None else grad.numpy()
        if np.isfinite(wanted).all():
            close = 1e-9 if all(tensor.dtype == "f64" for tensor in program.tensors) else 1e-5
            atol = close * (1 + np.abs(wanted).max(initial=0))
            np.testing.assert_allclose(found[f"grad.{name}"], wanted, rtol=close, atol=atol)
