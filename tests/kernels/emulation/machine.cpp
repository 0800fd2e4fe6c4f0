// The lanes' turns, and where they meet.
#include <algorithm>
#include <random>
#include <stdexcept>

#include "fibers.hpp"

namespace emulated {

constexpr long slowest = 8, latest = 20;    // pace of a slow warp; turns before which every block of a cluster has begun

unsigned char* shared_memory = nullptr;
Block* running = nullptr;

namespace {

long scheduler_turn = 0;
void (*body)(const void*) = nullptr;
const void* body_given = nullptr;

void enter() {
    body(body_given);
    here().done = true;
    ++running->progress;
    for (;;) give_way();
}

// Lets a lane run until it gives way.
void resume(Block& state, Lane& lane) {
    state.current = &lane;
    if (_setjmp(state.scheduler)) return;
    if (lane.begun) _longjmp(lane.stopped, 1);
    lane.begun = true;
    setcontext(&lane.first);
}

// The lanes of a block, ready to run.
void prepare(Block& state, Index grid, Index block, Index threads, std::mt19937& dice) {
    const int count = static_cast<int>(threads.x * threads.y * threads.z);
    state.lanes = std::vector<Lane>(count);
    state.warps = std::vector<Meeting>((count + lanes_a_warp - 1) / lanes_a_warp);
    state.block = block, state.grid = grid, state.threads = threads;
    std::memset(state.memory->bytes, 0xff, shared_bytes);
    for (int i = 0; i < count; ++i) {
        Lane& lane = state.lanes[i];
        lane.number = i;
        lane.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
        getcontext(&lane.first);
        lane.first.uc_stack.ss_sp = lane.stack.get();
        lane.first.uc_stack.ss_size = stack_bytes;
        makecontext(&lane.first, enter, 0);
    }
    state.begins = static_cast<long>(dice() % latest);
    state.pace.resize(state.warps.size());
    for (long& turns : state.pace) turns = dice() % 4 == 0 ? slowest : 1;
}

// A turn for every lane of a block but those of warps that are slow, warps in a random order. Says whether one of them is not at its end.
bool take_turns(Block& state, std::mt19937& dice) {
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
            if (scheduler_turn % state.pace[warp] == 0) resume(state, state.lanes[i]);
        }
    land_copies();
    return alive;
}

// Runs the blocks of one cluster to their end. Throws where they are stuck.
void run_cluster(Index grid, const std::vector<Index>& blocks, Index threads, unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<Block> cluster(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        prepare(cluster[i], grid, blocks[i], threads, dice);
        cluster[i].cluster = &cluster;
    }
    if (blocks.size() == 1) cluster[0].begins = 0;
    begin_copies(seed);
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
    if (copies_under_way()) throw std::runtime_error("a copy that nobody waits for");
    running = nullptr;
}

}  // namespace

const Index& thread() { return here().thread; }
const Index& block() { return running->block; }
const Index& blocks() { return running->grid; }
const Index& threads() { return running->threads; }
int lane() { return here().number; }

void give_way() {
    if (!_setjmp(here().stopped)) _longjmp(running->scheduler, 1);
}

void fail(const char* why) {
    if (running->failure.empty()) running->failure = why;
    for (;;) give_way();
}

void meet_in_warp(const char* what, const void* given, void (*all)(Lanes)) {
    Meeting& meeting = running->warps[lane() / lanes_a_warp];
    if (meeting.arrived != 0 && std::strcmp(meeting.what, what) != 0) fail((std::string(what) + " meets " + meeting.what).c_str());
    meeting.what = what;
    meeting.given[lane() % lanes_a_warp] = given;
    const long turn = meeting.turn;
    ++running->progress;
    if (++meeting.arrived == lanes_a_warp) {
        all(meeting.given);
        meeting.arrived = 0;
        ++meeting.turn;
    }
    wait_until([&] { return meeting.turn != turn; });
}

void arrive(int barrier, int threads, bool waits) {
    auto& [there, turn, expected] = running->named[barrier];
    if (there != 0 && threads != expected) fail("threads meet at a barrier that they expect other numbers of");
    const long before = turn;
    expected = threads;
    ++running->progress;
    if (++there == threads) {
        there = 0;
        ++turn;
    }
    if (waits) wait_until([&, &now = turn] { return now != before; });
}

void cluster_arrive() {
    ++here().cluster_turn;
    ++running->progress;
}

void cluster_wait() {
    const long turn = here().cluster_turn;
    if (turn == 0) fail("a wait at the cluster's barrier before an arrival");
    const auto there = [turn](const Lane& lane) { return lane.done || lane.cluster_turn >= turn; };
    wait_until([&] {
        for (const Block& state : *running->cluster)
            if (scheduler_turn < state.begins || !std::all_of(state.lanes.begin(), state.lanes.end(), there)) return false;
        return true;
    });
}

unsigned rank() { return static_cast<unsigned>(running - running->cluster->data()); }

unsigned char* memory_of(unsigned rank) {
    if (rank >= running->cluster->size()) fail("no such block in the cluster");
    Block& state = (*running->cluster)[rank];
    const bool ended = std::all_of(state.lanes.begin(), state.lanes.end(), [](const Lane& lane) { return lane.done; });
    if (scheduler_turn < state.begins || ended) fail("shared memory of a block that does not run");
    return state.memory->bytes;
}

const char* run(const unsigned* grid, const unsigned* threads, unsigned seed, unsigned cluster, void (*kernel)(const void*), const void* given) {
    static std::string failure;
    failure.clear();
    forget_what_was_left();
    body = kernel, body_given = given;
    try {
        for (unsigned z = 0; z < grid[2]; ++z)
            for (unsigned y = 0; y < grid[1]; y += cluster)
                for (unsigned x = 0; x < grid[0]; ++x) {
                    std::vector<Index> blocks;
                    for (unsigned rank = 0; rank < cluster; ++rank) blocks.push_back({x, y + rank, z});
                    run_cluster({grid[0], grid[1], grid[2]}, blocks, {threads[0], threads[1], threads[2]}, seed++);
                }
    } catch (const std::exception& error) {
        failure = error.what();
    }
    return failure.c_str();
}

}  // namespace emulated
