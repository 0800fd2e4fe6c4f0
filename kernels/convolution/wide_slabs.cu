// The filter of the forward kernel of wide groups (wide_forward.cu) in slabs, as wide_slabs.py has them: boxes of it that come through
// the ring of rows, one after the other, and are put in order while the next one is on its way. And whichever way it comes.

namespace {

// How the inner channels of an outer one lie in a slab, and at which bytes it begins in its slot.
constexpr int SLAB_PITCH = 16 * SLAB_APART, SLAB_TAPS = SLAB_ROWS * TAPS_S, SLAB_OUTER = TRANSPOSED ? READ : WRITTEN;
constexpr int SLABS_ALONG = SLABS > 0 ? (SLAB_OUTER + SLAB_OCTETS - 1) / SLAB_OCTETS : 1, SLAB_UNIT = SLAB_SWIZZLED ? 1024 : 128;
constexpr int SLAB_BYTES = SLAB_TAPS * SLAB_OCTETS * 8 * 16 * SLAB_BROUGHT;
static_assert(SLAB_TAPS * SLAB_OCTETS * 8 * SLAB_PITCH + (ROW_PITCH % SLAB_UNIT ? SLAB_UNIT - 128 : 0) <= ROW_PITCH || SLABS == 0);
// Whether two shares of a part have some octets both: the last one begins sooner than the ones before end.
constexpr bool OVERLAPS = TRANSPOSED && SHARES > 1 && PARTS * SHARES * WRITTEN != OUTPUT_OCTETS * CELL_Y * CELL_X;

// Which of a filter's slabs one is: of which unit, from which octet of its outer channels and which row of taps on.
struct Slab {
    int unit, first, row;

    __device__ __forceinline__ explicit Slab(int number)
        : unit(number / (TAPS_R / SLAB_ROWS) / SLABS_ALONG), first(number / (TAPS_R / SLAB_ROWS) % SLABS_ALONG * SLAB_OCTETS),
          row(number % (TAPS_R / SLAB_ROWS) * SLAB_ROWS) {}
    // Whether any output that a block has, from this octet on, meets a tap of it: slabs are of a row where it has a part of cells.
    __device__ __forceinline__ bool wanted(int first_written) const {
        if (!CELLS || SLAB_ROWS > 1) return true;
        const Met met(PLACES_R, row);
        const int begin = met.cell * CELL_X * OUTPUT_OCTETS;
        return met.there && begin < first_written + SHARES * WRITTEN && first_written < begin + CELL_X * OUTPUT_OCTETS;
    }
    // The slot's first byte from which on it lies.
    static __device__ __forceinline__ unsigned begin(unsigned slot) { return (slot + SLAB_UNIT - 1) / SLAB_UNIT * SLAB_UNIT; }
};

// Asks for all of them: a whole warp runs this and elects a lane to issue.
template <int SLOTS>
__device__ __forceinline__ void ask_for_filter(const Weights& weights, const Work& work, const Share& share, const Slots<SLOTS>& slots,
                                               Ring<SLOTS>& ring, unsigned rows) {
    const int first_written = Written(work, share, 0).first;
    for (int number = 0; number < SLABS; ++number) {
        const Slab slab(number);
        if (!slab.wanted(first_written)) continue;
        const Written own(work, share, TRANSPOSED ? slab.unit * SHARES : slab.unit);
        const int outer = TRANSPOSED ? (share.group + slab.unit) * READ * 8 : own.channel(0);
        const int inner = TRANSPOSED && !CELLS ? own.inner(0) : 0;
        slots.empty(ring.slot).wait(ring.parity ^ 1u);
        if (elected()) {
            const Barrier full = slots.full(ring.slot);
            full.arrive_expecting(SLAB_BYTES);
            load_box(Slab::begin(rows + ring.slot * ROW_PITCH), weights.map, inner, outer + 8 * slab.first, 0, slab.row, full);
        }
        __syncwarp();
        ring.advance();
    }
}

// What a warp moves at once: four squares, each of eight outer channels of an octet of inner ones, in an input gradient to be turned.
// Those that belong nowhere go to `nowhere`, sixteen bytes that nobody reads.
struct Squares {
    static constexpr int NUMBER = SLAB_TAPS * SLAB_OCTETS * SLAB_INNER, TURNS = (NUMBER + 4 * COMPUTE_WARPS - 1) / (4 * COMPUTE_WARPS);
    int tap, outer, inner;    // of this lane's square: counted within the slab

    __device__ __forceinline__ explicit Squares(int turn) {
        const int square = min((turn * COMPUTE_WARPS + int(threadIdx.x) / WARP) * 4 + int(threadIdx.x) % WARP / 8, NUMBER - 1);
        inner = square % max(SLAB_INNER, 1), outer = square / max(SLAB_INNER, 1) % SLAB_OCTETS, tap = square / max(SLAB_INNER, 1) / SLAB_OCTETS;
    }
    // Where the row of this lane's matrix lies that it names.
    __device__ __forceinline__ unsigned from(unsigned slab) const {
        const unsigned place = slab + ((tap * SLAB_OCTETS + outer) * 8 + threadIdx.x % 8) * SLAB_PITCH + inner * 16;
        return lying_at<SLAB_SWIZZLED, SLAB_PITCH>(place);
    }
    // Where it goes; what two shares have, to the LAST one, too.
    template <bool LAST>
    __device__ __forceinline__ unsigned to(const Slab& slab, unsigned filter, int first_written, int last_written, unsigned nowhere) const {
        const Met row(PLACES_R, slab.row + tap / TAPS_S), column(PLACES_S, tap % TAPS_S);
        int part = slab.unit, octet = column.place * READ + inner, written = slab.first + outer;
        bool there = row.there && column.there && slab.first + outer < SLAB_OUTER;
        if constexpr (TRANSPOSED) {
            octet = column.place * READ + slab.first + outer, written = inner;
            if (CELLS) written += (row.cell * CELL_X + column.cell) * OUTPUT_OCTETS - first_written;
            const int share = min(max(written, 0) / WRITTEN, SHARES - 1);
            if (LAST) there = there && share < SHARES - 1;
            const int mine = LAST ? SHARES - 1 : share;
            written -= OVERLAPS && mine == SHARES - 1 ? last_written : mine * WRITTEN, part = slab.unit * SHARES + mine;
            there = there && written >= 0 && written < WRITTEN;
        }
        return there ? filter + filter_place(part, row.place, octet, 8 * written + threadIdx.x % 8) : nowhere;
    }
};

constexpr int TURNS_TOGETHER = 4;    // loads of a warp that are under way at once

__device__ __forceinline__ void order_slab(unsigned filter, const Slab& slab, int first_written, int last_written, unsigned from,
                                           unsigned nowhere) {
#pragma unroll
    for (int begin = 0; begin < Squares::TURNS; begin += TURNS_TOGETHER) {
        unsigned matrices[TURNS_TOGETHER][4];
#pragma unroll
        for (int i = 0; i < TURNS_TOGETHER; ++i) {
            if (begin + i >= Squares::TURNS) continue;
            unsigned (&four)[4] = matrices[i];
            if constexpr (TRANSPOSED)
                load_transposed(four[0], four[1], four[2], four[3], Squares(begin + i).from(from));
            else
                load_matrices(four, Squares(begin + i).from(from));
        }
#pragma unroll
        for (int i = 0; i < TURNS_TOGETHER; ++i) {
            if (begin + i >= Squares::TURNS) continue;
            const Squares own(begin + i);
            store_matrices(own.to<false>(slab, filter, first_written, last_written, nowhere), matrices[i]);
            if constexpr (OVERLAPS) store_matrices(own.to<true>(slab, filter, first_written, last_written, nowhere), matrices[i]);
        }
    }
}

// Where no tap belongs: beside an odd number of octets, and where an output of a cell meets none.
__device__ __forceinline__ void clear_filter(unsigned filter) {
    if constexpr (CELLS) {
        clear(filter, CHANNEL_GROUPS * FILTER_PART);
        meet(BROUGHT, COMPUTE_THREADS);
    } else if constexpr (DEPTH > OCTETS) {
#pragma unroll
        for (int part = 0; part < CHANNEL_GROUPS; ++part) clear(filter + filter_place(part, 0, OCTETS, 0), OCTET_PITCH);
    }
}

// All computing warps of the block, each its share of every slab.
template <int SLOTS>
__device__ __forceinline__ void order_slabs(const Work& work, const Share& share, unsigned filter, const Slots<SLOTS>& slots,
                                            Ring<SLOTS>& ring, unsigned rows, unsigned nowhere) {
    clear_filter(filter);
    // The first octets of the block's first share, and of its last one, counted from there.
    const int first_written = Written(work, share, 0).first, last_written = Written(work, share, SHARES - 1).first - first_written;
    for (int number = 0; number < SLABS; ++number) {
        const Slab slab(number);
        if (!slab.wanted(first_written)) continue;
        slots.full(ring.slot).wait(ring.parity);
        order_slab(filter, slab, first_written, last_written, Slab::begin(rows + ring.slot * ROW_PITCH), nowhere);
        give_back(slots, ring);
    }
}

// All computing threads of the block, each a share.
template <int SLOTS>
__device__ void bring_filter(const Weights& weights, const Work& work, const Share& share, unsigned filter, const Lying& lying,
                             const Slots<SLOTS>& slots, Ring<SLOTS>& ring, unsigned rows) {
    if (SLABS > 0 && weights.aligned())
        order_slabs(work, share, filter, slots, ring, rows, lying.zeros);
    else if (FETCHED && weights.aligned())
        WHOLE ? order_filter(work, share, filter, lying) : spread_filter(work, share, filter, lying);
    else if (!FETCHED && WHOLE && TRANSPOSED && weights.aligned())
        turn_filter(weights, work, share, filter);
    else
        copy_filter(weights, work, share, filter);
    wait_copies();
    fence_for_copy_engine();
    meet(BROUGHT, COMPUTE_THREADS);
}

}  // namespace
