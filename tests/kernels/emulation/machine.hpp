// Blocks of threads on the host: every lane is a fiber, and lanes take turns in an order drawn from a seed.
//
// Enough of a GPU to run the kernels' own text: warp-wide matrix moves and products, barriers in shared memory that count arrivals and
// bytes, the copy engine with its zero fill and swizzles (a load comes at once or late, a store reads at once or as late as it may),
// named barriers. A lane that waits gives way; when every lane waits, the block is stuck and the run fails. Shared memory begins as
// NaN, so that what nobody wrote shows in the result. The blocks of a cluster run at once, each from a turn drawn from the seed.
//
// What is the same for every kernel stands in machine.cpp and copies.cpp, and is compiled once. Kernels are many: what they
// include is kept small.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __expf expf
#define __fdividef(a, b) ((a) / (b))
#define __align__(bytes) alignas(bytes)

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
struct float4 {
    float x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
template <class Number>
constexpr Number max(Number a, Number b) {
    return a < b ? b : a;
}
template <class Number>
constexpr Number min(Number a, Number b) {
    return b < a ? b : a;
}

namespace emulated {

constexpr int lanes_a_warp = 32;
constexpr std::size_t shared_bytes = 232448;

extern unsigned char* shared_memory;    // of the running block

// Where the running lane is, and how many there are.
const Index& thread();
const Index& block();
const Index& blocks();
const Index& threads();
int lane();    // its number in its block

[[noreturn]] void fail(const char* why);

using Lanes = const void* const*;
void meet_in_warp(const char* what, const void* given, void (*all)(Lanes));

// Runs `all` once, with what every lane of the warp brought, when the last of them has come.
template <class Given>
void together(const char* what, const Given& given, void (*all)(const Given* const*)) {
    meet_in_warp(what, &given, reinterpret_cast<void (*)(Lanes)>(all));
}

void arrive(int barrier, int threads, bool waits);

// Barrier of a cluster. A thread arrives and waits in turns; one that has ended counts as being there.
void cluster_arrive();
void cluster_wait();

unsigned rank();    // of the running block in its cluster

// The shared memory of a block of the cluster. It is there while the block runs.
unsigned char* memory_of(unsigned rank);

// Calls a kernel in every lane of every block. What went wrong, or an empty string. A cluster is so many blocks along y.
const char* run(const unsigned* grid, const unsigned* threads, unsigned seed, unsigned cluster, void (*kernel)(const void*), const void* given);

}  // namespace emulated

#define threadIdx (emulated::thread())
#define blockIdx (emulated::block())
#define gridDim (emulated::blocks())
#define blockDim (emulated::threads())

inline void __syncthreads() {
    const Index& all = emulated::threads();
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
    float* other;
};
inline float exchanged(float value, int with) {
    float other = 0;
    emulated::together<Exchanged>("shuffle", {value, with, &other}, [](const Exchanged* const* lanes) {
        for (int lane = 0; lane < emulated::lanes_a_warp; ++lane) *lanes[lane]->other = lanes[lanes[lane]->with]->value;
    });
    return other;
}
inline float __shfl_sync(unsigned, float value, int from) { return exchanged(value, from); }
inline float __shfl_xor_sync(unsigned, float value, int distance) {
    return exchanged(value, emulated::lane() % emulated::lanes_a_warp ^ distance);
}
inline float __shfl_down_sync(unsigned, float value, int distance) {
    const int own = emulated::lane() % emulated::lanes_a_warp, with = own + distance;
    return exchanged(value, with < emulated::lanes_a_warp ? with : own);
}
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
