// The bulk tensor copy engine and the barriers in shared memory on which its copies complete.
//
// Shared addresses are 32-bit; a tensor map is a kernel parameter declared `const __grid_constant__ TensorMap`.
#pragma once

#include <tapestry/order.cuh>

namespace tapestry {

struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// One 8-byte barrier a `Barrier`; waits are by the parity of the phase waited for.
struct Barrier {
    unsigned address;

    __device__ void init(unsigned arrivals) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
    }
    __device__ void arrive() const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
    }
    // Arrives when `read`, made of a register of every load that must have been answered, is there: an arrival does not
    // wait for this thread's own reads, and a copy that follows it would overtake them. `zero` is 0, a fact that neither
    // compiler nor assembler can work out (the sign of an extent, say).
    __device__ void arrive_after(unsigned read, unsigned zero) const {
        asm volatile(
            "{\n.reg .b32 t;\nand.b32 t, %1, %2;\nadd.u32 t, t, %0;\nmbarrier.arrive.shared::cta.b64 _, [t];\n}" ::"r"(
                address),
            "r"(read), "r"(zero)
            : "memory");
    }
    __device__ void arrive_expecting(unsigned bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
    }
    __device__ bool reached(unsigned parity) const {
        unsigned done;
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(address), "r"(parity)
            : "memory");
        return done != 0;
    }
    __device__ void wait(unsigned parity) const {
        while (!reached(parity)) {
        }
    }
};

// Makes initialised barriers visible to the copy engine; a block-wide barrier follows.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Orders this thread's shared stores before later reads of the copy engine (an arrival carries the order on).
__device__ __forceinline__ void fence_for_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Sixteen bytes from global to shared memory, both addresses multiples of 16, without a register: there when
// `wait_copies` has returned. Zeros where `there` is false; then `from` is not read.
__device__ __forceinline__ void copy_octet(unsigned to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// Waits for the octets that this thread has asked for; others see them after a barrier.
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void store_octet(unsigned to, const unsigned (&words)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}

// The two bytes at a shared address.
__device__ __forceinline__ unsigned load_number(unsigned address) {
    unsigned short number;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(number) : "r"(address) : "memory");
    return number;
}

// Two or four words at a shared address that is a multiple of as many.
__device__ __forceinline__ void load_words(unsigned (&words)[4], unsigned address) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void load_words(unsigned (&words)[2], unsigned address) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_words(unsigned (&words)[1], unsigned address) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(address) : "memory");
}
__device__ __forceinline__ void store_words(unsigned address, const unsigned (&words)[1]) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(words[0]) : "memory");
}
__device__ __forceinline__ void store_number(unsigned address, unsigned number) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<unsigned short>(number)) : "memory");
}
__device__ __forceinline__ void store_words(unsigned address, const unsigned (&words)[4]) { store_octet(address, words); }
__device__ __forceinline__ void store_words(unsigned address, const unsigned (&words)[2]) {
    asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(address), "r"(words[0]), "r"(words[1]) : "memory");
}

// `bytes` that lie side by side, from global to shared memory by the copy engine; addresses and bytes are multiples of 16.
__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier on) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(on.address)
                 : "memory");
}

// The same from shared to global memory, in a group of stores.
__device__ __forceinline__ void store_bytes(void* to, unsigned from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)), "r"(from), "r"(bytes)
                 : "memory");
}

// Has the second-level cache fetch `bytes`, which it may do while the kernel ahead still writes them: that is where they meet.
__device__ __forceinline__ void prefetch_bytes(const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}

// What the second-level cache is told of the lines that a copy touches.
enum class Hint { none, evict_first, evict_last };

template <Hint hint>
__device__ __forceinline__ unsigned long long cache_policy() {
    unsigned long long policy;
    if constexpr (hint == Hint::evict_first) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    if constexpr (hint == Hint::evict_last) asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Box at (c, x, y, image) of the map to shared memory; what lies outside the tensor arrives as zero.
template <Hint hint = Hint::none>
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int c, int x, int y, int image, Barrier on) {
    if constexpr (hint == Hint::none) {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
            "[%1, {%2,%3,%4,%5}], [%6];" ::"r"(to),
            "l"(&map), "r"(c), "r"(x), "r"(y), "r"(image), "r"(on.address)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
            "[%1, {%2,%3,%4,%5}], [%6], %7;" ::"r"(to),
            "l"(&map), "r"(c), "r"(x), "r"(y), "r"(image), "r"(on.address), "l"(cache_policy<hint>())
            : "memory");
    }
}

// Box from shared memory; what lies beyond the tensor is dropped. Coordinates are not negative: a GPU (sm_90) stops at such
// a store with an illegal instruction, though it loads from there.
template <Hint hint = Hint::none>
__device__ __forceinline__ void store_box(const TensorMap& map, int c, int x, int y, int image, unsigned from) {
    if constexpr (hint == Hint::none) {
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1,%2,%3,%4}], [%5];" ::"l"(&map),
                     "r"(c), "r"(x), "r"(y), "r"(image), "r"(from)
                     : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%1,%2,%3,%4}], [%5], "
            "%6;" ::"l"(&map),
            "r"(c), "r"(x), "r"(y), "r"(image), "r"(from), "l"(cache_policy<hint>())
            : "memory");
    }
}

__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `Pending` of the newest groups of stores still read shared memory.
template <int Pending>
__device__ __forceinline__ void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// True in one lane of a whole warp. The compiler knows that it is one: a copy under it needs no loop over lanes.
__device__ __forceinline__ bool elected() {
    unsigned chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

// Waits until `threads` threads of the block, whole warps, are at barrier `id` (1 to 15; 0 is the whole block's).
__device__ __forceinline__ void meet(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Counts as being there without waiting for the others.
__device__ __forceinline__ void pass(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Barrier of all threads of a cluster of blocks, in two halves: what was stored before an arrival, in any block's shared memory, is seen
// after the wait. Every thread arrives and waits in turns; one that has ended counts as being there.
__device__ __forceinline__ void pass_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
// The first half where nothing was stored that others are to see: that this thread has begun is all it says.
__device__ __forceinline__ void join_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// The same place in the shared memory of another block of the cluster, by its rank: for `store_shared`.
__device__ __forceinline__ unsigned in_block(unsigned address, unsigned rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
__device__ __forceinline__ void store_shared(unsigned address, const float4& value) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}
__device__ __forceinline__ float4 load_shared(unsigned address) {
    float4 value;
    asm volatile("ld.shared::cta.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

// Sum of four and four.
__device__ __forceinline__ float4 plus(const float4& a, const float4& b) { return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// A load that keeps its place among the others: a batch of them is under way before the first is waited for.
__device__ __forceinline__ float4 load_in_order(const float4* from) {
    float4 value;
    asm volatile("ld.global.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

// The barriers of a ring of `SLOTS` slots: one says that a slot is full, one that it is empty.
template <int SLOTS>
struct Slots {
    unsigned base;

    __device__ Barrier full(unsigned slot) const { return {base + 8 * slot}; }
    __device__ Barrier empty(unsigned slot) const { return {base + 8 * (SLOTS + slot)}; }
    __device__ void prepare(int consumers) const {
        for (int slot = 0; slot < SLOTS; ++slot) {
            full(slot).init(1);
            empty(slot).init(consumers);
        }
    }
};

// A cursor round a ring of `Count` buffers: the slot, and the parity of its barrier's phase.
template <int Count>
struct Ring {
    unsigned slot = 0;
    unsigned parity = 0;

    __device__ void advance() {
        if (++slot == Count) {
            slot = 0;
            parity ^= 1u;
        }
    }
    // By at most a whole round.
    __device__ void advance(unsigned count) {
        slot += count;
        if (slot >= Count) {
            slot -= Count;
            parity ^= 1u;
        }
    }
};

}  // namespace tapestry
