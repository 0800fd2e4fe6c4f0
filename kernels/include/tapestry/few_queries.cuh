// Attention of a few queries to many keys, which some blocks share: the state (o, l, m) of the weights exp(score), or o / l.
//
//     score[n, s] = scale query[n] . key[s]     m = max score     l = sum exp(score - m)     o = sum exp(score - m) value[s]
//
// Every key and value is read once for all queries. Each block leaves what it found; the last of them that is done folds it.
// Formulas: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
#pragma once

#include <tapestry/functions.cuh>
#include <tapestry/elements.cuh>
#include <tapestry/rows.cuh>

namespace tapestry {

// The queries, `ratio` heads beside each other in each of some rows, of one group of keys; elements between neighbours.
// Query row t sees the first `keys` + t * `more` keys. `part` of `parts` blocks is at work; `left` is where all of these
// leave states, `done` counts those that have, 0 before and after.
template <class T, class S>
struct FewQueries {
    const T* query;
    Int query_row, query_head;
    const T* key;
    Int key_row;
    const T* value;
    Int value_row;
    S* out;
    Int out_row, out_head;
    int count, ratio;
    Int keys, more;
    float scale;
    int part, parts;
    float* left;
    unsigned* done;
};

// The state of a query: what its values add up to so far, or one element of that, the weights' sum, the greatest score.
template <int SIZE>
struct Seen {
    float o[SIZE] = {}, l = 0.0f, m = -infinity();

    TAPESTRY_FN void rescale(float larger) {
        const float before = m == larger ? 1.0f : exponential(m - larger);
#pragma unroll
        for (int e = 0; e < SIZE; ++e) o[e] *= before;
        l *= before;
        m = larger;
    }
};

// Of what LANES neighbouring lanes have.
template <int LANES>
TAPESTRY_FN float whole_sum(float value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) value += exchange(value, distance);
    return value;
}

#if defined(__CUDA_ARCH__)
TAPESTRY_FN void publish() { __threadfence(); }
TAPESTRY_FN unsigned count_up(unsigned* at) { return atomicAdd(at, 1u); }
#else
inline void publish() {}
inline unsigned count_up(unsigned* at) { return (*at)++; }
#endif

// `room` holds the states of every warp; `last` says whether this block is.
template <int QUERIES, int WIDTH, int THREADS, int AHEAD, bool FINISHED, class T, class S>
TAPESTRY_FN void few_queries(FewQueries<T, S> a, float (*room)[QUERIES][WIDTH + 2], bool* last) {
    constexpr int VECTOR = 16 / int(sizeof(T)), LANES = WIDTH / VECTOR, TEAMS = THREADS / LANES, WARPS = THREADS / 32;
    const int x = int(threadIdx.x) % LANES, team = int(threadIdx.x) / LANES;
    float query[QUERIES][VECTOR] = {};
#pragma unroll
    for (int n = 0; n < QUERIES; ++n) {
        if (n >= a.count) break;
        Raw<T, VECTOR> raw;
        load<VECTOR, false>(raw, a.query + (n / a.ratio * a.query_row + n % a.ratio * a.query_head + x * VECTOR));
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) query[n][e] = a.scale * float(widen(raw.get(e)));
    }
    Seen<VECTOR> seen[QUERIES];
    const Int all = a.keys + (a.count - 1) / a.ratio * a.more, step = TEAMS * AHEAD;
    const Int share = (all + Int(a.parts) * step - 1) / (Int(a.parts) * step) * step, begin = a.part * share;
    const Int end = begin + share < all ? begin + share : all;
    Raw<T, VECTOR> keys[AHEAD] = {}, values[AHEAD] = {};
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
        const Int s = begin + team + u * TEAMS;
        if (s < end) load<VECTOR, true>(keys[u], a.key + (s * a.key_row + x * VECTOR));
    }
    for (Int first = begin + team; first - team < end; first += step) {
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const Int s = first + u * TEAMS;
            if (s < end) load<VECTOR, true>(values[u], a.value + (s * a.value_row + x * VECTOR));
        }
        float scores[QUERIES][AHEAD];
#pragma unroll
        for (int n = 0; n < QUERIES; ++n) {
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                float dot = 0.0f;
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) dot += query[n][e] * float(widen(keys[u].get(e)));
                scores[n][u] = dot;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {  // the next keys, while these are weighed
            const Int s = first + step + u * TEAMS;
            if (s < end) load<VECTOR, true>(keys[u], a.key + (s * a.key_row + x * VECTOR));
        }
#pragma unroll
        for (int n = 0; n < QUERIES; ++n) {
            float larger = seen[n].m;
            const Int sees = a.keys + n / a.ratio * a.more;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                const Int s = first + u * TEAMS;
                const float score = whole_sum<LANES>(scores[n][u]);
                scores[n][u] = s < end && s < sees ? score : -infinity();
                larger = maximum(larger, scores[n][u]);
            }
            if (larger == -infinity()) continue;
            if (larger != seen[n].m) seen[n].rescale(larger);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                const float weight = scores[n][u] == -infinity() ? 0.0f : quick_exponential(scores[n][u] - larger);
                seen[n].l += weight;
                if (weight == 0.0f) continue;
#pragma unroll
                for (int e = 0; e < VECTOR; ++e) seen[n].o[e] += weight * float(widen(values[u].get(e)));
            }
        }
    }
    const int warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int n = 0; n < QUERIES; ++n) {
#pragma unroll
        for (int distance = LANES; distance < 32; distance *= 2) {
            const float other = exchange(seen[n].m, distance), larger = maximum(seen[n].m, other);
            if (larger != -infinity()) seen[n].rescale(larger);
            seen[n].l += exchange(seen[n].l, distance);
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) seen[n].o[e] += exchange(seen[n].o[e], distance);
        }
        if (int(threadIdx.x) % 32 < LANES) {
#pragma unroll
            for (int e = 0; e < VECTOR; ++e) room[warp][n][x * VECTOR + e] = seen[n].o[e];
            if (x == 0) room[warp][n][WIDTH] = seen[n].l, room[warp][n][WIDTH + 1] = seen[n].m;
        }
    }
    __syncthreads();
    const int columns = FINISHED ? WIDTH : WIDTH + 2;
    for (int k = int(threadIdx.x); k < a.count * (WIDTH + 2); k += THREADS) {
        const int n = k / (WIDTH + 2), c = k % (WIDTH + 2);
        Seen<1> whole;
        for (int w = 0; w < WARPS; ++w) whole.m = maximum(whole.m, room[w][n][WIDTH + 1]);
        for (int w = 0; w < WARPS && whole.m != -infinity(); ++w) {
            const float weight = exponential(room[w][n][WIDTH + 1] - whole.m);
            whole.o[0] += c < WIDTH ? weight * room[w][n][c] : 0.0f;
            whole.l += weight * room[w][n][WIDTH];
        }
        const float found = c < WIDTH ? whole.o[0] : c == WIDTH ? whole.l : whole.m;
        if (a.parts > 1) {
            a.left[Int(a.part) * a.count * (WIDTH + 2) + k] = found;
        } else if (c < columns) {
            S* const out = a.out + (n / a.ratio * a.out_row + n % a.ratio * a.out_head + c);
            store_one(out, narrow<S>(FINISHED ? found / whole.l : found));
        }
    }
    if (a.parts == 1) return;
    publish();
    __syncthreads();
    if (threadIdx.x == 0) *last = count_up(a.done) == unsigned(a.parts) - 1u;
    __syncthreads();
    if (!*last) return;
    publish();
    if (threadIdx.x == 0) *a.done = 0u;
    const Int size = Int(a.count) * (WIDTH + 2);
    float(*const found)[2] = reinterpret_cast<float(*)[2]>(&room[0][0][0]);  // weight and sum of each part of each query
    for (int k = int(threadIdx.x); k < a.count * a.parts; k += THREADS) {
        const float* const left = a.left + (k % a.parts * size + k / a.parts * (WIDTH + 2));
        found[k][0] = left[WIDTH + 1], found[k][1] = left[WIDTH];
    }
    __syncthreads();
    for (int k = int(threadIdx.x); k < a.count * columns; k += THREADS) {
        const int n = k / columns, c = k % columns;
        const float* const left = a.left + (n * (WIDTH + 2) + (c < WIDTH ? c : 0));
        const float(*const mine)[2] = found + n * a.parts;
        Seen<1> whole;
        for (int p = 0; p < a.parts; ++p) whole.m = maximum(whole.m, mine[p][0]);
#pragma unroll 8
        for (int p = 0; p < a.parts; ++p) {
            const float part = left[p * size];
            const float weight = mine[p][0] == -infinity() ? 0.0f : exponential(mine[p][0] - whole.m);
            whole.o[0] += weight * part;
            whole.l += weight * mine[p][1];
        }
        S* const out = a.out + (n / a.ratio * a.out_row + n % a.ratio * a.out_head + c);
        if constexpr (FINISHED) {
            store_one(out, narrow<S>(whole.o[0] / whole.l));
        } else {
            store_one(out, narrow<S>(c < WIDTH ? whole.o[0] : c == WIDTH ? whole.l : whole.m));
        }
    }
}

}  // namespace tapestry
