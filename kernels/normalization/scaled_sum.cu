// A layer scale and the sum behind it, and its gradients: y = x * gamma * factor + residual, gamma a number a channel, factor one an image.
//
// Behind stretches.cu. x, the residual, y and gamma are of types of their own, as autocast has them. One launch forward; backward one, and
// a fold of what blocks left of gamma's gradient. Every order is fixed: the same bits on every run.

#include <tapestry/functions.cuh>

namespace tapestry::scaled_sum {

using namespace parameters;
using namespace stretches;

// The numbers of a thread's channels.
struct Scales {
    float value[vector];

    __device__ Scales(const Place& at, const Cut& cut, const Parameter* gamma) {
#pragma unroll
        for (int e = 0; e < vector; ++e) value[e] = at.channel < cut.channels ? widen(gamma[at.channel + e]) : 0.0f;
    }
};

// Of a row's image; 1 where images have none.
struct Factors {
    const float* factors;
    unsigned pixels;

    __device__ float of(long long row) const {
        if constexpr (with_factors) return factors[unsigned(row) / pixels];
        return 1.0f;
    }
};

// Calls `use` for every row of a thread with a vector of each of two tensors; `shallow` rows are under way together.
template <class A, class B, class Use>
__device__ inline void over_both(const Place& at, const Cut& cut, const A* a, const B* b, const Use& use) {
    const int count = at.count(cut);
    for (int done = 0; done < count; done += shallow) {
        Raw<A, vector> first[shallow];
        Raw<B, vector> second[shallow];
#pragma unroll
        for (int i = 0; i < shallow; ++i)
            if (done + i < count) {
                const long long where = (at.first + (long long)(done + i) * cut.slots) * cut.channels + at.channel;
                load<vector, true>(first[i], a + where);
                load<vector, true>(second[i], b + where);
            }
#pragma unroll
        for (int i = 0; i < shallow; ++i)
            if (done + i < count) {
                const long long row = at.first + (long long)(done + i) * cut.slots;
                use(row, row * cut.channels + at.channel, first[i], second[i]);
            }
    }
}

}  // namespace tapestry::scaled_sum

extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
scaled_sum(const tapestry::parameters::Element* x, const tapestry::parameters::Added* residual, const tapestry::parameters::Parameter* gamma,
           const float* factors, unsigned pixels, tapestry::parameters::Result* y, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::scaled_sum;
    follow();
    const Place at(cut);
    const Scales scales(at, cut, gamma);
    const Factors of{factors, pixels};
    over_both(at, cut, x, residual, [&](long long row, long long where, const Raw<Element, vector>& value, const Raw<Added, vector>& added) {
        const float factor = of.of(row);
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) values[e] = widen(value.get(e)) * (scales.value[e] * factor) + widen(added.get(e));
        Raw<Result, vector> rounded;
        round(rounded, values);
        store<vector>(y + where, rounded);
    });
}

// The gradient of x, and of each block and channel the sum of dy * factor * x, [block][channels].
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
scaled_sum_gradient(const tapestry::parameters::Element* x, const tapestry::parameters::Result* dy,
                    const tapestry::parameters::Parameter* gamma, const float* factors, unsigned pixels,
                    tapestry::parameters::Element* dx, float* partials, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::scaled_sum;
    follow();
    const Place at(cut);
    const Scales scales(at, cut, gamma);
    const Factors of{factors, pixels};
    Sum own[vector] = {};
    over_both(at, cut, x, dy, [&](long long row, long long where, const Raw<Element, vector>& value, const Raw<Result, vector>& slope) {
        const float factor = of.of(row);
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float gradient = widen(slope.get(e)) * factor;
            own[e].fold({gradient * widen(value.get(e))});
            values[e] = gradient * scales.value[e];
        }
        Raw<Element, vector> rounded;
        round(rounded, values);
        store<vector>(dx + where, rounded);
    });
    leave_sum(own, at, cut, partials);
}

// The gradient of gamma.
extern "C" __global__ void __launch_bounds__(1024)
scaled_sum_fold(const float* partials, tapestry::parameters::Parameter* to_gamma, const __grid_constant__ tapestry::stretches::Cut cut) {
    tapestry::follow();
    tapestry::stretches::fold_sums(partials, to_gamma, cut);
}
