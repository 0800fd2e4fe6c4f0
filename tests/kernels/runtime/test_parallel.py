"""Many kernels at once, in processes of their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapestry.kernels.errors import CompileError
from tapestry.kernels.runtime import compiler, parallel
from tapestry.kernels.runtime.compiler import Outcome, Recipe, Request
from tapestry.kernels.runtime.parallel import compile_all


def recipes(count: int) -> list[Recipe]:
    return [
        Recipe(f"k{n}", f'extern "C" __global__ void k{n}(int* y) {{ *y = VALUE; }}', (f"-DVALUE={n}",))
        for n in range(count)
    ]


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process compiles nothing."""
    monkeypatch.setattr(compiler, "here", lambda request: pytest.fail("compiled in this process"))


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


def test_the_kernels_of_a_source_are_compiled_once_and_it_is_said_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really, compiled, seen = parallel.Worker.build, [], []

    def build(worker: parallel.Worker, request: Request) -> Outcome:
        compiled.append(request.name)
        return really(worker, request)

    monkeypatch.setattr(parallel.Worker, "build", build)
    two = 'extern "C" __global__ void a(int* y) { *y = 1; } extern "C" __global__ void b(int* y) { *y = 2; }'
    wanted = [Recipe("a", two), *recipes(2), Recipe("b", two)]
    made = compile_all([*wanted, wanted[0]], jobs=3, note=lambda *counts: seen.append(counts))
    assert [kernel.entry for kernel in made] == ["a", "k0", "k1", "b", "a"]
    assert sorted(compiled) == ["a", "k0", "k1"]
    assert (seen[0], seen[-1], seen == sorted(seen)) == ((0, 4), (4, 4), True)


def test_instances_of_templates_and_portable_assembly_are_those_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "template <int N> __global__ void f(int* y) { *y = N; }"
    wanted = [Recipe("f<3>", source), Recipe("f<4>", source), *recipes(1)]
    for arch in ("sm_90", "compute_90"):
        expected = [recipe.compile(arch) for recipe in wanted]
        monkeypatch.setenv("TAPESTRY_CACHE", "off")
        compiler.forget()
        assert compile_all(wanted, arch, jobs=2) == expected
        monkeypatch.undo()


def test_kernels_are_compiled_while_others_are_being_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    begun = threading.Event()
    really = parallel.Worker.build
    monkeypatch.setattr(parallel.Worker, "build", lambda worker, request: (begun.set(), really(worker, request))[1])

    def listed() -> Iterator[Recipe]:
        first, second = recipes(2)
        yield first
        assert begun.wait(60)
        yield second

    assert len(compile_all(listed(), jobs=2)) == 2


@pytest.mark.parametrize("libraries", [[], ["/no/such/libnvrtc.so"]])
def test_where_no_process_can_compile_this_one_does(monkeypatch: pytest.MonkeyPatch, libraries: list[str]) -> None:
    monkeypatch.setattr(parallel, "_libraries", lambda: libraries)
    assert [kernel.name for kernel in compile_all(recipes(3), jobs=2)] == ["k0", "k1", "k2"]


def test_a_process_that_dies_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = parallel.Worker()
    first, second = (compiler._request(r.source, r.name, "sm_90", None, r.options) for r in recipes(2))
    assert worker.build(first).error == ""
    assert worker._process is not None
    worker._process.kill()
    made, expected = worker.build(second), compiler.here(second)
    assert (made.error, made.image, made.entry) == ("", expected.image, expected.entry)
    worker.end()


def test_the_error_is_that_of_the_first_recipe_that_fails() -> None:
    broken = [Recipe(name, f'extern "C" __global__ void {name}() {{ {name}_missing(); }}') for name in ("e", "f")]
    with pytest.raises(CompileError, match="e_missing"):
        compile_all([*recipes(1), *broken], jobs=3)
