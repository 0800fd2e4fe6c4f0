"""What a stream that is captured waits for, as the driver tells it."""

from __future__ import annotations

import ctypes

from ...kernels.runtime.libcuda import driver_function

CAPTURING, KERNEL = 1, 0  # CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_GRAPH_NODE_TYPE_KERNEL


def behind_a_kernel(stream: int) -> bool:
    """Whether what a captured stream is asked for next comes behind a kernel and nothing else.

    Only then may a kernel be launched that starts before what is ahead has ended: copies and events of other streams
    are waited for by the graph itself.
    """
    status, number = ctypes.c_int(), ctypes.c_uint64()
    graph, nodes, count = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
    found = map(ctypes.byref, (status, number, graph, nodes, count))
    failed = driver_function("cuStreamGetCaptureInfo_v2")(ctypes.c_void_p(stream), *found)
    if failed or status.value != CAPTURING or count.value != 1:
        return False
    kind = ctypes.c_int()
    failed = driver_function("cuGraphNodeGetType")(ctypes.c_void_p(nodes[0]), ctypes.byref(kind))
    return not failed and kind.value == KERNEL
