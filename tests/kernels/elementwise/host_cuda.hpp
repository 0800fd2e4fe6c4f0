// Runs a generated kernel on the host, one block after another: threads are fibres that take turns at every barrier.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __global__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct Position {
    unsigned x;
};
static Position threadIdx, blockIdx;

namespace host {

struct Pointer {
    void* at;
    template <class T>
    operator T*() const {
        return static_cast<T*>(at);
    }
};

struct Fibre {
    ucontext_t context;
    std::vector<char> stack;
    bool alive;
};

static std::vector<Fibre> fibres;
static ucontext_t scheduler;
static std::function<void()> body;
static unsigned char exchanged[1024][8];

static void enter() {
    body();
    fibres[threadIdx.x].alive = false;
}

static void wait() {
    const unsigned self = threadIdx.x;
    swapcontext(&fibres[self].context, &scheduler);
}

static void start(unsigned thread) {
    Fibre& fibre = fibres[thread];
    fibre.stack.resize(1 << 16);
    fibre.alive = true;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = &scheduler;
    makecontext(&fibre.context, enter, 0);
}

// All threads to their next barrier, until none is left.
static void run_block(unsigned threads) {
    fibres.resize(threads);
    for (unsigned t = 0; t < threads; ++t) start(t);
    for (bool any = true; any;) {
        any = false;
        for (unsigned t = 0; t < threads; ++t) {
            if (!fibres[t].alive) continue;
            threadIdx.x = t;
            swapcontext(&scheduler, &fibres[t].context);
            any = any || fibres[t].alive;
        }
    }
}

static void run(unsigned blocks, unsigned threads, bool barriers, std::function<void()> kernel) {
    body = kernel;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        if (barriers) {
            run_block(threads);
        } else {
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) body();
        }
    }
}

}  // namespace host

namespace tapestry {

// The value of the thread whose number differs in the bits of `distance`.
template <class T>
T exchange(T value, int distance) {
    const unsigned self = threadIdx.x;
    *reinterpret_cast<T*>(host::exchanged[self]) = value;
    host::wait();
    const T found = *reinterpret_cast<T*>(host::exchanged[self ^ unsigned(distance)]);
    host::wait();
    return found;
}

}  // namespace tapestry

static inline void __syncthreads() { host::wait(); }
