// Gradients of biases, which are f32 here: sums of images by channel.
//
// Launches take the images, the sums and, where there is one, what they work in.

#pragma once

#include <ATen/ops/sum.h>

#include "served.h"

namespace tapestry {
namespace {

Plans sums;

// Where dense images have as many numbers and channels, their kernels know no other difference.
Key sums_key(const Tensor& x) {
  Key key;
  for (const int64_t word : {static_cast<int64_t>(x.get_device()), static_cast<int64_t>(x.scalar_type()), x.size(1), x.numel()})
    key.add(word);
  return key;
}

Tensor bias_gradient(const Tensor& dy) {
  if (at::GradMode::is_enabled() || !untraced() || !is_image(dy) || !dy.numel())
    return at::sum(dy, {0, 2, 3}, false, at::kFloat);
  if (const auto call = sums.find(sums_key(dy))) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor made = at::empty({dy.size(1)}, dy.options().dtype(at::kFloat));
    const Tensor room = call->workspace ? working(*call, dy) : Tensor();
    if (run(*call, {address(dy), address(made), room.defined() ? address(room) : 0}, dy)) return made;
  }
  const py::gil_scoped_acquire gil;
  return unwrapped(asked(served.sums, {wrapped(dy)}).ptr());
}

void add_sums(const py::object& x, const py::bytes& words) { sums.add(sums_key(tensor_of(x)), described(words)); }

}  // namespace
}  // namespace tapestry
