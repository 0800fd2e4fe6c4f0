"""What an operation is held to: its text, its shards, its adjoint, and what others make of the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ...autodiff.gradient import value_and_grad
from ...dsl.declare import input as declare
from ...dsl.program import ProgramFunction
from ...dsl.program import program as program_function
from ...dtypes import DTYPES, name_of
from ...ops.reduction import sum as total
from ...program import Program
from ...reading import constants_of, parse
from ...reference import evaluate
from ...testing import assert_close, partitions, program_of
from ..machine import load_machine
from ..search.explicit import plan_partitions

Array = NDArray[Any]
Operation = Callable[..., Any]
Proof = Literal["oracle", "torch", "text", "shards", "differences"]
PROOFS: tuple[Proof, ...] = ("oracle", "torch", "text", "shards", "differences")

STEP = 1e-5
"""Of a difference quotient in f64: its own error is of the order of the square of this."""
WITHIN = 1e-6
RANKS = 4

_QUIET = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]
)


def check_operation(
    operation: Operation,
    *arrays: Array,
    oracle: Operation | None = None,
    torch: Operation | None = None,
    within: float = 1e-12,
    proofs: Sequence[Proof] = PROOFS,
    examples: int = 3,
) -> None:
    """Prove an operation, a function of tensors, on arrays; AssertionError with its program where it is wrong.

    oracle       it computes what ``oracle`` makes of the arrays, ``within`` so much relative to the largest value
    torch        it computes what ``torch`` makes of torch's tensors, and so does its gradient along every array of f64
    text         its program is read back from what it prints
    shards       cut over ranks in ``examples`` ways, and run, it computes what it does whole
    differences  its gradient along a direction is the quotient of differences in that direction, for arrays of f64

    The arrays are to be away from where the operation has no derivative. Those of integers have no gradient, and are
    held to the rest. UsageError where a gradient is asked for and there is none: leave these ``proofs`` out.

    >>> import numpy as np, tapestry as tp
    >>> check_operation(lambda x: tp.exp(x) * x, np.linspace(-1, 1, 6), oracle=lambda x: np.exp(x) * x)
    """
    inputs = {f"x{k}": np.asarray(array) for k, array in enumerate(arrays)}
    program = program_of(operation, **inputs)
    if oracle is not None and "oracle" in proofs:
        _demand_results(program, evaluate(program, inputs), _results(oracle(*inputs.values())), within)
    if torch is not None and "torch" in proofs:
        _beside_torch(program, operation, inputs, torch, within)
    if "text" in proofs:
        assert parse(str(program), constants=constants_of(program)) == program, (
            f"the text of the program is read back as another\n{program}"
        )
    if "shards" in proofs:
        _cut(program, inputs, examples)
    if "differences" in proofs:
        _along(operation, inputs, _slopes(program, inputs))


def _listed(program: Program) -> Program:
    """The program with its tensors by name: their order is no part of its text."""
    return replace(program, tensors=tuple(sorted(program.tensors, key=lambda tensor: tensor.name)))


def _slopes(program: Program, inputs: Mapping[str, Array]) -> list[str]:
    """The arrays of f64, along which an operation of some float result has a gradient."""
    smooth = any(DTYPES[program.tensor(name).dtype].kind == "float" for name in program.outputs)
    return [name for name, array in inputs.items() if smooth and name_of(array.dtype) == "f64"]


def _demand_results(program: Program, found: Mapping[str, Array], want: Sequence[Any], within: float) -> None:
    """The outputs of a program are those values, one after another."""
    assert len(want) == len(program.outputs), f"{len(program.outputs)} results, not {len(want)}\n{program}"
    for name, value in zip(program.outputs, want, strict=True):
        _demand_near(program, name, found[name], np.asarray(value), within)


def _beside_torch(
    program: Program, operation: Operation, inputs: Mapping[str, Array], oracle: Operation, within: float
) -> None:
    """Values and gradients are torch's."""
    import torch

    names = _slopes(program, inputs)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
    for name in names:
        tensors[name].requires_grad_()
    want = _results(oracle(*tensors.values()))
    _demand_results(program, evaluate(program, inputs), [one.detach().numpy() for one in want], within)
    if names:
        loss = _weighed([one for one in want if one.is_floating_point()], torch.sum)
        made = value_and_grad(_loss(operation, inputs), wrt=names).bind()
        found, slopes = evaluate(made, inputs), torch.autograd.grad(loss, [tensors[name] for name in names])
        for name, slope in zip(names, slopes, strict=True):
            _demand_near(made, f"grad.{name}", found[f"grad.{name}"], slope.numpy(), 100 * within)


def _results(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _demand_near(program: Program, name: str, found: Array, want: Array, within: float) -> None:
    assert found.shape == want.shape, f"{name} has the shape {found.shape}, not {want.shape}\n{program}"
    near = np.isclose(found, want, rtol=within, atol=within * float(np.abs(want).max(initial=0)), equal_nan=True)
    if not near.all():
        at = tuple(int(k) for k in np.argwhere(~near)[0])
        raise AssertionError(f"{name}: element {at} is {found[at]}, not {want[at]}\n{program}")


def _cut(program: Program, inputs: Mapping[str, Array], examples: int) -> None:
    """Over ranks in drawn ways."""
    machine = load_machine("cpu-4")
    want = evaluate(program, inputs)

    def execute(data: st.DataObject) -> None:
        shards = data.draw(partitions(program, data.draw(st.integers(2, RANKS))))
        made = plan_partitions(program, machine, shards)
        try:
            assert_close(program, inputs, made.run(inputs).outputs, want)
        except AssertionError as error:
            raise AssertionError(f"cut over ranks it computes something else: {error}\n{program}\n{made}") from None

    settings(_QUIET, max_examples=examples)(given(st.data())(execute))()


def _loss(operation: Operation, inputs: Mapping[str, Array]) -> ProgramFunction:
    """One number made of all float results."""

    def weighed() -> Any:
        found = _results(operation(*(declare(n, name_of(a.dtype), a.shape) for n, a in inputs.items())))
        return _weighed([one for one in found if DTYPES[one.dtype].kind == "float"], total)

    return program_function(weighed)


def _weighed(results: Sequence[Any], total: Callable[[Any], Any]) -> Any:
    """The sum of all results, each element weighed by what sets it apart."""
    parts = [total(one * one) * float(np.sqrt(2 + k)) + total(one) * 0.5 for k, one in enumerate(results)]
    return sum(parts[1:], parts[0])


def _along(operation: Operation, inputs: Mapping[str, Array], names: Sequence[str]) -> None:
    """The gradient along a direction of each of some inputs beside quotients of differences."""
    if not names:
        return
    made = value_and_grad(_loss(operation, inputs), wrt=names).bind()
    found = evaluate(made, inputs)
    rng = np.random.default_rng(0)
    for name in names:
        way = rng.uniform(-1, 1, inputs[name].shape)
        ends = [evaluate(made, {**inputs, name: inputs[name] + sign * STEP * way})["value"] for sign in (1, -1)]
        quotient = (float(ends[0]) - float(ends[1])) / (2 * STEP)
        slope = float((found[f"grad.{name}"] * way).sum())
        size = max(abs(quotient), float(np.abs(found[f"grad.{name}"] * way).sum()), abs(float(found["value"])) * STEP)
        if not abs(slope - quotient) <= WITHIN * size + 1e-9:
            what = f"the gradient along {name} is {slope:.9g} in a direction in which differences say {quotient:.9g}"
            raise AssertionError(f"{what}\n{made}")
