// Rows of a tensor [rows, channels], channels dense, shared out among threads: what kernels that sum over rows begin with.
//
// A thread has `vector` neighbouring channels and every `slots`-th row of its block's stretch; a block has `lanes` vectors side by
// side. In front stands what `tapestry::parameters` are: Element, vector, threads and more.

#include <tapestry/elements.cuh>
#include <tapestry/order.cuh>

namespace tapestry::stretches {

using namespace parameters;

struct Cut {
    long long rows;
    int channels, lanes, slots, stretch, blocks;    // rows of a block, and blocks along the rows
};

using Vector = Raw<Element, vector>;

// Where a thread is: its channels, and its rows of the stretch, first and end.
struct Place {
    int lane, slot, channel;
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

}  // namespace tapestry::stretches
