// The circle of open output rows, and the products that add an input row into them; the filter's fragments in registers or
// in shared memory.

namespace {

constexpr int SPAN = (spec::R - 1) * spec::DILATION_Y + 1;                  // input rows of one output row
constexpr int LATE = spec::LATE;                                            // steps between a row's last sum and its leaving
constexpr int OPEN = (SPAN + spec::STRIDE_Y - 1) / spec::STRIDE_Y + LATE;   // output rows open, or about to leave, at a time
constexpr int PERIOD = OPEN * spec::STRIDE_Y;                               // input rows after which indices repeat
constexpr int FRAGMENTS = spec::TILES * spec::CHANNEL_OCTETS;               // accumulator tiles of one open row

using Accumulators = float[spec::TILES][spec::CHANNEL_OCTETS][4];

// The open row that an input row at `phase` of the circle adds into by filter row r, or -1 where the strides do not
// meet.
constexpr int slot_of(int phase, int r) {
    const int ahead = phase - r * spec::DILATION_Y + OPEN * spec::STRIDE_Y * spec::DILATION_Y * spec::R;
    return ahead % spec::STRIDE_Y != 0 ? -1 : ahead / spec::STRIDE_Y % OPEN;
}

// The first of a phase's open rows, or -1.
constexpr int first_slot(int phase) {
    for (int r = 0; r < spec::R; ++r)
        if (slot_of(phase, r) >= 0) return slot_of(phase, r);
    return -1;
}

__device__ __forceinline__ void clear(Accumulators& sums) {
#pragma unroll
    for (int e = 0; e < FRAGMENTS * 4; ++e)
        sums[e / 4 / spec::CHANNEL_OCTETS][e / 4 % spec::CHANNEL_OCTETS][e % 4] = 0.0f;
}

// Which filter rows take input row `t` of a run to one of its output rows; `last` is where its last one begins.
struct Reach {
    int t, last;

    __device__ bool holds(TapY r) const { return unsigned(t - r.get() * spec::DILATION_Y) <= unsigned(last); }
};

// Something of every product of a phase: it is there when all that was loaded for them is.
template <int PHASE>
__device__ __forceinline__ unsigned witness(const Accumulators (&open)[OPEN]) {
    constexpr int slot = first_slot(PHASE);
    unsigned read = 0;
    if constexpr (slot >= 0)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) read |= __float_as_uint(open[slot][t][0][0]);
    return read;
}

// The matrices of one tile and pair of steps of an input row.
__device__ __forceinline__ void load_pair(unsigned (&a)[4], const Place& place, unsigned row, int t, int pair) {
    if (pair * 2 + 1 < spec::STEPS) {
        load_matrices(a, place.row(t, pair).in_tile(row).address());
    } else {
        unsigned half[2];
        load_matrices(half, place.row(t, pair).in_tile(row).address());
        a[0] = half[0], a[1] = half[1];
    }
}

// Adds them, at phase `PHASE` of the circle, into the open output rows.
template <int PHASE>
__device__ __forceinline__ void multiply_pair(Accumulators (&open)[OPEN], const Filter& filter, const unsigned (&a)[4], int t,
                                              int pair) {
#pragma unroll
    for (int r = 0; r < spec::R; ++r) {
        const int slot = slot_of(PHASE, r);
        if (slot < 0) continue;
#pragma unroll
        for (int o = 0; o < spec::CHANNEL_OCTETS; ++o) {
            const bool fresh = pair == 0 && r == 0;
            if (pair * 2 + 1 < spec::STEPS)
                mma_k16<spec::Half>(open[slot][t][o], a, &filter.part[o][r][pair * 2], fresh);
            else
                mma_k8<spec::Half>(open[slot][t][o], a, &filter.part[o][r][pair * 2], fresh);
        }
    }
}

// Adds an input row from pair `FIRST` of its steps on.
template <int PHASE, int FIRST>
__device__ __forceinline__ void add_pairs(Accumulators (&open)[OPEN], const Filter& filter, const Place& place, unsigned row) {
#pragma unroll
    for (int pair = FIRST; pair < PAIRS; ++pair)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) {
            unsigned a[4];
            load_pair(a, place, row, t, pair);
            multiply_pair<PHASE>(open, filter, a, t, pair);
        }
}

// What of a row is asked for before the one that was finished before it leaves: the first pair of steps of every tile.
using FirstMatrices = unsigned[spec::TILES][4];

template <int PHASE>
__device__ __forceinline__ void load_first(FirstMatrices& first, const Filter&, const Place& place, unsigned row) {
    if constexpr (LATE > 0 && first_slot(PHASE) >= 0)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) load_pair(first[t], place, row, t, 0);
}

// Adds one input row, at phase `PHASE` of the circle, into the open output rows; weights in registers. Rows beyond the
// run are added to as well: nobody asks for them. Returns what is there when all that was loaded of the row is.
template <int PHASE>
__device__ __forceinline__ unsigned add_row(Accumulators (&open)[OPEN], const Filter& filter, const Place& place,
                                            const Reach&, unsigned row, const FirstMatrices& first) {
    if constexpr (first_slot(PHASE) < 0) return 0;
    if constexpr (LATE > 0)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) multiply_pair<PHASE>(open, filter, first[t], t, 0);
    add_pairs<PHASE, LATE>(open, filter, place, row);
    return witness<PHASE>(open);
}

// The next filter row after `r` that meets an open row in phase `phase` (from -1: the first), or R.
constexpr int next_row(int phase, int r) {
    do ++r;
    while (r < spec::R && slot_of(phase, r) < 0);
    return r;
}

// The first filter row of a phase that takes the input row to an output row of the run, or R.
template <int PHASE>
__device__ __forceinline__ TapY first_row(const Reach& reach) {
    TapY first(spec::R);
#pragma unroll
    for (int r = spec::R - 1; r >= 0; --r)
        if (slot_of(PHASE, r) >= 0 && reach.holds(TapY(r))) first = TapY(r);
    return first;
}

// A row's matrices under one filter column.
struct Columns {
    unsigned part[spec::TILES][TAP_PAIRS][4];

    // Returns something of every load.
    __device__ __forceinline__ unsigned load(const Operands& from, TapX s, unsigned row) {
        unsigned read = 0;
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int pair = 0; pair < TAP_PAIRS; ++pair) {
                const auto at = from.row(t)[cast<X>(s * spec::DILATION_X)][C8(2 * pair)];
                load_matrices(part[t][pair], at.in_tile(row).address());
                read |= part[t][pair][0];
            }
        return read;
    }
};

__device__ __forceinline__ void multiply(Accumulators& sums, const Columns& a, const TapFragments& b) {
#pragma unroll
    for (int pair = 0; pair < TAP_PAIRS; ++pair)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int o = 0; o < spec::CHANNEL_OCTETS; ++o)
                mma_k16<spec::Half>(sums[t][o], a.part[t][pair], b.of(o, pair), false);
}

template <int PHASE>
__device__ __forceinline__ void load_first(FirstMatrices&, const Operands&, const Place&, unsigned) {}

// The same with the filter in shared memory: column by column, every fragment loaded while the one before it is multiplied
// with. Rows beyond the run are left out: where runs are short and filters long they are most of the products.
template <int PHASE>
__device__ __forceinline__ unsigned add_row(Accumulators (&open)[OPEN], const Operands& from, const Place&,
                                            const Reach& reach, unsigned row, const FirstMatrices&) {
    if constexpr (first_slot(PHASE) < 0) return 0;
    if constexpr (slot_of(PHASE, 0) >= 0) clear(open[slot_of(PHASE, 0)]);
    const TapY first = first_row<PHASE>(reach);
    if (first == TapY(spec::R)) return 0;
    unsigned read = 0;
    TapFragments next;
    next.load(from.filter, first, TapX(0));
    // Not unrolled: the circle's period is, and the text has to fit the instruction cache.
#pragma unroll 1
    for (TapX s(0); s < TapX(spec::S); ++s) {
        Columns a;
        read |= a.load(from, s, row);
#pragma unroll
        for (int r = 0; r < spec::R; ++r) {
            const int slot = slot_of(PHASE, r);
            if (slot < 0 || !reach.holds(TapY(r))) continue;
            const TapFragments b = next;
            const TapY below(next_row(PHASE, r));
            const bool more = below < TapY(spec::R) && reach.holds(below);
            next.load(from.filter, more ? below : first, more ? s : min(s + 1, TapX(spec::S - 1)));
            multiply(open[slot], a, b);
        }
    }
    return read;
}

}  // namespace
