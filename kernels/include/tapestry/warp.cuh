// What the threads of a warp tell each other.
#pragma once

#include <tapestry/portable.cuh>

namespace tapestry {

#if defined(__CUDA_ARCH__)
// A bit for every lane in which it holds.
TAPESTRY_FN unsigned lanes_with(bool holds) { return __ballot_sync(0xffffffffu, holds); }
// The lowest bit that is set.
TAPESTRY_FN unsigned lowest(unsigned bits) { return unsigned(__ffs(int(bits))) - 1u; }
#else
unsigned lanes_with(bool holds);  // whoever runs kernels on the host defines it
inline unsigned lowest(unsigned bits) { return unsigned(__builtin_ctz(bits)); }
#endif

}  // namespace tapestry
