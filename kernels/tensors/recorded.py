"""Autograd of operators, and the way past it for calls of which nothing is recorded.

Autograd's function of an operator is Python, and so is what it calls for CUDA tensors. Where no gradients are recorded,
as in torch.compile's graphs, plain tensors go straight to the latter: half of what a call takes of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from ..errors import WrongValue

_torch: Any = torch  # what is not typed by torch
Kernel = Callable[..., Any]


def no_second_derivative(layer: str, swap: str) -> WrongValue:
    """What is wrong where gradients of the gradients of layers are asked for that ``swap`` put in."""
    return WrongValue(
        f"gradients of a fused {layer}'s gradients are not computed",
        where=swap,
        expected="a first derivative, without create_graph",
        hint=f"leave the model's {layer}s to torch: do not call {swap} on it",
    )


def alias(x: Tensor) -> Tensor:
    """x for a graph that is made and differentiated within a backward pass: what hooks hang on x are set off once,
    by who asked for that.
    """
    return x.view_as(x)


def unrecorded(library: Any, name: str, on_cpu: Kernel, on_cuda: Kernel, fake: Kernel) -> None:
    """An operator of `library` that autograd passes by, as are those below others in the graphs of torch.compile."""
    library.impl(name, on_cpu, "CPU")
    library.impl(name, on_cuda, "CUDA")
    library.impl(name, _torch.library.fallthrough_kernel, "Autograd")
    _torch.library.register_fake(f"tapestry::{name}", fake, lib=library)


def applied(function: type[torch.autograd.Function]) -> Kernel:
    """`function.apply` without its look at transforms, of which callers know that there are none.

    In a function, as a module that says `super` at its top has no method's `super()` in the form that torch.compile
    follows, from Python 3.12 on: layers of such a module break a graph in two.
    """
    made: Kernel = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return made


class _Below:
    """An operator as autograd knows it, which below autograd is another: in graphs that torch.compile makes, too."""

    def __init__(self, operator: Any, redispatch: Kernel) -> None:
        self._operator, self.redispatch = operator, redispatch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def _first_of(kernel: Kernel, count: int) -> Kernel:
    def first(keys: Any, *given: Any) -> Any:
        result = kernel(keys, *given)
        if not isinstance(result, tuple):
            return result
        return result[0] if count == 1 else result[:count]

    return first


def _transformable(kernel: Kernel, by_torch: Kernel) -> Kernel:
    """A kernel of autograd's, and another where autograd's functions drop tangents or are refused."""

    def run(keys: Any, *given: Any) -> Any:
        elsewise = forward_ad._current_level >= 0 or _torch._C._are_functorch_transforms_active()
        return by_torch(*given) if elsewise else kernel(keys, *given)

    return run


class Recorded:
    """An operator of `library`, what computes it `on_cuda`, and its gradient, as `torch.library` takes them.

    `below` is called, as `OpOverload.redispatch` is, for what is to be below autograd in the operator's place. Of a
    tuple that it gives the first are the operator's results, and all of it is what `save` is told. `by_torch` computes
    the same by functions that torch differentiates forward, too, and under its transforms.
    """

    def __init__(
        self,
        library: Any,
        name: str,
        on_cuda: Kernel,
        backward: Kernel,
        save: Kernel | None,
        below: Kernel | None = None,
        by_torch: Kernel | None = None,
    ) -> None:
        self.library, self.name, self.on_cuda = library, name, on_cuda
        library.impl(name, on_cuda, "CUDA")
        operator = getattr(torch.ops.tapestry, name).default
        seen: Any = _Below(operator, below) if below else operator
        made: Kernel = make_autograd_impl(seen, Info(backward, save))
        made = _first_of(made, len(operator._schema.returns)) if below else made
        self.kernel = _transformable(made, by_torch) if by_torch else made
        library.impl(name, self.kernel, "Autograd", with_keyset=True)

    def only_if_needed(self, plain: Callable[..., bool]) -> None:
        """Go past it where nothing is recorded of `plain` tensors; the first two operands are asked."""
        recorded, on_cuda = self.kernel, self.on_cuda

        def run(keys: Any, first: Any, second: Any, *rest: Any) -> Any:
            if torch.is_grad_enabled() or not (plain(first) if second is None else plain(first, second)):
                return recorded(keys, first, second, *rest)
            return on_cuda(first, second, *rest)

        self.library.impl(self.name, run, "AutogradCUDA", with_keyset=True)
