"""Names that load their module at first use (PEP 562), so that importing a package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, names_of: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, from submodule -> its public names, separated by blanks.

    The names of "" are submodules themselves.
    """
    module_of = {name: module for module, names in names_of.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in module_of:
            raise _unknown(package, name, listed())
        module = module_of[name]
        value = getattr(import_module(f".{module}", package), name) if module else import_module(f".{name}", package)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return load, listed


def _unknown(package: str, name: str, known: list[str]) -> AttributeError:
    """The error of a name that a package does not have; of the user's package, with the names like it."""
    if "." in package or name.startswith("_"):
        return AttributeError(f"module {package!r} has no attribute {name!r}")
    from difflib import get_close_matches

    from .errors import NoSuchAttribute

    public = {one.lower(): one for one in known if not one.startswith("_")}
    near = [f"tp.{public[one]}" for one in get_close_matches(name.lower(), public)]
    return NoSuchAttribute(
        f"{package} has no attribute {name!r}", hint=f"did you mean {' or '.join(near)}?" if near else None
    )
