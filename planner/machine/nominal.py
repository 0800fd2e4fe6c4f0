"""What links carry where a topology does not say it: `nominal.toml`, with the sources of its figures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Nominal:
    """GB/s of one NVLink by the GPU's architecture, of a PCIe lane by its transfers, of a bus between processors."""

    most_nvlinks: int
    latency_s: float
    nvlink: Mapping[str, float]
    pcie_lane: Mapping[str, float]
    processors: Mapping[str, float]

    def nvlink_of(self, architecture: int | None) -> float:
        """Of an architecture such as 90, or the newest that is not newer; 80 where it is not known."""
        wanted = 80 if architecture is None else architecture
        known = {int(name.removeprefix("sm")): rate for name, rate in self.nvlink.items()}
        return known.get(wanted, known[max((one for one in known if one <= wanted), default=min(known))])


@cache
def nominal() -> Nominal:
    text = resources.files(__package__).joinpath("nominal.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return Nominal(
        table["most_nvlinks"],
        table["latency_us"] * 1e-6,
        table["nvlink_gb_per_s"],
        table["pcie_lane_gb_per_s"],
        table["processors_gb_per_s"],
    )
