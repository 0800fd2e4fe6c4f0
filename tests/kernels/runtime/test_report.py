"""The assembler's log, as several versions write it."""

from __future__ import annotations

from tapestry.kernels.runtime.report import Resources, read_report

NEWER = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5thirdILi4EEvPi' for 'sm_90'
ptxas info    : Function properties for _Z5thirdILi4EEvPi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 1.681 ms
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
ptxas         .     160 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 32 registers, used 2 barriers, 160 bytes cumulative stack size, 400 bytes smem
"""
OLDER = """
ptxas info    : 0 bytes gmem, 24 bytes cmem[3]
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 40 registers, 2048 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for helper
    64 bytes stack frame, 60 bytes spill stores, 60 bytes spill loads
"""


def test_every_kernel_has_its_own_line() -> None:
    assert read_report(NEWER) == {
        "_Z5thirdILi4EEvPi": Resources(8, 0, 0, 0, 0, 0),
        "first": Resources(32, 12, 16, 160, 400, 2),
    }


def test_functions_that_were_not_inlined_do_not_count_as_the_kernel() -> None:
    assert read_report(OLDER) == {"first": Resources(40, 4, 4, 8, 2048, 0)}


def test_no_log_no_report() -> None:
    assert read_report("") == {}
