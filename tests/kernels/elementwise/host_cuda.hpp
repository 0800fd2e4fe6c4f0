// Runs a generated kernel on the host, one cluster of blocks after another: threads are fibres that wait at barriers.
//
// Blocks of a cluster take turns as unevenly as the barriers allow (one runs as far as it can before the next starts), and
// shared memory holds garbage until it is written, so that what a kernel does not wait for shows.
//
// What is the same for every kernel stands in host_cuda.cpp and is compiled once.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
// One section holds what the blocks share, so that each block of a cluster can have its own contents of it.
#define __shared__ static __attribute__((section("tapestry_shared")))

extern char __start_tapestry_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_tapestry_shared[] __attribute__((weak, visibility("hidden")));

struct Position {
    unsigned x;
};
extern Position threadIdx, blockIdx;

namespace host {

constexpr int WARP = 32;

struct Pointer {
    void* at;
    template <class T>
    operator T*() const {
        return static_cast<T*>(at);
    }
};

struct Launch {
    unsigned blocks, threads, cluster, shared;
    bool barriers;
};

// Eight bytes of every thread of the block, for its warp to read.
using Slot = unsigned char[8];
Slot* exchanged();
void meet_warp();
void meet_block();
void run(Launch wanted, void (*kernel)(void**), void** pointers);

}  // namespace host

namespace tapestry {

using Natural = unsigned long long;

// The value of the thread whose number differs in the bits of `distance`.
template <class T>
T exchange(T value, int distance) {
    host::Slot* const slots = host::exchanged();
    *reinterpret_cast<T*>(slots[threadIdx.x]) = value;
    host::meet_warp();
    const T found = *reinterpret_cast<T*>(slots[threadIdx.x ^ unsigned(distance)]);
    host::meet_warp();
    return found;
}

// A bit for every lane in which it holds.
inline unsigned lanes_with(bool holds) {
    host::Slot* const slots = host::exchanged();
    *reinterpret_cast<bool*>(slots[threadIdx.x]) = holds;
    host::meet_warp();
    unsigned found = 0;
    for (unsigned lane = 0; lane < host::WARP; ++lane) {
        found |= unsigned(*reinterpret_cast<bool*>(slots[threadIdx.x / host::WARP * host::WARP + lane])) << lane;
    }
    host::meet_warp();
    return found;
}

// What every lane of the warp has of two words.
struct Pairs {
    unsigned word[host::WARP][2];
    Pairs(unsigned low, unsigned high) {
        host::Slot* const slots = host::exchanged();
        const unsigned mine[2] = {low, high};
        std::memcpy(slots[threadIdx.x], mine, sizeof(mine));
        host::meet_warp();
        std::memcpy(word, slots[threadIdx.x / host::WARP * host::WARP], sizeof(word));
        host::meet_warp();
    }
    // Element k of 16 in the row or column that lanes 4 n to 4 n + 3 have.
    template <class T>
    double of(int n, int k) const {
        const auto bits = static_cast<unsigned short>(word[4 * n + k % 8 / 2][k / 8] >> 16 * (k % 2));
        T found;
        std::memcpy(&found, &bits, sizeof(found));
        return double(widen(found));
    }
};

template <class T>
void multiply_eight(T, float (&d)[2], unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
    const Pairs a(a0, a1), b(b0, b1);
    const int lane = int(threadIdx.x % host::WARP);
    for (int i = 0; i < 2; ++i) {
        double sum = d[i];
        for (int k = 0; k < 16; ++k) sum += a.template of<T>(lane / 4, k) * b.template of<T>(lane % 4 * 2 + i, k);
        d[i] = float(sum);
    }
}

void cluster_arrive();
void cluster_wait();
void expect_remote(Natural* arrived, unsigned bytes);
void init_remote(Natural* arrived, unsigned bytes);
void put_bytes_remote(void* mine, Natural* arrived, unsigned rank, const void* value, int bytes);
void wait_remote(Natural* arrived, unsigned parity);
unsigned char* dynamic_shared();
void copy_bytes_async(void* to, const void* from, int bytes);
void commit_copies();
void wait_copies_but(int pending);

}  // namespace tapestry

inline void __syncthreads() { host::meet_block(); }
