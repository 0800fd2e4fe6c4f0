// Weight gradient in one launch: the splits of a channel block are a cluster of thread blocks, which add their sums in a fixed order
// through each other's shared memory and write them as [k, r, s, c / groups]. One split is a cluster of itself.
//
// Stands after weight_gradient.cu in one source. An `Item` is one fragment of one channel chunk, 32 quadruples. Its owner is rank `item mod
// ranks`: all ranks, and in them all shares, store their sums of it into the owner's exchange, [rank][share][turn][lane], and the owner
// adds them rank by rank, share by share. `ranks` is the number of splits, blockIdx.y the rank.

namespace tapestry::weight_gradient {

constexpr int items = consumers / share * fragments;
constexpr int exchange_offset = ranks > 1 ? stages * stage_bytes : 0;    // other ranks store while this one still reads its ring

__device__ void give(const Consumer& consumer, int warp, unsigned exchange) {
    const WarpPlace at(warp);
    const Item first(warp / share * fragments);
    const auto* sums = reinterpret_cast<const float4*>(consumer.sums);
    const auto own = coord(Rank(blockIdx.y), at.get<Share>(), Lane(consumer.lane));
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        const Item item = first + i;
        const unsigned place = Exchange(exchange)[own + coord(Turn(item))].address();
        store_shared(ranks > 1 ? in_block(place, Owner(item).get()) : place, sums[i]);
    }
}

template <typename Store>
__device__ void fold(int warp, Lane lane, unsigned exchange, int channels, const Store& store) {
    for (Turn turn(warp); unfold(turn, Owner(Item(blockIdx.y))) < Item(items); turn += consumers) {
        float4 sum{0, 0, 0, 0};
#pragma unroll
        for (int rank = 0; rank < ranks; ++rank)
#pragma unroll
            for (int part = 0; part < share; ++part)
                sum = plus(sum, load_shared(Exchange(exchange)[coord(Rank(rank), Share(part), turn, lane)].address()));
        const Item item = unfold(turn, Owner(Item(blockIdx.y)));
        Quadruple(PartialPlace(item.get() * 32 + lane.get()), blockIdx.x, blockIdx.z).write(sum, channels, store);
    }
}

template <typename Store>
struct Together {
    int channels;
    Store store;

    // A block can be stored to when it has begun.
    __device__ void begins() const {
        if constexpr (ranks > 1) pass_cluster();
    }
    __device__ void loaded() const {
        let_next_kernel_start();
        if constexpr (ranks > 1) {
            wait_for_cluster();
            pass_cluster();
        }
    }
    __device__ void ends(Consumer& consumer, int warp, unsigned memory) const {
        const unsigned exchange = memory + exchange_offset;
        if constexpr (ranks > 1) {
            wait_for_cluster();
            give(consumer, warp, exchange);
            pass_cluster();
            wait_for_cluster();
        } else {
            meet(exchanged, consumers * 32);    // the exchange lies in the ring: everybody has read its last stage
            give(consumer, warp, exchange);
            meet(exchanged, consumers * 32);
        }
        fold(warp, Lane(consumer.lane), exchange, channels, store);
    }
};

template <typename Store>
Together(int, Store) -> Together<Store>;

}  // namespace tapestry::weight_gradient

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::threads, tapestry::parameters::residents)
weight_gradient_partial(const __grid_constant__ tapestry::weight_gradient::Stream x_map, const __grid_constant__ tapestry::weight_gradient::Stream dy_map, float* dw,
                        int channels, const __grid_constant__ tapestry::weight_gradient::Shape shape) {
    using namespace tapestry::weight_gradient;
    gradient(x_map, dy_map, shape, Together{channels, [=](long long at, float value) { dw[at] = value; }});
}

extern "C" __global__ void __launch_bounds__(tapestry::weight_gradient::threads, tapestry::parameters::residents)
weight_gradient_rounded(const __grid_constant__ tapestry::weight_gradient::Stream x_map, const __grid_constant__ tapestry::weight_gradient::Stream dy_map,
                        unsigned short* dw, int channels, const __grid_constant__ tapestry::weight_gradient::Shape shape) {
    using namespace tapestry::weight_gradient;
    gradient(x_map, dy_map, shape, Together{channels, [=](long long at, float value) { dw[at] = tapestry::narrow<Half>(value); }});
}
