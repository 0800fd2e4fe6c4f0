"""Devices by name: every folder of this package with a module ``device`` is one.

`AUTO` stands for the device that computes where the plan's machine does (`Device.computes_in`) and that this computer
has; for the NumPy device where there is none, which runs every plan.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ..errors import UsageError, close_match
from .device import Device

AUTO = "auto"
_NEEDS_NOTHING = "numpy"

_registered: dict[str, str] = {}


def register_device(name: str, place: str) -> None:
    """Make a device of another package known: ``place`` is "module:Class". Ranks of other processes import it too."""
    _registered[name] = place


def device_names() -> list[str]:
    """All devices there are, whether or not this machine can run them."""
    return sorted({*_own(), *_registered})


@cache
def _own() -> tuple[str, ...]:
    """Those of this package, whose folders are looked through once: every run asks."""
    package = import_module(__package__)
    folders = [found.name for found in iter_modules(package.__path__) if found.ispkg]
    return tuple(
        name
        for name in folders
        if any(found.name == "device" for path in package.__path__ for found in iter_modules([f"{path}/{name}"]))
    )


def chosen_device(name: str, machine: Mapping[str, Any]) -> str:
    """The name itself, or what `AUTO` stands for where a plan is for a machine (as its document describes it)."""
    if name != AUTO:
        return name
    tier = machine["device"]["tiers"][0]["name"]
    fitting = [own for own in _own() if own != _NEEDS_NOTHING and _fits(own, tier)]
    return fitting[0] if fitting else _NEEDS_NOTHING


def _fits(name: str, tier: str) -> bool:
    """Whether a device computes in such a tier, and can here."""
    try:
        found = _class(name)
    except UsageError:  # what it is made of is not installed
        return False
    return found.computes_in == tier and found.present()


class OtherHardware(UserWarning):
    """A plan was made for other hardware than it runs on: values are the same, times are not what was predicted."""


def warn_of_other_hardware(name: str, machine: Mapping[str, Any]) -> None:
    """`OtherHardware` where a device is not what a plan was made for (its machine as its document describes it)."""
    found, planned = device_class(name), machine["device"]["name"]
    here = found.model() if found.present() else None
    if here is not None and _number_of(here) != _number_of(planned):
        text = (
            f"the plan was made for {planned!r}, and this is {here!r}: it gives the same values, but nothing that was"
        )
        hint = "`tapestry machine probe` describes this computer, to plan for it"
        warnings.warn(OtherHardware(f"{text} predicted of its times holds ({hint})"), stacklevel=3)


def _number_of(name: str) -> str:
    """What tells models apart: of "NVIDIA H100 80GB HBM3" "h100", the first word with a digit."""
    words = re.findall(r"[a-z0-9]+", name.casefold())
    return next((word for word in words if any(map(str.isdigit, word))), name.casefold())


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


def computes_in(name: str) -> str:
    """The tier in which a device computes ('host', 'hbm'). UsageError if there is none of that name."""
    return _class(name).computes_in


def device_class(name: str) -> type[Device]:
    """The class of a device, of which there may be none here. UsageError if it cannot be loaded."""
    return _class(name)


def open_device(name: str) -> Device:
    """A device for the ranks of this process. UsageError if there is none of that name, or it cannot be had here."""
    return _class(name)()


def _class(name: str) -> type[Device]:
    module, _, attribute = device_place(name).partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the device {name!r} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Device)):
        raise UsageError(f"{name!r} is no device", hint="it has to be a subclass of tapestry.workers.Device")
    return found
