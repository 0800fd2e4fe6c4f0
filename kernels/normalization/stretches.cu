// Rows of a tensor [rows, channels], channels dense, shared out among threads: what kernels that sum over rows begin with.
//
// A thread has `vector` neighbouring channels and every `slots`-th row of its block's stretch; a block has `lanes` vectors side by
// side. In front stands what `tapestry::parameters` are: Element, vector, threads and more. What blocks leave of their sums is folded
// by a launch of its own, `fold_blocks`.

#include <tapestry/elements.cuh>
#include <tapestry/order.cuh>

namespace tapestry::stretches {

using namespace parameters;

struct Cut {
    long long rows;
    int channels, lanes, slots, stretch, blocks, splits;    // rows of a block, blocks along the rows, and those of an image
};

using Vector = Raw<Element, vector>;

constexpr int columns = 32, fold_threads = 1024;    // of a fold of what blocks left: channels side by side

// Which of a block's threads one is: its vector, its row, and the first channel of the vector.
struct Spot {
    int lane, slot, channel;
};

// Where a thread is: its channels, and its rows of the stretch, first and end.
struct Place : Spot {
    long long first, end;

    __device__ explicit Place(const Cut& cut) {
        slot = int(threadIdx.x) / cut.lanes, lane = int(threadIdx.x) - slot * cut.lanes;
        channel = (int(blockIdx.x) * cut.lanes + lane) * vector;
        first = (long long)(blockIdx.y) * cut.stretch;
        end = min(first + cut.stretch, cut.rows);
        const bool there = slot < cut.slots && channel < cut.channels;
        first = there ? first + slot : end;
    }
    __device__ int count(const Cut& cut) const { return first < end ? int((end - 1 - first) / cut.slots) + 1 : 0; }
};

// Calls `use` for every row of a thread with one vector of each tensor; `batch` rows of all tensors are under way together.
template <int tensors, int batch, bool backwards, class Use>
__device__ inline void over_rows(const Place& at, const Cut& cut, const Element* const (&from)[tensors], const Use& use) {
    const int count = at.count(cut);
    const long long start = (backwards ? at.first + (long long)(count - 1) * cut.slots : at.first) * cut.channels + at.channel;
    const long long step = (long long)(backwards ? -cut.slots : cut.slots) * cut.channels;
    for (int done = 0; done < count; done += batch) {
        Vector found[batch][tensors];
        const long long here = start + done * step;
        const bool whole = done + batch <= count;
#pragma unroll
        for (int i = 0; i < batch; ++i)
            if (whole || done + i < count)
#pragma unroll
                for (int k = 0; k < tensors; ++k) load<vector, true>(found[i][k], from[k] + here + i * step);
#pragma unroll
        for (int i = 0; i < batch; ++i)
            if (whole || done + i < count) use(here + i * step, found[i]);
    }
}

// Folds those of all slots into slot 0, as a tree: the order depends on the number of slots alone.
template <int threads, int each, class Part>
__device__ inline void fold_slots(Part (&own)[each], int lane, int slot, int lanes, int slots) {
    __shared__ Part waiting[each][threads / 2];
    const bool there = slot < slots;
    for (int width = slots; width > 1; width = (width + 1) / 2) {
        const int half = (width + 1) / 2;
        __syncthreads();
        if (there && slot >= half && slot < width)
#pragma unroll
            for (int e = 0; e < each; ++e) waiting[e][(slot - half) * lanes + lane] = own[e];
        __syncthreads();
        if (slot + half < width)
#pragma unroll
            for (int e = 0; e < each; ++e) own[e].fold(waiting[e][slot * lanes + lane]);
    }
}

// -- what blocks leave ---------------------------------------------------------------------------------------------------

// One sum.
struct Sum {
    float value;

    __device__ void fold(const Sum& other) { value += other.value; }
};

// Two sums, of gradients and of gradients by distances from the mean.
struct Sums {
    float plain, weighed;

    __device__ void fold(const Sums& other) { plain += other.plain, weighed += other.weighed; }
};

// Folds what the threads of a block have, and leaves two numbers a channel of it: [block][2][channels].
template <auto one, auto other, class Part>
__device__ inline void leave(Part (&own)[vector], const Spot& at, const Cut& cut, float* partials) {
    fold_slots<threads, vector>(own, at.lane, at.slot, cut.lanes, cut.slots);
    if (at.slot != 0 || at.channel >= cut.channels) return;
    float* const to = partials + (long long)(blockIdx.y) * 2 * cut.channels + at.channel;
#pragma unroll
    for (int e = 0; e < vector; ++e) to[e] = own[e].*one, to[cut.channels + e] = own[e].*other;
}

// In a launch of `fold_threads` threads for each `columns` channels: folds into `own` what blocks left, `numbers` of each channel, as `read`
// makes a part of a block's number and these. Whether this thread has the whole of a `channel`.
template <int numbers, class Part, class Read>
__device__ inline bool fold_blocks(Part (&own)[1], int& channel, const float* partials, const Cut& cut, const Read& read) {
    const int lane = threadIdx.x % columns, slot = threadIdx.x / columns;
    channel = blockIdx.x * columns + lane;
    if (channel < cut.channels)
#pragma unroll 4
        for (int block = slot; block < cut.blocks; block += fold_threads / columns) {
            const float* const from = partials + (long long)(block) * numbers * cut.channels + channel;
            if constexpr (numbers == 1) own[0].fold(read(block, from[0]));
            else own[0].fold(read(block, from[0], from[cut.channels]));
        }
    fold_slots<fold_threads, 1>(own, lane, slot, columns, fold_threads / columns);
    return slot == 0 && channel < cut.channels;
}

// The same of one sum: folds what the threads of a block have, and leaves a number a channel of it, [block][channels].
__device__ inline void leave_sum(Sum (&own)[vector], const Spot& at, const Cut& cut, float* partials) {
    fold_slots<threads, vector>(own, at.lane, at.slot, cut.lanes, cut.slots);
    if (at.slot != 0 || at.channel >= cut.channels) return;
#pragma unroll
    for (int e = 0; e < vector; ++e) partials[(long long)(blockIdx.y) * cut.channels + at.channel + e] = own[e].value;
}

// Folds such numbers of all blocks into those of the channels.
template <class T>
__device__ inline void fold_sums(const float* partials, T* to, const Cut& cut) {
    int channel;
    Sum own[1] = {};
    if (fold_blocks<1>(own, channel, partials, cut, [](int, float value) { return Sum{value}; })) to[channel] = narrow<T>(own[0].value);
}

// What a channel is multiplied with, and more of the like: 1 and 0 where there is none.
template <class T>
__device__ inline float parameter(const T* values, int channel, float otherwise) {
    return values ? widen(values[channel]) : otherwise;
}

}  // namespace tapestry::stretches
