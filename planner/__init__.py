"""From a program and a machine to a proved plan. Names load at first use, as those of `tapestry` do."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

# The public names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from .interface import Plan as Plan
    from .interface import load_plan as load_plan
    from .interface import plan as plan
    from .machine import Machine as Machine
    from .machine import load_machine as load_machine
    from .machine import machine_names as machine_names
    from .machine import parse_bytes as parse_bytes
    from .search.ready import operation_seconds as operation_seconds

_NAMES_OF = {
    "interface": "Plan load_plan plan",
    "machine": "Machine load_machine machine_names parse_bytes",
    "search.ready": "operation_seconds",
}

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [name for names in _NAMES_OF.values() for name in names.split()]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
