// What the kernels of wide groups share, in front of their own texts: how a launch's rows are dealt to blocks of threads, how a
// row of the tensor with the filter's windows lies in shared memory, and the barriers of rings of rows.
//
// "Walked" is the tensor whose rows are walked one by one (the sweep's input; x in a weight gradient), "met" the one whose
// rows each meet a window of those (the output; dy). The constants of `namespace spec` are generated beside the kernel.

namespace {

using namespace spec;

constexpr int WARP = 32, WARPS_A_GROUP = 4;
constexpr int N = 8 * WRITTEN, SUMS = N / 2;                                     // columns of a product, sums of a lane
constexpr int OCTETS = S * READ;                                                 // of filter columns and channels walked
constexpr int PITCH = 16 * OCTETS_APART;                                         // bytes from one position to the next
// Of an even number of octets, in the copy engine's swizzle of that width; of more than there is one for, four positions meet half of the
// banks, so that the second four of eight load the other one of two octets: CROSSED.
constexpr bool SWIZZLED = OCTETS_APART % 2 == 0 && OCTETS_APART <= 8, CROSSED = OCTETS_APART % 2 == 0 && !SWIZZLED;
// With strides, the columns that a tap meets lie side by side, too: those of each parity that any tap meets in a box of their own. Rows
// that come whole have all columns one behind the other.
constexpr int PARITIES = FLAT || DILATION_X % STRIDE_X == 0 ? 1 : S < STRIDE_X ? S : STRIDE_X, STEP_X = FLAT ? STRIDE_X : 1;
constexpr int COLUMNS = FLAT ? (MET_COLUMNS - 1) * STRIDE_X + (S - 1) * DILATION_X + 1
                             : MET_COLUMNS + (S - 1) * DILATION_X / STRIDE_X;    // of a parity of a row of an image that is walked
constexpr int ROW_BYTES = PARITIES * IMAGES * COLUMNS * 16 * OCTETS_BROUGHT;     // that its boxes bring
constexpr int ROW_UNIT = SWIZZLED ? 1024 : 128, PARITY_PITCH = (IMAGES * COLUMNS * PITCH + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT;
constexpr int ROW_PITCH = PARITIES * PARITY_PITCH;
constexpr int SPAN = (R - 1) * DILATION_Y + 1;
constexpr int COMPUTE_WARPS = WARPGROUPS * WARPS_A_GROUP, COMPUTE_THREADS = COMPUTE_WARPS * WARP;
constexpr int THREADS = COMPUTE_THREADS + HELPERS * WARP;                        // that do anything: others load rows, and store them
constexpr bool TRADES = TAKEN_REGISTERS > 0;                                     // the loader leaves registers to the others
constexpr int READY = 1;                                                         // a barrier of the block

// Where an octet of a row lies, of which this is the place with positions one behind the other.
template <bool SWIZZLES = SWIZZLED, int APART_BY = PITCH>
__device__ __forceinline__ unsigned lying_at(unsigned place) {
    return SWIZZLES ? place ^ (place >> 3 & unsigned(APART_BY - 16)) : place;
}

// From a position's place in the first parity to where the columns lie that it meets under tap s of the window.
__device__ __forceinline__ constexpr int tap_place(int s) {
    if (FLAT) return s * DILATION_X * PITCH;
    return s * DILATION_X % STRIDE_X * (PARITIES > 1 ? PARITY_PITCH : 0) + s * DILATION_X / STRIDE_X * PITCH;
}

// Which of two octets a lane names a row of for ldmatrix, where `octet` is the one whose matrix it is of; then, of what lanes have
// loaded of either, which is which. `second`: whether what a lane has is of the second four of eight positions.
__device__ __forceinline__ int crossed(int octet) { return CROSSED ? octet ^ int(threadIdx.x % 8 / 4) : octet; }
__device__ __forceinline__ void uncross(unsigned& first, unsigned& other, bool second) {
    if (!CROSSED || !second) return;
    const unsigned loaded = first;
    first = other, other = loaded;
}

// All rows of the met tensor in one line (image block, column tile, row), cut into a stretch for each of the blocks that share
// a block of channels.
struct Lines {
    Divisor channel_blocks, parts, column_tiles, rows;    // parts of the channels written
    int stretch, longer;                                  // rows of every stretch; the first so many have one more
    int height, top;                                      // of the walked tensor; padding
    int left[2];                                          // columns of a parity ahead of the first one of an image
    int groups, written;                                  // groups; octets that one of them writes
};

struct Stretch {
    int number, whole, part, begin, end;    // which of them; what of the channels

    __device__ explicit Stretch(const Lines& lines) : Stretch(lines, blockIdx.x, blockIdx.y) {}
    // That of a block of the grid. Stretches that are a cluster lie along y: of their number one part is zero.
    __device__ Stretch(const Lines& lines, int x, int y) {
        const int line = lines.channel_blocks.quotient(x);
        const int block = lines.channel_blocks.remainder(x, line);
        number = line + y;
        whole = lines.parts.quotient(block);
        part = lines.parts.remainder(block, whole);
        begin = number * lines.stretch + min(number, lines.longer);
        end = begin + lines.stretch + (number < lines.longer);
    }
};

// Met rows one below the other in one column tile of some images, and the walked rows under them that exist.
struct Run {
    int image, column, row, rows, first, begin, end;    // begin and end count from the first walked row
    int offset;                                         // of the block's first position among those of the first image

    __device__ Run(const Lines& lines, int position, int last) {
        const int tile = lines.rows.quotient(position), block = lines.column_tiles.quotient(tile);
        image = PACKED > 0 ? block * PACKED / MET_COLUMNS : block * IMAGES;
        offset = PACKED > 0 ? block * PACKED % MET_COLUMNS : 0;
        column = lines.column_tiles.remainder(tile, block) * MET_COLUMNS;
        row = lines.rows.remainder(position, tile);
        rows = min(lines.rows.value - row, last - position);
        first = row * STRIDE_Y - lines.top;
        begin = max(0, -first);
        end = min(steps(), lines.height - first);
    }
    __device__ int steps() const { return (rows - 1) * STRIDE_Y + SPAN; }
};

// The walked tensor: the maps of its boxes or, FLAT, its rows, which are copied whole: a block has all channels of all columns then.
struct Walked {
    RowsOf<FLAT>::type maps[PARITIES];
};

constexpr int IMAGE_PITCH = COLUMNS * PITCH;    // of a row; FLAT, what lies beside its columns is zero, and nothing is written there again

// Sets the surroundings of rows of all images to zero in all slots: each of so many warps has some of them.
__device__ __forceinline__ void clear_beside(const RowsOf<true>::type& rows, const Lines& lines, int slots, unsigned ring, int warps) {
    const Placed placed(rows, lines.left[0] * PITCH, IMAGE_PITCH);
    for (int image = threadIdx.x / WARP; image < slots * IMAGES; image += warps)
        placed.zero_around(ring + image / IMAGES * ROW_PITCH + image % IMAGES * IMAGE_PITCH, IMAGE_PITCH, threadIdx.x % WARP);
}
__device__ __forceinline__ void clear_beside(const TensorMap&, const Lines&, int, unsigned, int) {}

// The copies of row t of a run.
__device__ __forceinline__ void load_row(const TensorMap (&maps)[PARITIES], const Lines& lines, const Run& run, int t, int channel,
                                         unsigned to, Barrier full) {
    full.arrive_expecting(ROW_BYTES);
#pragma unroll
    for (int parity = 0; parity < PARITIES; ++parity)
        load_box(to + parity * PARITY_PITCH, maps[parity], channel, run.column - lines.left[parity], run.first + t, run.image, full);
}
__device__ __forceinline__ void load_row(const RowsOf<true>::type (&rows)[PARITIES], const Lines& lines, const Run& run, int t, int,
                                         unsigned to, Barrier full) {
    const Placed placed(rows[0], lines.left[0] * PITCH, IMAGE_PITCH);
    const int images = rows[0].count(run.image, IMAGES);
    full.arrive_expecting(images * placed.bytes);
    load_lines(to, rows[0], placed, images, IMAGE_PITCH, run.image, run.first + t, full);
}

// Asks for walked row t of a run: a whole warp runs this and elects a lane to issue.
template <int SLOTS>
__device__ __forceinline__ void ask_for_row(const Walked& walked, const Lines& lines, const Run& run, int t, int channel,
                                            const Slots<SLOTS>& slots, Ring<SLOTS>& ring, unsigned rows) {
    slots.empty(ring.slot).wait(ring.parity ^ 1u);
    if (elected()) load_row(walked.maps, lines, run, t, channel, rows + ring.slot * ROW_PITCH, slots.full(ring.slot));
    __syncwarp();
    ring.advance();
}

// Gives a slot back, when its products are done.
template <int SLOTS>
__device__ __forceinline__ void give_back(const Slots<SLOTS>& slots, Ring<SLOTS>& ring) {
    __syncwarp();
    if (elected()) slots.empty(ring.slot).arrive();
    ring.advance();
}

}  // namespace
