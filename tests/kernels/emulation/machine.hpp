// Blocks of threads on the host: every lane is a fiber, and lanes take turns in an order drawn from a seed.
//
// Enough of a GPU to run the kernels' own text: warp-wide matrix moves and products, barriers in shared memory that count arrivals and
// bytes, the copy engine with its zero fill and swizzles (a copy happens when it is issued), named barriers. A lane that waits
// gives way; when every lane waits, the block is stuck and the run fails. Shared memory begins as NaN, so that what nobody
// wrote shows in the result. The blocks of a cluster run at once, each from a turn drawn from the seed.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __expf expf
#define __align__(bytes) alignas(bytes)

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
struct float4 {
    float x, y, z, w;
};
using std::max;
using std::min;

namespace emulated {

constexpr int lanes_a_warp = 32;
constexpr std::size_t shared_bytes = 232448, stack_bytes = 1 << 17;

struct alignas(1024) Memory {
    unsigned char bytes[shared_bytes];
};
inline unsigned char* shared_memory = nullptr;    // of the running block

struct Lane {
    ucontext_t context;
    std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};
    Index thread;
    int number = 0;
    long cluster_turn = 0;    // arrivals at the cluster's barrier
    bool done = false;
};

// One operation that all lanes of a warp do together.
struct Meeting {
    int arrived = 0;
    long turn = 0;
    const char* what = nullptr;
    const void* given[lanes_a_warp] = {};
};

struct Block {
    std::vector<Lane> lanes;
    std::vector<Meeting> warps;
    std::map<int, std::pair<int, long>> named;    // barrier -> threads there, turn
    Index block, grid, threads;
    std::vector<Block>* cluster = nullptr;
    std::unique_ptr<Memory> memory{new Memory};
    long begins = 0;           // the turn of the scheduler from which it runs
    std::vector<long> pace;    // of its warps: slow ones run once in so many turns
    ucontext_t scheduler;
    Lane* current = nullptr;
    long progress = 0;
    std::string failure;
};
inline Block* running = nullptr;
inline long scheduler_turn = 0;
constexpr long slowest = 8, latest = 20;    // pace of a slow warp; turns before which every block of a cluster has begun

inline Lane& here() { return *running->current; }
inline void give_way() { swapcontext(&here().context, &running->scheduler); }
inline void fail(const std::string& why) {
    if (running->failure.empty()) running->failure = why;
    for (;;) give_way();
}
inline void wait_until(const std::function<bool()>& holds) {
    while (!holds()) give_way();
    ++running->progress;
}

// Runs `all` once, with what every lane of the warp brought, when the last of them has come.
template <class Given>
void together(const char* what, const Given& given, const std::function<void(const Given* const*)>& all) {
    Meeting& meeting = running->warps[here().number / lanes_a_warp];
    if (meeting.arrived != 0 && std::strcmp(meeting.what, what) != 0) fail(std::string(what) + " meets " + meeting.what);
    meeting.what = what;
    meeting.given[here().number % lanes_a_warp] = &given;
    const long turn = meeting.turn;
    ++running->progress;
    if (++meeting.arrived == lanes_a_warp) {
        all(reinterpret_cast<const Given* const*>(meeting.given));
        meeting.arrived = 0;
        ++meeting.turn;
    }
    wait_until([&] { return meeting.turn != turn; });
}

inline void arrive(int barrier, int threads, bool waits) {
    auto& [there, turn] = running->named[barrier];
    const long before = turn;
    ++running->progress;
    if (++there == threads) {
        there = 0;
        ++turn;
    }
    if (waits) wait_until([&] { return running->named[barrier].second != before; });
}

inline std::function<void()>* body = nullptr;
inline void enter() {
    (*body)();
    here().done = true;
    ++running->progress;
    for (;;) give_way();
}

// The lanes of a block, ready to run.
inline void prepare(Block& state, Index grid, Index block, Index threads, std::mt19937& dice) {
    const int count = static_cast<int>(threads.x * threads.y * threads.z);
    state.lanes = std::vector<Lane>(count);
    state.warps = std::vector<Meeting>((count + lanes_a_warp - 1) / lanes_a_warp);
    state.block = block, state.grid = grid, state.threads = threads;
    std::memset(state.memory->bytes, 0xff, shared_bytes);
    for (int i = 0; i < count; ++i) {
        Lane& lane = state.lanes[i];
        lane.number = i;
        lane.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = lane.stack.get();
        lane.context.uc_stack.ss_size = stack_bytes;
        makecontext(&lane.context, enter, 0);
    }
    state.begins = static_cast<long>(dice() % latest);
    state.pace.resize(state.warps.size());
    for (long& turns : state.pace) turns = dice() % 4 == 0 ? slowest : 1;
}

// A turn for every lane of a block but those of warps that are slow, warps in a random order. Says whether one of them is not at its end.
inline bool take_turns(Block& state, std::mt19937& dice) {
    std::vector<int> order(state.warps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), dice);
    running = &state;
    shared_memory = state.memory->bytes;
    bool alive = false;
    const int count = static_cast<int>(state.lanes.size());
    for (int warp : order)
        for (int i = warp * lanes_a_warp; i < min(count, (warp + 1) * lanes_a_warp); ++i) {
            if (state.lanes[i].done) continue;
            alive = true;
            if (scheduler_turn % state.pace[warp] != 0) continue;
            state.current = &state.lanes[i];
            swapcontext(&state.scheduler, &state.lanes[i].context);
        }
    return alive;
}

// Runs the blocks of one cluster to their end. Throws where they are stuck.
inline void run_cluster(Index grid, const std::vector<Index>& blocks, Index threads, unsigned seed, std::function<void()> kernel) {
    std::mt19937 dice(seed);
    std::vector<Block> cluster(blocks.size());
    body = &kernel;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        prepare(cluster[i], grid, blocks[i], threads, dice);
        cluster[i].cluster = &cluster;
    }
    if (blocks.size() == 1) cluster[0].begins = 0;
    scheduler_turn = 0;
    long before = 0;
    for (bool alive = true; alive; ++scheduler_turn) {
        alive = false;
        long progress = 0;
        for (Block& state : cluster) {
            alive |= scheduler_turn < state.begins || take_turns(state, dice);
            progress += state.progress;
            if (!state.failure.empty()) throw std::runtime_error(state.failure);
        }
        if (scheduler_turn % slowest != 0) continue;
        if (alive && progress == before && scheduler_turn > latest) throw std::runtime_error("every lane waits");
        before = progress;
    }
    running = nullptr;
}

// Barrier of a cluster. A thread arrives and waits in turns; one that has ended counts as being there.
inline void cluster_arrive() {
    ++here().cluster_turn;
    ++running->progress;
}
inline void cluster_wait() {
    const long turn = here().cluster_turn;
    if (turn == 0) fail("a wait at the cluster's barrier before an arrival");
    const auto there = [turn](const Lane& lane) { return lane.done || lane.cluster_turn >= turn; };
    wait_until([&] {
        for (const Block& state : *running->cluster)
            if (scheduler_turn < state.begins || !std::all_of(state.lanes.begin(), state.lanes.end(), there)) return false;
        return true;
    });
}

// The shared memory of a block of the cluster. It is there while the block runs.
inline unsigned char* memory_of(unsigned rank) {
    if (rank >= running->cluster->size()) fail("no such block in the cluster");
    Block& state = (*running->cluster)[rank];
    const bool ended = std::all_of(state.lanes.begin(), state.lanes.end(), [](const Lane& lane) { return lane.done; });
    if (scheduler_turn < state.begins || ended) fail("shared memory of a block that does not run");
    return state.memory->bytes;
}

}  // namespace emulated

#define threadIdx (emulated::here().thread)
#define blockIdx (emulated::running->block)
#define gridDim (emulated::running->grid)
#define blockDim (emulated::running->threads)

inline void __syncthreads() {
    const Index& all = emulated::running->threads;
    emulated::arrive(0, static_cast<int>(all.x * all.y * all.z), true);
}
inline void __syncwarp() {
    const int nothing = 0;
    emulated::together<int>("syncwarp", nothing, [](const int* const*) {});
}
inline unsigned __ballot_sync(unsigned mask, bool holds) { return holds ? mask : 0u; }    // of what holds in every lane or in none
template <class Value>
Value __shfl_sync(unsigned, Value value, int) {
    return value;    // of what is the same in every lane
}
struct Exchanged {
    float value;
    int with;
};
inline float __shfl_xor_sync(unsigned, float value, int distance) {
    float other = 0;
    emulated::together<std::pair<Exchanged, float*>>(
        "shuffle", {{value, emulated::here().number % emulated::lanes_a_warp ^ distance}, &other},
        [](const std::pair<Exchanged, float*>* const* lanes) {
            for (int lane = 0; lane < emulated::lanes_a_warp; ++lane) *lanes[lane]->second = lanes[lanes[lane]->first.with]->first.value;
        });
    return other;
}
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
