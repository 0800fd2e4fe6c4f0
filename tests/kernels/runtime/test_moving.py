"""Launches that are told where their operands lie: addresses found among arguments of any kind, or not."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tapestry.kernels.runtime.arguments import Arguments
from tapestry.kernels.runtime.moving import Addresses, Anew, Moving, launches

STREAM = 7


class Launch:
    """Packs arguments as a kernel's launch does, and notes what they are when it runs."""

    def __init__(self, ran: list[bytes], sizes: Sequence[int], values: Sequence[Any]) -> None:
        self.ran, self.arguments = ran, Arguments("f", sizes)
        self.arguments.pack(values)

    @property
    def words(self) -> memoryview:
        return self.arguments.words

    def launch(self, stream: int) -> None:
        assert stream == STREAM
        self.ran.append(self.arguments.packed())


def kinds(x: int, y: int) -> dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Arguments that depend on two addresses: sizes, values."""
    tensor_map = struct.pack("<3Q104x", x, 1 << 40, 5)
    return {
        "pointers": ((8, 8, 4), (x, y, 3)),
        "places within operands": ((8, 8, 8), (x + 2 * 56, y, x)),
        "a tensor map": ((8, 128), (y, tensor_map)),
        "a structure": ((24, 4), (struct.pack("<QiiQ", x, 9, 9, y), 1)),
    }


@pytest.mark.parametrize("kind", kinds(0, 0))
def test_moved_launches_have_the_arguments_of_prepared_ones(kind: str) -> None:
    ran: list[bytes] = []
    made: list[Addresses] = []

    def make(addresses: Addresses) -> Any:
        made.append(addresses)
        return (Launch(ran, *kinds(*addresses)[kind]), Launch(ran, (8,), (addresses[1],)))

    found = launches(make, (0x7F00_0000_0000, 0x7F00_0001_0000))
    assert isinstance(found, Moving)
    assert len(made) == 2
    for addresses in ((0x7F00_0000_0000, 0x7F00_0001_0000), (0x1000, 0x7FFF_FFFF_F000), (0x7F12_3456_7800, 0x200)):
        ran.clear()
        found.run(addresses, STREAM)
        assert ran == [launch.arguments.packed() for launch in make(addresses)]


@pytest.mark.parametrize(
    "argument",
    [lambda x, y: (x >> 4, y), lambda x, y: (x, y % 7), lambda x, y: (x, 5), lambda x, y: (x + y, y)],
    ids=["in units of 16", "a remainder", "nowhere", "a sum"],
)
def test_what_cannot_be_moved_is_prepared_anew(argument: Callable[[int, int], tuple[int, int]]) -> None:
    ran: list[bytes] = []
    made: list[Addresses] = []

    def make(addresses: Addresses) -> Any:
        made.append(addresses)
        return (Launch(ran, (8, 8), argument(*addresses)),)

    found = launches(make, (0x1000, 0x2000))
    assert isinstance(found, Anew)
    made.clear()
    for addresses in ((0x1000, 0x2000), (0x3000, 0x4000), (0x1000, 0x2000)):
        found.run(addresses, STREAM)
        assert ran[-1] == struct.pack("<2Q", *argument(*addresses))
    assert made == [(0x1000, 0x2000), (0x3000, 0x4000)]


def test_threads_do_not_see_one_another_s_addresses() -> None:
    """A launch takes its time, as the driver does, and its arguments are those of the call that makes it."""
    seen: list[tuple[int, int]] = []
    here = threading.local()

    class Slow(Launch):
        def launch(self, stream: int) -> None:
            before = struct.unpack("<Q", self.arguments.packed())[0]
            threading.Event().wait(0.001)
            assert struct.unpack("<Q", self.arguments.packed())[0] == before
            seen.append((here.address, before))

    found = launches(lambda addresses: (Slow([], (8,), addresses),), (0x1000,))

    def call(address: int) -> None:
        here.address = address
        for _ in range(5):
            found.run((address,), STREAM)

    threads = [threading.Thread(target=call, args=(0x1000 * number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 15
    assert all(mine == told for mine, told in seen)
