"""From a program and a machine to a proved plan. Names load at first use, as those of `tapestry` do."""

from importlib import import_module
from typing import TYPE_CHECKING

# The public names, once for the type checker and once for run time; a test holds the two equal.
if TYPE_CHECKING:
    from .machine import Machine as Machine
    from .machine import load_machine as load_machine
    from .machine import machine_names as machine_names
    from .machine import parse_bytes as parse_bytes

_NAMES_OF = {
    "machine": "Machine load_machine machine_names parse_bytes",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
