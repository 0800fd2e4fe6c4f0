// Rows that come to shared memory and leave it whole, as they lie in memory, all channels of all columns of an image side by side:
// the copy engine takes long for each position of a box, however few its channels are, and not for a row that is one stretch of bytes.
#pragma once

#include <tapestry/async.cuh>

namespace tapestry {

// A tensor of such rows; steps and the length of a row in bytes.
struct Lines {
    unsigned char* data;
    long long image, row;
    int images, rows, bytes, none;

    __device__ unsigned char* at(int n, int y) const { return data + n * image + y * row; }
    // How many of some images from one on there are.
    __device__ int count(int from, int most) const { return min(most, images - from); }
};

// What a kernel reads or writes: boxes of a tensor map, or whole rows.
template <bool whole>
struct RowsOf {
    using type = TensorMap;
};
template <>
struct RowsOf<true> {
    using type = Lines;
};

__device__ __forceinline__ void prefetch(const Lines&) {}

// Where a row lies among the positions of an image in shared memory, `first` bytes behind the first one, as many as have room.
struct Placed {
    int first, bytes;

    __device__ Placed(const Lines& tensor, int first, int room) : first(first), bytes(min(tensor.bytes, room - first)) {}

    // Sets the rest of an image's `room` to zero, of which nothing is written again. A whole warp runs this.
    __device__ void zero_around(unsigned image, int room, int lane) const {
        const unsigned zeros[4] = {};
        for (int at = lane * 16; at < room - bytes; at += 32 * 16) store_octet(image + (at < first ? at : at + bytes), zeros);
    }
};

// Row y of so many images from one on, each to the next `room` of shared memory.
__device__ __forceinline__ void load_lines(unsigned to, const Lines& tensor, const Placed& placed, int images, int room, int from, int y,
                                           Barrier on) {
    for (int i = 0; i < images; ++i) load_bytes(to + i * room + placed.first, tensor.at(from + i, y), placed.bytes, on);
}

}  // namespace tapestry
