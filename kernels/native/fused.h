// Convolutions with what follows them in one launch, for inference: `fused` is what a layer calls.

#pragma once

#include "convolution.h"

namespace tapestry {
namespace {

// What follows a sum; undefined where it is not there. `activation` is a number of Python's.
struct Following {
  Tensor scale, bias, residual;
  int64_t activation;

  bool fits(const Tensor& x) const {
    for (const auto* values : {&scale, &bias})
      if (values->defined() && !is_wide_vector(*values, x)) return false;
    return !residual.defined() || (is_plain(residual) && residual.dim() == 4 && residual.device() == x.device() &&
                                   residual.scalar_type() == x.scalar_type());
  }
};

Plans fused_plans;

Key fused_key(const Tensor& x, const Tensor& w, const Following& then, int64_t moved, int64_t groups) {
  Key key;
  for (const int64_t word : {static_cast<int64_t>(x.get_device()), moved, groups, then.activation}) key.add(word);
  for (const auto* values : {&then.scale, &then.bias}) key.add(values->defined() ? values->numel() : -1);
  key.add(x);
  key.add(w);
  if (then.residual.defined()) key.add(then.residual);
  return key;
}

// Undefined where the call is Python's.
Tensor fused_of(const Tensor& x, const Tensor& w, const Following& then, int64_t moved, int64_t groups) {
  if (!untraced() || at::autocast::is_autocast_enabled(served.device) || !is_plain(x) || !is_plain(w) ||
      x.dim() != 4 || w.dim() != 4 || w.device() != x.device() || !then.fits(x))
    return {};
  const auto call = fused_plans.find(fused_key(x, w, then, moved, groups));
  if (!call) return {};
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor images = as_walked(x, x.scalar_type()), taps = as_taps(w, w.scalar_type());
  const Tensor out = allocated(call->results[0], x);
  const Tensor residual = then.residual.defined() ? then.residual.contiguous(at::MemoryFormat::ChannelsLast) : Tensor();
  Addresses at;
  for (const auto* tensor : {&images, &taps, &out, &then.scale, &then.bias, &residual}) at.add(*tensor);
  return run(*call, at.words(), x) ? out : Tensor();
}

// fused(x, w, scale, bias, residual, activation, moved, groups)
PyObject* fused(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<5, int64_t, int64_t, int64_t>(
      given, count, [](const auto& of, int64_t activation, int64_t moved, int64_t groups) {
        return fused_of(of[0], of[1], {of[2], of[3], of[4], activation}, moved, groups);
      });
}

void add_fused(const py::object& x, const py::object& w, const py::object& scale, const py::object& bias,
               const py::object& residual, int64_t activation, int64_t moved, int64_t groups, const py::bytes& words) {
  const Following then{given_or_none(scale), given_or_none(bias), given_or_none(residual), activation};
  fused_plans.add(fused_key(tensor_of(x), tensor_of(w), then, moved, groups), described(words));
}

}  // namespace
}  // namespace tapestry
