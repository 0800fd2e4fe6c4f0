// A grouped convolution or its input gradient of any tensors, plainly: one thread computes a few neighbouring columns
// of one channel. For what the copy engine cannot fetch: channels or strides that are no multiple of 16 bytes.

#include <tapestry/epilogue.cuh>
#include <tapestry/scalar.cuh>

namespace tapestry::direct {

using namespace spec;

// A channels-last tensor [n, h, w, c]; strides in elements.
struct Tensor {
    Half* at;
    Int image, row, column;

    TAPESTRY_FN Half* operator()(int n, int y, int x, int c) const { return at + n * image + y * row + x * column + c; }
};

// The rows of the input lie in three buffers: `above` rows, then `height`, then `below`, counted from the middle one.
struct Pass {
    Tensor upper, middle, lower, output, residual;
    const Half* weights;
    const float *scale, *bias;
    int images, channels, above, height, below, width, row_begin, rows, columns, top, left, spare;
};

TAPESTRY_FN const Half* find(const Pass& pass, int n, int y, int c) {
    if (y < -pass.above || y >= pass.height + pass.below) return nullptr;
    if (y < 0) return pass.upper(n, y + pass.above, 0, c);
    if (y >= pass.height) return pass.lower(n, y - pass.height, 0, c);
    return pass.middle(n, y, 0, c);
}

TAPESTRY_FN Int stride_of(const Pass& pass, int y) {
    return y < 0 ? pass.upper.column : y >= pass.height ? pass.lower.column : pass.middle.column;
}

// The input row (or column) under tap `tap` of output `at`, or -2^30 where a transposed step falls between two.
template <int STRIDE, int DILATION>
TAPESTRY_FN int source(int at, int tap, int pad) {
    if constexpr (!TRANSPOSED) return at * STRIDE + tap * DILATION - pad;
    const int stepped = at + pad - tap * DILATION;
    return stepped % STRIDE == 0 ? stepped / STRIDE : -(1 << 30);
}

TAPESTRY_FN const Half* weights_of(const Pass& pass, int channel, int r, int s) {
    const int group = channel / WIDTH * WIDTH;
    if constexpr (TRANSPOSED) return pass.weights + ((Int(group) * R + r) * S + s) * WIDTH + (channel - group);
    return pass.weights + ((Int(channel) * R + r) * S + s) * WIDTH;
}

constexpr Int WEIGHT_STEP = TRANSPOSED ? Int(R) * S * WIDTH : 1;

TAPESTRY_FN void add_tap(float (&sums)[COLUMNS], const Pass& pass, const Half* row, Int step, int channel, int r, int s, int q) {
    float w[WIDTH];
    const Half* taps = weights_of(pass, channel, r, s);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) w[j] = widen(taps[j * WEIGHT_STEP]);
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        const int x = source<STRIDE_X, DILATION_X>(q + i, s, pass.left);
        if (x < 0 || x >= pass.width) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) sums[i] += w[j] * widen(row[x * step + j]);
    }
}

TAPESTRY_FN void finish(const float (&sums)[COLUMNS], const Pass& pass, int n, int p, int q, int channel) {
    const float scale = SCALE ? pass.scale[channel] : 1.0f, bias = BIAS ? pass.bias[channel] : 0.0f;
    for (int i = 0; i < COLUMNS && q + i < pass.columns; ++i) {
        float value = sums[i] * scale + bias;
        if constexpr (RESIDUAL) value += widen(*pass.residual(n, p, q + i, channel));
        *pass.output(n, p, q + i, channel) = narrow<Half>(activate<ACTIVATION>(value));
    }
}

}  // namespace tapestry::direct

extern "C" __global__ void __launch_bounds__(256) direct(const __grid_constant__ tapestry::direct::Pass pass) {
    using namespace tapestry;
    using namespace tapestry::direct;
    const Natural tiles = (pass.columns + COLUMNS - 1) / COLUMNS;
    Natural at = Natural(blockIdx.x) * 256u + threadIdx.x;
    const int channel = int(at % pass.channels);
    at /= pass.channels;
    const int q = int(at % tiles) * COLUMNS;
    at /= tiles;
    const int p = pass.row_begin + int(at % pass.rows), n = int(at / pass.rows);
    if (n >= pass.images) return;
    float sums[COLUMNS] = {};
    for (int r = 0; r < R; ++r) {
        const int y = source<STRIDE_Y, DILATION_Y>(p, r, pass.top);
        const Half* row = find(pass, n, y, channel / WIDTH * WIDTH);
        if (row == nullptr) continue;
        for (int s = 0; s < S; ++s) add_tap(sums, pass, row, stride_of(pass, y), channel, r, s, q);
    }
    finish(sums, pass, n, p, q, channel);
}
