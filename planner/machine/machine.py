"""The machine model: plain frozen data, so that a plan can embed the machine it was made for.

Units stand in the field names. Rates are what the hardware sustains, not what it is sold as; the planner's certified
bounds hold for the machine as described here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .device import DeviceModel
from .errors import MachineError
from .links import SCOPES, Link, Scope
from .units import parse_bytes


@dataclass(frozen=True, slots=True)
class OtherDevices:
    """Devices of a machine that are not like its first: `ranges` of their numbers, each (first, behind the last)."""

    device: DeviceModel
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """`hosts` hosts of `devices_per_host` devices, numbered host by host; `device` is what those are that no `others`
    name.

    Where `devices_per_island` is not 0, so many devices next to one another are an island, within which links of that
    scope connect: a part of a host, or several hosts.
    """

    name: str
    description: str
    device: DeviceModel
    hosts: int
    devices_per_host: int
    links: tuple[Link, ...]
    devices_per_island: int = 0
    others: tuple[OtherDevices, ...] = ()

    @property
    def device_count(self) -> int:
        return self.hosts * self.devices_per_host

    def device_of(self, number: int) -> DeviceModel:
        """What a device is."""
        return self.devices[self.kind_of(number)]

    def kind_of(self, number: int) -> int:
        """As which of ``others`` a device is described, counted from 1; 0: as none of them."""
        found = (k for k, other in enumerate(self.others, 1) if any(a <= number < b for a, b in other.ranges))
        return next(found, 0)

    @property
    def devices(self) -> tuple[DeviceModel, ...]:
        """The different devices there are, the first device first."""
        return (self.device, *(other.device for other in self.others))

    def of_one_kind(self, device: DeviceModel) -> Machine:
        """The same machine if all its devices were such."""
        return replace(self, device=device, others=()) if self.others else self

    def host_of(self, device: int) -> int:
        if not 0 <= device < self.device_count:
            raise MachineError(
                f"no device {device}", where=self.name, sides={"devices": f"0 to {self.device_count - 1}"}
            )
        return device // self.devices_per_host

    @property
    def reaches(self) -> tuple[tuple[Scope, int], ...]:
        """The scopes there are, by how many devices next to one another they take in, the fewest first."""
        sizes: dict[Scope, int] = {"host": self.devices_per_host, "cluster": self.device_count}
        if self.devices_per_island:
            sizes["island"] = self.devices_per_island
        return tuple(sorted(sizes.items(), key=lambda each: (each[1], SCOPES.index(each[0]))))

    def link_among(self, devices: Iterable[int], users: Iterable[int] | None = None) -> Link:
        """The fastest link that connects every pair of two or more devices, as it is for each of them while ``users``
        (all of them by default) receive at once."""
        group = set(devices)
        for device in group:
            self.host_of(device)
        scope = next(scope for scope, size in self.reaches if len({device // size for device in group}) == 1)
        found = self.link_of(scope, group if users is None else users)
        if len(group) < 2:
            raise MachineError(f"no link among devices {sorted(group)}", where=self.name)
        return found

    def link_of(self, scope: Scope, users: Iterable[int] = ()) -> Link:
        """The fastest link that connects all devices of an island, a host or the machine, as it is for each of them
        while ``users`` receive."""
        chosen = tuple(users)
        found = self.nearest(scope, chosen)
        return found.among(found.users(chosen))

    def nearest(self, scope: Scope, users: Iterable[int] = ()) -> Link:
        """The same link as it is when nobody uses it."""
        chosen = tuple(users)
        wide = {name: place for place, (name, _) in enumerate(self.reaches)}
        reaching = [link for link in self.links if wide.get(link.scope, -1) >= wide[scope]]
        if not reaching:
            raise MachineError(f"no link among devices of one {scope}", where=self.name)
        return max(reaching, key=lambda link: link.gb_per_s / link.users(chosen))

    def capacity_bytes(self, tier: str, number: int = 0) -> int:
        """What a device may use of a tier: all of its own, or its equal share of one the host's devices share."""
        found = self.device_of(number).tier(tier)
        return found.capacity_bytes // (self.devices_per_host if found.shared_per_host else 1)

    def with_memory(self, budgets: Mapping[str, int | str]) -> Machine:
        """The same machine with other capacities: {"hbm": "3.5GiB", "host": 0}, per device or per host as the tier is.

        A budget may exceed the hardware: that asks what more memory would buy. It is that of every device.
        """
        sizes = {self.device.tier(name).name: parse_bytes(size) for name, size in budgets.items()}
        others = tuple(replace(other, device=_with_memory(other.device, sizes)) for other in self.others)
        return replace(self, device=_with_memory(self.device, sizes), others=others)


def _with_memory(device: DeviceModel, sizes: Mapping[str, int]) -> DeviceModel:
    tiers = (replace(tier, capacity_bytes=sizes.get(tier.name, tier.capacity_bytes)) for tier in device.tiers)
    return replace(device, tiers=tuple(tiers))
