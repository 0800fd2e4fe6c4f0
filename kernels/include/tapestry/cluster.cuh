// A cluster: blocks that run at the same time and write into each other's shared memory. Needs sm_90.
#pragma once

#include <tapestry/copies.cuh>

namespace tapestry {

#if defined(__CUDA_ARCH__)

// One thread: the next phase of `arrived` ends once `bytes` were written beside it.
TAPESTRY_FN void expect_remote(Natural* arrived, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(arrived)), "r"(bytes)
                 : "memory");
}

// The same, of the first phase, before the cluster's first barrier.
TAPESTRY_FN void init_remote(Natural* arrived, unsigned bytes) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_place(arrived)) : "memory");
    expect_remote(arrived, bytes);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Between these two no thread of the cluster is left behind: every block has started and says what it expects.
TAPESTRY_FN void cluster_arrive() {
    __syncwarp();  // the arrival is of whole warps
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
TAPESTRY_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The value at the place that `mine` is in this block, in block `rank` of the cluster, and its bytes counted as arrived.
template <class V>
TAPESTRY_FN void put_remote(V* mine, Natural* arrived, unsigned rank, V value) {
    unsigned there, barrier;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_place(mine)), "r"(rank));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_place(arrived)), "r"(rank));
    if constexpr (sizeof(V) == 8) {
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there),
                     "l"(same_bits<Natural>(value)), "r"(barrier)
                     : "memory");
    } else {
        static_assert(sizeof(V) == 4, "tapestry: a value of 4 or 8 bytes");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there),
                     "r"(same_bits<unsigned>(value)), "r"(barrier)
                     : "memory");
    }
}

// Until all bytes that were expected have arrived, in the phase of that parity.
TAPESTRY_FN void wait_remote(Natural* arrived, unsigned parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(shared_place(arrived)), "r"(parity)
            : "memory");
    }
}

// What the launch reserved beside the variables of the kernel.
TAPESTRY_FN unsigned char* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char tapestry_dynamic_shared[];
    return tapestry_dynamic_shared;
}

#else  // whoever runs kernels on the host defines these

void expect_remote(Natural* arrived, unsigned bytes);
void init_remote(Natural* arrived, unsigned bytes);
void cluster_arrive();
void cluster_wait();
void put_bytes_remote(void* mine, Natural* arrived, unsigned rank, const void* value, int bytes);
void wait_remote(Natural* arrived, unsigned parity);
unsigned char* dynamic_shared();
template <class V>
void put_remote(V* mine, Natural* arrived, unsigned rank, V value) {
    put_bytes_remote(mine, arrived, rank, &value, int(sizeof(V)));
}

#endif

}  // namespace tapestry
