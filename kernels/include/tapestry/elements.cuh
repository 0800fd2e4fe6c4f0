// Several elements at once: up to 16 bytes per access, kept as words until they are widened.
#pragma once

#include <tapestry/copies.cuh>

namespace tapestry {

// N elements as they lie in memory; unused bytes of the last word are undefined.
template <class T, int N>
struct Raw {
    static constexpr int WORDS = (N * int(sizeof(T)) + 3) / 4;
    unsigned word[WORDS];

    TAPESTRY_FN T get(int e) const {
        if constexpr (sizeof(T) == 8) {
            return same_bits<T>(Natural(word[2 * e]) | Natural(word[2 * e + 1]) << 32);
        } else if constexpr (sizeof(T) == 4) {
            return same_bits<T>(word[e]);
        } else if constexpr (sizeof(T) == 2) {
            return same_bits<T>(static_cast<unsigned short>(word[e / 2] >> 16 * (e % 2)));
        } else {
            return same_bits<T>(static_cast<unsigned char>(word[e / 4] >> 8 * (e % 4)));
        }
    }
    TAPESTRY_FN void set(int e, T value) {
        if constexpr (sizeof(T) == 8) {
            const Natural bits = same_bits<Natural>(value);
            word[2 * e] = unsigned(bits);
            word[2 * e + 1] = unsigned(bits >> 32);
        } else if constexpr (sizeof(T) == 4) {
            word[e] = same_bits<unsigned>(value);
        } else if constexpr (sizeof(T) == 2) {
            insert(e / 2, 16 * (e % 2), 0xffffu, same_bits<unsigned short>(value));
        } else {
            insert(e / 4, 8 * (e % 4), 0xffu, same_bits<unsigned char>(value));
        }
    }

private:
    // The first part of a word clears the rest, so that elements set in order need no initial value.
    TAPESTRY_FN void insert(int k, int shift, unsigned mask, unsigned bits) {
        word[k] = shift == 0 ? bits : (word[k] & ~(mask << shift)) | bits << shift;
    }
};

// -- access by words --------------------------------------------------------------------------------------------------

// BYTES (1, 2, 4, 8, 16) at an address aligned to as many; STREAM keeps what is read once out of the first cache.
template <int BYTES, bool STREAM>
TAPESTRY_FN void fetch(unsigned* word, const void* from) {
#if defined(__CUDA_ARCH__)
    if constexpr (BYTES == 16) {
        if constexpr (STREAM) {
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "l"(from));
        } else {
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "l"(from));
        }
    } else if constexpr (BYTES == 8) {
        if constexpr (STREAM) {
            asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "l"(from));
        } else {
            asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "l"(from));
        }
    } else if constexpr (BYTES == 4) {
        if constexpr (STREAM) {
            asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(word[0]) : "l"(from));
        } else {
            asm volatile("ld.global.u32 %0, [%1];" : "=r"(word[0]) : "l"(from));
        }
    } else if constexpr (BYTES == 2) {
        unsigned short found;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(found) : "l"(from));
        word[0] = found;
    } else {
        unsigned found;
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(found) : "l"(from));
        word[0] = found;
    }
#else
    word[0] = 0;
    std::memcpy(word, from, BYTES);
#endif
}

// Results are written to leave the second cache first: what is read next is worth more there (copies gain 6 %).
template <int BYTES>
TAPESTRY_FN void put_words(void* to, const unsigned* word) {
#if defined(__CUDA_ARCH__)
    if constexpr (BYTES == 16) {
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]));
    } else if constexpr (BYTES == 8) {
        asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(word[0]), "r"(word[1]));
    } else if constexpr (BYTES == 4) {
        asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(word[0]));
    } else if constexpr (BYTES == 2) {
        asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(static_cast<unsigned short>(word[0])));
    } else {
        asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(word[0]));
    }
#else
    std::memcpy(to, word, BYTES);
#endif
}

// -- vectors of elements -----------------------------------------------------------------------------------------------

// N elements from consecutive addresses, W at a time (the address is aligned to W elements, at most 16 bytes).
template <int W, bool STREAM, class T, int N>
TAPESTRY_FN void load(Raw<T, N>& into, const T* from) {
    if constexpr (W * sizeof(T) >= 4) {
#pragma unroll
        for (int k = 0; k < N / W; ++k) fetch<W * int(sizeof(T)), STREAM>(into.word + k * (W * sizeof(T) / 4), from + k * W);
    } else {
#pragma unroll
        for (int k = 0; k < N / W; ++k) {
            Raw<T, W> part;
            fetch<W * int(sizeof(T)), false>(part.word, from + k * W);
#pragma unroll
            for (int e = 0; e < W; ++e) into.set(k * W + e, part.get(e));
        }
    }
}

// One element.
template <class T>
TAPESTRY_FN T load_one(const T* from) {
    Raw<T, 1> found;
    fetch<int(sizeof(T)), false>(found.word, from);
    return found.get(0);
}

// The first `valid` of N elements, one by one; the others are zero.
template <class T, int N>
TAPESTRY_FN void load_some(Raw<T, N>& into, const T* from, int valid) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
        Raw<T, 1> one = {};
        if (e < valid) fetch<int(sizeof(T)), false>(one.word, from + e);
        into.set(e, one.get(0));
    }
}

// N computed values, rounded to elements.
template <class T, class V, int N>
TAPESTRY_FN void round(Raw<T, N>& into, const V (&values)[N]) {
    constexpr bool pairs = (same<T, f16>() || same<T, bf16>()) && N % 2 == 0;
    if constexpr (pairs) {
#pragma unroll
        for (int e = 0; e < N; e += 2) {
            into.word[e / 2] = pack(T{}, to_short_float(values[e]), to_short_float(values[e + 1]));
        }
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e) into.set(e, narrow<T>(values[e]));
    }
}

// N elements to consecutive addresses, W at a time.
template <int W, class T, int N>
TAPESTRY_FN void store(T* to, const Raw<T, N>& from) {
    if constexpr (W * sizeof(T) >= 4) {
#pragma unroll
        for (int k = 0; k < N / W; ++k) put_words<W * int(sizeof(T))>(to + k * W, from.word + k * (W * sizeof(T) / 4));
    } else {
#pragma unroll
        for (int k = 0; k < N / W; ++k) {
            Raw<T, W> part;
#pragma unroll
            for (int e = 0; e < W; ++e) part.set(e, from.get(k * W + e));
            put_words<W * int(sizeof(T))>(to + k * W, part.word);
        }
    }
}

template <class T>
TAPESTRY_FN void store_one(T* to, T value) {
    Raw<T, 1> one;
    one.set(0, value);
    put_words<int(sizeof(T))>(to, one.word);
}

// Nothing is remembered of these words: what was computed from them is computed again rather than kept in registers.
template <class T, int N>
TAPESTRY_FN void forget([[maybe_unused]] Raw<T, N>& raw) {
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int k = 0; k < Raw<T, N>::WORDS; ++k) asm volatile("" : "+r"(raw.word[k]));
#endif
}

// -- tiles in shared memory ------------------------------------------------------------------------------------------
//
// Lines of PITCH bytes. They are fetched along a line, 16 bytes at a time, and turned: a thread takes a column of V lines.
// The 16-byte parts of a line are permuted by the number of its group of V lines, so that both use all banks.

template <int PITCH, int V>
TAPESTRY_FN constexpr int tile_place(int line, int byte) {
    constexpr int parts = PITCH / 16 < 8 ? PITCH / 16 : 8;
    return line * PITCH + ((byte / 16 ^ line / V % parts) * 16 + byte % 16);
}

// W elements (at most 16 bytes) to a place of the tile; there after `wait_copies` of the same thread.
template <int PITCH, int V, int W, class T>
TAPESTRY_FN void fetch_tile(unsigned char* tile, int line, int column, const T* from) {
    unsigned char* const to = tile + tile_place<PITCH, V>(line, column * int(sizeof(T)));
    if constexpr (W * sizeof(T) >= 4) {
        copy_async<W * int(sizeof(T))>(to, from);
    } else {
        Raw<T, W> found;
        load<W, true>(found, from);
#pragma unroll
        for (int e = 0; e < W; ++e) reinterpret_cast<T*>(to)[e] = found.get(e);
    }
}

// V lines of C neighbouring columns, each column to a vector. Small elements are read a word at a time.
template <int PITCH, int V, int C, class T>
TAPESTRY_FN void turn_tile(Raw<T, V>* into, const unsigned char* tile, int line, int column) {
    constexpr int width = sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1;  // columns an access
    static_assert(C % width == 0, "tapestry: whole accesses");
#pragma unroll
    for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int c = 0; c < C; c += width) {
            const unsigned char* const from = tile + tile_place<PITCH, V>(line + e, (column + c) * int(sizeof(T)));
            Raw<T, width> found;
            if constexpr (sizeof(T) == 8) {
                found.set(0, *reinterpret_cast<const T*>(from));
            } else {
                found.word[0] = *reinterpret_cast<const unsigned*>(from);
            }
#pragma unroll
            for (int j = 0; j < width; ++j) into[c + j].set(e, found.get(j));
        }
    }
}

}  // namespace tapestry
