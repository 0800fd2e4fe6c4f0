"""`conv2d` under the transforms of torch.func, whose own convolution is held beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from tapestry.kernels.torch import conv2d

MOVED: dict[str, Any] = {"stride": 2, "padding": 1, "groups": 4}
Function = Callable[..., Tensor]


def summed(function: Function) -> Function:
    return lambda *given: function(*given).sin().sum()


def drawn(seed: int, one: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Images, a filter and a bias; or `one` image of one pixel, whose strides are no order."""
    random = torch.Generator().manual_seed(seed)
    shape = (1, 8, 1, 1) if one else (2, 8, 5, 6)
    x, w, b = (torch.randn(of, generator=random, dtype=torch.float64) for of in (shape, (8, 2, 3, 3), (8,)))
    return x, w, b


ASKED: dict[str, Callable[[Function, tuple[Tensor, ...], tuple[Tensor, ...]], Any]] = {
    "jvp": jvp,
    "twice forward": lambda f, at, by: jvp(lambda *given: jvp(f, given, by)[1], at, by),
    "forward over backward": lambda f, at, by: jvp(grad(summed(f), argnums=(0, 1, 2)), at, by),
    "backward over forward": lambda f, at, by: grad(
        lambda *given: jvp(summed(f), given, by)[1], argnums=(0, 1, 2)
    )(*at),
    "jacfwd": lambda f, at, _: jacfwd(f, argnums=(1, 2))(*at),
    "jacrev": lambda f, at, _: jacrev(f, argnums=(1, 2))(*at),
    "hessian": lambda f, at, _: hessian(summed(f), argnums=1)(*at),
    "a gradient an image": lambda f, at, _: vmap(
        grad(lambda w, b, image: summed(f)(image[None], w, b), argnums=(0, 1)), in_dims=(None, None, 0)
    )(*at[1:], at[0]),
    "a filter an image": lambda f, at, _: vmap(lambda image, by: f(image[None], at[1] * by, at[2]))(
        at[0], torch.arange(1.0, 1 + len(at[0]))
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # which torch's forward derivatives are
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("asked", ASKED)
def test_transforms(asked: str, one: bool) -> None:
    at, by = drawn(1, one), drawn(2, one)
    ours, theirs = partial(conv2d, **MOVED), partial(torch.conv2d, **MOVED)
    found, expected = (torch.utils._pytree.tree_leaves(ASKED[asked](each, at, by)) for each in (ours, theirs))
    assert found
    assert any(bool(each.any()) for each in expected)
    torch.testing.assert_close(found, expected)
