// Pools of images and their gradients: `pooled` is what a layer calls, with the number of what it does (`tensors/pool_calls`).
//
// Launches take x, y and, of maxima whose gradient may be asked for, where they came from; or dy, that of maxima, and dx.

#pragma once

#include "convolution.h"

namespace tapestry {
namespace {

Plans pools, pool_gradients;

bool has_taps(int64_t setting) { return setting & 1; }

Key pool_key(bool recorded, int64_t setting, const Tensor& x) {
  Key key;
  for (const int64_t word : {static_cast<int64_t>(recorded), setting, static_cast<int64_t>(x.get_device())}) key.add(word);
  key.add(x);
  return key;
}

// Of a gradient that is laid out as images are.
Key pool_gradient_key(int64_t setting, const Tensor& dy, at::IntArrayRef images) {
  Key key;
  for (const int64_t word : {setting, static_cast<int64_t>(dy.get_device()), static_cast<int64_t>(dy.scalar_type())})
    key.add(word);
  for (const auto extent : dy.sizes()) key.add(extent);
  for (const auto extent : images) key.add(extent);
  return key;
}

class Pool : public torch::autograd::Function<Pool> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, int64_t setting, const CallPointer& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor y = allocated(call->results[0], x);
    const Tensor taps = has_taps(setting) ? at::empty_strided(y.sizes(), y.strides(), y.options().dtype(at::kByte)) : Tensor();
    TORCH_CHECK(run(*call, {address(x), address(y), address_or_none(taps)}, x), "the driver refused a pool");
    if (taps.defined()) ctx->save_for_backward({taps});
    ctx->saved_data["setting"] = setting;
    ctx->saved_data["sizes"] = x.sizes().vec();
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const int64_t setting = ctx->saved_data["setting"].toInt();
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    const Tensor taps = has_taps(setting) ? ctx->get_saved_variables()[0] : Tensor(), &dy = given[0];
    const bool plain = !at::GradMode::is_enabled() && untraced() && is_plain(dy) && (!taps.defined() || is_image(taps));
    if (const auto call = plain ? pool_gradients.find(pool_gradient_key(setting, dy, sizes)) : nullptr) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const Tensor taken = as_taken(dy, at::MemoryFormat::ChannelsLast, dy), dx = allocated(call->results[0], dy);
      Addresses at;
      for (const auto* tensor : {&taken, &taps, &dx}) at.add(*tensor);
      if (run(*call, at.words(), dy)) return {dx, Tensor(), Tensor()};
    }
    const py::gil_scoped_acquire gil;
    const auto number = [](int64_t of) { return PyLong_FromLongLong(of); };
    const py::object made = asked(served.pool_backward, {wrapped(dy), wrapped(taps), number(setting), number(sizes[0]),
                                                         number(sizes[1]), number(sizes[2]), number(sizes[3])});
    return {unwrapped(made.ptr()), Tensor(), Tensor()};
  }
};

// pooled(x, setting): None where Python is to compute it
PyObject* pooled(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<1, int64_t>(given, count, [](const auto& of, int64_t setting) -> Tensor {
    const Tensor& x = of[0];
    if (!untraced() || !is_image(x)) return {};
    const bool recorded = at::GradMode::is_enabled() && x.requires_grad();
    const auto call = pools.find(pool_key(recorded, setting, x));
    if (!call) return {};
    if (recorded) return Pool::apply(x, setting, call);
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor y = allocated(call->results[0], x);
    return run(*call, {address(x), address(y)}, x) ? y : Tensor();
  });
}

void add_pool(bool recorded, int64_t setting, const py::object& x, const py::bytes& words) {
  pools.add(pool_key(recorded, setting, tensor_of(x)), described(words));
}

void add_pool_gradient(int64_t setting, const py::object& dy, const py::bytes& words) {
  const auto call = described(words);
  pool_gradients.add(pool_gradient_key(setting, tensor_of(dy), call->results[0].sizes), call);
}

}  // namespace
}  // namespace tapestry
