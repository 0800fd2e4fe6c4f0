// A computing warp of the forward kernel of channel pairs that adds up a block of output rows at a time.
//
// The input rows that `LEAVING` output rows meet stay in the ring until the last of those is done with: every input row is
// loaded once for a block, so that some are loaded again for the next one. In return a warp waits, rounds and hands over once for
// all rows of a block, and its sums are so few that many warps share a multiprocessor.

namespace {

constexpr int OPEN = LEAVING;                                            // output rows of a block
constexpr int MET = (LEAVING - 1) * spec::STRIDE_Y + SPAN;               // input rows that they meet
constexpr int STEP = LEAVING * spec::STRIDE_Y;                           // from a block's first to the next one's

// The filter's row under which output row p of a block meets its input row `at`, or -1.
constexpr int tap_of(int at, int p) {
    const int ahead = at - p * spec::STRIDE_Y;
    return ahead >= 0 && ahead % spec::DILATION_Y == 0 && ahead / spec::DILATION_Y < spec::R ? ahead / spec::DILATION_Y : -1;
}

// Adds the products of a block's input row `AT`: those of two steps of all output rows and pairs, then the next two, so that what is added to
// the same sums lies apart.
template <int AT, int TURN = 0, int P = 0>
__device__ __forceinline__ void multiply(Accumulators (&sums)[OPEN], const Filter& filter, const Left& left, int t) {
    if constexpr (P < LEAVING) {
        if constexpr (tap_of(AT, P) >= 0)
#pragma unroll
            for (int pair = 0; pair < CHANNEL_PAIRS; ++pair)
                multiply_steps<tap_of(AT, P), 2 * TURN>(sums[P], filter, left, t, pair, false);
        multiply<AT, TURN, P + 1>(sums, filter, left, t);
    } else if constexpr (TURN + 1 < TURNS) {
        multiply<AT, TURN + 1>(sums, filter, left, t);
    }
}

struct Worker {
    const Barriers& barriers;
    const Place& place;
    unsigned shared;
    Held filter;
    Affine affine;
    OutputPlaces to;
    Ring<spec::STAGES> ring;    // at the first input row that is held
    Ring<spec::OUT_STAGES> out;
    int begin = 0, end = 0;     // input rows of this run that exist, counted from its first
    int there = 0;              // the first one that was not waited for
    unsigned zero = blockDim.y - 1;    // 0, which only the launch knows

    // Adds up the output rows of a run of `count` input rows, of which those from `first` to `last` exist.
    __device__ void walk(Accumulators (&sums)[OPEN], int first, int last, int count) {
        begin = there = first, end = last;
        const int rows = (count - SPAN) / spec::STRIDE_Y + 1;
        for (int row = 0; row < rows; row += LEAVING) {
            block(sums, row * spec::STRIDE_Y);
            release(sums, row * spec::STRIDE_Y, row + LEAVING < rows ? row * spec::STRIDE_Y + STEP : count);
            emit(sums, min(LEAVING, rows - row));
        }
    }

    __device__ __forceinline__ void block(Accumulators (&sums)[OPEN], int base) {
#pragma unroll
        for (int p = 0; p < OPEN; ++p)
#pragma unroll
            for (int i = 0; i < spec::PIECES * 4; ++i) sums[p].sum[0][i / 4][i % 4] = 0.0f;
        Ring<spec::STAGES> at = ring;
        add<0>(sums, base, at);
    }

    // Adds a block's input rows from `AT` on. Output rows beyond the run are added to as well: nobody asks for them.
    template <int AT>
    __device__ __forceinline__ void add(Accumulators (&sums)[OPEN], int base, Ring<spec::STAGES>& at) {
        if constexpr (AT < MET) {
            if (base + AT >= begin && base + AT < end) {
                if (base + AT >= there) {
                    barriers.row_full(at.slot).wait(at.parity);
                    there = base + AT + 1;
                }
                const unsigned row = shared + at.slot * STAGE_BYTES + 2 * place.part();
#pragma unroll
                for (int t = 0; t < spec::TILES; ++t) {
                    Read read;
                    read.load(place, t, row);
                    multiply<AT>(sums, filter, Left(read, place.zero), t);
                }
                at.advance();
            }
            add<AT + 1>(sums, base, at);
        }
    }

    // Hands back the slots of the input rows from `from` to `to`, which no other block needs: all that was loaded of them is in some sum.
    __device__ __forceinline__ void release(Accumulators (&sums)[OPEN], int from, int to) {
        unsigned read = 0;
#pragma unroll
        for (int p = 0; p < OPEN; ++p)
#pragma unroll
            for (int piece = 0; piece < spec::PIECES; ++piece) read |= __float_as_uint(sums[p].sum[0][piece][0]);
        const int last = min(to, end);
        __syncwarp();
        for (int t = max(from, begin); t < last; ++t) {
            if (elected()) barriers.row_empty(ring.slot).arrive_after(read, zero);
            ring.advance();
        }
    }

    __device__ __forceinline__ void emit(const Accumulators (&sums)[OPEN], int rows) {
        barriers.out_ready(out.slot).wait(out.parity);
        const unsigned stage = shared + OUT_BASE + out.slot * OUT_STAGE_BYTES;
#pragma unroll
        for (int p = 0; p < OPEN; ++p)
            if (p < rows) stage_row(sums[p], affine, to, stage + p * OUT_PITCH);
        fence_for_copy_engine();
        __syncwarp();
        if (elected()) barriers.out_full(out.slot).arrive();
        out.advance();
    }
};

}  // namespace
