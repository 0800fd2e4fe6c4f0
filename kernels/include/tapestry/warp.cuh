// What the threads of a warp tell each other.
#pragma once

#include <tapestry/portable.cuh>

namespace tapestry {

#if defined(__CUDA_ARCH__)
// A bit for every lane in which it holds.
TAPESTRY_FN unsigned lanes_with(bool holds) { return __ballot_sync(0xffffffffu, holds); }
// The value of a lane.
template <class V>
TAPESTRY_FN V of_lane(V value, int lane) {
    return __shfl_sync(0xffffffffu, value, lane);
}
TAPESTRY_FN unsigned lowest(unsigned bits) { return unsigned(__ffs(int(bits))) - 1u; }
#else  // whoever runs kernels on the host defines the first two
unsigned lanes_with(bool holds);
template <class V>
V of_lane(V value, int lane);
inline unsigned lowest(unsigned bits) { return unsigned(__builtin_ctz(bits)); }
#endif

}  // namespace tapestry
