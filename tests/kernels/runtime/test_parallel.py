"""Many kernels at once, by threads, or in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tapestry.kernels.errors import CompileError
from tapestry.kernels.runtime import compiler, parallel
from tapestry.kernels.runtime.compiler import Recipe
from tapestry.kernels.runtime.parallel import compile_all


def recipes(count: int) -> list[Recipe]:
    return [
        Recipe(f"k{n}", f'extern "C" __global__ void k{n}(int* y) {{ *y = VALUE; }}', (f"-DVALUE={n}",))
        for n in range(count)
    ]


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is one that is used by processes, and this process is none of them."""
    monkeypatch.setattr(parallel, "_runs_in_threads", lambda: False)
    monkeypatch.setattr(compiler, "_compile", lambda request: pytest.fail("compiled in this process"))


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_all_are_compiled_elsewhere_and_found_here(own_cache: Path, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    forbid(monkeypatch)
    made = compile_all(recipes(5), arch, jobs=2)
    assert [kernel.name for kernel in made] == [f"k{n}" for n in range(5)]
    assert {kernel.arch for kernel in made} == {arch}
    assert len(list(own_cache.glob("*.kernel"))) == 5


def test_the_order_and_repetitions_are_the_callers() -> None:
    first, second = recipes(2)
    made = compile_all([second, first, second], jobs=2)
    assert [kernel.name for kernel in made] == ["k1", "k0", "k1"]


def test_what_is_cached_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compile_all(recipes(3), jobs=1)
    compiler.forget()
    forbid(monkeypatch)
    monkeypatch.setattr("subprocess.Popen", lambda *given, **named: pytest.fail("a process was started"))
    assert compile_all(recipes(3), jobs=2) == made


@pytest.mark.parametrize("where", ["off", "/dev/null/no/directory"])
def test_without_a_cache_they_are_handed_over_all_the_same(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", where)
    forbid(monkeypatch)
    assert [kernel.name for kernel in compile_all(recipes(3), jobs=2)] == ["k0", "k1", "k2"]
    assert os.environ["TAPESTRY_CACHE"] == where


def test_a_recipe_that_fails_fails_here() -> None:
    broken = Recipe("broken", 'extern "C" __global__ void broken(int* y) { *y = nothing; }')
    with pytest.raises(CompileError, match=r"broken\.cu:1: error: identifier .nothing. is undefined"):
        compile_all([*recipes(2), broken], jobs=3)


def test_nothing_to_do() -> None:
    assert compile_all([]) == []


def test_threads_compile_the_kernels_of_a_source_once_and_say_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_runs_in_threads", lambda: True)
    monkeypatch.setattr("subprocess.Popen", lambda *given, **named: pytest.fail("a process was started"))
    really, compiled, seen = compiler._compile, [], []
    monkeypatch.setattr(compiler, "_compile", lambda request: (compiled.append(request.name), really(request))[1])
    two = 'extern "C" __global__ void a(int* y) { *y = 1; } extern "C" __global__ void b(int* y) { *y = 2; }'
    wanted = [Recipe("a", two), *recipes(2), Recipe("b", two)]
    made = compile_all([*wanted, wanted[0]], jobs=3, note=seen.append)
    assert [kernel.entry for kernel in made] == ["a", "k0", "k1", "b", "a"]
    assert len(compiled) == 3
    assert (seen[0], seen[-1], seen == sorted(seen)) == (0, 4, True)


def test_the_error_is_that_of_the_first_recipe_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_runs_in_threads", lambda: True)
    broken = [Recipe(name, f'extern "C" __global__ void {name}() {{ {name}_missing(); }}') for name in ("e", "f")]
    with pytest.raises(CompileError, match="e_missing"):
        compile_all([*recipes(1), *broken], jobs=3)
