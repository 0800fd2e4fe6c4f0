"""Kernels compiled beside the caller."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tapestry.kernels.errors import CompileError
from tapestry.kernels.runtime import background, compiler
from tapestry.kernels.runtime.background import Coming, Workers, begin, not_waiting, obtained
from tapestry.kernels.runtime.compiler import Build, Compiled, Recipe, Request

KERNEL = Recipe("k", 'extern "C" __global__ void k(int* y) { *y = 1; }')


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is compiled before it is set."""
    opened, really = threading.Event(), compiler._compile

    def late(request: Request, build: Build) -> Compiled:
        assert opened.wait(60)
        return really(request, build)

    monkeypatch.setattr(compiler, "_compile", late)
    monkeypatch.setattr(background, "_workers", Workers())
    return opened


def test_who_does_not_wait_is_told_until_the_kernel_is_there(gate: threading.Event) -> None:
    for _ in range(2):
        with not_waiting(), pytest.raises(Coming):
            obtained(KERNEL, "sm_90")
    gate.set()
    made = background._workers.ask(KERNEL, "sm_90").result(60)
    with not_waiting():
        assert obtained(KERNEL, "sm_90").cubin == made.cubin


def test_who_waits_gets_it(gate: threading.Event) -> None:
    gate.set()
    assert obtained(KERNEL, "sm_90").entry == "k"
    assert background._workers._known == {}


def test_what_was_begun_before_is_not_begun_again(gate: threading.Event) -> None:
    begin([KERNEL, KERNEL], "sm_90")
    with not_waiting(), pytest.raises(Coming):
        obtained(KERNEL, "sm_90")
    assert (len(background._workers._known), background._workers._threads) == (1, 1)
    gate.set()
    background._workers.ask(KERNEL, "sm_90").result(60)


def test_what_is_cached_is_there_at_once(gate: threading.Event) -> None:
    gate.set()
    KERNEL.compile()
    compiler.forget()
    gate.clear()
    with not_waiting():
        assert obtained(KERNEL, "sm_90").entry == "k"


def test_an_error_comes_where_the_kernel_would(gate: threading.Event) -> None:
    gate.set()
    broken = Recipe("k", "nonsense")
    with not_waiting():
        with contextlib.suppress(Coming, CompileError):
            obtained(broken, "sm_90")
        with pytest.raises(CompileError, match="nonsense"):
            background._workers.ask(broken, "sm_90").result(60)
        with pytest.raises(CompileError, match="nonsense"):
            obtained(broken, "sm_90")
