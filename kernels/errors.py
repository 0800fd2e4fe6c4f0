"""What a kernel refuses: what was expected, what came, and what to do about it.

    WrongLayout: conv2d: x is not channels-last
      expected   strides (100352, 3584, 128, 2) bytes for shape (8, 28, 28, 64)
      came       strides (100352, 56, 2, 1568)
      hint       ...

Each kind is a `TapestryError`, worded and printed as all of them, and also the built-in exception a caller would look
for (`TypeError`, `ValueError`, `RuntimeError`).

>>> print(WrongDtype("x has the wrong dtype", where="conv2d", expected="f16 or bf16", came="f64"))
conv2d: x has the wrong dtype
  expected   f16 or bf16
  came       f64
"""

from __future__ import annotations

from ..errors import TapestryError


class KernelError(TapestryError):
    """A kernel cannot be built or called as asked. `where` names the function or kernel and the argument."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = None,
        came: object = None,
        hint: str | None = None,
    ) -> None:
        sides = {"expected": expected, "came": came}
        given = {label: side for label, side in sides.items() if side is not None}
        super().__init__(what, where=where, sides=given, hint=hint)

    @property
    def expected(self) -> object:
        """What would have been right, or None where nothing was said."""
        return self.sides.get("expected")

    @property
    def came(self) -> object:
        """What was there instead, or None where nothing was said."""
        return self.sides.get("came")


class WrongDtype(KernelError, TypeError):
    """An array's element type is not one the kernel takes."""


class WrongType(KernelError, TypeError):
    """An argument is not the kind of object that is wanted: no array, no stream, too few arguments."""


class WrongShape(KernelError, ValueError):
    """Extents that do not fit one another or the operation."""


class WrongLayout(KernelError, ValueError):
    """Strides or an alignment the kernel cannot read."""


class WrongDevice(KernelError, ValueError):
    """An array that is in host memory, or on another GPU than the rest."""


class WrongValue(KernelError, ValueError):
    """A number or a word outside what is allowed."""


class TooLarge(KernelError, ValueError):
    """More elements, bytes or threads than the kernel can address."""


class Unavailable(KernelError, RuntimeError):
    """Something this machine does not have. Nothing was computed."""


class MissingCuPy(Unavailable, ImportError):
    """CuPy is not installed, or cannot be imported."""


class MissingNVRTC(Unavailable, ImportError):
    """The run-time compiler's library is not there."""


class MissingDriver(Unavailable, OSError):
    """The NVIDIA driver's library (libcuda) is not there, or too old."""


class MissingGPU(Unavailable):
    """There is a driver, perhaps, but no GPU that can be used."""


class CompileError(KernelError, RuntimeError):
    """The run-time compiler refused a kernel. `log` is all it said, `source` what it was given."""

    def __init__(self, what: str, *, where: str | None = None, log: str = "", source: str = "") -> None:
        super().__init__(what, where=where)
        self.log, self.source = log, source


class LaunchError(KernelError, RuntimeError):
    """The driver refused to load or to launch a kernel."""
