// Folds of a row that several threads hold: among the lanes of a warp by exchange, among warps through shared memory,
// among the blocks of a cluster by writing into each other's. Every order is fixed, so that results repeat bit for bit, and
// every thread of the row gets the same value.
#pragma once

#include <tapestry/cluster.cuh>
#include <tapestry/elements.cuh>

namespace tapestry {

// The value of the lane whose number differs in the bits of `distance`.
#if defined(__CUDA_ARCH__)
template <class V>
TAPESTRY_FN V exchange(V value, int distance) {
    if constexpr (same<V, bool>()) {
        return __shfl_xor_sync(0xffffffffu, int(value), distance) != 0;
    } else {
        return __shfl_xor_sync(0xffffffffu, value, distance);
    }
}
#else
template <class V>
V exchange(V value, int distance);  // whoever runs kernels on the host defines it
#endif

// Among LANES neighbouring lanes, a power of two.
template <int LANES, class Fold, class V>
TAPESTRY_FN V fold_lanes(V value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) value = Fold::of(value, exchange(value, distance));
    return value;
}

template <int WARPS, class Fold, class V>
TAPESTRY_FN V fold_parts(const V* part) {
    V result = part[0];
#pragma unroll
    for (int k = 1; k < WARPS; ++k) result = Fold::of(result, part[k]);
    return result;
}

// A part for each warp of the block, seen by all its threads.
template <class Fold, class V>
TAPESTRY_FN void fold_warps(V value, V* part) {
    value = fold_lanes<32, Fold>(value);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
}

// Among all THREADS of a block. `part` has a place for each warp and is used once.
template <int THREADS, class Fold, class V>
TAPESTRY_FN V fold_block(V value, V* part) {
    fold_warps<Fold>(value, part);
    return fold_parts<THREADS / 32, Fold>(part);
}

// What the blocks of a cluster tell each other in one fold of a row, turn after turn. A truth takes a word.
//
// Two sets, where there is more than one turn, are enough: whoever writes to a set in turn t + 2 has heard from every block
// in turn t + 1, which a block speaks in only when all its threads have read what they were told in turn t.
template <class V, int BLOCKS, int SETS>
struct Told {
    using Word = choose<sizeof(V) == 1, int, V>;
    Word whole[SETS][BLOCKS];
    alignas(8) Natural arrived[SETS];

    TAPESTRY_FN void init() {
#pragma unroll
        for (int set = 0; set < SETS; ++set) init_remote(arrived + set, sizeof(whole[0]));
    }
};

// Among all THREADS of each of BLOCKS blocks. No block leaves before all that is written to it has arrived. `part` is not
// that of the turn before.
template <int THREADS, int BLOCKS, class Fold, class V, int SETS>
TAPESTRY_FN V fold_cluster(V value, V* part, Told<V, BLOCKS, SETS>& told, int turn) {
    using Word = typename Told<V, BLOCKS, SETS>::Word;
    static_assert(BLOCKS <= THREADS, "tapestry: a thread for each block that is told");
    Word* const whole = told.whole[turn % SETS];
    Natural* const arrived = told.arrived + turn % SETS;
    fold_warps<Fold>(value, part);
    if (threadIdx.x < BLOCKS) {
        put_remote(whole + blockIdx.x % BLOCKS, arrived, threadIdx.x, Word(fold_parts<THREADS / 32, Fold>(part)));
    }
    wait_remote(arrived, turn / SETS % 2);
    if (SETS > 1 && threadIdx.x == 0) expect_remote(arrived, sizeof(told.whole[0]));
    V result = V(whole[0]);
#pragma unroll
    for (int k = 1; k < BLOCKS; ++k) result = Fold::of(result, V(whole[k]));
    return result;
}

// -- vectors that wait in shared memory, each for the thread that fetched it --------------------------------------------

struct alignas(16) FourWords {
    unsigned word[4];
};
struct alignas(8) TwoWords {
    unsigned word[2];
};

// Bytes that a vector takes: its words.
template <class T, int N>
TAPESTRY_FN constexpr int parked_bytes() {
    return 4 * Raw<T, N>::WORDS;
}

template <class Access, int WORDS>
TAPESTRY_FN void take_words(unsigned* word, const unsigned char* from) {
    constexpr int each = int(sizeof(Access)) / 4;
#pragma unroll
    for (int k = 0; k < WORDS / each; ++k) {
        const Access found = reinterpret_cast<const Access*>(from)[k];
#pragma unroll
        for (int w = 0; w < each; ++w) word[k * each + w] = found.word[w];
    }
}

template <class T, int N>
TAPESTRY_FN void unpark(Raw<T, N>& into, const unsigned char* from) {
    constexpr int words = Raw<T, N>::WORDS;
    if constexpr (words % 4 == 0) {
        take_words<FourWords, words>(into.word, from);
    } else if constexpr (words % 2 == 0) {
        take_words<TwoWords, words>(into.word, from);
    } else {
#pragma unroll
        for (int k = 0; k < words; ++k) into.word[k] = reinterpret_cast<const unsigned*>(from)[k];
    }
}

template <class T, int N>
TAPESTRY_FN void park(unsigned char* to, const Raw<T, N>& from) {
#pragma unroll
    for (int k = 0; k < Raw<T, N>::WORDS; ++k) reinterpret_cast<unsigned*>(to)[k] = from.word[k];
}

// N elements from consecutive addresses, W at a time, to shared memory; there after `wait_copies`.
template <int W, class T, int N>
TAPESTRY_FN void park_async(unsigned char* to, const T* from) {
    constexpr int bytes = W * int(sizeof(T));
    if constexpr (bytes >= 4) {
#pragma unroll
        for (int k = 0; k < N / W; ++k) copy_async<bytes>(to + k * bytes, from + k * W);
    } else {
        Raw<T, N> found;
        load<W, true>(found, from);
        park(to, found);
    }
}

}  // namespace tapestry
