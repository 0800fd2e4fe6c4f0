// The copy engine and its barriers on the host.
#pragma once

#include <deque>

#include "machine.hpp"

namespace tapestry {

// What stands in the 128 bytes of a tensor map here: extents, strides and box in elements of two bytes, channels first.
struct alignas(64) TensorMap {
    const unsigned char* pointer;
    std::int64_t extents[4], strides[4];
    std::int32_t box[4], swizzle;
};

inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - emulated::shared_memory);
}

inline unsigned char* shared_pointer(unsigned address, unsigned aligned) {
    if (address % aligned || address >= emulated::shared_bytes) emulated::fail("an address outside shared memory, or not aligned");
    return emulated::shared_memory + address;
}

struct Phase {
    long expected = 0, pending = 0, bytes = 0;
    unsigned turn = 0;
};
inline std::map<std::pair<const emulated::Block*, unsigned>, Phase> phases;

struct Barrier {
    unsigned address;

    void init(unsigned arrivals) const { phases[place()] = {long(arrivals), long(arrivals), 0, 0}; }
    void arrive() const { settle(1, 0); }
    void arrive_after(unsigned, unsigned) const { arrive(); }
    void arrive_expecting(unsigned bytes) const { settle(1, bytes); }
    void copied(unsigned bytes) const { settle(0, -long(bytes)); }
    bool reached(unsigned parity) const { return (phases.at(place()).turn & 1u) != parity; }
    void wait(unsigned parity) const {
        emulated::wait_until([&] { return reached(parity); });
    }

   private:
    std::pair<const emulated::Block*, unsigned> place() const { return {emulated::running, address}; }
    void settle(long arrivals, long bytes) const {
        Phase& phase = phases.at(place());
        phase.pending -= arrivals;
        phase.bytes += bytes;
        ++emulated::running->progress;
        if (phase.pending < 0) emulated::fail("more arrivals at a barrier than it expects");
        if (phase.pending == 0 && phase.bytes == 0) phase.pending = phase.expected, ++phase.turn;
    }
};

inline void fence_barrier_init() {}
inline void prefetch(const TensorMap&) {}
inline void wait_for_previous_kernel() {}
inline void let_next_kernel_start() {}
inline bool elected() { return emulated::here().number % emulated::lanes_a_warp == 0; }
inline void meet(int id, int threads) { emulated::arrive(id, threads, true); }
inline void pass(int id, int threads) { emulated::arrive(id, threads, false); }
// Octets that a lane has asked for come as late as they may: when it waits for them.
struct OctetCopy {
    unsigned to;
    const void* from;
};
inline std::map<int, std::vector<OctetCopy>> octet_copies;

inline void copy_octet(unsigned to, const void* from, bool there) {
    if (there && reinterpret_cast<std::uintptr_t>(from) % 16) emulated::fail("sixteen bytes are copied from an odd address");
    octet_copies[emulated::here().number].push_back({to, there ? from : nullptr});
}
inline void wait_copies() {
    for (const OctetCopy& copy : octet_copies[emulated::here().number]) {
        if (copy.from)
            std::memcpy(shared_pointer(copy.to, 16), copy.from, 16);
        else
            std::memset(shared_pointer(copy.to, 16), 0, 16);
    }
    octet_copies[emulated::here().number].clear();
}
inline void store_octet(unsigned to, const unsigned (&words)[4]) { std::memcpy(shared_pointer(to, 16), words, 16); }
inline float4 load_in_order(const float4* from) { return *from; }

// An address in another block's shared memory has its rank, and one more, above the bits of a place.
constexpr unsigned rank_bit = 1u << 20;
inline void pass_cluster() { emulated::cluster_arrive(); }
inline void wait_for_cluster() { emulated::cluster_wait(); }
inline unsigned in_block(unsigned address, unsigned rank) { return address + (rank + 1) * rank_bit; }
inline void store_shared(unsigned address, const float4& value) {
    unsigned char* own = shared_pointer(address % rank_bit, 16);
    if (address >= rank_bit) own = emulated::memory_of(address / rank_bit - 1) + address % rank_bit;
    std::memcpy(own, &value, sizeof value);
}
inline float4 load_shared(unsigned address) {
    float4 value;
    std::memcpy(&value, shared_pointer(address, 16), sizeof value);
    return value;
}

enum class Hint { none, evict_first, evict_last };

inline void fence_for_copy_engine() {}

// Stores read shared memory as late as they may: when somebody waits for it.
struct Stores {
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;
};
inline Stores stores;

inline void commit_stores() {
    stores.groups.push_back(std::move(stores.open));
    stores.open.clear();
}
template <int Pending>
void wait_stores_read() {
    for (; stores.groups.size() > Pending; stores.groups.pop_front())
        for (const auto& store : stores.groups.front()) store();
}

// Calls `each` with every element of a box: where it lies in shared memory, and in the tensor, null outside.
template <class Each>
unsigned for_box(unsigned place, const TensorMap& map, int c, int x, int y, int image, const Each& each) {
    const std::int64_t start[4] = {c, x, y, image};
    std::int32_t at[4];
    for (at[3] = 0; at[3] < map.box[3]; ++at[3])
        for (at[2] = 0; at[2] < map.box[2]; ++at[2])
            for (at[1] = 0; at[1] < map.box[1]; ++at[1])
                for (at[0] = 0; at[0] < map.box[0]; ++at[0], place += 2) {
                    bool inside = true;
                    std::int64_t offset = 0;
                    for (int axis = 0; axis < 4; ++axis) {
                        const std::int64_t index = start[axis] + at[axis];
                        inside = inside && index >= 0 && index < map.extents[axis];
                        offset += index * map.strides[axis];
                    }
                    const unsigned turned = map.swizzle > 16 ? place ^ (place >> 3 & (map.swizzle - 16)) : place;
                    each(shared_pointer(turned, 2), inside ? map.pointer + 2 * offset : nullptr);
                }
    return place;
}

template <Hint hint = Hint::none>
void load_box(unsigned to, const TensorMap& map, int c, int x, int y, int image, Barrier on) {
    on.copied(for_box(to, map, c, x, y, image, [](unsigned char* into, const unsigned char* from) {
                  if (from)
                      std::memcpy(into, from, 2);
                  else
                      std::memset(into, 0, 2);
              }) - to);
}

template <Hint hint = Hint::none>
void store_box(const TensorMap& map, int c, int x, int y, int image, unsigned from) {
    if (min(min(c, x), min(y, image)) < 0) emulated::fail("a store at a negative coordinate: an illegal instruction on a GPU");
    stores.open.push_back([=, &map] {
        for_box(from, map, c, x, y, image, [](const unsigned char* out, const unsigned char* into) {
            if (into) std::memcpy(const_cast<unsigned char*>(into), out, 2);
        });
    });
}

template <int Slots>
struct Ring {
    unsigned slot = 0, parity = 0;

    void advance() {
        if (++slot == Slots) slot = 0, parity ^= 1u;
    }
};

}  // namespace tapestry
