// Kernels that may start before the one ahead of them in the stream has ended (programmatic launches, from sm_90 on).
#pragma once

#include <tapestry/portable.cuh>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TAPESTRY_OVERLAPS 1
#endif

namespace tapestry {

// Where a kernel was launched to overlap the end of the one before it: waits for that one's writes. Otherwise nothing.
TAPESTRY_FN void wait_for_previous_kernel() {
#ifdef TAPESTRY_OVERLAPS
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may take what room there is, once every block of this one has said so.
TAPESTRY_FN void let_next_kernel_start() {
#ifdef TAPESTRY_OVERLAPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The first act of a kernel that reads and writes only afterwards. As it ends after all ahead of it have, so do those
// that wait for it alone.
TAPESTRY_FN void follow() {
    let_next_kernel_start();
    wait_for_previous_kernel();
}

}  // namespace tapestry
