// Copies from global to shared memory that no register waits for.
#pragma once

#include <tapestry/scalar.cuh>

namespace tapestry {

#if defined(__CUDA_ARCH__)

TAPESTRY_FN unsigned shared_place(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

// BYTES (4, 8, 16) from global memory, both addresses aligned to as many. The thread commits its copies in
// groups; a group is there, for that thread, once `wait_copies` leaves no more than the later ones pending.
template <int BYTES>
TAPESTRY_FN void copy_async(void* shared, const void* from) {
    const unsigned to = shared_place(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
    }
}

TAPESTRY_FN void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING>
TAPESTRY_FN void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#else  // whoever runs kernels on the host defines these

void copy_bytes_async(void* shared, const void* from, int bytes);
void commit_copies();
void wait_copies_but(int pending);

template <int BYTES>
void copy_async(void* shared, const void* from) {
    copy_bytes_async(shared, from, BYTES);
}
template <int PENDING>
void wait_copies() {
    wait_copies_but(PENDING);
}

#endif

}  // namespace tapestry
