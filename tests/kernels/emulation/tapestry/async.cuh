// The copy engine and its barriers on the host. What is the same for every kernel stands in copies.cpp.
#pragma once

#include <tapestry/order.cuh>

#include "machine.hpp"

namespace tapestry {

// What stands in the 128 bytes of a tensor map here: extents, strides and box in elements of two bytes, channels first.
struct alignas(64) TensorMap {
    const unsigned char* pointer;
    std::int64_t extents[4], strides[4];
    std::int32_t box[4], swizzle;
};

// An address has its block's rank in the cluster above the bits of a place, as a GPU's has.
constexpr unsigned rank_bit = 1u << 24;

inline unsigned shared_address(const void* pointer) {
    return emulated::rank() * rank_bit + static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - emulated::shared_memory);
}

inline unsigned char* shared_pointer(unsigned address, unsigned aligned) {
    const unsigned place = address % rank_bit;
    if (address / rank_bit != emulated::rank()) emulated::fail("an address of another block, where only the own one can be reached");
    if (place % aligned || place >= emulated::shared_bytes) emulated::fail("an address outside shared memory, or not aligned");
    return emulated::shared_memory + place;
}

struct Barrier {
    unsigned address;

    void init(unsigned arrivals) const;
    void arrive() const { settle(1, 0); }
    void arrive_after(unsigned, unsigned) const { arrive(); }
    void arrive_expecting(unsigned bytes) const { settle(1, bytes); }
    void copied(unsigned bytes) const { settle(0, -long(bytes)); }
    bool reached(unsigned parity) const;
    void wait(unsigned parity) const;

   private:
    void settle(long arrivals, long bytes) const;
};

inline void fence_barrier_init() {}
inline void prefetch(const TensorMap&) {}
inline void prefetch_bytes(const void*, unsigned) {}
inline bool elected() { return emulated::lane() % emulated::lanes_a_warp == 0; }
inline void meet(int id, int threads) { emulated::arrive(id, threads, true); }
inline void pass(int id, int threads) { emulated::arrive(id, threads, false); }

// Octets that a lane has asked for come as late as they may: when it waits for them.
void copy_octet(unsigned to, const void* from, bool there);
void wait_copies();
inline void store_octet(unsigned to, const unsigned (&words)[4]) { std::memcpy(shared_pointer(to, 16), words, 16); }
inline unsigned load_number(unsigned address) {
    unsigned short number;
    std::memcpy(&number, shared_pointer(address, 2), 2);
    return number;
}
inline void store_number(unsigned address, unsigned number) {
    const auto half = static_cast<unsigned short>(number);
    std::memcpy(shared_pointer(address, 2), &half, 2);
}
template <int Count>
void load_words(unsigned (&words)[Count], unsigned address) {
    std::memcpy(words, shared_pointer(address, 4 * Count), 4 * Count);
}
template <int Count>
void store_words(unsigned address, const unsigned (&words)[Count]) {
    std::memcpy(shared_pointer(address, 4 * Count), words, 4 * Count);
}
inline float4 load_in_order(const float4* from) { return *from; }

inline float4 plus(const float4& a, const float4& b) { return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
inline void pass_cluster() { emulated::cluster_arrive(); }
inline void join_cluster() { emulated::cluster_arrive(); }
inline void wait_for_cluster() { emulated::cluster_wait(); }
inline unsigned in_block(unsigned address, unsigned rank) { return address % rank_bit + rank * rank_bit; }
void store_shared(unsigned address, const float4& value);
inline float4 load_shared(unsigned address) {
    float4 value;
    std::memcpy(&value, shared_pointer(address, 16), sizeof value);
    return value;
}

enum class Hint { none, evict_first, evict_last };

inline void fence_for_copy_engine() {}

// Stores read shared memory as late as they may: when somebody waits for it.
void commit_stores();
void wait_groups_read(std::size_t pending);
template <int Pending>
void wait_stores_read() {
    wait_groups_read(Pending);
}

void load_boxes(unsigned to, const TensorMap& map, int c, int x, int y, int image, Barrier on);
void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier on);
void store_boxes(const TensorMap& map, int c, int x, int y, int image, unsigned from);
void store_bytes(void* to, unsigned from, unsigned bytes);

template <Hint hint = Hint::none>
void load_box(unsigned to, const TensorMap& map, int c, int x, int y, int image, Barrier on) {
    load_boxes(to, map, c, x, y, image, on);
}

template <Hint hint = Hint::none>
void store_box(const TensorMap& map, int c, int x, int y, int image, unsigned from) {
    store_boxes(map, c, x, y, image, from);
}

template <int SLOTS>
struct Slots {
    unsigned base;

    Barrier full(unsigned slot) const { return {base + 8 * slot}; }
    Barrier empty(unsigned slot) const { return {base + 8 * (SLOTS + slot)}; }
    void prepare(int consumers) const {
        for (int slot = 0; slot < SLOTS; ++slot) {
            full(slot).init(1);
            empty(slot).init(consumers);
        }
    }
};

template <int Count>
struct Ring {
    unsigned slot = 0, parity = 0;

    void advance() {
        if (++slot == Count) slot = 0, parity ^= 1u;
    }
    void advance(unsigned count) {
        for (unsigned i = 0; i < count; ++i) advance();
    }
};

}  // namespace tapestry
