"""Products other than `matmul` and `einsum`, most of them `einsum` under the names that NumPy and torch give them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from ..dsl.door import door
from ..dsl.tensor import Tensor
from ..dsl.trace import composite
from ..errors import UsageError
from .elementwise import formula
from .linear import einsum, matmul
from .reduction import axis_position
from .views import reshape


def _demand_rank(call: str, rank: int, **operands: Tensor) -> None:
    if any(x.ndim != rank for x in operands.values()):
        raise UsageError(f"{call} takes tensors of {rank} axes", sides={k: repr(x) for k, x in operands.items()})


@door
def outer(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """a[i] * b[j], of flattened tensors."""
    return einsum("i,j->ij", reshape(a, (-1,)), reshape(b, (-1,)), name=name)


@door
def vdot(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """The sum of products of all elements, of tensors with as many elements."""
    return einsum("i,i->", reshape(a, (-1,)), reshape(b, (-1,)), name=name)


@door
def inner(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """The sum of products over the last axis of each, all others kept."""
    if not a.ndim or not b.ndim:
        raise UsageError("inner takes tensors with an axis", sides={"a": repr(a), "b": repr(b)})
    return tensordot(a, b, axes=([-1], [-1]), name=name)


@door
def tensordot(a: Tensor, b: Tensor, axes: int | Sequence[Sequence[int | str]] = 2, *, name: str = "") -> Tensor:
    """The sum of products over the last axes of a and the first of b, or over the pairs of axes given."""
    if isinstance(axes, int):
        folded = [list(range(a.ndim - axes, a.ndim)), list(range(axes))]
    elif len(axes) == 2 and len(axes[0]) == len(axes[1]):
        folded = [[axis_position(x, axis) for axis in own] for x, own in zip((a, b), axes, strict=True)]
    else:
        raise UsageError(f"tensordot(axes={axes!r})", hint="a number of axes, or as many of a as of b")
    if isinstance(axes, int) and not 0 <= axes <= min(a.ndim, b.ndim):
        raise UsageError(f"tensordot folds {axes} axes", sides={"a": repr(a), "b": repr(b)})
    left = ascii_lowercase[: a.ndim]
    right = list(ascii_lowercase[a.ndim : a.ndim + b.ndim].upper())
    for i, j in zip(*folded, strict=True):
        right[j] = left[i]
    kept = [c for k, c in enumerate(left) if k not in folded[0]] + [
        c for k, c in enumerate(right) if k not in folded[1]
    ]
    return einsum(f"{left},{''.join(right)}->{''.join(kept)}", a, b, name=name)


@door
def kron(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """The Kronecker product: out[i r + k, j s + l] = a[i, j] b[k, l], for any one rank."""
    if a.ndim != b.ndim:
        raise UsageError("kron takes tensors of one rank", sides={"a": repr(a), "b": repr(b)})
    left, right = ascii_lowercase[: a.ndim], ascii_lowercase[a.ndim : 2 * a.ndim]
    pairs = "".join(i + j for i, j in zip(left, right, strict=True))
    apart = einsum(f"{left},{right}->{pairs}", a, b, name=name)
    return reshape(apart, [n * m for n, m in zip(a.shape, b.shape, strict=True)])


@door
def bmm(a: Tensor, b: Tensor, *, name: str = "") -> Tensor:
    """Products of batches of matrices: a [n, i, k], b [n, k, j] -> [n, i, j]."""
    _demand_rank("bmm", 3, a=a, b=b)
    return einsum("nik,nkj->nij", a, b, name=name)


@door
@composite
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, name: str = "") -> Tensor:
    """x [.., i], weight [o, i], bias [o] -> [.., o]: x times the transposed weight, plus the bias."""
    _demand_rank("linear", 2, weight=weight)
    product = matmul(x, weight.T)
    return product if bias is None else product + bias


@door
@composite
def addmm(c: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1, name: str = "") -> Tensor:
    """beta c + alpha a b."""
    return formula("add", lambda c, product: beta * c + alpha * product, c, matmul(a, b))


@door
@composite
def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None, *, name: str = "") -> Tensor:
    """out[.., o] = sum over i, j of x[.., i] weight[o, i, j] y[.., j], plus bias[o]."""
    _demand_rank("bilinear", 3, weight=weight)
    product = einsum("...i,oij,...j->...o", x, weight, y)
    return product if bias is None else product + bias


@door
@composite
def cross(a: Tensor, b: Tensor, axis: int | str = -1, *, name: str = "") -> Tensor:
    """The vector product along an axis of extent 3, of tensors of one shape."""
    from .arranging import roll

    k = axis_position(a, axis)
    if a.shape != b.shape or a.shape[k] != 3:
        raise UsageError("cross takes tensors of one shape and an axis of extent 3", sides={"a": repr(a), "b": repr(b)})
    return formula("cross", lambda p, q, r, s: p * q - r * s, roll(a, -1, k), roll(b, -2, k), roll(a, -2, k),
                   roll(b, -1, k))  # fmt: skip
