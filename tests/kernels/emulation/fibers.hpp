// Lanes that give way to one another, and what a block of them is.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace emulated {

constexpr std::size_t stack_bytes = 1 << 17;

struct alignas(1024) Memory {
    unsigned char bytes[shared_bytes];
};

struct Lane {
    ucontext_t first;     // where it starts
    jmp_buf stopped;      // where it gave way: jumps take no system call, as changes of context do
    std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};
    Index thread;
    int number = 0;
    long cluster_turn = 0;    // arrivals at the cluster's barrier
    bool begun = false, done = false;
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
    struct Met {
        int there;
        long turn;
        int expected;
    };
    std::map<int, Met> named;
    Index block, grid, threads;
    std::vector<Block>* cluster = nullptr;
    std::unique_ptr<Memory> memory{new Memory};
    long begins = 0;           // the turn of the scheduler from which it runs
    std::vector<long> pace;    // of its warps: slow ones run once in so many turns
    jmp_buf scheduler;
    Lane* current = nullptr;
    long progress = 0;
    std::string failure;
};
extern Block* running;

// The copy engine's part of the machine (copies.cpp): it forgets what launches before have left, and the blocks that have been; loads that
// are late land, some of the running block's a turn; and whether any has not.
void forget_what_was_left();
void begin_copies(unsigned seed);
void land_copies();
bool copies_under_way();

inline Lane& here() { return *running->current; }
void give_way();

template <class Condition>
void wait_until(const Condition& holds) {
    while (!holds()) give_way();
    ++running->progress;
}

}  // namespace emulated
