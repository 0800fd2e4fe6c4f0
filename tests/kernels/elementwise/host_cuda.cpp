// Fibres, blocks and clusters: what host_cuda.hpp declares.
#include "host_cuda.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

Position threadIdx, blockIdx;

namespace host {

namespace {

constexpr int GARBAGE = 0xA5, STACK = 1 << 16;

struct Gate {
    unsigned arrived = 0, phase = 0;
};

struct Copy {
    void* to;
    const void* from;
    int bytes;
};

struct Fibre {
    ucontext_t first;                       // where it starts
    jmp_buf stopped;                        // where it gave way: jumps take no system call, as changes of context do
    std::unique_ptr<char[]> stack;
    bool begun, alive;
    unsigned awaited;                       // phase of the cluster's barrier
    std::vector<Copy> copies;               // not yet in a group
    std::deque<std::vector<Copy>> pending;  // groups under way
};

struct Block {
    std::vector<char> statics, dynamic;  // the first while another block runs
    unsigned char exchanged[1024][8];
    Gate gate, warps[1024 / WARP];
    unsigned alive;
    bool started;
};

Launch launch;
std::vector<Fibre> fibres;
std::vector<Block> blocks;
Gate cluster_gate;
unsigned first_block, progress;
jmp_buf scheduler;
std::function<void()> body;

[[noreturn]] void fail(const char* why) {
    std::fprintf(stderr, "emulated kernel, block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, why);
    std::abort();
}

// A barrier that counts bytes: they may come before it is said how many.
struct Arrivals {
    unsigned phase;
    bool expecting;
    int missing;
};

constexpr unsigned long long MARK = 0xB177ull << 48;
constexpr int ZERO = 1 << 20;

unsigned long long encode(Arrivals state) {
    if (state.expecting && state.missing == 0) state = {state.phase + 1, false, 0};
    const unsigned long long phase = state.phase % 0x1000, missing = unsigned(state.missing + ZERO);
    return MARK | phase << 33 | (unsigned long long)state.expecting << 32 | missing;
}

Arrivals decode(unsigned long long bits) {
    if (bits >> 48 != MARK >> 48) fail("a barrier that was not initialised");
    return {unsigned(bits >> 33) % 0x1000, bool(bits >> 32 & 1), int(unsigned(bits)) - ZERO};
}

unsigned rank() { return blockIdx.x - first_block; }
Block& block() { return blocks[rank()]; }
Fibre& fibre() { return fibres[rank() * launch.threads + threadIdx.x]; }

void enter() {
    body();
    fibre().alive = false;
    --block().alive;
    ++progress;
    _longjmp(scheduler, 1);
}

void yield() {
    if (!_setjmp(fibre().stopped)) _longjmp(scheduler, 1);
}

// Lets a fibre run until it gives way or ends.
void resume(Fibre& fibre) {
    if (_setjmp(scheduler)) return;
    if (fibre.begun) _longjmp(fibre.stopped, 1);
    fibre.begun = true;
    setcontext(&fibre.first);
}

void arrive(Gate& gate, unsigned members) {
    ++progress;
    if (++gate.arrived == members) {
        gate.arrived = 0;
        ++gate.phase;
    }
}

void meet(Gate& gate, unsigned members) {
    const unsigned phase = gate.phase;
    arrive(gate, members);
    while (gate.phase == phase) yield();
}

void start(Fibre& fibre) {
    if (!fibre.stack) fibre.stack.reset(new char[STACK]);
    fibre.begun = false, fibre.alive = true;
    fibre.copies.clear();
    fibre.pending.clear();
    getcontext(&fibre.first);
    fibre.first.uc_stack.ss_sp = fibre.stack.get();
    fibre.first.uc_stack.ss_size = STACK;
    makecontext(&fibre.first, enter, 0);
}

// The static shared memory of a block, in place of that of the one before.
void swap_in(unsigned wanted, unsigned& there) {
    if (wanted == there) return;
    const std::size_t size = __stop_tapestry_shared - __start_tapestry_shared;
    if (there != ~0u) blocks[there].statics.assign(__start_tapestry_shared, __stop_tapestry_shared);
    std::memcpy(__start_tapestry_shared, blocks[wanted].statics.data(), size);
    there = wanted;
}

// Every thread of a block to its next barrier, again and again, as long as that brings anything.
void run_ahead(unsigned rank) {
    for (unsigned before = progress - 1; before != progress;) {
        before = progress;
        for (unsigned t = 0; t < launch.threads; ++t) {
            Fibre& fibre = fibres[rank * launch.threads + t];
            if (!fibre.alive) continue;
            blocks[rank].started = true;
            threadIdx.x = t;
            resume(fibre);
        }
    }
}

void run_cluster(bool backwards) {
    fibres.resize(launch.cluster * launch.threads);
    blocks.assign(launch.cluster, Block{});
    cluster_gate = Gate{};
    for (Block& block : blocks) {
        block.statics.assign(__stop_tapestry_shared - __start_tapestry_shared, char(GARBAGE));
        block.dynamic.assign(launch.shared + 16, char(GARBAGE));
        block.alive = launch.threads;
    }
    for (Fibre& fibre : fibres) start(fibre);
    unsigned there = ~0u;
    for (bool any = true; any;) {
        any = false;
        const unsigned before = progress;
        for (unsigned k = 0; k < launch.cluster; ++k) {
            const unsigned rank = backwards ? launch.cluster - 1 - k : k;
            if (!blocks[rank].alive) continue;
            any = true;
            swap_in(rank, there);
            blockIdx.x = first_block + rank;
            run_ahead(rank);
        }
        if (any && before == progress) fail("waits at a barrier that not all reach");
    }
}

}  // namespace

Slot* exchanged() { return block().exchanged; }
void meet_warp() { meet(block().warps[threadIdx.x / WARP], WARP); }
void meet_block() { meet(block().gate, launch.threads); }

void run(Launch wanted, void (*kernel)(void**), void** pointers) {
    launch = wanted;
    body = [=] { kernel(pointers); };
    for (first_block = 0; first_block < launch.blocks; first_block += launch.cluster) {
        blockIdx.x = first_block;
        if (launch.barriers) {
            run_cluster(first_block / launch.cluster % 2 == 1);
        } else {
            for (threadIdx.x = 0; threadIdx.x < launch.threads; ++threadIdx.x) body();
        }
    }
}

}  // namespace host

namespace tapestry {

void cluster_arrive() {
    host::fibre().awaited = host::cluster_gate.phase;
    host::arrive(host::cluster_gate, host::launch.cluster * host::launch.threads);
}

void cluster_wait() {
    while (host::cluster_gate.phase == host::fibre().awaited) host::yield();
}

void expect_remote(Natural* arrived, unsigned bytes) {
    host::Arrivals state = host::decode(*arrived);
    if (state.expecting) host::fail("expects twice in one phase");
    state.expecting = true;
    state.missing += int(bytes);
    *arrived = host::encode(state);
}

void init_remote(Natural* arrived, unsigned bytes) {
    *arrived = host::encode({0, false, 0});
    expect_remote(arrived, bytes);
}

// To the same place in another block's shared memory, which has to be there.
void put_bytes_remote(void* mine, Natural* arrived, unsigned rank, const void* value, int bytes) {
    const std::ptrdiff_t size = __stop_tapestry_shared - __start_tapestry_shared;
    const std::ptrdiff_t at = static_cast<char*>(mine) - __start_tapestry_shared;
    if (at < 0 || at + bytes > size) host::fail("writes beside shared memory");
    if (rank >= host::launch.cluster) host::fail("writes to a block outside of its cluster");
    host::Block& target = host::blocks[rank];
    if (!target.started || !target.alive) host::fail("writes to a block that does not run");
    char* const there = rank == host::rank() ? __start_tapestry_shared : target.statics.data();
    Natural* const left = reinterpret_cast<Natural*>(there + (reinterpret_cast<char*>(arrived) - __start_tapestry_shared));
    host::Arrivals state = host::decode(*left);
    state.missing -= bytes;
    std::memcpy(there + at, value, bytes);
    *left = host::encode(state);
    ++host::progress;
}

void wait_remote(Natural* arrived, unsigned parity) {
    while (host::decode(*arrived).phase % 2 == parity) host::yield();
}

unsigned char* dynamic_shared() {
    char* const bytes = host::block().dynamic.data();
    return reinterpret_cast<unsigned char*>(bytes + (16 - reinterpret_cast<std::size_t>(bytes) % 16) % 16);
}

void copy_bytes_async(void* to, const void* from, int bytes) {
    char* const first = static_cast<char*>(to);
    char* const shared = reinterpret_cast<char*>(dynamic_shared());
    const bool dynamic = first >= shared && first + bytes <= shared + host::launch.shared;
    const bool fixed = first >= __start_tapestry_shared && first + bytes <= __stop_tapestry_shared;
    if (!dynamic && !fixed) host::fail("copies beside its shared memory");
    if (reinterpret_cast<std::size_t>(to) % bytes || reinterpret_cast<std::size_t>(from) % bytes) {
        host::fail("copies from or to an address that is not aligned");
    }
    // In every other cluster at once, otherwise as late as it may be: what must not be overwritten yet shows as well.
    if (host::first_block / host::launch.cluster % 2) {
        std::memcpy(to, from, bytes);
    } else {
        host::fibre().copies.push_back({to, from, bytes});
    }
}

void commit_copies() {
    host::fibre().pending.push_back(std::move(host::fibre().copies));
    host::fibre().copies.clear();
}

void wait_copies_but(int pending) {
    std::deque<std::vector<host::Copy>>& groups = host::fibre().pending;
    for (; int(groups.size()) > pending; groups.pop_front()) {
        for (const host::Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    }
}

}  // namespace tapestry
