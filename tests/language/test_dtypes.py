"""Element types: which numbers they hold, how they promote, and that values are rounded to them once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tapestry as tp
from tapestry.dtypes import DTYPES, extreme, numpy_dtype, promote
from tapestry.literals import held, stored
from tapestry.reference.values import round_to

INTEGERS = [name for name, dtype in DTYPES.items() if dtype.kind == "int"]
OCTETS = ("f8e4m3", "f8e5m2")


def octets(dtype: str) -> np.ndarray:
    """All finite numbers of a float of 8 bits, ascending, each once."""
    values = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype)).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize(("a", "b"), list(product(INTEGERS, INTEGERS)))
def test_integers_promote_as_numpy_s_do(a: str, b: str) -> None:
    assert promote(a, b) == str(np.promote_types(a, b))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("f8e4m3", "f8e5m2"), "bf16"), (("f8e4m3", "f16"), "f16"), (("f8e5m2", "bf16"), "bf16"),
        (("bf16", "f16"), "f32"), (("f8e4m3", "int32"), "f8e4m3"), (("bool", "uint8"), "uint8"),
        (("uint8", "uint16"), "uint16"), (("f8e5m2", "f64"), "f64"),
    ],
)  # fmt: skip
def test_the_others_promote_to_what_holds_both(names: tuple[str, str], wanted: str) -> None:
    assert promote(*names) == promote(*names[::-1]) == wanted


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_held_exactly_or_refused(name: str) -> None:
    low, high = np.iinfo(name).min, np.iinfo(name).max
    assert (extreme(name, float("-inf")), extreme(name, float("inf"))) == (low, high)
    assert stored(low, name) == low
    assert stored(float(2), name) == 2
    for value in (int(low) - 1, int(high) + 1, 0.5, float("nan"), float("inf")):
        with pytest.raises(tp.UsageError, match=f"is no {name}"):
            stored(value, name)


@pytest.mark.parametrize("name", OCTETS)
def test_every_octet_is_held_and_what_lies_beyond_refused(name: str) -> None:
    values = octets(name)
    assert all(held(float(value), name) for value in values)
    most = float(values[-1])
    step = most - float(values[-2])
    assert stored(most + step / 2 - 1e-6, name) == most
    with pytest.raises(tp.UsageError, match=f"the largest is {most:g}"):
        stored(most + step, name)


def test_e4m3_has_no_infinity() -> None:
    with pytest.raises(tp.UsageError, match="f8e4m3 has no infinity"):
        stored(float("inf"), "f8e4m3")
    assert stored(float("-inf"), "f8e5m2") == float("-inf")
    assert (extreme("f8e4m3", float("-inf")), extreme("f8e5m2", float("-inf"))) == (-448.0, float("-inf"))


@pytest.mark.parametrize("name", [*OCTETS, "bf16"])
def test_f64_is_rounded_once(name: str) -> None:
    """Beside ties, on both sides, by less than f32 shows: to the nearest, as literals are."""
    values = octets(name if name != "bf16" else "f8e4m3")
    ties = (values[1:] + values[:-1]) / 2 if name != "bf16" else np.ldexp(1 + np.arange(1, 64, 2) / 256, 3)
    for near in (ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)):
        expected = [stored(float(value), name) for value in near]
        assert round_to(near, name).astype(np.float64).tolist() == expected


def test_beyond_the_largest_e4m3_is_no_number_and_e5m2_infinite() -> None:
    far = np.array([464.0, 465.0, -1e9, np.inf, np.nan])
    assert np.isnan(round_to(far, "f8e4m3").astype(float)).tolist() == [False, True, True, True, True]
    far = np.array([61439.0, 61440.0, -1e9, np.inf])
    assert round_to(far, "f8e5m2").astype(float).tolist() == [57344.0, np.inf, -np.inf, np.inf]
