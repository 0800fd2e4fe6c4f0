// The filter of the forward kernel as it is stored.

namespace {

using spec::C;

// The filter in memory, [Outer][StoredY][StoredX][Inner]: outer channels are those written, in the input gradient read.
struct Weights {
    const unsigned short* data;
    int channels;

    // Stored tap (r, s) of two channels.
    __device__ auto tap(StoredY r, StoredX s, spec::Outer outer, spec::Inner inner) const {
        using Stored = Packed<Extent<spec::Outer>, Extent<StoredY, spec::STORED_R>, Extent<StoredX, spec::STORED_S>,
                              Extent<spec::Inner, spec::WIDTH>>;
        const Stored stored{spec::Outer(channels)};
        return Tensor<const unsigned short, Stored>(data, stored)[coord(r, s, outer, inner)];
    }

    // Stored tap (r, s) from channels c and c + 1 to channel k, all counted from channel `base`; zero where there is none.
    __device__ unsigned pair(int base, K k, C c, StoredY r, StoredX s) const {
        const int outer = spec::TRANSPOSED ? c.get() : k.get(), inner = spec::TRANSPOSED ? k.get() : c.get();
        const auto at = tap(r, s, spec::Outer(base + outer), spec::Inner(inner % spec::WIDTH));
        const bool low = joins(base, k, c), high = joins(base, k, c + 1);
        if constexpr (!spec::TRANSPOSED && spec::WIDTH > 1)
            return low ? *reinterpret_cast<const unsigned*>(at.address()) : 0u;
        const auto next = spec::TRANSPOSED ? at[spec::Outer(1)] : at;   // width 1: never both
        return (low ? unsigned(*at) : 0u) | (high ? unsigned(*next) << 16 : 0u);
    }

    __device__ bool joins(int base, K k, C c) const {
        return k.get() / spec::WIDTH == c.get() / spec::WIDTH && base + max(k.get(), c.get()) < channels;
    }
};

// Where a block's filter passes through shared memory; and where a loader brings it, the barriers that say that it is there, and that
// all have taken what they want of it.
struct FilterRoom {
    unsigned address;
    Barrier full, empty;
};

// An octet of a filter whose address is any even number.
__device__ __forceinline__ void copy_numbers(unsigned to, const unsigned short* from, bool there) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = there ? from[2 * i] | unsigned(from[2 * i + 1]) << 16 : 0u;
    store_octet(to, words);
}

}  // namespace
