// The forward kernel of groups of one or two channels: places, weights and products of two neighbouring channels at a time.
//
// As a group of eight with zeros between the channels, seven eighths of the products of a depthwise filter are zeros. Here
// the columns of a product are four neighbouring outputs of two channels, its depth are the columns of the input that those
// meet, four at a time ("steps"), of the two channels, and its sixteen rows are as many such places ("quads"). The filter is a
// band: 7 of 10 columns for 7 taps, and half of the channels' products, are of use.
//
// No matrix is moved for it. Which place of the depth is which column is for us to say, so that lane (g, t) loads column
// 4 step + t of quad g: two or four pairs of channels as one word of shared memory, each of another product. Its sums are those
// of column t of quad g, and leave as one word again. Eight lanes meet eight neighbouring positions, that is all banks.

namespace {

using spec::C8, spec::Image, spec::K8Block, spec::OctetPart, spec::Q8, spec::Q8m, spec::TileBlock, spec::TileHalf, spec::X;

constexpr int CHANNEL_PAIRS = spec::CHANNEL_PAIRS, COLUMN_STEPS = spec::COLUMN_STEPS;
constexpr int QUAD = 4, HALVES = 2;                        // columns; of a tile's quads, eight each
constexpr int PERIOD_STEPS = COLUMN_STEPS < 2 ? 1 : 2;     // steps after which the swizzle repeats
constexpr bool RAGGED = spec::UNITS % (8 * spec::TILES) != 0;
constexpr int SPARE_BYTES = RAGGED ? 8 * spec::CHANNELS * 2 : 0;    // where units beyond the last one are staged

using Words = unsigned[CHANNEL_PAIRS];    // of a position: what a lane moves at once

// The unit of eight columns that a lane has in a half of a tile.
__device__ __forceinline__ Unit unit_of(unsigned lane, Tile tile, int half) {
    return unfold(tile, spec::PlaceRow(lane).get<TileHalf>() + 4 * half);
}

// The octet that a lane loads for a step. Beyond the last unit the last one is read again: what comes of it is not used.
__device__ __forceinline__ auto input_place(unsigned lane, Tile tile, int half, int step, C8 group) {
    const spec::UnitPlace at(min(unit_of(lane, tile, half), Unit(spec::UNITS - 1)).get());
    const int q = unfold(at.get<Q8>(), spec::PlaceRow(lane).get<Q8m>()).get();
    const X x((q / QUAD * spec::STRIDE_X + step) * QUAD + q % QUAD);
    return spec::InputRow(0u)[coord(at.get<Image>(), x, group)].settle();
}
using InputPlace = decltype(input_place(0u, Tile(), 0, 0, C8()));

// The octet that a lane stores. Beyond the last unit all write into one unit's room behind the box.
__device__ __forceinline__ auto output_place(unsigned lane, Tile tile, int half, K8 octet) {
    const spec::UnitPlace at(min(unit_of(lane, tile, half), Unit(spec::UNITS)).get());
    const Column column(unfold(at.get<Q8>(), spec::PlaceRow(lane).get<Q8m>()));
    return spec::OutputRow(0u)[coord(at.get<Image>(), RowParity(0), column, octet)].settle();
}
using OutputPlace = decltype(output_place(0u, Tile(), 0, K8()));

// The bands of one computing warp's weights: what a lane holds of the right operand of every product.
struct Filter {
    unsigned part[CHANNEL_PAIRS][spec::R][COLUMN_STEPS];

    // Channels are counted from `base`, those of the warp from `first` there.
    __device__ void load(const Weights& weights, int base, int first, int lane) {
        const int column = lane / 4 / 2, channel = lane / 4 % 2;    // of the lane's column of the product
#pragma unroll
        for (int pair = 0; pair < CHANNEL_PAIRS; ++pair)
#pragma unroll
            for (TapY r(0); r < TapY(spec::R); ++r)
#pragma unroll
                for (int step = 0; step < COLUMN_STEPS; ++step) {
                    const int ahead = QUAD * step + lane % 4 - column * spec::STRIDE_X, s = ahead / spec::DILATION_X;
                    const bool met = ahead >= 0 && ahead % spec::DILATION_X == 0 && s < spec::S;
                    const K k(first + 2 * pair + channel);
                    const C c(first + 2 * pair);
                    const StoredX tap = stored_tap(ColumnParity(0), TapX(met ? s : 0));
                    const unsigned found = weights.pair(base, k, c, stored_tap(RowParity(0), r), tap);
                    part[pair][r.get()][step] = met ? found : 0u;
                }
    }
};
using Held = Filter;

// Scale and bias of the warp's channels.
struct Affine {
    float scale[CHANNEL_PAIRS][2], bias[CHANNEL_PAIRS][2];

    __device__ void load(const float* scales, const float* biases, K first, int channels) {
#pragma unroll
        for (int i = 0; i < 2 * CHANNEL_PAIRS; ++i) {
            const K k = first + i;
            if constexpr (spec::SCALE) scale[i / 2][i % 2] = k < K(channels) ? scales[k.get()] : 0.0f;
            if constexpr (spec::BIAS) bias[i / 2][i % 2] = k < K(channels) ? biases[k.get()] : 0.0f;
        }
    }

    __device__ float operator()(int pair, int i, float sum) const {
        if constexpr (spec::SCALE) sum *= scale[pair][i];
        if constexpr (spec::BIAS) sum += bias[pair][i];
        return sum;
    }
};

// Where a warp stages its sums.
struct OutputPlaces {
    OutputPlace place[spec::TILES][HALVES];
    unsigned part;    // bytes from an octet to the warp's channels
};

// What a computing warp knows of its place: which tiles and channels, and where their rows lie.
struct Place {
    int lane;
    K8 octet;        // of the block
    OctetPart own;   // of the octet
    Tile tile;       // first tile
    InputPlace rows[spec::TILES][HALVES][PERIOD_STEPS];

    __device__ explicit Place(int warp) {
        const spec::WarpPlace at(warp);
        lane = threadIdx.x % 32;
        octet = K8(at.get<K8Block>());
        own = at.get<OctetPart>();
        tile = Tile(at.get<TileBlock>());
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int half = 0; half < HALVES; ++half)
#pragma unroll
                for (int step = 0; step < PERIOD_STEPS; ++step)
                    rows[t][half][step] = input_place(lane, tile + t, half, step, cast<C8>(octet));
    }

    __device__ int part() const { return own.get() * 2 * CHANNEL_PAIRS; }
    __device__ K first_channel() const { return K(octet) + part(); }
    __device__ unsigned row(int t, int half, int step) const {
        return rows[t][half][step % 2][Fold<X, 8>(step / 2)].address();
    }
    __device__ OutputPlaces out() const {
        OutputPlaces to;
        to.part = 2 * part();
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int half = 0; half < HALVES; ++half) to.place[t][half] = output_place(lane, tile + t, half, octet);
        return to;
    }
};

__device__ __forceinline__ void take(Filter& filter, const Weights& weights, int channel, const Place& place, unsigned, int,
                                     int) {
    filter.load(weights, channel + K(place.octet).get(), place.part(), place.lane);
}

// -- products ----------------------------------------------------------------------------------------------------------

// What a tile's products read of an input row.
struct Read {
    Words part[COLUMN_STEPS][HALVES];

    __device__ __forceinline__ void load(const Place& place, int t, unsigned row) {
#pragma unroll
        for (int step = 0; step < COLUMN_STEPS; ++step)
#pragma unroll
            for (int half = 0; half < HALVES; ++half) load_words(part[step][half], row + place.row(t, half, step));
    }
};

__device__ __forceinline__ float (&sums_of(Accumulators& open, int t, int pair))[4] {
    return open.sum[0][t * CHANNEL_PAIRS + pair];
}

// Adds the products of filter row `R` and two steps (the last one maybe alone) of a tile. Rows and steps are template arguments, as
// in forward_products.cu: so it compiles soonest.
template <int PHASE, int R, int STEP>
__device__ __forceinline__ void multiply_steps(Accumulators (&open)[OPEN], const Filter& filter, const Read& read, int t) {
    constexpr bool fresh = TapY(R) == first_met(RowParity(0)) && STEP == 0, two = STEP + 1 < COLUMN_STEPS;
#pragma unroll
    for (int pair = 0; pair < CHANNEL_PAIRS; ++pair) {
        float(&sum)[4] = sums_of(open[slot_of(PHASE, R)], t, pair);
        const Words(&next)[HALVES] = read.part[two ? STEP + 1 : STEP];
        const unsigned left[4] = {read.part[STEP][0][pair], read.part[STEP][1][pair], next[0][pair], next[1][pair]};
        if constexpr (two)
            mma_k16<spec::Half>(sum, left, &filter.part[pair][R][STEP], fresh);
        else
            mma_k8<spec::Half>(sum, left, &filter.part[pair][R][STEP], fresh);
    }
}

// Turns of two steps, those of a filter row so many rows after one another: what is added to the same sums lies some products apart.
constexpr int TURNS = (COLUMN_STEPS + 1) / 2, APART = 2;

template <int PHASE, int AT, int TURN = 0>
__device__ __forceinline__ void multiply_turns(Accumulators (&open)[OPEN], const Filter& filter, const Read& read, int t) {
    if constexpr (TURN < TURNS) {
        constexpr int r = spec::R - 1 - (AT - APART * TURN);
        if constexpr (r >= 0 && r < spec::R) {
            if constexpr (slot_of(PHASE, r) >= 0) multiply_steps<PHASE, r, 2 * TURN>(open, filter, read, t);
        }
        multiply_turns<PHASE, AT, TURN + 1>(open, filter, read, t);
    }
}

// Adds those of a tile, at phase `PHASE` of the circle, into the open rows: first into the one that is finished by them.
template <int PHASE, int AT = 0>
__device__ __forceinline__ void multiply(Accumulators (&open)[OPEN], const Filter& filter, const Read& read, int t) {
    if constexpr (AT < spec::R + APART * (TURNS - 1)) {
        multiply_turns<PHASE, AT>(open, filter, read, t);
        multiply<PHASE, AT + 1>(open, filter, read, t);
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
    if constexpr (LATE > 0) multiply<PHASE>(open, filter, first, 0);
#pragma unroll
    for (int t = LATE; t < spec::TILES; ++t) {
        Read read;
        read.load(place, t, row + 2 * place.part());
        multiply<PHASE>(open, filter, read, t);
    }
    return witness<PHASE>(open);
}

// -- rows that leave ---------------------------------------------------------------------------------------------------

// Rounds the sums of one position, and stages them.
__device__ __forceinline__ void stage_position(const Accumulators& sums, const Affine& affine, unsigned to, int t, int half) {
    Words packed, residual = {};
    if constexpr (spec::RESIDUAL) load_words(residual, to);
#pragma unroll
    for (int pair = 0; pair < CHANNEL_PAIRS; ++pair) {
        const float(&sum)[4] = sums.sum[0][t * CHANNEL_PAIRS + pair];
        float low = affine(pair, 0, sum[2 * half]), high = affine(pair, 1, sum[2 * half + 1]);
        if constexpr (spec::RESIDUAL) low += low_half<spec::Half>(residual[pair]), high += high_half<spec::Half>(residual[pair]);
        packed[pair] = spec::Half::pack(activate<spec::ACTIVATION>(low), activate<spec::ACTIVATION>(high));
    }
    store_words(to, packed);
}

__device__ __forceinline__ void stage_row(const Accumulators& sums, const Affine& affine, const OutputPlaces& to, unsigned base) {
#pragma unroll
    for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
        for (int half = 0; half < HALVES; ++half)
            stage_position(sums, affine, to.place[t][half].in_tile(base + to.part).address(), t, half);
}

}  // namespace
