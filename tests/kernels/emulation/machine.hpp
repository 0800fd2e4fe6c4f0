// Blocks of threads on the host: every lane is a fiber, and lanes take turns in an order drawn from a seed.
//
// Enough of a GPU to run the kernels' own text: warp-wide matrix moves and products, barriers in shared memory that count arrivals and
// bytes, the copy engine with its zero fill and swizzles (a copy happens when it is issued), named barriers. A lane that waits
// gives way; when every lane waits, the block is stuck and the run fails. Shared memory begins as NaN, so that what nobody
// wrote shows in the result.
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
alignas(1024) inline unsigned char shared_memory[shared_bytes];

struct Lane {
    ucontext_t context;
    std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};
    Index thread;
    int number = 0;
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
    ucontext_t scheduler;
    Lane* current = nullptr;
    long progress = 0;
    std::string failure;
};
inline Block* running = nullptr;

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

// Runs one block to its end. Throws where it is stuck.
inline void run_block(Index grid, Index block, Index threads, unsigned seed, std::function<void()> kernel) {
    const int count = static_cast<int>(threads.x * threads.y * threads.z);
    Block state;
    state.lanes = std::vector<Lane>(count);
    state.warps = std::vector<Meeting>((count + lanes_a_warp - 1) / lanes_a_warp);
    state.block = block, state.grid = grid, state.threads = threads;
    running = &state;
    body = &kernel;
    std::memset(shared_memory, 0xff, shared_bytes);
    for (int i = 0; i < count; ++i) {
        Lane& lane = state.lanes[i];
        lane.number = i;
        lane.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = lane.stack.get();
        lane.context.uc_stack.ss_size = stack_bytes;
        makecontext(&lane.context, enter, 0);
    }
    std::mt19937 dice(seed);
    std::vector<int> order(state.warps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    // Some warps are slow: they take their turn once in `slowest` rounds.
    constexpr long slowest = 8;
    std::vector<long> pace(order.size());
    for (long& rounds : pace) rounds = dice() % 4 == 0 ? slowest : 1;
    long before = 0;
    for (long round = 1, alive = true; alive; ++round) {
        alive = false;
        std::shuffle(order.begin(), order.end(), dice);
        for (int warp : order) {
            if (round % pace[warp] != 0) {
                alive = true;
                continue;
            }
            for (int i = warp * lanes_a_warp; i < min(count, (warp + 1) * lanes_a_warp); ++i) {
                if (state.lanes[i].done) continue;
                alive = true;
                state.current = &state.lanes[i];
                swapcontext(&state.scheduler, &state.lanes[i].context);
            }
        }
        if (round % slowest != 0) continue;
        if (alive && state.progress == before) throw std::runtime_error(state.failure.empty() ? "every lane waits" : state.failure);
        before = state.progress;
    }
    running = nullptr;
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
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
