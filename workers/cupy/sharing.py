"""Memory of other processes by CUDA's handles, and the kernel by which ranks meet."""

from __future__ import annotations

from typing import Any

from .arrays import Memory
from .machine import Meeting, Unit

ENTRY = "meet"
LAZY_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess

# One thread a rank. What the stream did before is seen by who sees the flag: kernels and copies that ended are in the
# memory of their GPU, which others read, and the fence orders them before the flag.
SOURCE = """extern "C" __global__ void __launch_bounds__(64)
meet(unsigned* held, const unsigned long long* table, const unsigned long long offset,
     const unsigned long long number, const unsigned long long tell, const unsigned long long hear) {
    const unsigned rank = threadIdx.x, count = *held + 1u;
    __syncthreads();
    if (rank == 0) *held = count;
    if (tell >> rank & 1ull) {
        unsigned* flag = reinterpret_cast<unsigned*>(table[rank] + offset) + number;
        __threadfence_system();
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
    }
    if (hear >> rank & 1ull) {
        const unsigned* flag = reinterpret_cast<const unsigned*>(table[number] + offset) + rank;
        unsigned seen;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        } while (int(seen - count) < 0);
    }
}
"""

UNIT = Unit(SOURCE, ENTRY, 1, 64)


def arguments(meeting: Meeting) -> list[int]:
    """Of the kernel."""
    return [meeting.held, meeting.table.pointer, meeting.offset, meeting.number, meeting.tell, meeting.hear]


def handle(api: Any, memory: Memory) -> str | None:
    """See `Machine.handle`."""
    return None if memory.host is not None else bytes(api.ipcGetMemHandle(memory.pointer)).hex()


def opened(api: Any, shown: str, nbytes: int) -> Memory | None:
    """See `Machine.opened`."""
    try:
        return Memory(api.ipcOpenMemHandle(bytes.fromhex(shown), LAZY_ACCESS), nbytes, None, far=True)
    except api.CUDARuntimeError:
        return None
