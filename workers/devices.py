"""Devices by name: every folder of this package with a module ``device`` is one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ..errors import UsageError, close_match
from .device import Device

# What computes where nothing else is asked for: it needs no hardware.
DEFAULT = "numpy"

_registered: dict[str, str] = {}


def register_device(name: str, place: str) -> None:
    """Make a device of another package known: ``place`` is "module:Class". Ranks of other processes import it too."""
    _registered[name] = place


def device_names() -> list[str]:
    """All devices there are, whether or not this machine can run them."""
    package = import_module(__package__)
    folders = [found.name for found in iter_modules(package.__path__) if found.ispkg]
    own = [
        name
        for name in folders
        if any(found.name == "device" for path in package.__path__ for found in iter_modules([f"{path}/{name}"]))
    ]
    return sorted({*own, *_registered})


def device_place(name: str) -> str:
    """Where the class of a device is, as "module:Class", which is a name of it as well. UsageError if there is none."""
    if ":" in name:
        return name
    if name in _registered:
        return _registered[name]
    known = device_names()
    if name not in known:
        raise UsageError(
            f"there is no device {name!r}",
            sides={"there is": ", ".join(known)},
            hint=close_match(name, known) or "plans for other devices can be checked, simulated and drawn without one",
        )
    return f"{__package__}.{name}.device:DEVICE"


def open_device(name: str) -> Device:
    """A device for the ranks of this process. UsageError if there is none of that name."""
    module, _, attribute = device_place(name).partition(":")
    try:
        made = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the device {name!r} cannot be loaded: {error}") from error
    if not isinstance(made, Device):
        raise UsageError(f"{name!r} is no device", hint="it has to be a subclass of tapestry.workers.Device")
    return made
