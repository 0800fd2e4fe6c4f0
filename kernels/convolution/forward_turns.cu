// A computing warp of the forward kernel that adds every input row into all output rows it belongs to (overlap-add).
//
// Input row t of a run adds into every open output row o with o * STRIDE_Y + r * DILATION_Y == t; the open rows live in a
// circle of accumulators whose indices are static because the loop is unrolled over the circle's period.

namespace {

struct Worker {
    const Barriers& barriers;
    const Place& place;
    unsigned shared;
    Held filter;
    Affine affine;
    OutputPlaces to;
    Ring<spec::STAGES> ring;
    Ring<spec::OUT_STAGES> out;
    int begin = 0, end = 0;   // input rows of this run that exist, counted from its first
    int total = 0;            // steps of this run: its input rows, and one where rows leave late
    int inner = 0;    // row of the stage
    unsigned zero = blockDim.y - 1;    // 0, which only the launch knows

    // Adds up the output rows of a run of `count` input rows, of which those from `first` to `last` exist.
    __device__ void walk(Accumulators (&open)[OPEN], int first, int last, int count, bool) {
        begin = first, end = last, total = count + LATE;
        for (int t = 0; t < total; t += PERIOD) turn<0>(open, t);
    }

    // One input row. Where rows leave late, the one that was finished before leaves while this one's matrices are on their way.
    template <int PHASE>
    __device__ __forceinline__ void row(Accumulators (&open)[OPEN], int t) {
        const bool here = t >= begin && t < end;
        // Without sums of its own the row that leaves costs fewest registers where each case has a path to itself.
        if (LATE == spec::LATE_ROWS)
            row<PHASE>(open, t, here);
        else if (here)
            row<PHASE>(open, t, true);
        else
            row<PHASE>(open, t, false);
    }

    template <int PHASE>
    __device__ __forceinline__ void row(Accumulators (&open)[OPEN], int t, const bool here) {
        const unsigned from = shared + ring.slot * STAGE_BYTES + inner * ROW_PITCH;
        FirstMatrices first;
        if (here) {
            if (inner == 0) barriers.row_full(ring.slot).wait(ring.parity);
            load_first<PHASE>(first, filter, place, from);
        }
        if constexpr (LATE > 0) leave<(PHASE + PERIOD - 1) % PERIOD>(open, t - 1);
        if (here) {
            const unsigned read = add_row<PHASE>(open, filter, place, Reach{t, total - LATE - SPAN}, from, first);
            if (++inner == spec::STAGE_ROWS || t + 1 == end) release(read);
        } else {
            clear_first<PHASE>(open);
        }
        if constexpr (LATE == 0) leave<PHASE>(open, t);
    }

    // The output row that input row t, at phase `PHASE`, finishes.
    template <int PHASE>
    __device__ __forceinline__ void leave(Accumulators (&open)[OPEN], int t) {
        constexpr int done = slot_of(PHASE, spec::R - 1);
        if constexpr (done >= 0) {
            if (t >= (spec::R - 1) * spec::DILATION_Y) emit(open[done]);
        }
    }

    __device__ __forceinline__ void release(unsigned read) {
        __syncwarp();
        if (elected()) barriers.row_empty(ring.slot).arrive_after(read, zero);
        ring.advance();
        inner = 0;
    }

    __device__ __forceinline__ void emit(const Accumulators& sums) {
        barriers.out_ready(out.slot).wait(out.parity);
        stage_row(sums, affine, to, shared + OUT_BASE + out.slot * OUT_STAGE_BYTES);
        fence_for_copy_engine();
        __syncwarp();
        if (elected()) barriers.out_full(out.slot).arrive();
        out.advance();
    }

    template <int PHASE>
    __device__ __forceinline__ void turn(Accumulators (&open)[OPEN], int t) {
        if constexpr (PHASE < PERIOD) {
            if (t + PHASE >= total) return;
            row<PHASE>(open, t + PHASE);
            turn<PHASE + 1>(open, t);
        }
    }
};

}  // namespace
