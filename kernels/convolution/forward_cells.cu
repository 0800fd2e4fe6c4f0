// The cells of outputs of the forward kernel: which taps of the filter each output meets, and their sums.
//
// A position (P, Q) of the walk is a cell of CELL_ROWS x CELL_COLUMNS outputs (Row, Column), which read one window of the
// input. In a forward pass a cell is one output. In the input gradient of a strided convolution it is as large as the
// stride: outputs of different parities meet different taps of the filter, some of them at every place of the window,
// others between. All of it is known to the compiler, so that products that are not there are not asked for.

namespace {

using spec::Column, spec::ColumnParity, spec::K, spec::K8, spec::P, spec::Pair, spec::Piece, spec::Q, spec::Row;
using spec::RowParity, spec::Step, spec::StoredX, spec::StoredY, spec::TapX, spec::TapY, spec::Tile, spec::Unit;

constexpr int SPAN = (spec::R - 1) * spec::DILATION_Y + 1;    // input rows of one output row

// Stored tap `number` / `unit`, or -1 where that is none.
constexpr int stored_tap(int number, int unit, int taps) {
    return number >= 0 && number % unit == 0 && number / unit < taps ? number / unit : -1;
}

// The stored tap that the outputs of a parity meet at a place of the window, below 0 where they meet none.
constexpr StoredY stored_tap(RowParity a, TapY r) {
    return StoredY(stored_tap(spec::TAP_R + r.get() * spec::TAP_STEP_R + a.get() * spec::TAP_SKEW_R, spec::TAP_UNIT_R,
                              spec::STORED_R));
}
constexpr int tap_number(ColumnParity b, TapX s) {
    return spec::TAP_S + s.get() * spec::TAP_STEP_S + b.get() * spec::TAP_SKEW_S;
}
constexpr StoredX stored_tap(ColumnParity b, TapX s) {
    return StoredX(stored_tap(tap_number(b, s), spec::TAP_UNIT_S, spec::STORED_S));
}
constexpr bool meets(RowParity a, TapY r) { return stored_tap(a, r) >= StoredY(0); }
constexpr bool meets(ColumnParity b, TapX s) { return stored_tap(b, s) >= StoredX(0); }
constexpr bool meets(ColumnParity b, Step step) {
    return step < Step(spec::STEPS) && meets(b, spec::StepPlace(step.get()).get<TapX>());
}
constexpr bool meets(ColumnParity b, Pair pair) {
    return meets(b, Step(pair)) || meets(b, Step(pair) + 1);
}

// The first place of the window at which outputs of a parity meet a tap; past the last one where they meet none.
constexpr TapY first_met(RowParity a) {
    TapY r(0);
    while (r < TapY(spec::R) && !meets(a, r)) ++r;
    return r;
}
constexpr Pair first_met(ColumnParity b) {
    Pair pair(0);
    while (Step(pair) < Step(spec::STEPS) && !meets(b, pair)) ++pair;
    return pair;
}
// Whether outputs of these parities meet any tap: the others are zero.
constexpr bool meets_any(RowParity a, ColumnParity b) {
    return first_met(a) < TapY(spec::R) && Step(first_met(b)) < Step(spec::STEPS);
}

// The sums of an open row of cells.
struct Accumulators {
    float sum[spec::CELL_ROWS][spec::PIECES][4];

    __device__ __forceinline__ static Piece piece(int tile, int octet, ColumnParity b) {
        return Piece(spec::PiecePlace::linear(coord(Tile(tile), K8(octet), b)));
    }
    __device__ __forceinline__ float (&operator()(RowParity a, int tile, int octet, ColumnParity b))[4] {
        return sum[a.get()][piece(tile, octet, b).get()];
    }
};

}  // namespace
