// Layer norm of rows, and its gradients: y = (x - mean) / deviation * weight + bias, mean and deviation over the channels of a row.
//
// Behind stretches.cu. A row belongs to `lanes` neighbouring threads of a warp, a power of two, which read it once, `turns` vectors each,
// and tell one another what they sum by exchange. Every order is fixed: the same bits on every run. Weight, bias and their gradients are
// of a type of their own, `Parameter`.

#include <tapestry/functions.cuh>

namespace tapestry::layer_norm {

using namespace parameters;
using namespace stretches;

using Given = Raw<Result, vector>;    // of y and dy
using Known = Raw<float, 2>;          // of a row: mean, and one over the deviation

constexpr int slots = threads / lanes;    // rows of a block side by side

// Where a thread is: its vectors of a row, and the rows of the block. All of a warp go through as many rows.
struct Stand {
    int lane, slot;
    long long first, end;

    __device__ explicit Stand(const Cut& cut) {
        slot = int(threadIdx.x) / lanes, lane = int(threadIdx.x) % lanes;
        first = (long long)(blockIdx.y) * cut.stretch;
        end = min(first + cut.stretch, cut.rows);
    }
    __device__ int channel(int turn) const { return (turn * lanes + lane) * vector; }
};

// Numbers of a thread's channels: `otherwise` where there are none, 0 beyond the row.
struct Numbers {
    float value[turns][vector];

    __device__ Numbers(const Stand& at, const Cut& cut, const Parameter* from, float otherwise) {
#pragma unroll
        for (int t = 0; t < turns; ++t)
#pragma unroll
            for (int e = 0; e < vector; ++e)
                value[t][e] = at.channel(t) < cut.channels ? parameter(from, at.channel(t) + e, otherwise) : 0.0f;
    }
};

// The sum of what the threads of a row have.
__device__ inline float over_row(float sum) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// A thread's vectors of a row; zeros beyond it.
template <class T>
__device__ inline void fetch_row(Raw<T, vector> (&into)[turns], const T* from, const Stand& at, const Cut& cut, long long row) {
#pragma unroll
    for (int t = 0; t < turns; ++t) {
        into[t] = {};
        if (row < at.end && at.channel(t) < cut.channels) load<vector, true>(into[t], from + row * cut.channels + at.channel(t));
    }
}

// The values of a thread's vectors of a row, rounded.
template <class T>
__device__ inline void put_row(T* to, const float (&values)[turns][vector], const Stand& at, const Cut& cut, long long row) {
#pragma unroll
    for (int t = 0; t < turns; ++t) {
        Raw<T, vector> rounded;
        round(rounded, values[t]);
        if (row < at.end && at.channel(t) < cut.channels) store<vector>(to + row * cut.channels + at.channel(t), rounded);
    }
}

}  // namespace tapestry::layer_norm

// The results, and mean and one over the deviation of every row, [rows][2].
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
layer_norm(const tapestry::parameters::Element* x, const tapestry::parameters::Parameter* weight,
           const tapestry::parameters::Parameter* bias, float epsilon, tapestry::parameters::Result* y, float* statistics,
           const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::layer_norm;
    follow();
    const Stand at(cut);
    const Numbers scale(at, cut, weight, 1.0f), shift(at, cut, bias, 0.0f);
    const float part = 1.0f / float(cut.channels);
    for (long long start = at.first + at.slot; start - at.slot < at.end; start += forward_rows * slots) {
        Vector found[forward_rows][turns];
#pragma unroll
        for (int i = 0; i < forward_rows; ++i) fetch_row(found[i], x, at, cut, start + i * slots);
#pragma unroll
        for (int i = 0; i < forward_rows; ++i) {
            float values[turns][vector], sum = 0.0f, square = 0.0f;
#pragma unroll
            for (int t = 0; t < turns; ++t)
#pragma unroll
                for (int e = 0; e < vector; ++e) sum += values[t][e] = widen(found[i][t].get(e));
            const float mean = over_row(sum) * part;
#pragma unroll
            for (int t = 0; t < turns; ++t)
#pragma unroll
                for (int e = 0; e < vector; ++e) {
                    values[t][e] = at.channel(t) < cut.channels ? values[t][e] - mean : 0.0f;
                    square += values[t][e] * values[t][e];
                }
            const float inverse = reciprocal_root(over_row(square) * part + epsilon);
#pragma unroll
            for (int t = 0; t < turns; ++t)
#pragma unroll
                for (int e = 0; e < vector; ++e) values[t][e] = values[t][e] * inverse * scale.value[t][e] + shift.value[t][e];
            const long long row = start + i * slots;
            put_row(y, values, at, cut, row);
            Known known;
            known.set(0, mean), known.set(1, inverse);
            if (at.lane == 0 && row < at.end) store<2>(statistics + 2 * row, known);
        }
    }
}

// The gradient of x, and of each block and channel the sums of dy and of dy by normalised x, [block][2][channels].
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
layer_norm_gradient(const tapestry::parameters::Element* x, const tapestry::parameters::Result* dy, const float* statistics,
                    const tapestry::parameters::Parameter* weight, tapestry::parameters::Element* dx, float* partials,
                    const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::layer_norm;
    follow();
    const Stand at(cut);
    const Numbers scale(at, cut, weight, 1.0f);
    const float part = 1.0f / float(cut.channels);
    Sums own[turns][vector] = {};
    for (long long start = at.first + at.slot; start - at.slot < at.end; start += gradient_rows * slots) {
        Vector found[gradient_rows][turns];
        Given given[gradient_rows][turns];
        Known known[gradient_rows];
#pragma unroll
        for (int i = 0; i < gradient_rows; ++i) {
            const long long row = start + i * slots;
            fetch_row(found[i], x, at, cut, row);
            fetch_row(given[i], dy, at, cut, row);
            known[i] = {};
            if (row < at.end) load<2, false>(known[i], statistics + 2 * row);
        }
#pragma unroll
        for (int i = 0; i < gradient_rows; ++i) {
            const float mean = known[i].get(0), inverse = known[i].get(1);
            float level = 0.0f, tilt = 0.0f, values[turns][vector];
#pragma unroll
            for (int t = 0; t < turns; ++t)
#pragma unroll
                for (int e = 0; e < vector; ++e) {
                    const float normal = (widen(found[i][t].get(e)) - mean) * inverse, gradient = widen(given[i][t].get(e));
                    own[t][e].fold({gradient, gradient * normal});
                    level += gradient * scale.value[t][e];
                    tilt += gradient * scale.value[t][e] * normal;
                }
            level = over_row(level) * part, tilt = over_row(tilt) * part;
#pragma unroll
            for (int t = 0; t < turns; ++t) {
                forget(found[i][t]);
                forget(given[i][t]);
#pragma unroll
                for (int e = 0; e < vector; ++e) {
                    const float normal = (widen(found[i][t].get(e)) - mean) * inverse;
                    values[t][e] = inverse * (widen(given[i][t].get(e)) * scale.value[t][e] - level - normal * tilt);
                }
            }
            put_row(dx, values, at, cut, start + i * slots);
        }
    }
#pragma unroll
    for (int t = 0; t < turns; ++t) leave<&Sums::plain, &Sums::weighed>(own[t], {at.lane, at.slot, at.channel(t)}, cut, partials);
}

// The gradients of weight and bias.
extern "C" __global__ void __launch_bounds__(1024)
layer_norm_fold(const float* partials, tapestry::parameters::Parameter* to_weight, tapestry::parameters::Parameter* to_bias,
                const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry::layer_norm;
    tapestry::follow();
    int channel;
    Sums own[1] = {};
    if (!fold_blocks<2>(own, channel, partials, cut, [](int, float plain, float weighed) { return Sums{plain, weighed}; })) return;
    to_weight[channel] = tapestry::narrow<Parameter>(own[0].weighed);
    to_bias[channel] = tapestry::narrow<Parameter>(own[0].plain);
}
