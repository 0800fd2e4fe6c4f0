"""Hardware numbers: each once, in `gpus.json`, with unit, source and date, and in no other file of the kernels."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tapestry.kernels.cost.gpu import Gpu, described_gpu, fitted, known_gpu, measured_as, tuned_gpu
from tapestry.kernels.runtime.device import DeviceProperties

ROOT = Path(__file__).parents[3]
DATA = ROOT / "kernels" / "cost" / "data" / "gpus.json"


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def groups() -> dict[str, dict[str, Any]]:
    found = document()
    return {**found["gpus"], **found["fits"]}


@pytest.mark.parametrize("name", groups())
def test_every_number_says_its_unit_its_source_and_its_date(name: str) -> None:
    for number in groups()[name]["numbers"].values():
        assert set(number) == {"value", "unit", "source", "date"}
        assert number["unit"]
        assert number["source"]
        assert date.fromisoformat(number["date"]) <= date.today()


def sources() -> list[Path]:
    folders = (ROOT / "kernels", ROOT / "benchmarks")
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".cu", ".cuh")]


# Numbers that mean one thing wherever they stand; a 64 or a 30.0 is no hardware number by its looks.
SPELLINGS = {
    "multiprocessors of an H200": r"\b132\b",
    "multiprocessors of an A100": r"(?<!%)\b108\b",  # %108 is an operand of an instruction
    "shared memory of a block": r"\b232448\b|\b227 \* 1024\b|\b227 << 10\b|\b166912\b",
    "shared memory of a multiprocessor": r"\b233472\b|\b228 << 10\b|\b228 \* 1024\b",
    "registers of a multiprocessor": r"\b65536\b",
    "L2": r"\b62914560\b|\b60 << 20\b|\b50 << 20\b",
    "rates": r"(?<!/ )\b[1-9](\.\d+)?e12\b",
    "clocks": r"(?<!/ )\b[12](\.\d+)?e9\b",
    "a clock by name": r"(?i)\b\w*_clocks\b *(: *float *)?= *[\d.]",
}


@pytest.mark.parametrize("what", SPELLINGS)
def test_no_other_file_holds_one(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(SPELLINGS[what], line)
    ]
    assert found == []


def test_one_gpu_is_the_one_the_kernels_were_tuned_on() -> None:
    assert [token for token, entry in document()["gpus"].items() if entry["tuned"]] == ["H200"]
    assert tuned_gpu() is known_gpu("NVIDIA H200")


def hopper(name: str, sms: int, l2_bytes: int) -> Gpu:
    """A GPU of the tuned one's architecture, as it would say what it is."""
    model = tuned_gpu()
    same = (model.shared_per_block, model.shared_per_sm, model.registers_per_sm, model.threads_per_sm)
    return described_gpu(DeviceProperties(name, (9, 0), sms, l2_bytes, *same, 1 << 36))


def test_times_of_the_same_multiprocessors_count() -> None:
    sms, l2_bytes = tuned_gpu().sms, tuned_gpu().l2_bytes
    for gpu in (hopper("NVIDIA H100 80GB HBM3", sms, l2_bytes * 5 // 6), hopper("NVIDIA H800", sms, l2_bytes)):
        assert not gpu.tuned
        assert measured_as(gpu) is tuned_gpu()
    for gpu in (hopper("NVIDIA H100 PCIe", sms - 18, l2_bytes), known_gpu("A100")):
        assert gpu is not None
        assert measured_as(gpu) is gpu


def test_the_constants_of_a_fit_are_those_asked_for() -> None:
    with pytest.raises(TypeError, match="one_bytes_per_s"):
        fitted(Gpu, "rows")


def test_a_device_says_itself_what_it_can_say() -> None:
    half = DeviceProperties("NVIDIA H200 half", (9, 0), 66, 1 << 20, 1 << 10, 1 << 11, 1 << 12, 512, 1 << 30)
    found = described_gpu(half)
    assert (found.sms, found.l2_bytes, found.shared_per_block, found.shared_per_sm) == (66, 1 << 20, 1 << 10, 1 << 11)
    assert (found.registers_per_sm, found.threads_per_sm, found.clustered_sms) == (1 << 12, 512, 64)
    assert [found.clusters_of(blocks) for blocks in (1, 2, 3, 9)] == [0, 33, 19, 0]
    assert (found.copy_bytes_per_s, found.tuned) == (tuned_gpu().copy_bytes_per_s, False)
