// Batch norm in training, with what follows it: activation((x - mean) / deviation * weight + bias + residual), and its gradients.
//
// Behind stretches.cu. Three launches each way: a block's part of what is summed over rows, the fold of the parts, and the map, which
// goes through a stretch backwards, so that it first meets what the second cache still holds. Every order is fixed: the same bits on
// every run. Weight, bias, their gradients and what a layer remembers are of a type of their own, `Parameter`; all in between is f32.

#include <tapestry/slopes.cuh>

namespace tapestry::batch_norm {

using namespace parameters;
using namespace stretches;

// -- folds ---------------------------------------------------------------------------------------------------------------

// Mean and sum of squared differences from it, of `count` values.
struct Moments {
    float count, mean, squares;

    __device__ void fold(const Moments& other) {
        const float all = count + other.count, part = all > 0.0f ? other.count / all : 0.0f, apart = other.mean - mean;
        mean += apart * part;
        squares += other.squares + apart * apart * count * part;
        count = all;
    }
};

// Moves what a layer remembers by a share of the way to `now`.
__device__ inline void remember(Parameter& running, float now, float share) {
    const float before = widen(running);
    running = narrow<Parameter>(before + share * (now - before));
}

// The channels of a thread: pre-activation = (x - mean) * scale + bias.
struct Channels {
    float mean[vector], scale[vector], bias[vector];

    __device__ Channels(const Place& at, const Cut& cut, const float* statistics, const Parameter* weight, const Parameter* added, float epsilon) {
        const bool there = at.channel < cut.channels;
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const int channel = there ? at.channel + e : 0;
            mean[e] = statistics[channel];
            scale[e] = reciprocal_root(statistics[cut.channels + channel] + epsilon) * parameter(weight, channel, 1.0f);
            bias[e] = parameter(added, channel, 0.0f);
        }
    }
    __device__ float before(int e, float x) const { return (x - mean[e]) * scale[e] + bias[e]; }
};

}  // namespace tapestry::batch_norm

// -- forward ---------------------------------------------------------------------------------------------------------------

// Of each block and channel mean and squares, [block][2][channels]. A thread's values are taken relative to its first: as that is one of
// them, no more than their number is lost by cancellation.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
norm_statistics(const tapestry::parameters::Element* x, float* partials, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::batch_norm;
    follow();
    const Place at(cut);
    const int count = at.count(cut);
    float origin[vector] = {}, sum[vector] = {}, square[vector] = {};
    if (count) {
        Vector first;
        load<vector, true>(first, x + at.first * cut.channels + at.channel);
#pragma unroll
        for (int e = 0; e < vector; ++e) origin[e] = widen(first.get(e));
    }
    const Element* const from[1] = {x};
    over_rows<1, deep, false>(at, cut, from, [&](long long, const Vector(&found)[1]) {
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float apart = widen(found[0].get(e)) - origin[e];
            sum[e] += apart;
            square[e] += apart * apart;
        }
    });
    Moments own[vector];
    const float part = count ? 1.0f / float(count) : 0.0f;
#pragma unroll
    for (int e = 0; e < vector; ++e) own[e] = {float(count), origin[e] + sum[e] * part, fmaxf(square[e] - sum[e] * sum[e] * part, 0.0f)};
    leave<&Moments::mean, &Moments::squares>(own, at, cut, partials);
}

// Mean and (biased) variance, [2][channels], and what a layer remembers of them. `momentum` below 0: the mean over all batches.
extern "C" __global__ void __launch_bounds__(1024)
norm_fold_statistics(const float* partials, float* statistics, tapestry::parameters::Parameter* running_mean,
                     tapestry::parameters::Parameter* running_variance, const long long* batches, float momentum, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry::batch_norm;
    tapestry::follow();
    int channel;
    Moments own[1] = {{0.0f, 0.0f, 0.0f}};
    if (!fold_blocks<2>(own, channel, partials, cut, [&](int block, float mean, float squares) {
            return Moments{float(min((long long)(cut.stretch), cut.rows - (long long)(block) * cut.stretch)), mean, squares};
        }))
        return;
    const float count = float(cut.rows), variance = own[0].squares / count;
    statistics[channel] = own[0].mean;
    statistics[cut.channels + channel] = variance;
    const float share = momentum < 0.0f ? 1.0f / float(*batches + 1) : momentum;
    if (running_mean) remember(running_mean[channel], own[0].mean, share);
    if (running_variance) remember(running_variance[channel], own[0].squares / (count - 1.0f), share);
}

// The results. `batches` are counted here, when nobody reads them any more.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
norm_apply(const tapestry::parameters::Element* x, const tapestry::parameters::Element* residual, const float* statistics,
           const tapestry::parameters::Parameter* weight, const tapestry::parameters::Parameter* bias, float epsilon,
           tapestry::parameters::Element* y, long long* batches, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::batch_norm;
    follow();
    const Place at(cut);
    const Channels channels(at, cut, statistics, weight, bias, epsilon);
    if (batches && blockIdx.x + blockIdx.y + threadIdx.x == 0) *batches += 1;
    const auto give = [&](long long where, const Vector(&found)[1 + with_residual]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            float value = channels.before(e, widen(found[0].get(e)));
            if constexpr (with_residual) value += widen(found[1].get(e));
            values[e] = activate<activation>(value);
        }
        Vector rounded;
        round(rounded, values);
        store<vector>(y + where, rounded);
    };
    if constexpr (with_residual) {
        const Element* const from[2] = {x, residual};
        over_rows<2, shallow, true>(at, cut, from, give);
    } else {
        const Element* const from[1] = {x};
        over_rows<1, deep, true>(at, cut, from, give);
    }
}

// -- gradients -------------------------------------------------------------------------------------------------------------

// Of each block and channel the sums of the pre-activation's gradient, and of that by x - mean, [block][2][channels]. With a residual, of
// which `other` is either itself or, where that says as much, the result y, that gradient is written too: it is the residual's.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
norm_gradient_sums(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy,
                   const tapestry::parameters::Element* other, const float* statistics,
                   const tapestry::parameters::Parameter* weight, const tapestry::parameters::Parameter* bias, float epsilon,
                   tapestry::parameters::Element* given, float* partials,
                   const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::batch_norm;
    follow();
    constexpr bool writes = with_residual && activation != Activation::none;
    const Place at(cut);
    const Channels channels(at, cut, statistics, weight, bias, epsilon);
    Sums own[vector] = {};
    const auto add = [&](long long where, const Vector(&found)[2 + writes]) {
        float gradients[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float apart = widen(found[0].get(e)) - channels.mean[e];
            float before = apart * channels.scale[e] + channels.bias[e];
            if constexpr (writes) before = widen(found[2].get(e)) + (told_by_result<activation>() ? 0.0f : before);
            gradients[e] = widen(found[1].get(e)) * slope<activation>(before);
            own[e].fold({gradients[e], gradients[e] * apart});
        }
        if constexpr (writes) {
            Vector rounded;
            round(rounded, gradients);
            store<vector>(given + where, rounded);
        }
    };
    if constexpr (writes) {
        const Element* const from[3] = {x, dy, other};
        over_rows<3, told_by_result<activation>() ? shallow : 1, false>(at, cut, from, add);
    } else {
        const Element* const from[2] = {x, dy};
        over_rows<2, shallow, false>(at, cut, from, add);
    }
    leave<&Sums::plain, &Sums::weighed>(own, at, cut, partials);
}

// The gradients of weight and bias; and both in f32, [2][channels], as the gradient of x wants them.
extern "C" __global__ void __launch_bounds__(1024)
norm_fold_gradient(const float* partials, const float* statistics, float epsilon, tapestry::parameters::Parameter* to_weight,
                   tapestry::parameters::Parameter* to_bias, float* sums, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry::batch_norm;
    tapestry::follow();
    int channel;
    Sums own[1] = {};
    if (!fold_blocks<2>(own, channel, partials, cut, [](int, float plain, float weighed) { return Sums{plain, weighed}; })) return;
    const float weighed = own[0].weighed * tapestry::reciprocal_root(statistics[cut.channels + channel] + epsilon);
    to_weight[channel] = tapestry::narrow<Parameter>(sums[channel] = weighed);
    to_bias[channel] = tapestry::narrow<Parameter>(sums[cut.channels + channel] = own[0].plain);
}

// The gradient of x: scale * (g - mean of g - normalised x * mean of g by it), where g is the pre-activation's. With a residual, dy is
// that already.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
norm_gradient_apply(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy, const float* statistics,
                    const tapestry::parameters::Parameter* weight, const tapestry::parameters::Parameter* bias, float epsilon,
                    const float* sums, tapestry::parameters::Element* dx, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::batch_norm;
    follow();
    constexpr Activation left = with_residual ? Activation::none : activation;
    const Place at(cut);
    const Channels channels(at, cut, statistics, weight, bias, epsilon);
    float level[vector], tilt[vector];
    const float part = 1.0f / float(cut.rows);
#pragma unroll
    for (int e = 0; e < vector; ++e) {
        const int channel = at.channel < cut.channels ? at.channel + e : 0;
        level[e] = channels.scale[e] * sums[cut.channels + channel] * part;
        tilt[e] = channels.scale[e] * sums[channel] * part * reciprocal_root(statistics[cut.channels + channel] + epsilon);
    }
    const Element* const from[2] = {x, dy};
    over_rows<2, shallow, true>(at, cut, from, [&](long long where, const Vector(&found)[2]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float apart = widen(found[0].get(e)) - channels.mean[e];
            const float gradient = widen(found[1].get(e)) * slope<left>(apart * channels.scale[e] + channels.bias[e]);
            values[e] = channels.scale[e] * gradient - (level[e] + apart * tilt[e]);
        }
        Vector rounded;
        round(rounded, values);
        store<vector>(dx + where, rounded);
    });
}
