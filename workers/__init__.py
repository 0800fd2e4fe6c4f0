"""Workers: the processes that run the tasks of a plan, one rank each. Names load at first use."""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .compiled import Compiled as Compiled
    from .device import Device as Device
    from .devices import OtherHardware as OtherHardware
    from .devices import device_names as device_names
    from .devices import register_device as register_device
    from .faults import BytesDiffer as BytesDiffer
    from .faults import Deadlock as Deadlock
    from .faults import PeerFailed as PeerFailed
    from .faults import Silent as Silent
    from .faults import TaskError as TaskError
    from .result import Event as Event
    from .result import RunResult as RunResult
    from .running import run as run
    from .stores.inputs import Unread as Unread
    from .trace import trace_json as trace_json

_NAMES_OF = {
    "compiled": "Compiled",
    "device": "Device",
    "devices": "OtherHardware device_names register_device",
    "faults": "BytesDiffer Deadlock PeerFailed Silent TaskError",
    "result": "Event RunResult",
    "running": "run",
    "stores.inputs": "Unread",
    "trace": "trace_json",
}

if not TYPE_CHECKING:  # a type checker would take any name for a public one
    __all__ = [name for names in _NAMES_OF.values() for name in names.split()]
    __getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
