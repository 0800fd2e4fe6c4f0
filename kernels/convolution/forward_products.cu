// The products that add an input row into the open ones; the filter's fragments in registers or in shared memory.
// Where outputs have parities, taps and parities are template arguments, not loops to be unrolled: what each meets is then
// known before the compiler optimizes, which takes it a quarter of the time for filters of 5 x 5 with stride 2, and spills
// nothing there.

namespace {

constexpr bool CELLS = spec::CELL_ROWS * spec::CELL_COLUMNS > 1;

// Something of every product of a phase: it is there when all that was loaded for them is.
template <int PHASE>
__device__ __forceinline__ unsigned witness(Accumulators (&open)[OPEN]) {
    constexpr TapY r = first_tap(PHASE);
    unsigned read = 0;
    if constexpr (adds(PHASE)) {
        constexpr RowParity a = reader(r);
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (ColumnParity b(0); b < ColumnParity(spec::CELL_COLUMNS); ++b)
                if (meets_any(a, b)) read |= __float_as_uint(open[slot_of(PHASE, r.get())](a, t, 0, b)[0]);
    }
    return read;
}

// The matrices of one tile and pair of steps of an input row.
__device__ __forceinline__ void load_pair(unsigned (&read)[4], const Place& place, unsigned row, int t, int pair) {
    if (pair * 2 + 1 < spec::STEPS) {
        load_matrices(read, place.row(t, pair).in_tile(row).address());
    } else {
        unsigned half[2];
        load_matrices(half, place.row(t, pair).in_tile(row).address());
        read[0] = half[0], read[1] = half[1];
    }
}

// Adds the products of pair `PAIR` of steps: of both, or of the one that outputs of parity `B` meet.
template <int PAIR, int B>
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&read)[4], const unsigned (&taps)[spec::STEPS],
                                         bool first) {
    constexpr ColumnParity b(B);
    constexpr Step low{Pair(PAIR)}, high = low + 1;
    constexpr bool begins = Pair(PAIR) == first_met(b);
    const bool fresh = first && begins;
    if constexpr (meets(b, low) && meets(b, high))
        mma_k16<spec::Half>(sum, read, &taps[low.get()], fresh);
    else if constexpr (meets(b, low))
        mma_k8<spec::Half>(sum, read, &taps[low.get()], fresh);
    else if constexpr (meets(b, high))
        mma_k8<spec::Half>(sum, read + 2, &taps[high.get()], fresh);
}

template <int PAIR, int R, int A, int B = 0>
__device__ __forceinline__ void multiply_columns(Accumulators& sums, const Filter& filter, const unsigned (&read)[4], int t,
                                                 int o) {
    if constexpr (B < spec::CELL_COLUMNS) {
        constexpr bool first = TapY(R) == first_met(RowParity(A));
        multiply<PAIR, B>(sums(RowParity(A), t, o, ColumnParity(B)), read, filter.part[A][B][o][R], first);
        multiply_columns<PAIR, R, A, B + 1>(sums, filter, read, t, o);
    }
}

template <int PAIR, int R, int A = 0>
__device__ __forceinline__ void multiply_rows(Accumulators& sums, const Filter& filter, const unsigned (&read)[4], int t) {
    if constexpr (A < spec::CELL_ROWS) {
        if constexpr (meets(RowParity(A), TapY(R)))
#pragma unroll
            for (int o = 0; o < spec::CHANNEL_OCTETS; ++o) multiply_columns<PAIR, R, A>(sums, filter, read, t, o);
        multiply_rows<PAIR, R, A + 1>(sums, filter, read, t);
    }
}

// Adds those of a tile, at phase `PHASE` of the circle, into the open rows.
template <int PHASE, int PAIR, int R = 0>
__device__ __forceinline__ void multiply_pair(Accumulators (&open)[OPEN], const Filter& filter, const unsigned (&read)[4],
                                              int t) {
    if constexpr (R < spec::R) {
        constexpr int slot = slot_of(PHASE, R);
        if constexpr (slot >= 0) multiply_rows<PAIR, R>(open[slot], filter, read, t);
        multiply_pair<PHASE, PAIR, R + 1>(open, filter, read, t);
    }
}

// The same where outputs have no parities, in loops: where each product was an instance of a template, 5 x 5 filters took 3
// to 5 % longer, and few are unrolled here.
template <int PHASE>
__device__ __forceinline__ void multiply_plain(Accumulators (&open)[OPEN], const Filter& filter, const unsigned (&read)[4],
                                               int t, Pair pair) {
    constexpr RowParity a(0);
    constexpr ColumnParity b(0);
    const Step low(pair), high = low + 1;
#pragma unroll
    for (TapY r(0); r < TapY(spec::R); ++r) {
        const int slot = slot_of(PHASE, r.get());
        if (slot < 0 || !meets(a, r)) continue;
        const bool fresh = r == first_met(a) && pair == first_met(b);
#pragma unroll
        for (int o = 0; o < spec::CHANNEL_OCTETS; ++o) {
            auto& sum = open[slot](a, t, o, b);
            const auto& taps = filter.part[0][0][o][r.get()];
            if (meets(b, low) && meets(b, high))
                mma_k16<spec::Half>(sum, read, &taps[low.get()], fresh);
            else if (meets(b, low))
                mma_k8<spec::Half>(sum, read, &taps[low.get()], fresh);
            else if (meets(b, high))
                mma_k8<spec::Half>(sum, read + 2, &taps[high.get()], fresh);
        }
    }
}

// Adds an input row from pair `PAIR` of its steps on.
template <int PHASE, int PAIR>
__device__ __forceinline__ void add_pairs(Accumulators (&open)[OPEN], const Filter& filter, const Place& place, unsigned row) {
    if constexpr (!CELLS) {
#pragma unroll
        for (int pair = PAIR; pair < PAIRS; ++pair)
#pragma unroll
            for (int t = 0; t < spec::TILES; ++t) {
                unsigned read[4];
                load_pair(read, place, row, t, pair);
                multiply_plain<PHASE>(open, filter, read, t, Pair(pair));
            }
    } else if constexpr (PAIR < PAIRS) {
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) {
            unsigned read[4];
            load_pair(read, place, row, t, PAIR);
            multiply_pair<PHASE, PAIR>(open, filter, read, t);
        }
        add_pairs<PHASE, PAIR + 1>(open, filter, place, row);
    }
}

// What of a row is asked for before the one that was finished before it leaves: the first pair of steps of every tile.
using FirstMatrices = unsigned[spec::TILES][4];

template <int PHASE>
__device__ __forceinline__ void load_first(FirstMatrices& first, const Filter&, const Place& place, unsigned row) {
    if constexpr (LATE > 0 && adds(PHASE))
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) load_pair(first[t], place, row, t, 0);
}

// Adds one input row, at phase `PHASE` of the circle, into the open output rows; weights in registers. Rows beyond the
// run are added to as well: nobody asks for them. Returns what is there when all that was loaded of the row is.
template <int PHASE>
__device__ __forceinline__ unsigned add_row(Accumulators (&open)[OPEN], const Filter& filter, const Place& place,
                                            const Reach&, unsigned row, const FirstMatrices& first) {
    if constexpr (!adds(PHASE)) return 0;
    if constexpr (LATE > 0)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
            if constexpr (CELLS)
                multiply_pair<PHASE, 0>(open, filter, first[t], t);
            else
                multiply_plain<PHASE>(open, filter, first[t], t, Pair(0));
    add_pairs<PHASE, LATE>(open, filter, place, row);
    return witness<PHASE>(open);
}

// The taps of one column of the filter, in the order in which they are multiplied with: the places of the window, and at
// each the parities that meet a tap there. The next one in phase `phase` (from -1: the first), or past the last.
constexpr int TAP_ROWS = spec::TapRow::size();
constexpr TapY place_of(int row) { return spec::TapRow(row).get<TapY>(); }
constexpr RowParity parity_of(int row) { return spec::TapRow(row).get<RowParity>(); }
constexpr StoredY tap_of(int row) { return stored_tap(parity_of(row), place_of(row)); }
constexpr int next_row(int phase, int row) {
    do ++row;
    while (row < TAP_ROWS && (slot_of(phase, place_of(row).get()) < 0 || tap_of(row) < StoredY(0)));
    return row;
}

// The first tap of a phase that takes the input row to an output row of the run, or below 0.
template <int PHASE>
__device__ __forceinline__ StoredY first_row(const Reach& reach) {
    StoredY first(-1);
#pragma unroll
    for (int row = TAP_ROWS - 1; row >= 0; --row)
        if (slot_of(PHASE, place_of(row).get()) >= 0 && tap_of(row) >= StoredY(0) && reach.holds(place_of(row)))
            first = tap_of(row);
    return first;
}

// The same for columns, at run time: whether outputs of parity b meet a tap there, and which.
__device__ __forceinline__ bool meets_there(ColumnParity b, TapX s) { return spec::CELL_COLUMNS == 1 || meets(b, s); }
__device__ __forceinline__ StoredX tap_there(ColumnParity b, TapX s) {
    return StoredX(unsigned(tap_number(b, s)) / spec::TAP_UNIT_S);
}

// The column of the filter that is multiplied with behind that of (b, s); any where there is none.
__device__ __forceinline__ StoredX next_column(ColumnParity b, TapX s) {
    const TapX beside = min(s + 1, TapX(spec::S - 1));
    StoredX next(0);
#pragma unroll
    for (ColumnParity other(spec::CELL_COLUMNS - 1); other >= ColumnParity(0); --other)
        if (meets_there(other, beside)) next = tap_there(other, beside);
#pragma unroll
    for (ColumnParity other(spec::CELL_COLUMNS - 1); other > b; --other)
        if (meets_there(other, s)) next = tap_there(other, s);
    return next;
}

// A row's matrices under one column of the window.
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

__device__ __forceinline__ void multiply(Accumulators& sums, RowParity a, ColumnParity b, const Columns& read,
                                         const TapFragments& tap) {
#pragma unroll
    for (int pair = 0; pair < TAP_PAIRS; ++pair)
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int o = 0; o < spec::CHANNEL_OCTETS; ++o)
                mma_k16<spec::Half>(sums(a, t, o, b), read.part[t][pair], tap.of(o, pair), false);
}

// Multiplies one column of the filter, whose first fragments are `next`; leaves there those of column `after`.
template <int PHASE>
__device__ __forceinline__ void add_column(Accumulators (&open)[OPEN], const Operands& from, const Reach& reach,
                                           const Columns& read, TapFragments& next, ColumnParity b, StoredX column,
                                           StoredY first, StoredX after) {
#pragma unroll
    for (int row = 0; row < TAP_ROWS; ++row) {
        const int slot = slot_of(PHASE, place_of(row).get());
        if (slot < 0 || tap_of(row) < StoredY(0) || !reach.holds(place_of(row))) continue;
        const TapFragments tap = next;
        const int below = next_row(PHASE, row);
        const bool more = below < TAP_ROWS && reach.holds(place_of(below));
        next.load(from.filter, more ? tap_of(below) : first, more ? column : after);
        multiply(open[slot], parity_of(row), b, read, tap);
    }
}

template <int PHASE>
__device__ __forceinline__ void load_first(FirstMatrices&, const Operands&, const Place&, unsigned) {}

// The same with the filter in shared memory: column by column, every fragment loaded while the one before it is multiplied
// with. Rows beyond the run are left out: where runs are short and filters long they are most of the products.
template <int PHASE>
__device__ __forceinline__ unsigned add_row(Accumulators (&open)[OPEN], const Operands& from, const Place&,
                                            const Reach& reach, unsigned row, const FirstMatrices&) {
    if constexpr (!adds(PHASE)) return 0;
    clear_first<PHASE>(open);
    const StoredY first = first_row<PHASE>(reach);
    if (first < StoredY(0)) return 0;
    unsigned loaded = 0;
    TapFragments next;
    next.load(from.filter, first, next_column(ColumnParity(spec::CELL_COLUMNS), TapX(-1)));
    // Not unrolled: the circle's period is, and the text has to fit the instruction cache.
#pragma unroll 1
    for (TapX s(0); s < TapX(spec::S); ++s) {
        Columns read;
        loaded |= read.load(from, s, row);
#pragma unroll
        for (ColumnParity b(0); b < ColumnParity(spec::CELL_COLUMNS); ++b)
            if (meets_there(b, s))
                add_column<PHASE>(open, from, reach, read, next, b, tap_there(b, s), first, next_column(b, s));
    }
    return loaded;
}

// What a warp multiplies with.
using Held = choose<spec::FILTER_SHARED, Operands, Filter>;

}  // namespace
