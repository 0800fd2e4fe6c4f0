"""What the functions of `tapestry.kernels.torch` are given, looked at before anything is done with it."""

from __future__ import annotations

from inspect import isclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from ..errors import WrongDtype, WrongType


def check_model(model: Any, where: str) -> None:
    """Raises `WrongType` for what is no model."""
    if not isinstance(model, nn.Module):
        raise WrongType(
            "not a model", where=where, expected="a torch.nn.Module",
            came=f"the class {model.__name__}" if isclass(model) else f"{type(model).__name__} {model!r:.60}",
            hint=f"make one first: {where}({model.__name__}(...))" if isclass(model) else None,
        )  # fmt: skip


def check_example(example: Any, where: str) -> None:
    """Raises `WrongType` for an example input without a tensor."""
    if not any(isinstance(value, Tensor) for value in tree_iter(example)):
        raise WrongType(
            "no tensor in the example", where=where,
            expected="what the model is called with: a tensor, or a tuple of arguments",
            came=f"{type(example).__name__} {example!r:.60}",
        )  # fmt: skip


def check_floats(dtype: Any, where: str) -> None:
    """Raises `WrongDtype` for what is no type of floating-point numbers."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise WrongDtype(
            "no type that a model can be of", where=where, expected="torch.bfloat16, torch.float16 or torch.float32",
            came=repr(dtype),
        )  # fmt: skip
