// The forward kernel of groups of one or two channels: places, weights and products of two neighbouring channels at a time.
//
// As a group of eight with zeros between the channels, seven eighths of the products of a depthwise filter are zeros. Here
// the columns of a product are four neighbouring outputs of two channels, its depth are the columns of the input that those
// meet, four at a time ("steps"), of the two channels, and its sixteen rows are as many such places ("quads"). The filter is a
// band: 7 of 10 columns for 7 taps, and half of the channels' products, are of use.
//
// No matrix is moved for it. Which place of the depth is which column is for us to say, so that lane (g, t) loads column
// 4 step + t of a quad: two or four pairs of channels as one word of shared memory, each of another product. Its sums are those
// of column t, and leave as one word again.
//
// Rows g and g + 8 of a product are the two quads of one unit, so that what both meet is loaded once: one after the other, where
// g is even. Where it is odd they stand, and are loaded, the other way round: so eight lanes meet eight neighbouring positions,
// that is all banks.

namespace {

using spec::C8, spec::Image, spec::K8Block, spec::OctetPart, spec::Q8, spec::QuadColumn, spec::TileBlock, spec::TileUnit, spec::X;

constexpr int CHANNEL_PAIRS = spec::CHANNEL_PAIRS, COLUMN_STEPS = spec::COLUMN_STEPS;
constexpr int QUAD = 4, QUADS = 2;                         // columns; quads of a unit
constexpr int LOADED = spec::STRIDE_X + COLUMN_STEPS;      // steps of four columns that the quads of a unit meet
constexpr int SWAPPED = LOADED / 2 * 2;                    // of those: every other lane group loads them in another order
constexpr int PERIOD_STEPS = 2;                            // steps after which the swizzle repeats
constexpr bool RAGGED = spec::UNITS % (8 * spec::TILES) != 0;
constexpr int SPARE_BYTES = RAGGED ? 8 * spec::PITCH * 2 : 0;       // where units beyond the last one are staged

using Words = unsigned[CHANNEL_PAIRS];    // of a position: what a lane moves at once

// The unit of eight columns that a lane has in a tile.
__device__ __forceinline__ Unit unit_of(unsigned lane, Tile tile) { return unfold(tile, spec::PlaceRow(lane).get<TileUnit>()); }

// Whether its quads stand the other way round.
__device__ __forceinline__ bool turned(unsigned lane) { return spec::PlaceRow(lane).get<TileUnit>().get() % 2 != 0; }

// Where a lane that is turned has what others have in place `i` of the loaded steps.
constexpr int turned_step(int i) { return i < SWAPPED ? i ^ 1 : i; }

// The octet that a lane loads of a step. Beyond the last unit the last one is read again: what comes of it is not used.
__device__ __forceinline__ auto input_place(unsigned lane, Tile tile, int step, C8 group) {
    const spec::UnitPlace at(min(unit_of(lane, tile), Unit(spec::UNITS - 1)).get());
    const X x((at.get<Q8>().get() * QUADS * spec::STRIDE_X + step) * QUAD + spec::PlaceRow(lane).get<QuadColumn>().get());
    return spec::InputRow(0u)[coord(at.get<Image>(), x, group)].settle();
}
using InputPlace = decltype(input_place(0u, Tile(), 0, C8()));

// The octet that a lane stores. Beyond the last unit all write into one unit's room behind the box.
__device__ __forceinline__ auto output_place(unsigned lane, Tile tile, int quad, K8 octet) {
    const spec::UnitPlace at(min(unit_of(lane, tile), Unit(spec::UNITS)).get());
    const int in_unit = (quad ^ int(turned(lane))) * QUAD + spec::PlaceRow(lane).get<QuadColumn>().get();
    const Column column(at.get<Q8>().get() * QUADS * QUAD + in_unit);
    return spec::OutputRow(0u)[coord(at.get<Image>(), RowParity(0), column, octet)].settle();
}
using OutputPlace = decltype(output_place(0u, Tile(), 0, K8()));

// The bands of one computing warp's weights: what a lane holds of the right operand of every product.
struct Filter {
    unsigned part[CHANNEL_PAIRS][spec::R][COLUMN_STEPS];

    // Channels are counted from `base`, those of the warp from `first` there.
    template <class Stored>
    __device__ void load(const Stored& weights, int base, int first, int lane) {
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
    OutputPlace place[spec::TILES][QUADS];
    unsigned part;    // bytes from an octet to the warp's channels
};

// What a computing warp knows of its place: which tiles and channels, and where their rows lie.
struct Place {
    int lane;
    K8 octet;        // of the block
    OctetPart own;   // of the octet
    Tile tile;       // first tile
    unsigned zero;   // 0, which only the launch knows
    bool other;      // its quads stand the other way round
    InputPlace rows[spec::TILES][PERIOD_STEPS + LOADED - SWAPPED];    // of a period, and of the last step

    __device__ explicit Place(int warp) {
        const spec::WarpPlace at(warp);
        lane = threadIdx.x % 32;
        octet = K8(at.get<K8Block>());
        own = at.get<OctetPart>();
        tile = Tile(at.get<TileBlock>());
        zero = blockDim.y - 1;
        other = turned(lane);
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t) {
#pragma unroll
            for (int step = 0; step < PERIOD_STEPS; ++step)
                rows[t][step] = input_place(lane, tile + t, step ^ int(other), cast<C8>(octet));
            if constexpr (LOADED > SWAPPED) rows[t][PERIOD_STEPS] = input_place(lane, tile + t, SWAPPED, cast<C8>(octet));
        }
    }

    __device__ int part() const { return own.get() * 2 * CHANNEL_PAIRS; }
    __device__ K first_channel() const { return K(octet) + part(); }
    __device__ unsigned row(int t, int step) const {
        if (step >= SWAPPED) return rows[t][PERIOD_STEPS].address();
        return rows[t][step % PERIOD_STEPS][Fold<X, 8>(step / PERIOD_STEPS)].address();
    }
    __device__ OutputPlaces out() const {
        OutputPlaces to;
        to.part = 2 * part();
#pragma unroll
        for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
            for (int quad = 0; quad < QUADS; ++quad) to.place[t][quad] = output_place(lane, tile + t, quad, octet);
        return to;
    }
};

// -- the filter by way of shared memory ----------------------------------------------------------------------------------

constexpr int FILTER_NUMBERS = spec::STORED_R * spec::STORED_S * spec::WIDTH;    // of a channel
constexpr int FILTER_BYTES = spec::FILTER_STAGED ? (2 * spec::CHANNELS * FILTER_NUMBERS + 15) / 16 * 16 : 0;
constexpr bool FILTER_ASKED = spec::FILTER_STAGED;    // by the loader
constexpr int FILTER_TURN = 2;    // the barrier of those who bring it

// The filter of a block's channels, which are whole octets, as it is stored: what a warp gathers of it would be as many lines of memory.
// The loader asks for it, ahead of the rows that would be in its way; where its address is no multiple of 16, computing threads bring it.
struct Staged {
    const unsigned short* from;
    unsigned tile;
    int channels;    // of the block

    __device__ Staged(const Weights& weights, int channel, unsigned tile)
        : from(weights.data + static_cast<long long>(channel) * FILTER_NUMBERS),
          tile(tile),
          channels(min(spec::CHANNELS, weights.channels - channel)) {}

    __device__ bool aligned() const { return reinterpret_cast<unsigned long long>(from) % 16 == 0; }
    __device__ void ask(const Barrier& full) const {
        const unsigned bytes = 2 * channels * FILTER_NUMBERS;
        full.arrive_expecting(bytes);
        load_bytes(tile, from, bytes, full);
    }
    __device__ void bring(int thread, int threads) const {
        meet(FILTER_TURN, threads);   // nobody reads the last block's any more
        for (int i = 8 * thread; i < channels * FILTER_NUMBERS; i += 8 * threads) copy_numbers(tile + 2 * i, from + i, true);
        meet(FILTER_TURN, threads);
    }

    __device__ unsigned number(int outer, int inner, StoredY r, StoredX s) const {
        const int at = ((outer * spec::STORED_R + r.get()) * spec::STORED_S + s.get()) * spec::WIDTH + inner % spec::WIDTH;
        return load_number(tile + 2 * at);
    }

    // What `Weights::pair` gives; k is of the octet of c.
    __device__ unsigned pair(int base, K k, C c, StoredY r, StoredX s) const {
        const int first = base + c.get(), written = base + k.get();
        if (max(first, written) >= channels) return 0u;
        if constexpr (spec::WIDTH == 1) return number(written, 0, r, s) << 16 * (written - first);
        if constexpr (spec::TRANSPOSED) return number(first, written, r, s) | number(first + 1, written, r, s) << 16;
        return number(written, 0, r, s) | number(written, 1, r, s) << 16;
    }
};

// In which every number that a lane has of a filter is.
__device__ __forceinline__ unsigned all_of(const Filter& filter) {
    unsigned all = 0;
#pragma unroll
    for (int pair = 0; pair < CHANNEL_PAIRS; ++pair)
#pragma unroll
        for (int r = 0; r < spec::R; ++r)
#pragma unroll
            for (int step = 0; step < COLUMN_STEPS; ++step) all |= filter.part[pair][r][step];
    return all;
}

// What a loader asks for where the `turn`-th channel block begins at `channel`. A whole warp runs this.
__device__ __forceinline__ void ask_for_filter(const Weights& weights, int channel, const FilterRoom& tile, int turn) {
    if constexpr (spec::FILTER_STAGED) {
        const Staged staged(weights, channel, tile.address);
        if (!staged.aligned()) return;
        tile.empty.wait((turn & 1) ^ 1u);
        if (elected()) staged.ask(tile.full);
        __syncwarp();
    }
}

// Makes ready what a warp multiplies with for the `turn`-th channel block, which begins at `channel`.
__device__ __forceinline__ void take(Filter& filter, const Weights& weights, int channel, const Place& place, const FilterRoom& tile,
                                     int turn, int thread, int threads) {
    const int octet = K(place.octet).get();
    if constexpr (spec::FILTER_STAGED) {
        const Staged staged(weights, channel, tile.address);
        if (staged.aligned())
            tile.full.wait(turn & 1);
        else
            staged.bring(thread, threads);
        filter.load(staged, octet, place.part(), place.lane);
        if (staged.aligned()) {
            __syncwarp();
            if (elected()) tile.empty.arrive_after(all_of(filter), place.zero);
        }
    } else {
        filter.load(weights, channel + octet, place.part(), place.lane);
    }
}

// -- products ----------------------------------------------------------------------------------------------------------

// What a tile's products read of an input row.
struct Read {
    Words part[LOADED];

    __device__ __forceinline__ void load(const Place& place, int t, unsigned row) {
#pragma unroll
        for (int step = 0; step < LOADED; ++step) load_words(part[step], row + place.row(t, step));
    }
};

// The left operands of a row's products. What is loaded at once lies in neighbouring registers, and has to go to as many operands: the
// assembler would copy it again for every product, into registers that the product before still reads, were it not made a value of
// its own here.
struct Left {
    unsigned part[CHANNEL_PAIRS][(COLUMN_STEPS + 1) / 2][4];

    __device__ __forceinline__ Left(const Read& read, const Place& place) {
#pragma unroll
        for (int step = 0; step < COLUMN_STEPS; ++step)
#pragma unroll
            for (int quad = 0; quad < QUADS; ++quad)
#pragma unroll
                for (int pair = 0; pair < CHANNEL_PAIRS; ++pair) {
                    const int usual = quad * spec::STRIDE_X + step, turned = turned_step((QUADS - 1 - quad) * spec::STRIDE_X + step);
                    unsigned& to = part[pair][step / 2][step % 2 * 2 + quad];
                    if (usual == turned)
                        to = read.part[usual][pair] ^ place.zero;
                    else
                        to = place.other ? read.part[turned][pair] : read.part[usual][pair];
                }
    }
};

__device__ __forceinline__ float (&sums_of(Accumulators& sums, int t, int pair))[4] {
    return sums.sum[0][t * CHANNEL_PAIRS + pair];
}

constexpr int TURNS = (COLUMN_STEPS + 1) / 2;    // products of a filter row, of two steps each

// Adds the products of filter row `R` and two steps (the last one maybe alone) of a tile and pair to an output row. Rows and steps are
// template arguments, as in forward_products.cu: so it compiles soonest.
template <int R, int STEP>
__device__ __forceinline__ void multiply_steps(Accumulators& sums, const Filter& filter, const Left& left, int t, int pair, bool fresh) {
    if constexpr (STEP + 1 < COLUMN_STEPS) {
        mma_k16<spec::Half>(sums_of(sums, t, pair), left.part[pair][STEP / 2], &filter.part[pair][R][STEP], fresh);
    } else {
        const unsigned two[2] = {left.part[pair][STEP / 2][0], left.part[pair][STEP / 2][1]};
        mma_k8<spec::Half>(sums_of(sums, t, pair), two, &filter.part[pair][R][STEP], fresh);
    }
}

// -- rows that leave ---------------------------------------------------------------------------------------------------

// Rounds the sums of one position, and stages them.
__device__ __forceinline__ void stage_position(const Accumulators& sums, const Affine& affine, unsigned to, int t, int quad) {
    Words packed, residual = {};
    if constexpr (spec::RESIDUAL) load_words(residual, to);
#pragma unroll
    for (int pair = 0; pair < CHANNEL_PAIRS; ++pair) {
        const float(&sum)[4] = sums.sum[0][t * CHANNEL_PAIRS + pair];
        float low = affine(pair, 0, sum[2 * quad]), high = affine(pair, 1, sum[2 * quad + 1]);
        if constexpr (spec::RESIDUAL) low += low_half<spec::Half>(residual[pair]), high += high_half<spec::Half>(residual[pair]);
        packed[pair] = spec::Half::pack(activate<spec::ACTIVATION>(low), activate<spec::ACTIVATION>(high));
    }
    store_words(to, packed);
}

__device__ __forceinline__ void stage_row(const Accumulators& sums, const Affine& affine, const OutputPlaces& to, unsigned base) {
#pragma unroll
    for (int t = 0; t < spec::TILES; ++t)
#pragma unroll
        for (int quad = 0; quad < QUADS; ++quad)
            stage_position(sums, affine, to.place[t][quad].in_tile(base + to.part).address(), t, quad);
}

}  // namespace
