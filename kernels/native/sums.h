// Gradients of biases: sums by channel, f32, which autograd casts where a bias is of halves. `linked` is what a layer
// calls that torch computes.
//
// Launches take a tensor, its sums and, where there is one, what they work in.

#pragma once

#include <ATen/ops/addmm.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/version.h>

#include "lowered.h"

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

// The sums of a gradient that were made with it, for the bias that it comes to next. As a thread ends they are left.
struct Summed {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  Weak of;
  uint32_t version;
  bool last;
  Tensor sums;
};

thread_local Summed* summed = nullptr;

void keep_sums(const Tensor& of, bool last, const Tensor& sums) {
  delete summed;
  summed = new Summed{Summed::Weak(of.getIntrusivePtr()), of._version(), last, sums};
}

// What was kept, if it is of this very gradient, and nobody wrote into that; it is kept no longer.
Tensor kept_sums(const Tensor& of, bool last) {
  if (!summed) return {};
  const std::unique_ptr<Summed> found(summed);
  summed = nullptr;
  const bool same = found->of.lock().get() == of.unsafeGetTensorImpl();
  return same && found->last == last && found->version == of._version() ? found->sums : Tensor();
}

// f32, of images, or of rows whose channels are the `last` dimension.
Tensor bias_gradient(const Tensor& dy, bool last = false) {
  if (const Tensor known = kept_sums(dy, last); known.defined() && !at::GradMode::is_enabled()) return known;
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

// Whether a bias is one of rows or images like x, and nothing traces or transforms.
bool is_bias(const Tensor& bias, const Tensor& x) {
  return untraced() && is_plain(x) && is_plain(bias) && bias.device() == x.device() && bias.dim() == 1 &&
         is_added(bias.scalar_type());
}

// Whether it is learned here.
bool is_learned(const Tensor& bias, const Tensor& x) {
  return at::GradMode::is_enabled() && is_bias(bias, x) && bias.requires_grad();
}

// linked(y, bias, last)
PyObject* linked(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<2, int64_t>(given, count, [](const auto& of, int64_t last) -> Tensor {
    const Tensor &y = of[0], &bias = of[1];
    if (!is_learned(bias, y) || y.dim() < (last ? 1 : 4) || y.size(last ? -1 : 1) != bias.size(0)) return {};
    return Linked::apply(y, bias, last != 0);
  });
}

// Whether a convolution has one tap, which is a product over channels.
bool is_pointwise(const Tensor& x, const Tensor& w, const Tensor& bias, at::IntArrayRef padding, int64_t groups) {
  return w.size(2) == 1 && w.size(3) == 1 && groups == 1 && padding[0] == 0 && padding[1] == 0 && x.size(1) == w.size(1) &&
         bias.size(0) == w.size(0);
}

bool is_one_pixel(const Tensor& images) { return images.size(2) == 1 && images.size(3) == 1; }

// Products of halves with results of f32.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
#define TAPESTRY_WIDE_PRODUCTS 1
#endif

// The gradient of a layer's matrix, of its type: of f32 as it is summed, where torch multiplies so.
Tensor matrix_gradient(const Tensor& slopes, const Tensor& rows, at::ScalarType type) {
#ifdef TAPESTRY_WIDE_PRODUCTS
  const bool halves = is_half(rows.scalar_type()) && slopes.scalar_type() == rows.scalar_type();
  if (type == at::kFloat && halves && rows.is_cuda() && untraced() && !at::GradMode::is_enabled())
    return at::mm(slopes.t(), rows, at::kFloat);
#endif
  return at::mm(slopes.t(), rows).to(type);
}

// A layer that is a product of rows and a matrix, and its bias, as one node; the first product adds the bias itself. Each
// gradient's are torch's functions, which record themselves where a gradient of the gradient is asked for. `Layer` says
// how rows lie in tensors.
template <class Layer>
class Product : public torch::autograd::Function<Product<Layer>> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w, const Tensor& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard cast(c10::autocast_dispatch_keyset);
    const auto dtype = x.scalar_type();
    const Tensor taps = w.to(dtype);
    const Tensor made = at::addmm(bias.to(dtype), Layer::rows(x), Layer::matrix(taps).t());
    save(ctx, w.requires_grad() ? x : Tensor(), w, taps.is_same(w) ? Tensor() : taps, x.requires_grad() || !Layer::last);
    ctx->saved_data["sizes"] = x.sizes().vec();
    ctx->saved_data["own"] = static_cast<int64_t>(w.scalar_type());
    return Layer::result(made, x, w);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const bool again = at::GradMode::is_enabled();
    const auto [x, w, taps] = saved(ctx, again && ctx->needs_input_grad(0));
    const Tensor& dy = given[0];
    const c10::impl::ExcludeDispatchKeyGuard cast(c10::autocast_dispatch_keyset);
    const Tensor db = ctx->needs_input_grad(2) ? bias_gradient(dy, Layer::last) : Tensor();
    std::optional<at::AutoDispatchBelowADInplaceOrView> below;
    if (!again) below.emplace();
    const Tensor slopes = Layer::rows(dy);
    Tensor dx, dw;
    if (ctx->needs_input_grad(0)) {
      const Tensor made = at::mm(slopes, Layer::matrix(again || !taps.defined() ? w.to(dy.scalar_type()) : taps));
      dx = Layer::gradient(made, ctx->saved_data["sizes"].toIntVector());
    }
    const auto own = static_cast<at::ScalarType>(ctx->saved_data["own"].toInt());
    if (ctx->needs_input_grad(1)) dw = Layer::laid_as(w, matrix_gradient(slopes, Layer::rows(x), own));
    return {dx, dw, db};
  }
};

// A convolution of one tap: rows are pixels.
struct Pointwise {
  static constexpr bool last = false;

  // Of channels-last images a view.
  static Tensor rows(const Tensor& of) {
    return of.permute({0, 2, 3, 1}).reshape({of.size(0) * of.size(2) * of.size(3), of.size(1)});
  }

  static Tensor matrix(const Tensor& taps) { return rows(taps); }

  // Which of torch's formats a result is in decides about that of those behind it.
  static Tensor result(const Tensor& made, const Tensor& x, const Tensor& w) {
    const bool channels_last = !is_one_pixel(x) || is_last(x) || is_last(w);
    return channels_last ? images(made, x.sizes()) : made.view({x.size(0), w.size(0), 1, 1});
  }

  static Tensor gradient(const Tensor& made, const std::vector<int64_t>& sizes) {
    return sizes[2] == 1 && sizes[3] == 1 ? made.view(sizes) : images(made, sizes);
  }

  // The gradient of a filter, with its strides where those say the same: what wraps parameters asks so.
  static Tensor laid_as(const Tensor& w, const Tensor& made) {
    if (w.stride(0) == made.stride(0) && w.stride(1) == made.stride(1)) return made.as_strided(w.sizes(), w.strides());
    return made.view(w.sizes());
  }

 private:
  // Whether images of one pixel are channels-last to torch, which goes by their strides.
  static bool is_last(const Tensor& of) { return of.size(1) > 1 && of.stride(3) == of.size(1); }

  // Channels-last images of such rows, of the extents of others of some sizes.
  static Tensor images(const Tensor& made, at::IntArrayRef like) {
    return made.view({like[0], like[2], like[3], made.size(1)}).permute({0, 3, 1, 2});
  }
};

// A linear layer: rows are all but the last dimension.
struct Rowwise {
  static constexpr bool last = true;

  static Tensor rows(const Tensor& of) { return of.dim() == 2 ? of : of.reshape({-1, of.size(-1)}); }

  static Tensor matrix(const Tensor& weight) { return weight; }

  static Tensor result(const Tensor& made, const Tensor& x, const Tensor& w) {
    auto sizes = x.sizes().vec();
    sizes.back() = w.size(0);
    return made.view(sizes);
  }

  static Tensor gradient(const Tensor& made, const std::vector<int64_t>& sizes) { return made.view(sizes); }

  static Tensor laid_as(const Tensor&, const Tensor& made) { return made; }
};

// The type that a product is of; none where types are others than autocast brings together, or than are one without it.
std::optional<at::ScalarType> product_type(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const auto type = x.scalar_type();
  const bool cast = at::autocast::is_autocast_enabled(served.device);
  for (const auto* tensor : {&x, &w, &bias})
    if (cast ? !is_half(tensor->scalar_type()) && tensor->scalar_type() != at::kFloat : tensor->scalar_type() != type)
      return std::nullopt;
  return cast ? at::autocast::get_autocast_dtype(served.device) : type;
}

// Whether images lie as a product takes them, of a type that torch multiplies no slower than it convolves: of f32 its
// products are exact where its convolutions are TF32.
bool is_taken_as_rows(const Tensor& x, at::ScalarType dtype, at::IntArrayRef stride) {
  if (is_one_pixel(x)) return true;
  return is_half(dtype) && stride[0] == 1 && stride[1] == 1 && x.size(1) > 1 && x.numel() &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast);
}

// biased_convolution(x, weight, bias, stride, padding, dilation, groups), each of the three two numbers: likewise
PyObject* biased_convolution(PyObject*, PyObject* const* given, Py_ssize_t count) {
  using Number = int64_t;
  return computed<3, Number, Number, Number, Number, Number, Number, Number>(
      given, count, [](const auto& of, Number down, Number right, Number top, Number left, Number rows, Number columns,
                       Number groups) -> Tensor {
        const Tensor &x = of[0], &w = of[1], &bias = of[2];
        if (!is_bias(bias, x) || !is_plain(w) || x.dim() != 4 || w.dim() != 4) return {};
        const std::array<int64_t, 2> stride{down, right}, padding{top, left}, dilation{rows, columns};
        if (is_pointwise(x, w, bias, padding, groups))
          if (const auto dtype = product_type(x, w, bias); dtype && is_taken_as_rows(x, *dtype, stride))
            return Product<Pointwise>::apply(x.scalar_type() == *dtype ? x : x.to(*dtype), w, bias);
        if (!is_learned(bias, x)) return {};
        return Linked::apply(at::conv2d(x, w, bias.detach(), stride, padding, dilation, groups), bias, false);
      });
}

// biased_linear(x, weight, bias): a product, as one node; or a linear layer, by torch, and the link behind it
PyObject* biased_linear(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3>(given, count, [](const auto& of) -> Tensor {
    const Tensor &x = of[0], &weight = of[1], &bias = of[2];
    if (!is_learned(bias, x) || !is_plain(weight)) return {};
    if (x.dim() > 1 && x.numel() && weight.dim() == 2 && weight.size(1) == x.size(-1) && bias.size(0) == weight.size(0))
      if (const auto dtype = product_type(x, weight, bias))
        return Product<Rowwise>::apply(x.scalar_type() == *dtype ? x : x.to(*dtype), weight, bias);
    return Linked::apply(at::linear(x, weight, bias.detach()), bias, true);
  });
}

void add_sums(const py::object& x, int64_t channels, const py::bytes& words) {
  sums.add(sums_key(tensor_of(x), channels), described(words));
}

}  // namespace
}  // namespace tapestry
