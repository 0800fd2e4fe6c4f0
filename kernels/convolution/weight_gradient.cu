// Weight gradient of a grouped convolution, channels last:
//
//   dw[k, r, s, c] = sum over n, p, q of dy[n, p, q, k] * x[n, p * stride_y + r * dilation_y - top, q * stride_x + s * dilation_x - left, c]
//
// A block of threads keeps one block of channels and walks a range of output rows. Two warps load: a stage of the ring holds one row of x and
// the row of dy that meets it first, both zero outside the tensors. The other warps multiply: rows of x are the transposed left operand
// (16 = two taps x 8 channels, 16 positions deep), rows of dy the right one (8 output channels). The last `held_rows` rows of dy stay in
// registers, in a circle whose walk is unrolled, so that every row of either tensor is read from shared memory once. All taps' sums
// stay in registers to the end. How they are added over the splits, in a fixed order, says what stands behind this text: weight_gradient_apart.cu
// leaves them as partials, which a second launch adds; weight_gradient_together.cu adds those of a few splits at once.
//
// `parameters` (compile-time integers) stands before this text: filter_rows, filter_columns, stride_y, stride_x, dilation_y, dilation_x,
// width, channel_block, units, images, x_columns, out_blocks, share, stages, residents, and the type Half. A long filter may be
// cut into parts of filter_rows rows (all_rows together), each a gradient of its own with its padding moved: blockIdx.z counts the parts, x the channel
// blocks, y the splits.

#include <tapestry/lines.cuh>

namespace tapestry::weight_gradient {

// Rows come by boxes; or whole, where a block has all channels and columns of them.
using Stream = RowsOf<whole>::type;

constexpr int unit = 8;                                       // positions of an 8 x 8 matrix, channels of a 16-byte chunk
constexpr int row_bytes = 2 * channel_block;                  // one position in shared memory
constexpr int chunks = channel_block / unit;
constexpr int dy_columns = units * unit;
constexpr int x_bytes = images * x_columns * row_bytes;
constexpr int dy_bytes = images * dy_columns * row_bytes;
constexpr int swizzle_period = 1024;
constexpr int dy_offset = (x_bytes + swizzle_period - 1) / swizzle_period * swizzle_period;
constexpr int stage_bytes = dy_offset + (dy_bytes + swizzle_period - 1) / swizzle_period * swizzle_period;

constexpr int warps_a_chunk = group_chunks / out_blocks;      // a warp multiplies one chunk of x with out_blocks chunks of dy
constexpr int consumers = chunks * warps_a_chunk * share;
constexpr int steps_k = images * units / 2;                   // 16 positions each
constexpr int threads = (consumers + 2) * 32;
constexpr int ready = 1, exchanged = 2;                       // barriers of the block
constexpr int own_steps = steps_k / share;
static_assert(consumers == WarpPlace::size(), "every warp has its place");
constexpr int tap_pairs = (filter_columns + 1) / 2;
constexpr int held_rows = (filter_rows - 1) * dilation_y / stride_y + 1;
constexpr int circle = held_rows * stride_y;                  // steps (rows of x) after which the registers come round
constexpr int fragments = out_blocks * filter_rows * tap_pairs;

static_assert(images * units % (2 * share) == 0, "the 16-position steps are dealt evenly to the warps");
static_assert(units == 1 || units % 2 == 0, "a 16-position step lies in one image, or is two images of one unit");
static_assert(stages <= 32, "a lane for every barrier");
static_assert(images == 1 || x_columns % unit == 0, "the swizzle of every image begins alike");

// Steps of the walk at which a row of x meets some row of dy, and the register slot of the row of dy it meets under filter row r.
constexpr bool meets(int step, int r) { return (step + 16 * circle - r * dilation_y) % stride_y == 0; }
constexpr int slot(int step, int r) { return (step + 16 * circle - r * dilation_y) / stride_y % held_rows; }
constexpr int first_met(int step) {
    int r = 0;
    while (r < filter_rows && !meets(step, r)) ++r;
    return r;
}
constexpr bool meets_any(int step) { return first_met(step) < filter_rows; }

struct Shape {
    int rows_x;       // h
    int first_row;    // first output row that meets a row of x under any tap
    int top, left;    // padding
    Divisor rows;     // output rows from the first on that do
    Divisor column_tiles;
    int split_rows, longer_splits;    // every split has so many rows of all items, the first so many one more
};

// Rows of one image block and column tile, walked from top to bottom.
struct Walk {
    int image, column, row, rows, y;
    int steps, x_begin, dy_end;    // steps in all; those from x_begin on bring rows of x, those before dy_end rows of dy

    __device__ Walk(const Shape& shape, int first, int last) {
        const int item = shape.rows.quotient(first);    // rows of one column tile and image block
        row = shape.rows.remainder(first, item);
        rows = min(shape.rows.value - row, last - first);
        const int block = shape.column_tiles.quotient(item);
        image = block * images;
        column = shape.column_tiles.remainder(item, block) * dy_columns;
        row += shape.first_row;
        y = row * stride_y - shape.top + static_cast<int>(blockIdx.z) * filter_rows * dilation_y;
        steps = min((rows - 1) * stride_y + (filter_rows - 1) * dilation_y + 1, shape.rows_x - y);
        x_begin = -y;
        dy_end = rows * stride_y;
    }
    __device__ bool brings_x(int t) const { return meets_any(t % circle) && t >= x_begin; }
    __device__ bool brings_dy(int t) const { return t % stride_y == 0 && t < dy_end; }
};

struct Shared {
    unsigned data, barriers;    // shared-memory addresses
    __device__ unsigned x(int slot) const { return data + slot * stage_bytes; }
    __device__ unsigned dy(int slot) const { return data + slot * stage_bytes + dy_offset; }
    __device__ Barrier full(int slot) const { return {barriers + 8 * slot}; }
    __device__ Barrier empty(int slot) const { return {barriers + 8 * (stages + slot)}; }
};

// Where a row of x, or of dy, lies among the positions of an image.
__device__ __forceinline__ Placed placed_x(const Lines& x, const Shape& shape) { return Placed(x, shape.left * row_bytes, x_columns * row_bytes); }
__device__ __forceinline__ Placed placed_dy(const Lines& dy) { return Placed(dy, 0, dy_columns * row_bytes); }

// Asks for a row of x, or of dy.
__device__ __forceinline__ void ask_x(const TensorMap& x, const Shape& shape, const Walk& walk, int channel, int y, unsigned to, Barrier full) {
    full.arrive_expecting(x_bytes);
    load_box(to, x, channel, walk.column * stride_x - shape.left, y, walk.image, full);
}
__device__ __forceinline__ void ask_x(const Lines& x, const Shape& shape, const Walk& walk, int, int y, unsigned to, Barrier full) {
    const Placed placed = placed_x(x, shape);
    full.arrive_expecting(images * placed.bytes);
    load_lines(to, x, placed, images, x_columns * row_bytes, walk.image, y, full);
}
__device__ __forceinline__ void ask_dy(const TensorMap& dy, const Walk& walk, int channel, int p, unsigned to, Barrier full) {
    full.arrive_expecting(dy_bytes);
    load_box(to, dy, channel, walk.column, p, walk.image, full);
}
__device__ __forceinline__ void ask_dy(const Lines& dy, const Walk& walk, int, int p, unsigned to, Barrier full) {
    const Placed placed = placed_dy(dy);
    full.arrive_expecting(images * placed.bytes);
    load_lines(to, dy, placed, images, dy_columns * row_bytes, walk.image, p, full);
}

// The zeros beside rows that come whole, in all stages.
__device__ __forceinline__ void bring_zeros(const TensorMap&, const TensorMap&, const Shape&, const Shared&, int, int) {}
__device__ __forceinline__ void bring_zeros(const Lines& x, const Lines& dy, const Shape& shape, const Shared& shared, int warp, int lane) {
    for (int place = warp; place < stages * images; place += consumers) {
        const int slot = place / images, image = place % images;
        placed_x(x, shape).zero_around(shared.x(slot) + image * x_columns * row_bytes, x_columns * row_bytes, lane);
        placed_dy(dy).zero_around(shared.dy(slot) + image * dy_columns * row_bytes, dy_columns * row_bytes, lane);
    }
}

// The warp that loads one of the two tensors, from `walk` on, which begins at `first`. Both warps count at a stage's barrier, whether they
// bring a row to it or not.
template <bool loads_x>
__device__ void produce(const Stream& tensor, const Shape& shape, const Shared& shared, Walk walk, int first, int last) {
    const int channel = static_cast<int>(blockIdx.x) * channel_block;
    Ring<stages> ring;
    for (; first < last; walk = Walk(shape, first, last)) {
        first += walk.rows;
        for (int t = 0; t < walk.steps; ++t) {
            const bool x = walk.brings_x(t), dy = walk.brings_dy(t);
            if (!x && !dy) continue;
            const Barrier full = shared.full(ring.slot);
            shared.empty(ring.slot).wait(ring.parity ^ 1);
            if (elected()) {
                if (loads_x && x) {
                    ask_x(tensor, shape, walk, channel, walk.y + t, shared.x(ring.slot), full);
                } else if (!loads_x && dy) {
                    ask_dy(tensor, walk, channel, walk.row + t / stride_y, shared.dy(ring.slot), full);
                } else {
                    full.arrive();
                }
            }
            ring.advance();
        }
    }
}

struct Consumer {
    float sums[out_blocks][filter_rows][tap_pairs][4] = {};
    unsigned held[held_rows][own_steps][out_blocks][2];
    XPlace x_lane[tap_pairs];      // this lane's matrix rows in a stage
    DyPlace dy_lane[out_blocks];
    int lane;

    __device__ Consumer(int warp, int lane) : lane(lane) {
        const WarpPlace at(warp);
        const WarpOctets octets(at.get<C8>(), at.get<K8Block>());
        const Step first(at.get<Share>().get() * own_steps);
        for (int pair = 0; pair < tap_pairs; ++pair) x_lane[pair] = kept_place(x_place(lane, first, TapPair(pair), octets.x));
        for (int block = 0; block < out_blocks; ++block) dy_lane[block] = kept_place(dy_place(lane, first, octets.dy + block));
    }

    __device__ void clear(int row) {
#pragma unroll
        for (int step = 0; step < own_steps; ++step)
#pragma unroll
            for (int block = 0; block < out_blocks; ++block) held[row][step][block][0] = held[row][step][block][1] = 0;
    }

    __device__ void take_dy(int row, unsigned address, unsigned& read) {
#pragma unroll
        for (int block = 0; block < out_blocks; ++block)
#pragma unroll
            for (int step = 0; step < own_steps; step += 2) {
                const unsigned at = dy_lane[block][Step(step)].in_tile(address).address();
                if (step + 1 < own_steps) {
                    auto& a = held[row][step][block];
                    auto& b = held[row][step + 1][block];
                    load_transposed(a[0], a[1], b[0], b[1], at);
                } else {
                    load_transposed(held[row][step][block][0], held[row][step][block][1], at);
                }
                read |= held[row][step][block][0];
            }
    }

    // A row of x.
    __device__ void multiply_row(int phase, unsigned address) {
#pragma unroll
        for (int step = 0; step < own_steps; ++step)
#pragma unroll
            for (int pair = 0; pair < tap_pairs; ++pair) {
                unsigned a[4];
                load_transposed(a[0], a[1], a[2], a[3], steps_on(x_lane[pair], Step(step)).in_tile(address).address());
                multiply(phase, step, pair, a);
            }
    }

    __device__ void multiply(int phase, int step, int pair, const unsigned (&a)[4]) {
#pragma unroll
        for (int r = 0; r < filter_rows; ++r)
            if (meets(phase, r))
#pragma unroll
                for (int block = 0; block < out_blocks; ++block)
                    mma_k16<Half>(sums[block][r][pair], a, held[slot(phase, r)][step][block], false);
    }

    // Something of sums that every matrix of the row's stage has gone into: there when all of them are, in whatever order the assembler
    // has loaded them. Every matrix of x goes into the sums of its pair; those of a row of dy that came with it, into the sums of their
    // block under the first filter row that meets it, which is the row 0.
    __device__ unsigned witness(int phase) const {
        const int r = first_met(phase);
        unsigned read = 0;
#pragma unroll
        for (int pair = 0; pair < tap_pairs; ++pair) read |= __float_as_uint(sums[0][r][pair][0]);
#pragma unroll
        for (int block = 1; block < out_blocks; ++block) read |= __float_as_uint(sums[block][r][0][0]);
        return read;
    }

    __device__ void consume(const Shape& shape, const Shared& shared, int first, int last) {
        Ring<stages> ring;
        const unsigned zero = __ballot_sync(~0u, shape.rows_x < 0);    // which the assembler does not know, nor works out twice
        while (first < last) {
            const Walk walk(shape, first, last);
            first += walk.rows;
#pragma unroll
            for (int row = 0; row < held_rows; ++row) clear(row);
            for (int start = 0; start < walk.steps; start += circle)
#pragma unroll
                for (int phase = 0; phase < circle; ++phase) {
                    const int t = start + phase;
                    if (t >= walk.steps) break;
                    const bool x = meets_any(phase) && t >= walk.x_begin, dy = phase % stride_y == 0 && t < walk.dy_end;
                    unsigned read = 0;    // something of every matrix of the stage
                    if (x || dy) shared.full(ring.slot).wait(ring.parity);
                    if (phase % stride_y == 0) {
                        if (dy)
                            take_dy(phase / stride_y, shared.dy(ring.slot), read);
                        else
                            clear(phase / stride_y);
                    }
                    if (meets_any(phase) && x) {
                        multiply_row(phase, shared.x(ring.slot));
                        read = witness(phase);
                    }
                    if (x || dy) {
                        __syncwarp();
                        if (lane == 0) shared.empty(ring.slot).arrive_after(read, zero);
                        ring.advance();
                    }
                }
        }
    }
};


// A block of threads. `End` says what becomes of the sums: `begins` is called by all threads, `ends` by the warps that multiply, with their
// sums, and `loaded` by those that load, at their end.
template <class End>
__device__ void gradient(const Stream& x_map, const Stream& dy_map, const Shape& shape, const End& end) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ unsigned long long barriers[2 * stages];

    end.begins();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const Shared shared{kept(shared_address(memory)), kept(shared_address(barriers))};
    const int split = blockIdx.y, first = split * shape.split_rows + min(split, shape.longer_splits);
    const int last = first + shape.split_rows + (split < shape.longer_splits);
    // Launched while the kernel ahead still runs, a block makes ready and then waits for that one's memory: every warp before it first
    // touches any. The first loads leave soonest where their code is near the entry: the compiler puts the branches that return behind it.
    if (warp < consumers) {
        Consumer consumer(warp, lane);
        bring_zeros(x_map, dy_map, shape, shared, warp, lane);
        meet(ready, threads);
        wait_for_previous_kernel();
        consumer.consume(shape, shared, first, last);
        end.ends(consumer, warp, shared.data);
        return;
    }
    const Walk walk(shape, first, last);
    if (threadIdx.x == consumers * 32) {
        prefetch(x_map);
        for (int slot = 0; slot < stages; ++slot) {
            shared.full(slot).init(2);
            shared.empty(slot).init(consumers);
        }
        fence_barrier_init();
    }
    __syncwarp();
    if (warp > consumers) {
        if (lane == 0) prefetch(dy_map);
        meet(ready, threads);
        wait_for_previous_kernel();
        produce<false>(dy_map, shape, shared, walk, first, last);
    } else {
        pass(ready, threads);    // the first loads are on their way before anybody waits for them
        wait_for_previous_kernel();
        produce<true>(x_map, shape, shared, walk, first, last);
    }
    end.loaded();
}

}  // namespace tapestry::weight_gradient
