// Images of few channels as blocks of step x step pixels, whose channels lie side by side, and filters over them.
//
// A block's channels are those of its pixels, row by row, and zeros up to whole octets. In front stands what
// `tapestry::parameters` are: Image, Block and Tap, what images, blocks and filters are made of; channels of an image, step; width, the
// channels of a block; lines, the rows of pixels that a thread takes; threads.

#include <tapestry/elements.cuh>
#include <tapestry/order.cuh>

namespace tapestry::pixels {

using namespace parameters;

// Images anywhere in memory, in elements, and the blocks that they are cut into; how many threads there are to be.
struct Images {
    long long image, channel, row, column;
    int height, width, rows, columns;
    unsigned threads;
};

// A filter anywhere in memory, in elements; its taps, and the blocks that they meet; the rows and columns of the first block ahead of
// the first tap.
struct Filter {
    long long out, channel, row, column;
    int outs, taps_down, taps_across, rows, columns, above, ahead;
};

constexpr int parts = step / lines;                  // threads of a block
constexpr int own = width / parts;                   // channels of a thread
constexpr int pixels_of_thread = lines * step;
static_assert(sizeof(Block) == 2, "tapestry: blocks of halves, eight of which are an access");
static_assert(own % 8 == 0 && own * parts == width && own >= pixels_of_thread * channels, "tapestry: octets of a thread");

__device__ inline void gather(const Image* images, Block* blocks, const Images& at) {
    const unsigned thread = blockIdx.x * unsigned(threads) + threadIdx.x;
    if (thread >= at.threads) return;
    const unsigned block = thread / parts, line = block / at.columns, image = line / at.rows;
    const int column = int(block - line * at.columns) * step;
    const int row = int(line - image * at.rows) * step + int(thread % parts) * lines;
    const Image* const corner = images + image * at.image + row * at.row + column * at.column;
    float values[own];
#pragma unroll
    for (int e = 0; e < own; ++e) {
        const int pixel = e / channels, down = pixel / step, across = pixel % step;
        const bool there = pixel < pixels_of_thread && row + down < at.height && column + across < at.width;
        values[e] = there ? widen(corner[down * at.row + across * at.column + e % channels * at.channel]) : 0.0f;
    }
    Raw<Block, own> rounded;
    round(rounded, values);
    store<8>(blocks + (long long)(thread)*own, rounded);
}

}  // namespace tapestry::pixels

// [n][rows][columns][width] of images.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
pixel_blocks(const tapestry::parameters::Image* images, tapestry::parameters::Block* blocks,
             const __grid_constant__ tapestry::pixels::Images at) {
    using namespace tapestry;
    follow();
    pixels::gather(images, blocks, at);
}

// [outs][rows][columns][width] of a filter, whose taps lie in blocks as the pixels do that they meet.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
pixel_taps(const tapestry::parameters::Tap* filter, tapestry::parameters::Block* taps,
           const __grid_constant__ tapestry::pixels::Filter at) {
    using namespace tapestry;
    using namespace tapestry::parameters;
    follow();
    const int place = int(blockIdx.x) * threads + int(threadIdx.x), block = place / width, line = block / at.columns;
    if (line >= at.outs * at.rows) return;
    const int lane = place % width, pixel = lane / channels, out = line / at.rows;
    const int down = (line - out * at.rows) * step + pixel / step - at.above;
    const int across = (block - line * at.columns) * step + pixel % step - at.ahead;
    const bool there = pixel < step * step && down >= 0 && down < at.taps_down && across >= 0 && across < at.taps_across;
    const long long from = out * at.out + lane % channels * at.channel + down * at.row + across * at.column;
    taps[place] = narrow<Block>(there ? widen(filter[from]) : 0.0f);
}

// The gradient [outs][taps_down][taps_across][channels] of a filter, of that of what `pixel_taps` makes of it.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
pixel_taps_gradient(const tapestry::parameters::Tap* taps, tapestry::parameters::Tap* gradient,
                    const __grid_constant__ tapestry::pixels::Filter at) {
    using namespace tapestry;
    using namespace tapestry::parameters;
    follow();
    const int place = int(blockIdx.x) * threads + int(threadIdx.x), tap = place / channels;
    const int line = tap / at.taps_across, out = line / at.taps_down;
    if (out >= at.outs) return;
    const int down = line - out * at.taps_down + at.above, across = tap - line * at.taps_across + at.ahead;
    const long long block = (long long)(out * at.rows + down / step) * at.columns + across / step;
    const int lane = (down % step * step + across % step) * channels + place % channels;
    gradient[place] = taps[block * width + lane];
}
