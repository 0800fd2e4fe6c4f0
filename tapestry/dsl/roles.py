"""``param`` and ``state``: annotations of a program's parameters, and declarations inside its body.

def net(w: param[f32[Tensor, "k c"]]) -> Tensor: ...         # as an annotation
w = tp.param("layers.0.w", "f32", (k, c), axes=("k", "c"))   # as a call, in a loop over layers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..program import Role
from .annotations import Spec
from .declare import declare
from .tensor import Tensor

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import TypeVar

    T = TypeVar("T", default=Tensor)

    # To a type checker both uses give a kind of Tensor.
    class param(Tensor, Generic[T]):  # noqa: N801
        def __init__(self, name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None = None) -> None: ...

    class state(Tensor, Generic[T]):  # noqa: N801
        def __init__(self, name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None = None) -> None: ...

else:

    class _Declared:
        """A role: ``role[spec]`` annotates, ``role(name, dtype, shape)`` declares."""

        def __init__(self, role: Role) -> None:
            self.role = role

        def __getitem__(self, spec: Any) -> Spec:
            if not isinstance(spec, Spec):
                raise UsageError(f"{self.role}[...] wraps {spec!r}", hint=f'write {self.role}[f32[Tensor, "n c"]]')
            return replace(spec, role=self.role)

        def __call__(self, name: str, dtype: str, shape: Sequence[int], axes: Sequence[str] | None = None) -> Tensor:
            return declare(self.role, name, dtype, shape, axes)

        def __repr__(self) -> str:
            return self.role

    param, state = _Declared("param"), _Declared("state")
