// The filter of a channel block in shared memory, where its groups are 16 or 32 channels wide.
//
// It lies there as it is stored, eight neighbouring numbers (an octet) at a time and tap by tap, in the swizzle of an
// outer channel's row: eight outer channels of one octet touch all banks. ldmatrix makes a product's right operand of it,
// plainly where the inner channels are those read, transposed where they are those written (the input gradient). From
// there the fragments stay in registers (`Filter`), or are loaded again for every row (`Operands`).

namespace {

using spec::Fragment, spec::Inner8, spec::Outer, spec::Outer8, spec::Outer8m;

constexpr int TAP_PAIRS = spec::FragmentPlace::size() / spec::CHANNEL_OCTETS;   // k16 steps of one tap
constexpr int TAP_FRAGMENTS = spec::FragmentPlace::size();                      // with each octet that a warp writes
constexpr int TAP_LOADS = (TAP_FRAGMENTS + 1) / 2;                              // ldmatrix instructions of them
constexpr int FILTER_BYTES = spec::FILTER_STAGED ? spec::FilterTile(0u).bytes() : 0;
constexpr int FILTER_TURN = 2;                                                  // the barrier of those who bring a filter

// The octet of the filter that a lane names to ldmatrix for a fragment of a tap and the next one, under tap (0, 0).
__device__ __forceinline__ auto filter_place(unsigned lane, K8 first, C8 group, Fragment fragment) {
    const spec::FragmentRow row(lane);
    const int half = TAP_FRAGMENTS > 1 ? row.get<spec::FragmentHalf>().get() : 0;
    const spec::FragmentPlace at((fragment + half).get());
    const K8 written = first + at.get<K8>();
    const C8 read = group + C8(unfold(at.get<spec::TapPair>(), row.get<spec::TapPairHalf>()).get());
    const Outer8 outer(spec::TRANSPOSED ? read.get() : written.get());
    const Inner8 inner((spec::TRANSPOSED ? written.get() : read.get()) % spec::OCTETS);
    return spec::FilterTile(0u)[coord(StoredY(0), StoredX(0), unfold(outer, row.get<Outer8m>()), inner)].settle();
}
using FilterPlace = decltype(filter_place(0u, K8(), C8(), Fragment()));

// The fragments of one tap that a warp multiplies with: octets written, and k16 steps of the channels read.
struct TapFragments {
    unsigned part[TAP_LOADS * 2][2];

    __device__ __forceinline__ void load(const FilterPlace (&places)[TAP_LOADS], StoredY r, StoredX s) {
#pragma unroll
        for (int i = 0; i < TAP_LOADS; ++i) {
            const unsigned address = places[i][r][s].address();
            unsigned(&to)[2] = part[2 * i], (&next)[2] = part[2 * i + 1];
            if constexpr (TAP_FRAGMENTS > 1 && spec::TRANSPOSED) {
                load_transposed(to[0], to[1], next[0], next[1], address);
            } else if constexpr (TAP_FRAGMENTS > 1) {
                unsigned both[4];
                load_matrices(both, address);
                to[0] = both[0], to[1] = both[1], next[0] = both[2], next[1] = both[3];
            } else if constexpr (spec::TRANSPOSED) {
                load_transposed(to[0], to[1], address);
            } else {
                load_matrices(to, address);
            }
        }
    }

    __device__ __forceinline__ const unsigned* of(int octet, int pair) const { return part[octet * TAP_PAIRS + pair]; }
};

// Brings the filter of the channel block that begins at `base`: all computing threads of the block, each a share.
__device__ void bring_filter(const Weights& weights, Outer base, unsigned tile, int thread, int threads) {
    const bool aligned = reinterpret_cast<unsigned long long>(weights.data) % 16 == 0;
    meet(FILTER_TURN, threads);   // nobody reads the last block's any more
    for (int i = thread; i < spec::FilterChunk::size(); i += threads) {
        const spec::FilterChunk chunk(i);
        const unsigned to = spec::FilterTile(tile)[chunk.coord()].address();
        const Outer outer = base + chunk.get<Outer>();
        const bool there = outer < Outer(weights.channels);
        const auto from = weights.tap(chunk.get<StoredY>(), chunk.get<StoredX>(), there ? outer : Outer(0),
                                      spec::Inner(chunk.get<Inner8>()));
        if (aligned)
            copy_octet(to, from.address(), there);
        else
            copy_numbers(to, from.address(), there);
    }
    wait_copies();
    meet(FILTER_TURN, threads);
}

// Where a warp's fragments of tap (0, 0) lie.
__device__ __forceinline__ void place_fragments(FilterPlace (&places)[TAP_LOADS], const Place& place, unsigned tile) {
#pragma unroll
    for (int i = 0; i < TAP_LOADS; ++i)
        places[i] = filter_place(place.lane, place.octet, place.group, Fragment(2 * i)).in_tile(tile);
}

// Where a warp whose filter stays in shared memory finds both operands of its products.
struct Operands {
    FilterPlace filter[TAP_LOADS];
    InputCorner rows[EVEN ? 1 : spec::TILES];

    // The corner of a tile under filter column 0; its swizzle depends on the column.
    __device__ InputCorner row(int t) const {
        if constexpr (EVEN) return tiles_on(rows[0], Tile(t));
        return rows[EVEN ? 0 : t];
    }
};

// The taps of one parity, from shared memory to registers.
__device__ __forceinline__ void take_staged(Filter& filter, const FilterPlace (&places)[TAP_LOADS], RowParity a,
                                            ColumnParity b) {
#pragma unroll
    for (TapY r(0); r < TapY(spec::R); ++r)
#pragma unroll
        for (TapX s(0); s < TapX(spec::S); ++s) {
            if (!meets(a, r) || !meets(b, s)) continue;
            TapFragments tap;
            tap.load(places, stored_tap(a, r), stored_tap(b, s));
#pragma unroll
            for (int o = 0; o < spec::CHANNEL_OCTETS; ++o)
#pragma unroll
                for (int step = 0; step < spec::OCTETS; ++step)
                    filter.part[a.get()][b.get()][o][r.get()][s.get() * spec::OCTETS + step] = tap.of(o, step / 2)[step % 2];
        }
}

constexpr bool FILTER_ASKED = false;    // computing threads bring it
__device__ __forceinline__ void ask_for_filter(const Weights&, int, const FilterRoom&, int) {}

// Makes ready what a warp multiplies with for the channel block that begins at `channel`.
__device__ __forceinline__ void take(Filter& filter, const Weights& weights, int channel, const Place& place,
                                     const FilterRoom& tile, int, int thread, int threads) {
    if constexpr (spec::FILTER_STAGED) {
        bring_filter(weights, Outer(channel), tile.address, thread, threads);
        FilterPlace places[TAP_LOADS];
        place_fragments(places, place, tile.address);
#pragma unroll
        for (RowParity a(0); a < RowParity(spec::CELL_ROWS); ++a)
#pragma unroll
            for (ColumnParity b(0); b < ColumnParity(spec::CELL_COLUMNS); ++b) take_staged(filter, places, a, b);
    } else {
        filter.load(weights, channel + C(place.group).get(), place.octet_in_group(), place.lane);
    }
}

__device__ __forceinline__ void take(Operands& from, const Weights& weights, int channel, const Place& place,
                                     const FilterRoom& tile, int, int thread, int threads) {
    bring_filter(weights, Outer(channel), tile.address, thread, threads);
    place_fragments(from.filter, place, tile.address);
#pragma unroll
    for (int t = 0; t < (EVEN ? 1 : spec::TILES); ++t)
        from.rows[t] = input_corner(place.lane, place.tile + t, Pair(0), place.group);
}

}  // namespace
