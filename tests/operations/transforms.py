"""Cases of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tapestry as tp

from .registry import Cases, floats

CASES = Cases()


def complexly(function: Callable[..., Any], **settings: Any) -> Callable[[Any], Any]:
    """A transform of torch's, of pairs."""
    return lambda x: torch.view_as_real(function(torch.view_as_complex(x), **settings))


SIGNALS, IMAGE = floats(3, 7, 2), floats(4, 5, 6, 2, seed=1)
CASES.torch("fft", lambda x: tp.fft(x), complexly(torch.fft.fft), SIGNALS)
CASES.torch("fft", lambda x: tp.fft(x, 1, norm="ortho"), complexly(torch.fft.fft, dim=1, norm="ortho"), IMAGE)
CASES.torch("fft", lambda x: tp.fft(x, norm="forward"), complexly(torch.fft.fft, norm="forward"), SIGNALS)
CASES.torch("ifft", lambda x: tp.ifft(x), complexly(torch.fft.ifft), SIGNALS)
CASES.torch("ifft", lambda x: tp.ifft(x, 0, norm="forward"), complexly(torch.fft.ifft, dim=0, norm="forward"), IMAGE)
REALS, EVEN = floats(4, 9, seed=2), floats(2, 8, 3, seed=3)
CASES.torch("rfft", lambda x: tp.rfft(x), lambda x: torch.view_as_real(torch.fft.rfft(x)), REALS)
CASES.torch(
    "rfft",
    lambda x: tp.rfft(x, 1, norm="ortho"),
    lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1, norm="ortho")),
    EVEN,
)
HALF = floats(3, 5, 2, seed=4)
for length in (8, 9):
    CASES.torch(
        "irfft",
        lambda x, n=length: tp.irfft(x, n),
        lambda x, n=length: torch.fft.irfft(torch.view_as_complex(x), n),
        HALF,
    )
CASES.torch("irfft", lambda x: tp.irfft(x, 1), lambda x: torch.fft.irfft(torch.view_as_complex(x), 1), floats(3, 1, 2))
