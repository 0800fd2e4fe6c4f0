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

struct Maps {
    const TensorMap &upper, &middle, &lower;
};

__device__ __forceinline__ void load_row(const Maps& maps, const Rows& rows, const Run& run, int x, int y, unsigned to,
                                         Barrier full) {
    if (!spec::SHARDED || (y >= 0 && y < rows.height))
        load_box<spec::LOAD_HINT>(to, maps.middle, run.channel, x, y, run.image, full);
    else if (y < 0)
        load_box<spec::LOAD_HINT>(to, maps.upper, run.channel, x, y - rows.begin, run.image, full);
    else
        load_box<spec::LOAD_HINT>(to, maps.lower, run.channel, x, y - rows.height, run.image, full);
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
                full.arrive_expecting(ROW_BYTES * count);
                const unsigned to = shared + ring.slot * STAGE_BYTES;
                for (int i = 0; i < count; ++i) load_row(maps, rows, run, x, y + i, to + i * ROW_PITCH, full);
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
    const TensorMap& residual;
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
                ready.arrive_expecting(OUT_BYTES * count);
                const unsigned to = shared + OUT_BASE + ring.slot * OUT_STAGE_BYTES;
                for (int i = 0; i < count; ++i)
                    load_box<Hint::evict_first>(to + i * OUT_PITCH, residual, run.channel, run.output_column(),
                                                run.output_row(cursor.row + i), run.image, ready);
            } else {
                ready.arrive();
            }
        }
        __syncwarp();
        cursor.advance();
        ring.advance();
    }
};

__device__ void store_rows(const TensorMap& output, const TensorMap& residual, const Work& work,
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
            if (elected())
                store_box<spec::STORE_HINT>(output, run.channel, run.output_column(), run.output_row(cursor.row + i),
                                            run.image, from + i * OUT_PITCH);
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
