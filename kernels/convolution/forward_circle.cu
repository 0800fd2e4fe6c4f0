// The circle of open rows of the forward kernel. Indices into it are constants of the phase, the input row's number modulo
// the circle's period.

namespace {

constexpr int LATE = spec::LATE;                                            // steps between a row's last sum and its leaving
constexpr int OPEN = (SPAN + spec::STRIDE_Y - 1) / spec::STRIDE_Y + spec::LATE_ROWS;    // output rows open, or about to leave
constexpr int PERIOD = OPEN * spec::STRIDE_Y;                               // input rows after which indices repeat

// The open row that an input row at `phase` of the circle adds into by place r of the window, or -1 where the strides do
// not meet.
constexpr int slot_of(int phase, int r) {
    const int ahead = phase - r * spec::DILATION_Y + OPEN * spec::STRIDE_Y * spec::DILATION_Y * spec::R;
    return ahead % spec::STRIDE_Y != 0 ? -1 : ahead / spec::STRIDE_Y % OPEN;
}

// The first row of the window that meets an input row of a phase, or past the last.
constexpr TapY first_tap(int phase) {
    TapY r(0);
    while (r < TapY(spec::R) && slot_of(phase, r.get()) < 0) ++r;
    return r;
}

// Whether it meets any.
constexpr bool adds(int phase) { return first_tap(phase) < TapY(spec::R); }

// An output row of the cells that has a tap there.
constexpr RowParity reader(TapY r) {
    RowParity a(0);
    while (!meets(a, r)) ++a;
    return a;
}

// Which rows of the window take input row `t` of a run to one of its output rows; `last` is where its last one begins.
struct Reach {
    int t, last;

    __device__ bool holds(TapY r) const { return unsigned(t - r.get() * spec::DILATION_Y) <= unsigned(last); }
};

// What an input row at phase `PHASE` is the first to add into, or would have been.
template <int PHASE, int A = 0>
__device__ __forceinline__ void clear_first(Accumulators (&open)[OPEN]) {
    if constexpr (A < spec::CELL_ROWS) {
        constexpr TapY r = first_met(RowParity(A));
        constexpr int slot = r == TapY(spec::R) ? -1 : slot_of(PHASE, r.get());
        if constexpr (slot >= 0)
#pragma unroll
            for (int i = 0; i < spec::PIECES * 4; ++i) open[slot].sum[A][i / 4][i % 4] = 0.0f;
        clear_first<PHASE, A + 1>(open);
    }
}

}  // namespace
