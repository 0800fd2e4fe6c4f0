// Gradients of biases, which are f32 here: sums by channel. `linked` is what a layer calls that torch computes.
//
// Launches take a tensor, its sums and, where there is one, what they work in.

#pragma once

#include <ATen/ops/alias.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sum.h>

#include "served.h"

namespace tapestry {
namespace {

Plans sums;

// Where dense tensors have as many numbers and channels, their kernels know no other difference.
Key sums_key(const Tensor& x, int64_t channels) {
  Key key;
  for (const int64_t word : {static_cast<int64_t>(x.get_device()), static_cast<int64_t>(x.scalar_type()), channels, x.numel()})
    key.add(word);
  return key;
}

// Of images, or of rows whose channels are the `last` dimension.
Tensor bias_gradient(const Tensor& dy, bool last = false) {
  const bool dense = last ? is_plain(dy) && dy.is_contiguous() && !(address(dy) & kAligned) : is_image(dy);
  if (at::GradMode::is_enabled() || !untraced() || !dense || !dy.numel() || dy.dim() < 2) {
    std::vector<int64_t> over;
    for (int64_t i = 0; i < dy.dim(); ++i)
      if (i != (last ? dy.dim() - 1 : 1)) over.push_back(i);
    return over.empty() ? dy.to(at::kFloat) : at::sum(dy, over, false, at::kFloat);
  }
  const int64_t channels = dy.size(last ? -1 : 1);
  if (const auto call = sums.find(sums_key(dy, channels))) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor made = at::empty({channels}, dy.options().dtype(at::kFloat));
    const Tensor room = if_works(*call, dy);
    if (run(*call, {address(dy), address(made), address_or_none(room)}, dy)) return made;
  }
  const py::gil_scoped_acquire gil;
  return unwrapped(asked(served.sums, {wrapped(dy), PyBool_FromLong(last)}).ptr());
}

// A layer's result as it is; of its gradient the sum is the bias's.
class Linked : public torch::autograd::Function<Linked> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& y, const Tensor&, bool last) {
    const at::AutoDispatchBelowADInplaceOrView below;  // the same memory, and no view, which could not be written in place
    ctx->saved_data["last"] = last;
    return at::alias(y);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const Tensor db = ctx->needs_input_grad(1) ? bias_gradient(given[0], ctx->saved_data["last"].toBool()) : Tensor();
    return {given[0], db, Tensor()};
  }
};

// Whether a bias of rows or images like x is learned here.
bool is_learned(const Tensor& bias, const Tensor& x) {
  return at::GradMode::is_enabled() && untraced() && is_plain(x) && is_plain(bias) && bias.device() == x.device() &&
         bias.requires_grad() && bias.dim() == 1 && bias.scalar_type() == at::kFloat;
}

// linked(y, bias, last)
PyObject* linked(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<2, int64_t>(given, count, [](const auto& of, int64_t last) -> Tensor {
    const Tensor &y = of[0], &bias = of[1];
    if (!is_learned(bias, y) || y.dim() < (last ? 1 : 4) || y.size(last ? -1 : 1) != bias.size(0)) return {};
    return Linked::apply(y, bias, last != 0);
  });
}

// biased_linear(x, weight, bias): a linear layer, by torch, and the link behind it
PyObject* biased_linear(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3>(given, count, [](const auto& of) -> Tensor {
    const Tensor &x = of[0], &weight = of[1], &bias = of[2];
    if (!is_learned(bias, x) || !is_plain(weight)) return {};
    return Linked::apply(at::linear(x, weight, bias.detach()), bias, true);
  });
}

void add_sums(const py::object& x, int64_t channels, const py::bytes& words) {
  sums.add(sums_key(tensor_of(x), channels), described(words));
}

}  // namespace
}  // namespace tapestry
