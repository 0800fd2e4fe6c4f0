"""Tapestry: tensor programs as block operations with exact index projections.

`import tapestry as tp` costs nothing until a name is used: every public name is loaded from its module at first use
(PEP 562), so that the command line starts without isl, torch or a solver.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# The public names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from .errors import CheckFailed as CheckFailed
    from .errors import Infeasible as Infeasible
    from .errors import TapestryError as TapestryError
    from .errors import TimeLimit as TimeLimit
    from .errors import UsageError as UsageError

_NAMES_OF = {
    "errors": "CheckFailed Infeasible TapestryError TimeLimit UsageError",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
