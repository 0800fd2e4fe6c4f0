// What follows a convolution or a product that is there already, for inference: `followed` is what a layer calls.
//
// The launch takes x and, where they are there, what it writes instead of x, scale, bias and residual.

#pragma once

#include "sums.h"

namespace tapestry {
namespace {

Plans followers;

// What follows x; undefined where it does not.
struct Follower {
  const Tensor &x, &out, &scale, &bias, &residual;
  int64_t channels, activation;

  // Where dense tensors have as many numbers and channels, the kernel knows no other difference.
  Key key() const {
    Key key = sums_key(x, channels);
    key.add(activation);
    key.add(static_cast<int64_t>(parameters()));
    for (const auto* one : {&out, &scale, &bias, &residual}) key.add(one->defined());
    return key;
  }

  at::ScalarType parameters() const {
    return scale.defined() ? scale.scalar_type() : bias.defined() ? bias.scalar_type() : x.scalar_type();
  }

  // Scale and bias are numbers a channel, of one type.
  bool fits() const {
    if (!is_parameter_type(parameters(), x)) return false;
    for (const auto* one : {&scale, &bias})
      if (one->defined() && !is_channels(*one, parameters(), x, channels)) return false;
    return true;
  }
};

// followed(x, out, scale, bias, residual, activation, last): out, or x, which is written over; None where it is Python's
PyObject* followed(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<5, int64_t, int64_t>(given, count, [](const auto& of, int64_t activation, int64_t last) -> Tensor {
    const auto& [x, out, scale, bias, residual] = of;
    const auto dense = [&](const Tensor& one) {
      return last ? is_plain(one) && one.dim() > 1 && one.is_contiguous() && !(address(one) & kAligned) : is_image(one);
    };
    if (!untraced() || !dense(x) || !x.numel()) return {};
    if (at::GradMode::is_enabled())
      for (const auto& one : of)
        if (one.defined() && one.requires_grad()) return {};
    const Follower then{x, out, scale, bias, residual, x.size(last ? -1 : 1), activation};
    if (!then.fits()) return {};
    if (residual.defined() && !(dense(residual) && residual.scalar_type() == x.scalar_type() &&
                                residual.sizes() == x.sizes() && residual.device() == x.device()))
      return {};
    const auto call = followers.find(then.key());
    if (!call) return {};
    Addresses at;
    for (const auto& one : of) at.add(one);
    return run(*call, at.words(), x) ? (out.defined() ? out : x) : Tensor();
  });
}

void add_followed(const py::object& x, const py::object& out, const py::object& scale, const py::object& bias,
                  const py::object& residual, int64_t channels, int64_t activation, const py::bytes& words) {
  const Tensor given[] = {given_or_none(out), given_or_none(scale), given_or_none(bias), given_or_none(residual)};
  const Follower then{tensor_of(x), given[0], given[1], given[2], given[3], channels, activation};
  followers.add(then.key(), described(words));
}

}  // namespace
}  // namespace tapestry
