// A computing warp of the forward kernel of channel pairs that adds up a block of output rows at a time.
//
// The input rows that `LEAVING` output rows meet stay in the ring until the last of those is done with: every input row is
// loaded once for a block, so that some are loaded again for the next one. In return a warp waits and hands over once for
// all rows of a block, and its sums are so few that many warps share a multiprocessor. A warp's own steps are what such a block takes:
// it loads `TOGETHER` rows at once, hands slots back in the middle of a block, and stages rows that are finished while others are
// still added up.

namespace {

constexpr int OPEN = LEAVING;                                            // output rows of a block
constexpr int MET = (LEAVING - 1) * spec::STRIDE_Y + SPAN;               // input rows that they meet
constexpr int STEP = LEAVING * spec::STRIDE_Y;                           // from a block's first to the next one's
constexpr int HELD = MET - STEP;                                         // of a block's rows, those that the one before has met
constexpr int TOGETHER = spec::TOGETHER;                                 // input rows that are loaded at once

static_assert(spec::STAGES <= WARP);    // a lane hands each back

// The filter's row under which output row p of a block meets its input row `at`, or -1.
constexpr int tap_of(int at, int p) {
    const int ahead = at - p * spec::STRIDE_Y;
    return ahead >= 0 && ahead % spec::DILATION_Y == 0 && ahead / spec::DILATION_Y < spec::R ? ahead / spec::DILATION_Y : -1;
}

// How many of a block's output rows meet no input row from `at` on.
constexpr int finished(int at) {
    const int begun = at < SPAN ? 0 : (at - SPAN) / spec::STRIDE_Y + 1;
    return begun < LEAVING ? begun : LEAVING;
}

// Adds the products of `COUNT` input rows of a block, the first of which is `AT`: those of two steps of all rows, output rows and
// pairs, then the next two, so that what is added to the same sums lies apart.
template <int AT, int COUNT, int TURN = 0, int ROW = 0, int P = 0>
__device__ __forceinline__ void multiply(Accumulators (&sums)[OPEN], const Filter& filter, const Left (&left)[COUNT], int t) {
    if constexpr (P < LEAVING) {
        if constexpr (tap_of(AT + ROW, P) >= 0)
#pragma unroll
            for (int pair = 0; pair < CHANNEL_PAIRS; ++pair)
                multiply_steps<tap_of(AT + ROW, P), 2 * TURN>(sums[P], filter, left[ROW], t, pair, false);
        multiply<AT, COUNT, TURN, ROW, P + 1>(sums, filter, left, t);
    } else if constexpr (ROW + 1 < COUNT) {
        multiply<AT, COUNT, TURN, ROW + 1>(sums, filter, left, t);
    } else if constexpr (TURN + 1 < TURNS) {
        multiply<AT, COUNT, TURN + 1>(sums, filter, left, t);
    }
}

// A block of output rows: which of the input rows that it meets exist, counted from the first; whether it is the first of a run, or
// the last that these warps compute; and how many of its output rows there are.
struct Block {
    int begin, end;
    bool first, last;
    int rows;

    __device__ __forceinline__ bool holds(int at) const { return at >= begin && at < end; }
};

struct Worker {
    const Barriers& barriers;
    const Place& place;
    unsigned shared;
    Held filter;
    Affine affine;
    OutputPlaces to;
    Ring<spec::STAGES> ring;    // at the first input row that is held
    Ring<spec::OUT_STAGES> out;
    unsigned zero = blockDim.y - 1;    // 0, which only the launch knows

    // Adds up the output rows of a run of `count` input rows, of which those from `first` to `last` exist. No run follows one that `ends`.
    __device__ void walk(Accumulators (&sums)[OPEN], int first, int last, int count, bool ends) {
        const int rows = (count - SPAN) / spec::STRIDE_Y + 1;
        for (int row = 0; row < rows; row += LEAVING) {
            const int base = row * spec::STRIDE_Y;
            const Block block{first - base, last - base, row == 0, ends && row + LEAVING >= rows, min(LEAVING, rows - row)};
#pragma unroll
            for (int p = 0; p < OPEN; ++p)
#pragma unroll
                for (int i = 0; i < spec::PIECES * 4; ++i) sums[p].sum[0][i / 4][i % 4] = 0.0f;
            Ring<spec::STAGES> at = ring;
            add<0, 0>(sums, block, at);
            if (row + LEAVING >= rows) release(sums, block, STEP, count - base);
            out.advance();
        }
    }

    // Adds a block's input rows from `AT` on; the first `STAGED` output rows have left. Output rows beyond the run are added to as
    // well: nobody asks for them.
    template <int AT, int STAGED>
    __device__ __forceinline__ void add(Accumulators (&sums)[OPEN], const Block& block, Ring<spec::STAGES>& at) {
        if constexpr (AT < MET) {
            constexpr int COUNT = AT + 1 < MET ? TOGETHER : 1;
            static_assert(COUNT <= 2);
            if (block.holds(AT)) {
                if (COUNT == 1 || AT + 1 < block.end)
                    add_rows<AT, COUNT>(sums, block, at);
                else
                    add_rows<AT, 1>(sums, block, at);
            } else if (COUNT == 2 && block.holds(AT + 1)) {
                add_rows<AT + COUNT - 1, 1>(sums, block, at);
            }
            if constexpr (AT < STEP && AT + COUNT >= STEP) release(sums, block, 0, STEP);
            constexpr int DONE = finished(AT);    // those that these rows finish have products under way
            stage<STAGED, DONE>(sums, block);
            add<AT + COUNT, DONE>(sums, block, at);
        } else {
            stage<STAGED, LEAVING>(sums, block);
        }
    }

    // Adds `COUNT` input rows from `AT` on, which exist.
    template <int AT, int COUNT>
    __device__ __forceinline__ void add_rows(Accumulators (&sums)[OPEN], const Block& block, Ring<spec::STAGES>& at) {
        if (AT + COUNT > HELD || block.first) wait_for<COUNT>(at);
        unsigned from[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i, at.advance()) from[i] = shared + at.slot * STAGE_BYTES + 2 * place.part();
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) {
            Read read[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) read[i].load(place, t, from[i]);
            if constexpr (COUNT == 1) {
                const Left left[1]{{read[0], place}};
                multiply<AT, 1>(sums, filter, left, t);
            } else {
                const Left left[2]{{read[0], place}, {read[1], place}};
                multiply<AT, 2>(sums, filter, left, t);
            }
        }
    }

    // All are asked for before the first is waited for.
    template <int COUNT>
    __device__ __forceinline__ void wait_for(Ring<spec::STAGES> at) const {
        bool there = true;
        Ring<spec::STAGES> next = at;
#pragma unroll
        for (int i = 0; i < COUNT; ++i, next.advance()) there &= barriers.row_full(next.slot).reached(next.parity);
        if (there) return;
#pragma unroll
        for (int i = 0; i < COUNT; ++i, at.advance()) barriers.row_full(at.slot).wait(at.parity);
    }

    // Hands back the slots of the input rows from `from` to `to`, which no other block needs, a lane each: all that was loaded of them is
    // in some sum.
    __device__ __forceinline__ void release(const Accumulators (&sums)[OPEN], const Block& block, int from, int to) {
        unsigned read = 0;
#pragma unroll
        for (int p = 0; p < OPEN; ++p)
#pragma unroll
            for (int piece = 0; piece < spec::PIECES; ++piece) read |= __float_as_uint(sums[p].sum[0][piece][0]);
        const int count = max(0, min(to, block.end) - max(from, block.begin));
        __syncwarp();
        const unsigned slot = ring.slot + place.lane;
        if (place.lane < count) barriers.row_empty(slot < spec::STAGES ? slot : slot - spec::STAGES).arrive_after(read, zero);
        ring.advance(count);
    }

    // Rounds and stages the output rows from `FROM` to `TO`. They may leave when all of their block are staged: the fence of every row
    // would take more time than it spares. Behind the last block nothing is left to do, and its rows leave at once.
    template <int FROM, int TO>
    __device__ __forceinline__ void stage(const Accumulators (&sums)[OPEN], const Block& block) {
        if constexpr (FROM < TO) {
            if constexpr (FROM == 0) barriers.out_ready(out.slot).wait(out.parity);
            const unsigned stage = shared + OUT_BASE + out.slot * OUT_STAGE_BYTES;
#pragma unroll
            for (int p = FROM; p < TO; ++p)
                if (p < block.rows) stage_row(sums[p], affine, to, stage + p * OUT_PITCH);
            if (TO < LEAVING && !block.last) return;
            fence_for_copy_engine();
            __syncwarp();
            if (place.lane >= (block.last ? FROM : 0) && place.lane < TO) barriers.out_full(out.slot, place.lane).arrive();
        }
    }
};

}  // namespace
