// Each image of a channels-last tensor by itself: its sums over pixels by channel, and its map by numbers a channel. Behind
// stretches.cu; a block's stretch is an image or a part of it, or any rows of a sum over all. Numbers of images and channels are of a type of their own.

namespace tapestry::images {

using namespace parameters;
using namespace stretches;

constexpr int numbers_wide = vector * sizeof(Number) > 16 ? 16 / int(sizeof(Number)) : vector;    // of an access

// The image of a block.
__device__ inline long long image_of(const Cut& cut) { return blockIdx.y / cut.splits; }

// The numbers of a thread's channels in its image to [image][channels].
__device__ inline void put_numbers(Number* to, const float (&values)[vector], const Place& at, const Cut& cut) {
    Raw<Number, vector> rounded;
    round(rounded, values);
    store<numbers_wide>(to + image_of(cut) * cut.channels + at.channel, rounded);
}

// The sums of a thread's channels over a block, times `factor`, to [image][channels]; of several blocks of an image to what they leave,
// [block][channels], as they are.
__device__ inline void put_sums(Number* to, float* partials, const float (&sums)[vector], float factor, const Place& at, const Cut& cut) {
    float values[vector];
    const bool whole = cut.splits == 1;
#pragma unroll
    for (int e = 0; e < vector; ++e) values[e] = whole ? sums[e] * factor : sums[e];
    if (whole) put_numbers(to, values, at, cut);
    else
#pragma unroll
        for (int e = 0; e < vector; ++e) partials[(long long)(blockIdx.y) * cut.channels + at.channel + e] = values[e];
}

// The sum over the pixels of an image of what `value` makes of the tensors, times `factor`.
template <int tensors, class Value>
__device__ inline void sum_pixels(const Cut& cut, const Element* const (&from)[tensors], float factor, Number* to, float* partials,
                                  const Value& value) {
    const Place at(cut);
    Sum own[vector] = {};
    over_rows<tensors, tensors == 1 ? deep : shallow, false>(at, cut, from, [&](long long, const Vector(&found)[tensors]) {
#pragma unroll
        for (int e = 0; e < vector; ++e) own[e].value += value(found, e);
    });
    fold_slots<threads, vector>(own, at.lane, at.slot, cut.lanes, cut.slots);
    if (at.slot > 0 || at.channel >= cut.channels) return;
    float sums[vector];
#pragma unroll
    for (int e = 0; e < vector; ++e) sums[e] = own[e].value;
    put_sums(to, partials, sums, factor, at, cut);
}

// The numbers of a thread's channels in its image, [image][channels]; 0 where there are none.
struct Numbers {
    float value[vector];

    __device__ Numbers(const Place& at, const Cut& cut, const Number* numbers) {
        const bool there = numbers && at.channel < cut.channels;
        Raw<Number, vector> found;
        if (there) load<numbers_wide, false>(found, numbers + image_of(cut) * cut.channels + at.channel);
#pragma unroll
        for (int e = 0; e < vector; ++e) value[e] = there ? widen(found.get(e)) : 0.0f;
    }
};

}  // namespace tapestry::images

// The sum over pixels, times a factor.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_sums(const tapestry::parameters::Element* x, float factor, tapestry::parameters::Number* sums, float* partials,
           const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Element* const from[1] = {x};
    sum_pixels(cut, from, factor, sums, partials, [](const Vector(&found)[1], int e) { return widen(found[0].get(e)); });
}

// What the blocks of each image left, [image][splits][channels], times a factor, to [image][channels].
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads)
image_fold(const float* partials, float factor, tapestry::parameters::Number* sums,
           const __grid_constant__ tapestry::stretches::Cut cut) {
    tapestry::follow();
    const int place = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (place >= cut.blocks / cut.splits * cut.channels) return;
    const int image = place / cut.channels;
    const float* const from = partials + (long long)(image) * cut.splits * cut.channels + place % cut.channels;
    float sum = 0.0f;
    for (int split = 0; split < cut.splits; ++split) sum += from[(long long)(split) * cut.channels];
    sums[place] = tapestry::narrow<tapestry::parameters::Number>(sum * factor);
}

// What blocks left of sums over all rows, [block][channels], to [channels].
extern "C" __global__ void __launch_bounds__(1024)
image_sums_fold(const float* partials, float* sums, const __grid_constant__ tapestry::stretches::Cut cut) {
    tapestry::follow();
    tapestry::stretches::fold_sums(partials, sums, cut);
}

// The sum over pixels of a product.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_products(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy, tapestry::parameters::Number* sums,
               float* partials, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Element* const from[2] = {x, dy};
    sum_pixels(cut, from, 1.0f, sums, partials,
               [](const Vector(&found)[2], int e) { return widen(found[0].get(e)) * widen(found[1].get(e)); });
}

// The sums over pixels of x * dy and of dy.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_both_sums(const tapestry::parameters::Element* x, const tapestry::parameters::Element* dy, tapestry::parameters::Number* products,
                tapestry::parameters::Number* sums, float* partials, const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Place at(cut);
    Sums own[vector] = {};
    const Element* const from[2] = {x, dy};
    over_rows<2, shallow, false>(at, cut, from, [&](long long, const Vector(&found)[2]) {
#pragma unroll
        for (int e = 0; e < vector; ++e) {
            const float slope = widen(found[1].get(e));
            own[e].fold({slope, slope * widen(found[0].get(e))});
        }
    });
    fold_slots<threads, vector>(own, at.lane, at.slot, cut.lanes, cut.slots);
    if (at.slot > 0 || at.channel >= cut.channels) return;
    float plain[vector], weighed[vector];
#pragma unroll
    for (int e = 0; e < vector; ++e) plain[e] = own[e].plain, weighed[e] = own[e].weighed;
    put_sums(products, partials, weighed, 1.0f, at, cut);
    put_sums(sums, partials + (long long)(cut.blocks) * cut.channels, plain, 1.0f, at, cut);
}

// dy * gate + x * tilt, gate and tilt a number for each image and channel.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_blend(const tapestry::parameters::Element* dy, const tapestry::parameters::Number* gate, const tapestry::parameters::Element* x,
            const tapestry::parameters::Number* tilt, tapestry::parameters::Element* dx,
            const __grid_constant__ tapestry::stretches::Cut cut) {
    using namespace tapestry;
    using namespace tapestry::images;
    follow();
    const Place at(cut);
    const Numbers scale(at, cut, gate), slope(at, cut, tilt);
    const Element* const from[2] = {dy, x};
    over_rows<2, shallow, true>(at, cut, from, [&](long long where, const Vector(&found)[2]) {
        float values[vector];
#pragma unroll
        for (int e = 0; e < vector; ++e) values[e] = widen(found[0].get(e)) * scale.value[e] + widen(found[1].get(e)) * slope.value[e];
        Vector rounded;
        round(rounded, values);
        store<vector>(dx + where, rounded);
    });
}

// x * gate + added * factor, gate and added a number for each image and channel.
extern "C" __global__ void __launch_bounds__(tapestry::parameters::threads, tapestry::parameters::residents)
image_map(const tapestry::parameters::Element* x, const tapestry::parameters::Number* gate, const tapestry::parameters::Number* added,
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
