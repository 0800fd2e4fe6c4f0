"""Compiling: names, headers, options, the report of resources, and errors that show the generated line."""

from __future__ import annotations

import pytest

from tapestry.kernels.errors import CompileError, WrongValue
from tapestry.kernels.runtime import compiler
from tapestry.kernels.runtime.compiler import Recipe, compile_source

FILL = 'extern "C" __global__ void fill(float* y, float value, int n) { if (threadIdx.x < n) y[threadIdx.x] = value; }'

RESOURCES = """
extern "C" __global__ void __launch_bounds__(256) uses_shared(float* y) {
  __shared__ float tile[256];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void indexes_registers(float* y, int at) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = y[i * at];
  for (int i = 0; i < 64; ++i) y[i] = values[(i * at) & 63];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* y) {
  float values[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) values[i] = y[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; ++i) y[(95 - i) * 1024 + threadIdx.x] = values[i] * values[(i + 48) % 96];
}
"""


def test_a_kernel_is_machine_code_with_a_report() -> None:
    made = compile_source(FILL, name="fill")
    assert made.cubin.startswith(b"\x7fELF")
    assert (made.name, made.entry, made.arch) == ("fill", "fill", "sm_90")
    assert 0 < made.registers < 32
    assert (made.spill_stores, made.spill_loads, made.stack, made.shared) == (0, 0, 0, 0)
    assert made.entries["fill"].parameters == (8, 4, 4)


def test_the_report_tells_shared_memory_stack_and_spills_of_each_kernel() -> None:
    made = compile_source(RESOURCES, name="uses_shared")
    assert made.shared == 1024
    assert made.resources.barriers == 1
    assert made.entries["uses_shared"].threads == 256
    assert made.report["indexes_registers"].stack == 256
    assert made.report["indexes_registers"].shared == 0
    spilling = made.report["spills"]
    assert spilling.registers == 32
    assert spilling.spill_stores > 0
    assert spilling.spill_loads >= spilling.spill_stores


def test_an_instance_of_a_template_is_named_by_its_expression() -> None:
    source = "namespace inner { template <int N, bool B> __global__ void fill(int* y) { *y = B ? N : 0; } }"
    made = compile_source(source, name="inner::fill<8, true>")
    assert made.entry != made.name
    assert list(made.entries) == [made.entry]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a", "sm_100", "compute_90"])
def test_architectures(arch: str) -> None:
    made = compile_source(FILL, name="fill", arch=arch)
    assert made.arch == arch
    assert made.cubin.startswith(b"\x7fELF") == arch.startswith("sm_")
    assert made.entries["fill"].parameters == (8, 4, 4)


@pytest.mark.parametrize("arch", ["sm_75", "90", "sm_9", "hopper", ""])
def test_what_is_no_architecture_is_refused(arch: str) -> None:
    with pytest.raises(WrongValue, match="no such architecture"):
        compile_source(FILL, name="fill", arch=arch)


def test_portable_assembly_has_no_resources_yet() -> None:
    with pytest.raises(WrongValue, match="not known before it is loaded"):
        _ = compile_source(FILL, name="fill", arch="compute_90").registers


def test_headers_are_found_by_their_names_and_beside_one_another() -> None:
    headers = {
        "made/up/outer.cuh": '#include "inner.cuh"\n',
        "made/up/inner.cuh": "constexpr int answer = 42;\n",
        "made/up/unused.cuh": "#error never reached\n",
    }
    source = '#include <made/up/outer.cuh>\nextern "C" __global__ void f(int* y) { *y = answer; }'
    assert compile_source(source, name="f", headers=headers).entries["f"].parameters == (8,)


def test_only_what_a_source_reaches_is_part_of_its_key() -> None:
    source = '#include "a.cuh"\nextern "C" __global__ void f(int* y) { *y = a; }'
    headers = {"a.cuh": "constexpr int a = 1;\n", "b.cuh": "constexpr int b = 1;\n"}
    first = compile_source(source, name="f", headers=headers).key
    assert compile_source(source, name="f", headers={**headers, "b.cuh": ""}).key == first
    assert compile_source(source, name="f", headers={**headers, "a.cuh": "constexpr int a = 2;\n"}).key != first


def test_everything_a_kernel_depends_on_is_part_of_its_key() -> None:
    base = compile_source(FILL, name="fill").key
    others = [
        compile_source(FILL + "\n", name="fill").key,
        compile_source(FILL, name="fill", arch="sm_80").key,
        compile_source(FILL, name="fill", options=("--use_fast_math",)).key,
        compile_source(FILL, name="fill", options=("-DA=1",)).key,
        compile_source(FILL, name="fill", options=("-DA=2",)).key,
    ]
    assert len({base, *others}) == 6


def test_options_reach_the_compiler() -> None:
    source = 'extern "C" __global__ void f(int* y) { *y = VALUE; }'
    assert compile_source(source, name="f", options=("-DVALUE=3",)).entries["f"]
    with pytest.raises(CompileError, match='identifier "VALUE" is undefined'):
        compile_source(source, name="f")


def test_an_error_shows_the_generated_line_and_the_kernel() -> None:
    source = FILL.replace(") {", ") {\n  // fill\n  float wrong = undefined_name;\n  ")
    with pytest.raises(CompileError) as caught:
        compile_source(source, name="fill")
    text = str(caught.value)
    assert text.startswith("fill: does not compile for sm_90")
    assert 'fill.cu:3: error: identifier "undefined_name" is undefined' in text
    assert "  >     3 |   float wrong = undefined_name;" in text
    assert "        2 |   // fill" in text
    assert caught.value.source == source
    assert "undefined_name" in caught.value.log


def test_an_error_in_a_header_shows_the_header() -> None:
    headers = {"broken.cuh": "// first\nconstexpr int a = ;\n"}
    with pytest.raises(CompileError) as caught:
        compile_source('#include "broken.cuh"\n' + FILL, name="fill", headers=headers)
    assert "broken.cuh:2: error: expected an expression" in str(caught.value)
    assert "  >     2 | constexpr int a = ;" in str(caught.value)


def test_many_errors_are_cut_short() -> None:
    lines = "\n".join(f"int a{i} = b{i};" for i in range(40))
    with pytest.raises(CompileError) as caught:
        compile_source(lines, name="f")
    assert str(caught.value).count(": error: ") == 5
    assert "more" in str(caught.value).splitlines()[-1]
    assert caught.value.log.count("error: ") > 5


def test_a_failed_assertion_is_an_error_with_its_text() -> None:
    with pytest.raises(CompileError, match="rows must divide"):
        compile_source('static_assert(7 % 2 == 0, "rows must divide");\n' + FILL, name="fill")


def test_a_missing_header_is_named() -> None:
    with pytest.raises(CompileError, match=r"nowhere\.cuh"):
        compile_source('#include "nowhere.cuh"\n' + FILL, name="fill")


def test_a_name_that_is_no_kernel_lists_those_there_are() -> None:
    with pytest.raises(CompileError, match='it has fill: declare it extern "C"'):
        compile_source(FILL, name="fil")


def test_nothing_is_compiled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(FILL, name="fill")
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compile_source(FILL, name="fill") is first
    compiler.forget()
    again = Recipe("fill", FILL).compile()
    assert again == first
    assert again.registers == first.registers


def test_the_kernels_of_a_source_are_compiled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(RESOURCES, name="spills")
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    second = compile_source(RESOURCES, name="uses_shared")
    assert (first.key, first.cubin) == (second.key, second.cubin)
    assert (first.shared, second.shared) == (0, 1024)
    with pytest.raises(CompileError, match="it has indexes_registers, spills, uses_shared"):
        compile_source(RESOURCES, name="other")


def test_instances_of_a_template_have_images_of_their_own() -> None:
    source = "template <int N> __global__ void fill(int* y) { *y = N; }"
    first, second = (compile_source(source, name=f"fill<{n}>") for n in (1, 2))
    assert first.key != second.key
    assert first.entry != second.entry
