"""Tensor maps: what the driver is told, and what is refused before it is asked."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from tapestry.kernels.errors import (
    KernelError,
    LaunchError,
    MissingDriver,
    TooLarge,
    WrongDtype,
    WrongLayout,
    WrongShape,
    WrongValue,
)
from tapestry.kernels.runtime import libcuda, tensor_map
from tapestry.kernels.runtime.array import ITEM_BYTES
from tapestry.kernels.runtime.tensor_map import TensorMap, TiledMap, encode

GOOD: dict[str, Any] = {
    "pointer": 0x1000,
    "dtype": "f16",
    "extents": (64, 28, 28, 8),
    "strides_bytes": (128, 3584, 100352),
    "box": (64, 10, 1, 2),
    "swizzle": "128B",
}


class Driver:
    """Takes the place of `cuTensorMapEncodeTiled`: remembers what it was told, writes a pattern, answers a status."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.calls = status, 0
        self.told: dict[str, Any] = {}

    def __call__(self, out: Any, dtype: Any, rank: Any, address: Any, *rest: Any) -> int:
        self.calls += 1
        extents, strides, box, steps, interleave, swizzle, promotion, fill = rest
        self.told = {
            "dtype": dtype.value, "rank": rank.value, "address": address.value, "extents": list(extents),
            "strides": list(strides), "box": list(box), "steps": list(steps), "interleave": interleave.value,
            "swizzle": swizzle.value, "promotion": promotion.value, "fill": fill.value,
        }  # fmt: skip
        assert out.value % 64 == 0
        ctypes.memmove(out.value, bytes(range(128)), 128)
        return self.status


def test_the_driver_is_told_what_was_asked() -> None:
    driver = Driver()
    found = encode(TiledMap(**GOOD), driver)
    assert found.tobytes() == bytes(range(128))
    assert isinstance(found, np.void)
    assert driver.told == {
        "dtype": 6, "rank": 4, "address": 0x1000, "extents": [64, 28, 28, 8], "strides": [128, 3584, 100352],
        "box": [64, 10, 1, 2], "steps": [1, 1, 1, 1], "interleave": 0, "swizzle": 3, "promotion": 2, "fill": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("dtype", "code"), [("uint8", 0), ("int32", 3), ("f16", 6), ("f32", 7), ("bf16", 9)])
@pytest.mark.parametrize(("swizzle", "code_of_swizzle"), [("none", 0), ("32B", 1), ("64B", 2), ("128B", 3)])
def test_words_become_the_drivers_numbers(dtype: str, code: int, swizzle: str, code_of_swizzle: int) -> None:
    driver = Driver()
    encode(TiledMap(0, dtype, (64,), (), (32 // ITEM_BYTES[dtype],), swizzle), driver)
    assert (driver.told["dtype"], driver.told["swizzle"]) == (code, code_of_swizzle)


def test_a_refusal_names_the_map() -> None:
    with pytest.raises(LaunchError, match=r"error 1[\s\S]*extents=\(64, 28, 28, 8\)"):
        encode(TiledMap(**GOOD), Driver(status=1))


def test_a_thread_without_a_context_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd's thread, where its first work is ours: the driver answers 201 until the device is set."""
    driver = Driver(status=201)

    class Runtime:
        def getDevice(self) -> int:
            return 3

        def setDevice(self, device: int) -> None:
            assert device == 3
            driver.status = 0

    monkeypatch.setattr(tensor_map, "runtime", Runtime)
    assert encode(TiledMap(**GOOD), driver).tobytes() == bytes(range(128))
    assert driver.calls == 2


def test_maps_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(tensor_map, "driver_function", lambda name: driver)
    tensor_map._encoded.cache_clear()
    first = TensorMap.tiled(**GOOD)
    assert TensorMap.tiled(**{**GOOD, "extents": list(GOOD["extents"])}) is first
    assert driver.calls == 1
    TensorMap.tiled(**{**GOOD, "pointer": 0x2000})
    assert driver.calls == 2
    tensor_map._encoded.cache_clear()


@pytest.mark.parametrize(
    ("changes", "kind", "expected", "came"),
    [
        ({"pointer": 0x1008}, WrongLayout, "an address that is a multiple of 16", "0x1008"),
        ({"dtype": "complex64"}, WrongDtype, "f16", "'complex64'"),
        ({"swizzle": "256B"}, WrongValue, "none, 32B, 64B, 128B", "'256B'"),
        ({"l2_promotion": "512B"}, WrongValue, "none, 64B, 128B, 256B", "'512B'"),
        ({"extents": ()}, WrongShape, "1 to 5 extents", "0"),
        ({"extents": (1,) * 6}, WrongShape, "1 to 5 extents", "6"),
        ({"extents": (64, 28, 0, 8)}, TooLarge, "1 to 2**32", "(64, 28, 0, 8)"),
        ({"extents": (64, 28, 2**33, 8)}, TooLarge, "1 to 2**32", "8589934592"),
        ({"strides_bytes": (128, 3584)}, WrongShape, "3 for 4 extents", "(128, 3584)"),
        ({"strides_bytes": (130, 3584, 100352)}, WrongLayout, "a multiple of 16 bytes below 2**40", "(130,"),
        ({"strides_bytes": (128, 3584, 2**40)}, WrongLayout, "a multiple of 16 bytes below 2**40", "1099511627776"),
        ({"box": (64, 10, 1)}, WrongShape, "4 for 4 extents", "(64, 10, 1)"),
        ({"box": (64, 257, 1, 2)}, TooLarge, "1 to 256", "257"),
        ({"box": (64, 0, 1, 2)}, TooLarge, "1 to 256", "(64, 0, 1, 2)"),
        ({"box": (4, 10, 1, 2)}, WrongShape, "a multiple of 16 bytes", "8 bytes"),
        ({"box": (128, 10, 1, 2)}, WrongShape, "at most 128 bytes with swizzle 128B", "256 bytes (128 elements"),
        ({"swizzle": "32B"}, WrongShape, "at most 32 bytes with swizzle 32B", "128 bytes"),
        ({"element_strides": (1, 9, 1, 1)}, WrongValue, "1 to 8", "(1, 9, 1, 1)"),
        ({"element_strides": (1, 1)}, WrongShape, "4 for 4 extents", "(1, 1)"),
    ],
)  # fmt: skip
def test_what_the_copy_engine_does_not_take_is_refused(
    changes: dict[str, Any], kind: type[KernelError], expected: str, came: str
) -> None:
    with pytest.raises(kind) as caught:
        TiledMap(**{**GOOD, **changes})
    text = str(caught.value)
    assert re.match(r"tensor map of \w+ \(", text)
    said = {line.split()[0]: line.strip().split(None, 1)[1] for line in text.splitlines()[1:]}
    assert expected in said["expected"]
    assert came in said["came"]


def test_without_a_driver_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(library: str) -> None:
        raise OSError(f"{library}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    libcuda.driver_function.cache_clear()
    tensor_map._encoded.cache_clear()
    with pytest.raises(MissingDriver, match=r"cuTensorMapEncodeTiled[\s\S]*cannot open[\s\S]*install the driver"):
        TensorMap.tiled(**GOOD)
    libcuda.driver_function.cache_clear()
