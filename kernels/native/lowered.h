// Weights that a node multiplies with as they were lowered, as `tensors/lowered` says: what is saved of them, and when
// they may be read again.

#pragma once

#include "served.h"

namespace tapestry {
namespace {

struct Saved {
  Tensor x, w, taps;
};

// As many tensors as the path in Python saves: a step that is computed again may take either.
void save(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w, const Tensor& taps, bool keep = true) {
  const bool apart = taps.defined() && w.is_leaf();
  ctx->save_for_backward({x, keep && !apart ? w : Tensor(), taps});
  if (!apart) return;
  ctx->saved_data["w"] = w;
  ctx->saved_data["version"] = static_cast<int64_t>(w._version());
}

Saved saved(torch::autograd::AutogradContext* ctx, bool again) {
  const auto found = ctx->get_saved_variables();
  Saved made{found[0], found[1], found[2]};
  const auto apart = ctx->saved_data.find("w");
  if (apart != ctx->saved_data.end()) {
    made.w = apart->second.toTensor();
    TORCH_CHECK(!again || ctx->saved_data["version"].toInt() == static_cast<int64_t>(made.w._version()),
                "a weight was modified by an inplace operation after it was lowered");
  }
  return made;
}

}  // namespace
}  // namespace tapestry
