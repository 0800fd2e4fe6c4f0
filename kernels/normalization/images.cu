// Each image of a channels-last tensor by itself: its sum over pixels by channel, and its map by a number a channel. Behind
// stretches.cu; a block's stretch is an image.

namespace tapestry::images {

using namespace parameters;
using namespace stretches;

struct Sum {
    float value;

    __device__ void fold(const Sum& other) { value += other.value; }
};

// The sum over the pixels of an image of what `value` makes of the tensors, times `factor`: [image][channels].
template <int tensors, class Value>
__device__ inline void sum_pixels(const Cut& cut, const Element* const (&from)[tensors], float factor, Element* to, const Value& value) {
    const Place at(cut);
    Sum own[vector] = {};
    over_rows<tensors, tensors == 1 ? deep : shallow, false>(at, cut, from, [&](long long, const Vector(&found)[tensors]) {
#pragma unroll
        for (int e = 0; e < vector; ++e) own[e].value += value(found, e);
    });
    fold_slots<threads, vector>(own, at.lane, at.slot, cut.lanes, cut.slots);
    if (at.slot > 0 || at.channel >= cut.channels) return;
    float values[vector];
#pragma unroll
    for (int e = 0; e < vector; ++e) values[e] = own[e].value * factor;
    Vector rounded;
    round(rounded, values);
    store<vector>(to + (long long)(blockIdx.y) * cut.channels + at.channel, rounded);
}

// The numbers of a thread's channels in its image, [image][channels]; 0 where there are none.
struct Numbers {
    float value[vector];

    __device__ Numbers(const Place& at, const Cut& cut, const Element* numbers) {
        const bool there = numbers && at.channel < cut.channels;
        Vector found;
        if (there) load<vector, false>(found, numbers + (long long)(blockIdx.y) * cut.channels + at.channel);
#pragma unroll
        for (int e = 0; e < vector; ++e) value[e] = there ? widen(found.get(e)) : 0.0f;
    }
};

}  // namespace tapestry::images

// The sum over pixels, times a factor.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_sums(const tapestry::parameters::Element* x, float factor, tapestry::parameters::Element* sums,
           const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Element* const from[1] = {x};
    sum_pixels(cut, from, factor, sums, [](const Vector(&found)[1], int e) { return widen(found[0].get(e)); });
}

// The sum over pixels of a product.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_products(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy, tapestry::parameters::Element* sums,
               const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Element* const from[2] = {x, dy};
    sum_pixels(cut, from, 1.0f, sums, [](const Vector(&found)[2], int e) { return widen(found[0].get(e)) * widen(found[1].get(e)); });
}

// x * gate + added * factor, gate and added a number for each image and channel.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_map(const tapestry::parameters::Element* x, const tapestry::parameters::Element* gate, const tapestry::parameters::Element* added,
          float factor, tapestry::parameters::Element* y, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Place at(cut);
    const Numbers scale(at, cut, gate), shift(at, cut, added);
    const Element* const from[1] = {x};
    over_rows<1, deep, true>(at, cut, from, [&](long long where, const Vector(&found)[1]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) values[e] = widen(found[0].get(e)) * scale.value[e] + shift.value[e] * factor;
        Vector rounded;
        round(rounded, values);
        store<vector>(y + where, rounded);
    });
}
