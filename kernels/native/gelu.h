// Gelu behind a layer whose bias learns: what its gradient's kernel sums is handed to that layer's node (`keep_sums`).
//
// Launches take x and y, or x, dy, dx, its sums and what they work in.

#pragma once

#include <ATen/ops/gelu_backward.h>

#include "sums.h"

namespace tapestry {
namespace {

Plans gelus, gelu_gradients;

// Where dense tensors have as many numbers and channels, their kernels know no other difference.
Key gelu_key(const Tensor& x, int64_t channels) { return sums_key(x, channels); }

// How the channels of a layer's result lie, where gelu of it is computed here.
struct Channels {
  bool last;

  int64_t of(const Tensor& x) const { return x.size(last ? -1 : 1); }

  at::MemoryFormat memory() const { return last ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast; }

  bool is_dense(const Tensor& x) const {
    return last ? x.dim() > 1 && x.is_contiguous() && !(address(x) & kAligned) : is_image(x);
  }
};

// Of what a layer of `layers/biases` made whose bias learns; none of anything else.
std::optional<Channels> channels_of(const Tensor& x) {
  const auto node = x.grad_fn();
  const auto learns = [&](size_t edge) { return node->next_edge(edge).is_valid(); };
  if (const auto* linked = dynamic_cast<torch::autograd::CppNode<Linked>*>(node.get()); linked && learns(1))
    return Channels{linked->ctx_.saved_data.at("last").toBool()};
  if (dynamic_cast<torch::autograd::CppNode<Product<Pointwise>>*>(node.get()) && learns(2)) return Channels{false};
  if (dynamic_cast<torch::autograd::CppNode<Product<Rowwise>>*>(node.get()) && learns(2)) return Channels{true};
  return std::nullopt;
}

class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, bool last) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Channels channels{last};
    ctx->save_for_backward({x});
    ctx->saved_data["last"] = last;
    if (const auto call = gelus.find(gelu_key(x, channels.of(x)))) {
      const Tensor y = made_like(x);
      if (run(*call, {address(x), address(y)}, x)) return y;
    }
    const py::gil_scoped_acquire gil;
    return unwrapped(asked(served.gelu, {wrapped(x), PyLong_FromLongLong(channels.of(x))}).ptr());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const Tensor x = ctx->get_saved_variables()[0], &dy = given[0];
    const Channels channels{ctx->saved_data["last"].toBool()};
    const bool plain = !at::GradMode::is_enabled() && untraced() && is_plain(x) && channels.is_dense(x);
    const Tensor taken = plain && dy.scalar_type() == x.scalar_type() ? as_taken(dy, channels.memory(), x) : Tensor();
    if (!taken.defined()) return {at::gelu_backward(dy, x), Tensor()};
    const at::AutoDispatchBelowADInplaceOrView below;
    std::array<Tensor, 2> made = computed_gradient(x, taken, channels);
    if (made[1].defined()) keep_sums(made[0], channels.last, made[1]);
    return {made[0], Tensor()};
  }

 private:
  // Of x, and its sums, where kernels made them.
  static std::array<Tensor, 2> computed_gradient(const Tensor& x, const Tensor& dy, const Channels& channels) {
    const int64_t count = channels.of(x);
    if (const auto call = gelu_gradients.find(gelu_key(x, count))) {
      const std::array<Tensor, 2> made{made_like(x), at::empty({count}, x.options().dtype(at::kFloat))};
      const Tensor room = working(*call, x);
      if (run(*call, {address(x), address(dy), address(made[0]), address(made[1]), address(room)}, x)) return made;
    }
    const py::gil_scoped_acquire gil;
    return unpacked<2>(asked(served.gelu_gradient, {wrapped(x), wrapped(dy), PyLong_FromLongLong(count)}));
  }
};

// gelu(x): None where it is torch's
PyObject* gelu(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<1>(given, count, [](const auto& of) -> Tensor {
    const Tensor& x = of[0];
    if (!at::GradMode::is_enabled() || !untraced() || !is_plain(x) || !is_half(x.scalar_type()) || !x.numel()) return {};
    const auto channels = channels_of(x);
    return channels && channels->is_dense(x) ? Gelu::apply(x, channels->last) : Tensor();
  });
}

void add_gelu(const py::object& x, int64_t channels, const py::bytes& words) {
  gelus.add(gelu_key(tensor_of(x), channels), described(words));
}

void add_gelu_gradient(const py::object& x, int64_t channels, const py::bytes& words) {
  gelu_gradients.add(gelu_key(tensor_of(x), channels), described(words));
}

}  // namespace
}  // namespace tapestry
