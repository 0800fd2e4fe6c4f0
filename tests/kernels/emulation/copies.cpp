// The copy engine's work, and the barriers that count it.
#include <tapestry/async.cuh>

#include <deque>
#include <random>
#include <unordered_map>

#include "fibers.hpp"

namespace tapestry {

namespace {

struct Phase {
    long expected = 0, pending = 0, bytes = 0;
    unsigned turn = 0;
};
std::map<std::pair<const emulated::Block*, unsigned>, Phase> phases;

struct OctetCopy {
    unsigned to;
    const void* from;
};
std::map<int, std::vector<OctetCopy>> octet_copies;

struct Stores {
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;
};
Stores stores;

// What boxes have left in memory. Which of two blocks would store last is not known.
std::unordered_map<const void*, std::uint16_t> left_behind;

// Loads that a block has asked for and that have not come.
struct Load {
    const emulated::Block* block;
    unsigned begin, end;    // where, in shared memory
    std::function<void()> land;
};
std::vector<Load> loads;
std::mt19937 luck;

// A load comes at once, or late: what is read of it too soon is not there. Whichever of two to one place came last would stay.
void load(unsigned to, unsigned bytes, std::function<void()> land) {
    for (const Load& other : loads)
        if (other.block == emulated::running && other.begin < to + bytes && to < other.end)
            emulated::fail("a copy to where another one is still on its way");
    if (luck() % 2 == 0) return land();
    loads.push_back({emulated::running, to, to + bytes, std::move(land)});
}

// Bytes from one position of a box to the next: positions lie as far apart as the swizzle is wide, whatever the box has of them.
unsigned pitch(const TensorMap& map) { return map.swizzle > 2 * map.box[0] ? map.swizzle : 2 * map.box[0]; }

// Calls `each` with every element of a box: where it lies in shared memory, and in the tensor, null outside. Returns the bytes that are
// moved.
template <class Each>
unsigned for_box(unsigned place, const TensorMap& map, int c, int x, int y, int image, const Each& each) {
    const std::int64_t start[4] = {c, x, y, image};
    std::int32_t at[4];
    const unsigned gap = pitch(map) - 2 * map.box[0];
    unsigned bytes = 0;
    for (at[3] = 0; at[3] < map.box[3]; ++at[3])
        for (at[2] = 0; at[2] < map.box[2]; ++at[2])
            for (at[1] = 0; at[1] < map.box[1]; ++at[1], place += gap)
                for (at[0] = 0; at[0] < map.box[0]; ++at[0], place += 2, bytes += 2) {
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
    return bytes;
}

void leave_barriers(const emulated::Block* block, unsigned address, unsigned bytes) {
    const auto next = phases.lower_bound({block, address});
    if (next != phases.end() && next->first.first == block && next->first.second < address + bytes)
        emulated::fail("a store where a barrier lies");
}

Phase& phase_of(const Barrier& barrier) { return phases.at({emulated::running, barrier.address}); }

}  // namespace

void Barrier::init(unsigned arrivals) const { phases[{emulated::running, address}] = {long(arrivals), long(arrivals), 0, 0}; }

bool Barrier::reached(unsigned parity) const { return (phase_of(*this).turn & 1u) != parity; }

void Barrier::wait(unsigned parity) const {
    const Phase& phase = phase_of(*this);
    emulated::wait_until([&] { return (phase.turn & 1u) != parity; });
}

void Barrier::settle(long arrivals, long bytes) const {
    Phase& phase = phase_of(*this);
    phase.pending -= arrivals;
    phase.bytes += bytes;
    ++emulated::running->progress;
    if (phase.pending < 0) emulated::fail("more arrivals at a barrier than it expects");
    if (phase.pending == 0 && phase.bytes == 0) phase.pending = phase.expected, ++phase.turn;
}

void copy_octet(unsigned to, const void* from, bool there) {
    if (there && reinterpret_cast<std::uintptr_t>(from) % 16) emulated::fail("sixteen bytes are copied from an odd address");
    octet_copies[emulated::lane()].push_back({to, there ? from : nullptr});
}

void wait_copies() {
    for (const OctetCopy& copy : octet_copies[emulated::lane()]) {
        if (copy.from)
            std::memcpy(shared_pointer(copy.to, 16), copy.from, 16);
        else
            std::memset(shared_pointer(copy.to, 16), 0, 16);
    }
    octet_copies[emulated::lane()].clear();
}

void store_shared(unsigned address, const float4& value) {
    const unsigned rank = address / rank_bit, place = address % rank_bit;
    unsigned char* to = rank == emulated::rank() ? shared_pointer(address, 16) : emulated::memory_of(rank) + place;
    if (place % 16 || place >= emulated::shared_bytes) emulated::fail("an address outside shared memory, or not aligned");
    leave_barriers(&(*emulated::running->cluster)[rank], address, sizeof value);
    std::memcpy(to, &value, sizeof value);
}

void commit_stores() {
    stores.groups.push_back(std::move(stores.open));
    stores.open.clear();
}

void wait_groups_read(std::size_t pending) {
    for (; stores.groups.size() > pending; stores.groups.pop_front())
        for (const auto& store : stores.groups.front()) store();
}

constexpr unsigned box_line = 128;    // bytes, whole ones of which a box begins at

void load_boxes(unsigned to, const TensorMap& map, int c, int x, int y, int image, Barrier on) {
    if (to % box_line) emulated::fail("a box is loaded to the middle of a line");
    load(to, pitch(map) * map.box[1] * map.box[2] * map.box[3], [=, &map] {
        on.copied(for_box(to, map, c, x, y, image, [](unsigned char* into, const unsigned char* from) {
            if (from)
                std::memcpy(into, from, 2);
            else
                std::memset(into, 0, 2);
        }));
    });
}

void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier on) {
    if (reinterpret_cast<std::uintptr_t>(from) % 16 || bytes % 16 || bytes == 0) emulated::fail("bytes are copied that are not sixteens");
    load(to, bytes, [=] {
        std::memcpy(shared_pointer(to, 16), from, bytes);
        on.copied(bytes);
    });
}

// A number that the copy engine writes to memory.
static void leave(unsigned char* into, const unsigned char* from) {
    std::uint16_t number;
    std::memcpy(&number, from, 2);
    if (left_behind.emplace(into, number).first->second != number) emulated::fail("stores leave different numbers in one place");
    std::memcpy(into, from, 2);
}

// A store reads shared memory at once, or as late as it may.
void store_boxes(const TensorMap& map, int c, int x, int y, int image, unsigned from) {
    if (from % box_line) emulated::fail("a box is stored from the middle of a line");
    if (min(min(c, x), min(y, image)) < 0) emulated::fail("a store at a negative coordinate: an illegal instruction on a GPU");
    const auto read = [=, &map] {
        for_box(from, map, c, x, y, image, [](const unsigned char* out, const unsigned char* into) {
            if (into) leave(const_cast<unsigned char*>(into), out);
        });
    };
    if (luck() % 2 == 0) return read();
    stores.open.push_back(read);
}

void store_bytes(void* to, unsigned from, unsigned bytes) {
    if (reinterpret_cast<std::uintptr_t>(to) % 16 || from % 16 || bytes % 16 || bytes == 0) emulated::fail("bytes are stored that are not sixteens");
    const auto read = [=] {
        for (unsigned at = 0; at < bytes; at += 2) leave(static_cast<unsigned char*>(to) + at, shared_pointer(from + at, 2));
    };
    if (luck() % 2 == 0) return read();
    stores.open.push_back(read);
}

}  // namespace tapestry

namespace emulated {

void forget_what_was_left() { tapestry::left_behind.clear(); }

void begin_copies(unsigned seed) {
    tapestry::phases.clear();
    tapestry::loads.clear();
    tapestry::luck.seed(seed);
}

void land_copies() {
    constexpr unsigned seldom = 16;
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < tapestry::loads.size(); ++i)
        if (tapestry::loads[i].block == running) own.push_back(i);
    if (own.empty()) return;
    ++running->progress;
    if (tapestry::luck() % seldom) return;
    const std::size_t at = own[tapestry::luck() % own.size()];
    const auto land = std::move(tapestry::loads[at].land);
    tapestry::loads.erase(tapestry::loads.begin() + static_cast<std::ptrdiff_t>(at));
    land();
}

bool copies_under_way() { return !tapestry::loads.empty(); }

}  // namespace emulated
