"""The discrete Fourier transform of blocks: what its kernels compute. A complex number is a pair (real, imaginary).

    X[k] = sum over s of x[s] exp(∓2πi ks / n)        minus forwards, plus inverse; neither is scaled

Of n real numbers the first n // 2 + 1 of X say all: X[n - k] is the conjugate of X[k].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dsl.tensor import Tensor
    from .program import Block, Operation
    from .program import Tensor as Declared


def transformed(x: Any, *, inverse: bool) -> Any:
    """x [.., s, 2] -> [.., k, 2], arrays of NumPy."""
    import numpy as np

    z = x[..., 0] + 1j * x[..., 1]
    return _pairs(np.fft.ifft(z, norm="forward") if inverse else np.fft.fft(z))


def transformed_torch(x: Any, *, inverse: bool) -> Any:
    """x [.., s, 2] -> [.., k, 2], tensors of torch."""
    import torch

    z = torch.view_as_complex(x.contiguous())
    return torch.view_as_real(torch.fft.ifft(z, norm="forward") if inverse else torch.fft.fft(z))


def of_reals(x: Any) -> Any:
    """x [.., s] -> [.., k, 2], arrays of NumPy."""
    import numpy as np

    return _pairs(np.fft.rfft(x))


def of_reals_torch(x: Any) -> Any:
    """x [.., s] -> [.., k, 2], tensors of torch."""
    import torch

    return torch.view_as_real(torch.fft.rfft(x))


def to_reals(x: Any, *, length: int) -> Any:
    """x [.., k, 2] -> [.., s], the inverse, of so many; arrays of NumPy."""
    import numpy as np

    return np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, norm="forward")


def to_reals_torch(x: Any, *, length: int) -> Any:
    """x [.., k, 2] -> [.., s], the inverse, of so many; tensors of torch."""
    import torch

    return torch.fft.irfft(torch.view_as_complex(x.contiguous()), length, norm="forward")


def _pairs(z: Any) -> Any:
    import numpy as np

    return np.stack([z.real, z.imag], axis=-1)


# -- derivatives: the transposed maps ----------------------------------------------------------------------------------


def turned_back(arrived: Tensor, x: Tensor, *, inverse: bool) -> Tensor:  # noqa: ARG001
    """The transposed of a transform is the other one."""
    from .ops.fourier import transform

    return transform(arrived, inverse=not inverse)


def of_reals_back(arrived: Tensor, x: Tensor) -> Tensor:
    """Each pair counts once, where the inverse counts those twice that stand for two."""
    from .ops.fourier import doubled, inverse_to_reals

    return inverse_to_reals(doubled(arrived, x.shape[-1], 0.5), x.shape[-1])


def to_reals_back(arrived: Tensor, x: Tensor, *, length: int) -> Tensor:  # noqa: ARG001
    """Pairs that stand for two count twice."""
    from .ops.fourier import doubled, transform_of_reals

    return doubled(transform_of_reals(arrived), length, 2.0)


# -- what has to hold --------------------------------------------------------------------------------------------------


def fault_of_transform(op: Operation, block: Block, output: Declared) -> str | None:  # noqa: ARG001
    """As many pairs come out as go in."""
    s, c, k, d = _last(op, 4)
    return None if (s, c, d) == (k, 2, 2) else f"fft makes {k} x {d} of {s} x {c}, not of pairs as many"


def fault_of_reals(op: Operation, block: Block, output: Declared) -> str | None:  # noqa: ARG001
    """Half as many pairs come out, and one."""
    s, k, d = _last(op, 3)
    return None if (k, d) == (s // 2 + 1, 2) else f"rfft makes {k} x {d} of {s}, not {s // 2 + 1} x 2"


def fault_to_reals(op: Operation, block: Block, output: Declared) -> str | None:  # noqa: ARG001
    """As many numbers come out as is said, of half as many pairs, and one."""
    k, c, s = _last(op, 3)
    length = block.attrs["length"]
    return None if (k, c, s) == (length // 2 + 1, 2, length) else f"irfft makes {s} of {k} x {c}, asked for {length}"


def _last(op: Operation, count: int) -> list[int]:
    return [dim.extent for dim in op.dims[len(op.dims) - count :]]


def operations(extents: Mapping[str, int]) -> int:
    """Of a transform of "s" numbers: 5 s log2 s, as is usually counted (Frigo and Johnson, FFTW3, 2005)."""
    n = extents["s"]
    return 5 * n * max(1, n.bit_length() - 1)
