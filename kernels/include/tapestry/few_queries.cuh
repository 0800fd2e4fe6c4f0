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

// What the warps of a block have seen of its keys, in `room`: a key by as many lanes as have 16 bytes of it each.
template <int QUERIES, int WIDTH, int THREADS, int AHEAD, class T, class S>
TAPESTRY_FN void seen_by_lanes(const FewQueries<T, S>& a, float (*room)[QUERIES][WIDTH + 2]) {
    constexpr int VECTOR = 16 / int(sizeof(T)), LANES = WIDTH / VECTOR, TEAMS = THREADS / LANES;
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
}

// a [8 queries x 16 keys] * b [16 x 8] of 16-bit elements onto d: a lane has pairs of a's row lane / 4, of b's column
// lane / 4, and two neighbours of d's row lane / 4. Where they stand is what mma.m16n8k16 says (PTX ISA).
#if defined(__CUDA_ARCH__)
TAPESTRY_FN void multiply_eight(bf16, float (&d)[2], unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
    float none0, none1;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%9,%9};"
        : "+f"(d[0]), "+f"(d[1]), "=f"(none0), "=f"(none1)
        : "r"(a0), "r"(0), "r"(a1), "r"(b0), "r"(b1), "f"(0.0f));
}
TAPESTRY_FN void multiply_eight(f16, float (&d)[2], unsigned a0, unsigned a1, unsigned b0, unsigned b1) {
    float none0, none1;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, {%0,%1,%9,%9};"
        : "+f"(d[0]), "+f"(d[1]), "=f"(none0), "=f"(none1)
        : "r"(a0), "r"(0), "r"(a1), "r"(b0), "r"(b1), "f"(0.0f));
}
#else
template <class T>
void multiply_eight(T, float (&d)[2], unsigned a0, unsigned a1, unsigned b0, unsigned b1);  // the host's, as exchange
#endif

// The same by fragments, all queries seeing the same keys: a warp has 16 keys at a time, of which a lane asks for a quarter
// of two (its elements of what is summed: any order does, if queries have the same), and for an eighth of the values of
// four, two and two of which stand one above the other in a fragment. The next keys are asked for while these are weighed.
template <int QUERIES, int WIDTH, int THREADS, class T, class S>
TAPESTRY_FN void seen_by_fragments(const FewQueries<T, S>& a, float (*room)[QUERIES][WIDTH + 2]) {
    constexpr int PART = WIDTH / 4, COLUMNS = WIDTH / 8, STEP = THREADS / 32 * 16;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, n = lane / 4, t = lane % 4;
    Raw<T, PART> query = {};
    if (n < a.count) {
        load<8, false>(query, a.query + (n / a.ratio * a.query_row + n % a.ratio * a.query_head + t * PART));
    }
    const Int all = a.keys, share = (all + Int(a.parts) * STEP - 1) / (Int(a.parts) * STEP) * STEP, begin = a.part * share;
    const Int end = begin + share < all ? begin + share : all;
    Raw<T, PART> keys[2] = {};
    const auto ask = [&](Int first) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const Int s = first + 8 * j + n;
            if (s < end) load<8, true>(keys[j], a.key + (s * a.key_row + t * PART));
        }
    };
    float o[COLUMNS][2] = {}, l = 0.0f, m = -infinity();
    ask(begin + warp * 16);
    for (Int first = begin + warp * 16; first < end; first += STEP) {
        Raw<T, COLUMNS> values[4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Int s = first + i / 2 * 8 + 2 * t + i % 2;
            if (s < end) load<8, true>(values[i], a.value + (s * a.value_row + n * COLUMNS));
        }
        float scores[2][2] = {};
#pragma unroll
        for (int k = 0; k < PART / 2; k += 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                multiply_eight(T{}, scores[j], query.word[k], query.word[k + 1], keys[j].word[k], keys[j].word[k + 1]);
            }
        }
        ask(first + STEP);
        float larger = m;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Int s = first + i / 2 * 8 + 2 * t + i % 2;
            scores[i / 2][i % 2] = s < end ? a.scale * scores[i / 2][i % 2] : -infinity();
            larger = maximum(larger, scores[i / 2][i % 2]);
        }
        larger = maximum(larger, exchange(larger, 1));
        larger = maximum(larger, exchange(larger, 2));
        const float before = m == larger ? 1.0f : exponential(m - larger);
        m = larger;
        l *= before;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) o[c][0] *= before, o[c][1] *= before;
        float weights[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float score = scores[i / 2][i % 2];
            weights[i] = score == -infinity() ? 0.0f : quick_exponential(score - larger);
            l += weights[i];
        }
        Raw<T, 4> whole, rest;  // two elements of 16 bits say more of a weight than one
#pragma unroll
        for (int i = 0; i < 4; ++i) whole.set(i, narrow<T>(weights[i]));
#pragma unroll
        for (int i = 0; i < 4; ++i) rest.set(i, narrow<T>(weights[i] - float(widen(whole.get(i)))));
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) {
            const unsigned x0 = values[0].word[c / 2], x1 = values[1].word[c / 2];
            const unsigned x2 = values[2].word[c / 2], x3 = values[3].word[c / 2];
            const unsigned low0 = (x0 & 0xffffu) | x1 << 16, low1 = (x2 & 0xffffu) | x3 << 16;
            const unsigned high0 = x0 >> 16 | (x1 & 0xffff0000u), high1 = x2 >> 16 | (x3 & 0xffff0000u);
            multiply_eight(T{}, o[c], whole.word[0], whole.word[1], low0, low1);
            multiply_eight(T{}, o[c + 1], whole.word[0], whole.word[1], high0, high1);
            multiply_eight(T{}, o[c], rest.word[0], rest.word[1], low0, low1);
            multiply_eight(T{}, o[c + 1], rest.word[0], rest.word[1], high0, high1);
        }
    }
    l += exchange(l, 1);
    l += exchange(l, 2);
    if (n >= a.count) return;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        room[warp][n][2 * t * COLUMNS + c] = o[c][0], room[warp][n][(2 * t + 1) * COLUMNS + c] = o[c][1];
    }
    if (t == 0) room[warp][n][WIDTH] = l, room[warp][n][WIDTH + 1] = m;
}

// `room` holds the states of every warp; `last` says whether this block is. FRAGMENTS: scores and values are products of
// fragments of 16-bit elements, 16 keys at a time.
template <int QUERIES, int WIDTH, int THREADS, int AHEAD, bool FINISHED, bool FRAGMENTS, class T, class S>
TAPESTRY_FN void few_queries(FewQueries<T, S> a, float (*room)[QUERIES][WIDTH + 2], bool* last) {
    constexpr int WARPS = THREADS / 32;
    if constexpr (FRAGMENTS) {
        seen_by_fragments<QUERIES, WIDTH, THREADS>(a, room);
    } else {
        seen_by_lanes<QUERIES, WIDTH, THREADS, AHEAD>(a, room);
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
