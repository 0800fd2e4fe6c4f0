// Products of pairs of channels, an input row into all open output rows.

namespace {

// Turns of two steps, those of a filter row so many rows after one another: what is added to the same sums lies some products apart.
constexpr int APART = 2;

template <int PHASE, int AT, int TURN = 0>
__device__ __forceinline__ void multiply_turns(Accumulators (&open)[OPEN], const Filter& filter, const Left& left, int t) {
    if constexpr (TURN < TURNS) {
        constexpr int r = spec::R - 1 - (AT - APART * TURN);
        if constexpr (r >= 0 && r < spec::R) {
            if constexpr (slot_of(PHASE, r) >= 0) {
                constexpr bool fresh = TapY(r) == first_met(RowParity(0)) && TURN == 0;
#pragma unroll
                for (int pair = 0; pair < CHANNEL_PAIRS; ++pair)
                    multiply_steps<r, 2 * TURN>(open[slot_of(PHASE, r)], filter, left, t, pair, fresh);
            }
        }
        multiply_turns<PHASE, AT, TURN + 1>(open, filter, left, t);
    }
}

// Adds those of a tile, at phase `PHASE` of the circle, into the open rows: first into the one that is finished by them.
template <int PHASE, int AT = 0>
__device__ __forceinline__ void multiply(Accumulators (&open)[OPEN], const Filter& filter, const Left& left, int t) {
    if constexpr (AT < spec::R + APART * (TURNS - 1)) {
        multiply_turns<PHASE, AT>(open, filter, left, t);
        multiply<PHASE, AT + 1>(open, filter, left, t);
    }
}

// The last row of the filter that meets an input row of a phase.
constexpr TapY last_tap(int phase) {
    TapY r(spec::R - 1);
    while (r > TapY(0) && slot_of(phase, r.get()) < 0) --r;
    return r;
}

// Something of every product of a phase with that row: it is there when all that was loaded for them is.
template <int PHASE>
__device__ __forceinline__ unsigned witness(Accumulators (&open)[OPEN]) {
    unsigned read = 0;
    if constexpr (adds(PHASE))
#pragma unroll
        for (int piece = 0; piece < spec::TILES * CHANNEL_PAIRS; ++piece)
            read |= __float_as_uint(open[slot_of(PHASE, last_tap(PHASE).get())].sum[0][piece][0]);
    return read;
}

// What of a row is asked for before the one that was finished before it leaves: the first tile's.
using FirstMatrices = Read;

template <int PHASE>
__device__ __forceinline__ void load_first(FirstMatrices& first, const Filter&, const Place& place, unsigned row) {
    if constexpr (LATE > 0 && adds(PHASE)) first.load(place, 0, row + 2 * place.part());
}

// Adds one input row, at phase `PHASE` of the circle, into the open output rows. Rows beyond the run are added to as well:
// nobody asks for them. Returns what is there when all that was loaded of the row is.
template <int PHASE>
__device__ __forceinline__ unsigned add_row(Accumulators (&open)[OPEN], const Filter& filter, const Place& place, const Reach&,
                                            unsigned row, const FirstMatrices& first) {
    if constexpr (!adds(PHASE)) return 0;
    if constexpr (LATE > 0) multiply<PHASE>(open, filter, Left(first, place), 0);
#pragma unroll
    for (int t = LATE; t < spec::TILES; ++t) {
        Read read;
        read.load(place, t, row + 2 * place.part());
        multiply<PHASE>(open, filter, Left(read, place), t);
    }
    return witness<PHASE>(open);
}

}  // namespace
