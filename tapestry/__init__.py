"""Tapestry: tensor programs as block operations with exact index projections.

`import tapestry as tp` costs nothing until a name is used: every public name is loaded from its module at first use,
so that the command line starts without isl, torch or a solver.
"""

from typing import TYPE_CHECKING

from .lazy import lazy_names

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

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [name for names in _NAMES_OF.values() for name in names.split()]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
