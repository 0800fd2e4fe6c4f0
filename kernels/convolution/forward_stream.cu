// What passes through a block of the forward kernel: rows of the input on their way in, rows of the output on their way out.
//
// A block of the grid walks runs of rows: one block of channels, some images, a tile of columns. Warp 0 streams input
// rows into a ring with the bulk tensor copy engine (what lies outside the image arrives as zero: that is the padding
// beside the image; rows above and below it are left out) and asks for filters ahead of them, warp 1 streams finished rows out, of
// `LEAVING` that are staged together each when it may leave, the others compute.

namespace {

constexpr int WARP = 32;
constexpr bool TRADES = spec::TAKEN_REGISTERS > 0;                          // loader and storer leave registers to the others
constexpr int SERVICE_WARPS = TRADES ? 4 : 2;                               // loader, storer; what makes them a warpgroup
constexpr int TILE_Q = spec::UNITS_Q * 8;                                   // output columns of a run
constexpr int COMPUTE_WARPS = spec::WarpPlace::size();
constexpr int THREADS = (COMPUTE_WARPS + SERVICE_WARPS) * WARP;
constexpr int align_kib(int bytes) { return (bytes + 1023) / 1024 * 1024; }
constexpr int boxed(int bytes) { return bytes / spec::PITCH * spec::CHANNELS; }    // of a tile: what the copy engine moves
constexpr int ROW_BYTES = boxed(spec::InputRow(0u).bytes());                // what one box brings
constexpr int ROW_PITCH = align_kib(spec::InputRow(0u).bytes());
constexpr int STAGE_BYTES = ROW_PITCH * spec::STAGE_ROWS;
constexpr int OUT_BYTES = boxed(spec::OutputRow(0u).bytes());               // what one box takes away
constexpr int OUT_PITCH = align_kib(spec::OutputRow(0u).bytes() + SPARE_BYTES);
constexpr int LEAVING = spec::LEAVING;                                      // output rows that are staged together
constexpr int OUT_STAGE_BYTES = OUT_PITCH * LEAVING;
constexpr int OUT_BASE = STAGE_BYTES * spec::STAGES;
constexpr int FILTER_BASE = OUT_BASE + OUT_STAGE_BYTES * spec::OUT_STAGES;
constexpr int BARRIER_BASE = FILTER_BASE + FILTER_BYTES;
constexpr int READY = 1;                                                    // the barrier behind which barriers are ready

struct Barriers {
    unsigned base;
    __device__ Barrier row_full(unsigned slot) const { return {base + 8 * slot}; }
    __device__ Barrier row_empty(unsigned slot) const { return {base + 8 * (spec::STAGES + slot)}; }
    __device__ Barrier out_full(unsigned slot, int row = 0) const {
        return {base + 8 * (2 * spec::STAGES + slot * LEAVING + row)};
    }
    __device__ Barrier out_ready(unsigned slot) const {
        return {base + 8 * (2 * spec::STAGES + spec::OUT_STAGES * LEAVING + slot)};
    }
    __device__ Barrier filter_full() const { return out_ready(spec::OUT_STAGES); }
    __device__ Barrier filter_empty() const { return out_ready(spec::OUT_STAGES + 1); }
};

__device__ __forceinline__ FilterRoom filter_tile(const Barriers& barriers, unsigned shared) {
    return {shared + FILTER_BASE, barriers.filter_full(), barriers.filter_empty()};
}

// A run of rows of cells (output rows, where a cell is one) of one image block, column tile and channel block.
struct Run {
    int channel, image, column, row, rows;

    // The first output of the cells of row `at` of the run, where their box lies.
    __device__ int output_column() const { return Column(Q(column)).get(); }
    __device__ int output_row(int at) const { return Row(P(row + at)).get(); }
};

// All rows of a launch in one line (image block, column tile, row), cut into chunks of every channel block.
// Neighbouring blocks of the grid take neighbouring chunks, so that together they sweep memory in order.
struct Work {
    Divisor channel_blocks, column_tiles, rows;
    int row_begin, line, chunk, chunks;
};

// Walks the runs of this block of the grid.
struct Chunks {
    const Work& work;
    int index, channel, position, end;
    Run run;

    __device__ explicit Chunks(const Work& all) : work(all), index(blockIdx.x) { open(); }
    __device__ bool live() const { return index < work.chunks; }
    __device__ bool last() const { return position + run.rows >= end && index + static_cast<int>(gridDim.x) >= work.chunks; }
    __device__ void advance() {
        position += run.rows;
        if (position < end) return cut();
        index += gridDim.x;
        open();
    }

    __device__ void open() {
        const int first = work.channel_blocks.quotient(index);
        channel = work.channel_blocks.remainder(index, first) * spec::CHANNELS;
        position = first * work.chunk;
        end = min(position + work.chunk, work.line);
        cut();
    }
    __device__ void cut() {
        const int tile = work.rows.quotient(position), image = work.column_tiles.quotient(tile);
        const int row = work.rows.remainder(position, tile), column = work.column_tiles.remainder(tile, image);
        const int rows = min(work.rows.value - row, end - position);
        run = {channel, image * spec::IMAGES, column * TILE_Q, work.row_begin + row, rows};
    }
};

// The input rows that exist: the others are padding, which nobody loads or multiplies.
struct Rows {
    int top, begin, end, height;   // padding above; existing rows; those of the middle buffer are 0 to height

    __device__ int first(const Run& run) const { return run.row * spec::STRIDE_Y - top; }
    __device__ static int count(const Run& run) { return (run.rows - 1) * spec::STRIDE_Y + SPAN; }
};

// Rows come and leave by boxes; or WHOLE, where a block has all channels and columns of them.
using Stream = RowsOf<spec::WHOLE>::type;
constexpr int PIXEL = 2 * spec::PITCH;                                      // bytes from one position to the next
constexpr int BOX_BYTES = spec::InputRow(0u).bytes() / spec::IMAGES;        // of an image's row in shared memory
constexpr int OUT_ROW = 8 * spec::UNITS_Q * spec::CELL_COLUMNS * PIXEL;     // of one of the rows of a cell that leaves

struct Maps {
    const Stream &upper, &middle, &lower;
};

// Where a row of the input lies in its box, `left` columns behind the first one.
__device__ __forceinline__ Placed placed_row(const Lines& input, int left) { return Placed(input, left * PIXEL, BOX_BYTES); }

// Bytes that a row of a run brings.
__device__ __forceinline__ int row_bytes(const TensorMap&, const Run&, int) { return ROW_BYTES; }
__device__ __forceinline__ int row_bytes(const Lines& input, const Run& run, int left) {
    return input.count(run.image, spec::IMAGES) * placed_row(input, left).bytes;
}

// The zeros beside the rows of all slots: padding, and columns that nobody wants.
__device__ __forceinline__ void bring_zeros(const TensorMap&, int, unsigned, int, int) {}
__device__ __forceinline__ void bring_zeros(const Lines& input, int left, unsigned shared, int warp, int lane) {
    const Placed placed = placed_row(input, left);
    for (int place = warp; place < spec::STAGES * spec::STAGE_ROWS * spec::IMAGES; place += COMPUTE_WARPS) {
        const unsigned row = shared + place / spec::IMAGES * ROW_PITCH + place % spec::IMAGES * BOX_BYTES;
        placed.zero_around(row, BOX_BYTES, lane);
    }
}

// The rows of cells of a run that leave, or that are added: `row` is the first one's number among all of the tensor.
__device__ __forceinline__ void store_cells(const TensorMap& output, const Run& run, int row, unsigned from) {
    store_box<spec::STORE_HINT>(output, run.channel, run.output_column(), row, run.image, from);
}
template <class Each>
__device__ __forceinline__ void each_line(const Lines& output, const Run& run, int row, unsigned at, const Each& each) {
    const int images = output.count(run.image, spec::IMAGES), rows = min(spec::CELL_ROWS, output.rows - row);
    for (int i = 0; i < images; ++i)
        for (int a = 0; a < rows; ++a) each(output.at(run.image + i, row + a), at + (i * spec::CELL_ROWS + a) * OUT_ROW);
}
__device__ __forceinline__ void store_cells(const Lines& output, const Run& run, int row, unsigned from) {
    each_line(output, run, row, from, [&](unsigned char* to, unsigned place) { store_bytes(to, place, output.bytes); });
}
__device__ __forceinline__ int cell_bytes(const TensorMap&, const Run&, int) { return OUT_BYTES; }
__device__ __forceinline__ int cell_bytes(const Lines& added, const Run& run, int row) {
    return added.count(run.image, spec::IMAGES) * min(spec::CELL_ROWS, added.rows - row) * added.bytes;
}
__device__ __forceinline__ void load_cells(const TensorMap& added, const Run& run, int row, unsigned to, Barrier on) {
    load_box<Hint::evict_first>(to, added, run.channel, run.output_column(), row, run.image, on);
}
__device__ __forceinline__ void load_cells(const Lines& added, const Run& run, int row, unsigned to, Barrier on) {
    each_line(added, run, row, to, [&](unsigned char* from, unsigned place) { load_bytes(place, from, added.bytes, on); });
}

__device__ __forceinline__ void load_row(const TensorMap& upper, const TensorMap& middle, const TensorMap& lower, const Rows& rows,
                                         const Run& run, int x, int y, unsigned to, Barrier full) {
    if (!spec::SHARDED || (y >= 0 && y < rows.height))
        load_box<spec::LOAD_HINT>(to, middle, run.channel, x, y, run.image, full);
    else if (y < 0)
        load_box<spec::LOAD_HINT>(to, upper, run.channel, x, y - rows.begin, run.image, full);
    else
        load_box<spec::LOAD_HINT>(to, lower, run.channel, x, y - rows.height, run.image, full);
}
__device__ __forceinline__ void load_row(const Lines&, const Lines& input, const Lines&, const Rows&, const Run& run, int x, int y,
                                         unsigned to, Barrier full) {
    load_lines(to, input, placed_row(input, -x), input.count(run.image, spec::IMAGES), BOX_BYTES, run.image, y, full);
}

// A whole warp runs this and elects a lane to issue: a branch on the lane number would make every copy a loop over
// lanes.
__device__ void load_rows(const Maps& maps, const Weights& weights, Chunks cursor, const Rows& rows, int left,
                          const Barriers& barriers, unsigned shared) {
    Ring<spec::STAGES> ring;
    int channel = -1, turn = 0;
    for (; cursor.live(); cursor.advance()) {
        const Run& run = cursor.run;
        if (run.channel != channel) ask_for_filter(weights, channel = run.channel, filter_tile(barriers, shared), turn++);
        const int first = rows.first(run), x = run.column * spec::STRIDE_X - left;
        const int end = min(first + Rows::count(run), rows.end);
        for (int y = max(first, rows.begin); y < end; y += spec::STAGE_ROWS) {
            barriers.row_empty(ring.slot).wait(ring.parity ^ 1u);
            if (elected()) {
                const Barrier full = barriers.row_full(ring.slot);
                const int count = min(spec::STAGE_ROWS, end - y);
                full.arrive_expecting(row_bytes(maps.middle, run, left) * count);
                const unsigned to = shared + ring.slot * STAGE_BYTES;
                for (int i = 0; i < count; ++i) load_row(maps.upper, maps.middle, maps.lower, rows, run, x, y + i, to + i * ROW_PITCH, full);
            }
            __syncwarp();
            ring.advance();
        }
    }
}

// Walks the output rows of this block, those that leave together at a time, in order.
struct RowCursor {
    Chunks runs;
    int row = 0;

    __device__ explicit RowCursor(const Work& work) : runs(work) {}
    __device__ bool live() const { return runs.live(); }
    __device__ int count() const { return LEAVING > 1 ? min(LEAVING, runs.run.rows - row) : 1; }
    __device__ void advance() {
        row += LEAVING;
        if (row < runs.run.rows) return;
        row = 0;
        runs.advance();
    }
};

// Hands free staging slots to the computing warps: empty, or filled with the residual row that they add.
struct Staging {
    const Stream& residual;
    const Barriers& barriers;
    unsigned shared;
    RowCursor cursor;
    Ring<spec::OUT_STAGES> ring;

    __device__ void offer() {
        if (!cursor.live()) return;
        const Barrier ready = barriers.out_ready(ring.slot);
        if (elected()) {
            if constexpr (spec::RESIDUAL) {
                const Run& run = cursor.runs.run;
                const int count = cursor.count();
                int bytes = 0;
                for (int i = 0; i < count; ++i) bytes += cell_bytes(residual, run, run.output_row(cursor.row + i));
                ready.arrive_expecting(bytes);
                const unsigned to = shared + OUT_BASE + ring.slot * OUT_STAGE_BYTES;
                for (int i = 0; i < count; ++i) load_cells(residual, run, run.output_row(cursor.row + i), to + i * OUT_PITCH, ready);
            } else {
                ready.arrive();
            }
        }
        __syncwarp();
        cursor.advance();
        ring.advance();
    }
};

__device__ void store_rows(const Stream& output, const Stream& residual, const Work& work,
                           const Barriers& barriers, unsigned shared) {
    Staging staging{residual, barriers, shared, RowCursor(work), {}};
    for (int slot = 0; slot < spec::OUT_STAGES; ++slot) staging.offer();
    Ring<spec::OUT_STAGES> ring;
    constexpr int READING = spec::OUT_STAGES > 1 ? 1 : 0;    // groups of stores that may still read when a slot is offered again
    bool pending = false;
    for (RowCursor cursor(work); cursor.live(); cursor.advance()) {
        const Run& run = cursor.runs.run;
        const unsigned from = shared + OUT_BASE + ring.slot * OUT_STAGE_BYTES;
        const int count = cursor.count();
        for (int i = 0; i < count; ++i) {    // each when it may leave
            barriers.out_full(ring.slot, i).wait(ring.parity);
            if (elected()) store_cells(output, run, run.output_row(cursor.row + i), from + i * OUT_PITCH);
            __syncwarp();
        }
        if (elected()) {
            commit_stores();
            wait_stores_read<READING>();
        }
        __syncwarp();
        if (pending || READING == 0) staging.offer();
        pending = true;
        ring.advance();
    }
    if (elected()) wait_stores_read<0>();
}

}  // namespace
