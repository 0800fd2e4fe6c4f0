// What follows a convolution or a product that is there already, in place, for inference: `followed` is what a layer calls.
//
// The launch takes y and, where they are there, bias and residual.

#pragma once

#include "sums.h"

namespace tapestry {
namespace {

Plans followers;

// Where dense tensors have as many numbers and channels, the kernel knows no other difference.
Key follower_key(const Tensor& y, const Tensor& bias, const Tensor& residual, int64_t channels, int64_t activation) {
  Key key = sums_key(y, channels);
  key.add(activation);
  key.add(bias.defined() ? static_cast<int64_t>(bias.scalar_type()) : -1);
  key.add(residual.defined());
  return key;
}

// followed(y, bias, residual, activation, last): y, which is written over, or None where Python is to compute it
PyObject* followed(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3, int64_t, int64_t>(given, count, [](const auto& of, int64_t activation, int64_t last) -> Tensor {
    const Tensor &y = of[0], &bias = of[1], &residual = of[2];
    const auto dense = [&](const Tensor& one) {
      return last ? is_plain(one) && one.dim() > 1 && one.is_contiguous() && !(address(one) & kAligned) : is_image(one);
    };
    if (!untraced() || !dense(y) || !y.numel()) return {};
    if (at::GradMode::is_enabled())
      for (const auto& one : of)
        if (one.defined() && one.requires_grad()) return {};
    const int64_t channels = y.size(last ? -1 : 1);
    if (bias.defined() &&
        !(is_parameter_type(bias.scalar_type(), y) && is_channels(bias, bias.scalar_type(), y, channels)))
      return {};
    if (residual.defined() && !(dense(residual) && residual.scalar_type() == y.scalar_type() &&
                                residual.sizes() == y.sizes() && residual.device() == y.device()))
      return {};
    const auto call = followers.find(follower_key(y, bias, residual, channels, activation));
    if (!call) return {};
    Addresses at;
    for (const auto& one : of) at.add(one);
    return run(*call, at.words(), y) ? y : Tensor();
  });
}

void add_followed(const py::object& y, const py::object& bias, const py::object& residual, int64_t channels,
                  int64_t activation, const py::bytes& words) {
  const Key key = follower_key(tensor_of(y), given_or_none(bias), given_or_none(residual), channels, activation);
  followers.add(key, described(words));
}

}  // namespace
}  // namespace tapestry
