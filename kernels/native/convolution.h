// Convolutions: `convolve` is what a layer calls, with autocast, autograd and the launches; `lowered` and `gradients`
// are the operators of that name in the graphs of torch.compile.

#pragma once

#include "sums.h"

namespace tapestry {
namespace {

// Whether another type of the same tensor would lie in memory as it does.
bool keeps_strides(const Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

// A tensor as it will be once it is of `dtype`; false where that is not known.
bool add_lowered(Key& key, const Tensor& tensor, at::ScalarType dtype) {
  if (tensor.dim() != 4) return false;
  if (tensor.scalar_type() == dtype) {
    key.add(tensor);
    return true;
  }
  key.add(tensor, dtype, 0);
  return keeps_strides(tensor);
}

// The same of images, of which a part becomes dense as it is lowered.
bool add_lowered_images(Key& key, const Tensor& x, at::ScalarType dtype) {
  if (x.dim() != 4 || x.scalar_type() == dtype || keeps_strides(x)) return add_lowered(key, x, dtype);
  key.add_dense(x, dtype);
  return true;
}

// Whether the kernels take images of their type as they lie: as `tensors/operands.walked` says.
bool is_walked(const Tensor& x) {
  if (x.is_contiguous(at::MemoryFormat::ChannelsLast)) return true;
  const auto size = static_cast<int64_t>(x.element_size());
  int64_t bits = static_cast<int64_t>(address(x)) | x.size(1) * size;
  for (const int64_t axis : {0, 2, 3}) {
    if (x.size(axis) == 1) continue;
    if (x.stride(axis) <= 0) return false;
    bits |= x.stride(axis) * size;
  }
  return x.stride(1) == 1 && !(bits & kAligned);
}

// Images as the kernels take them: these, or a copy.
Tensor as_walked(const Tensor& x, at::ScalarType dtype) {
  if (x.scalar_type() != dtype) return x.to(x.options().dtype(dtype), false, false, at::MemoryFormat::ChannelsLast);
  return is_walked(x) ? x : x.contiguous(at::MemoryFormat::ChannelsLast);
}

// A filter brought to a type, as it lies.
Tensor lowered_to(const Tensor& w, at::ScalarType dtype) {
  if (w.scalar_type() == dtype) return w;
  return at::empty_strided(w.sizes(), w.strides(), w.options().dtype(dtype)).copy_(w);
}

// A filter as the kernels take it: this one, or a copy.
Tensor as_taps(const Tensor& w, at::ScalarType dtype) {
  if (w.is_contiguous(at::MemoryFormat::ChannelsLast)) return lowered_to(w, dtype);
  if (w.scalar_type() != dtype) return w.to(w.options().dtype(dtype), false, false, at::MemoryFormat::ChannelsLast);
  return w.contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_vector(const Tensor& bias, const Tensor& like) {
  return is_plain(bias) && bias.device() == like.device() && is_added(bias.scalar_type()) && bias.dim() == 1 &&
         bias.is_contiguous();
}

bool is_wide_vector(const Tensor& bias, const Tensor& like) {
  return is_vector(bias, like) && bias.scalar_type() == at::kFloat;
}

// The address of a bias as kernels add it, f32, which is 0 where there is none; `kept` has what is made for that.
uint64_t wide_address(const OptionalTensor& bias, Tensor& kept) {
  if (!bias) return 0;
  kept = bias->scalar_type() == at::kFloat ? *bias : bias->to(at::kFloat);
  return address(kept);
}

CallPointer known_forward(const Tensor& x, const Tensor& w, const OptionalTensor& bias, at::ScalarType dtype,
                          int64_t moved, int64_t groups) {
  if (!is_plain(x) || !is_plain(w) || x.device() != w.device() || (bias && !is_vector(*bias, x))) return nullptr;
  Key key;
  key.add(x.get_device() << 1 | (bias ? 1 : 0));
  key.add(moved);
  key.add(groups);
  if (bias) key.add(bias->numel());
  if (!add_lowered_images(key, x, dtype) || !add_lowered(key, w, dtype)) return nullptr;
  return plans.find(key);
}

Key gradients_key(const Tensor& x, const Tensor& dy, int64_t moved, int64_t groups, at::ScalarType made) {
  Key key;
  key.add(x.get_device() << 8 | 1 << 7 | static_cast<int64_t>(made));
  key.add(moved);
  key.add(groups);
  key.add(x);
  key.add(dy);
  return key;
}

CallPointer known_gradients(const Tensor& x, const Tensor& dy, const Tensor& w, at::ScalarType dtype,
                            at::ScalarType made, int64_t moved, int64_t groups) {
  for (const auto* tensor : {&x, &dy, &w})
    if (!is_plain(*tensor) || tensor->dim() != 4 || tensor->device() != x.device()) return nullptr;
  Key key = gradients_key(x, dy, moved, groups, made);
  return add_lowered(key, w, dtype) ? plans.find(key) : nullptr;
}

Tensor allocated(const Result& result, const Tensor& like) {
  const auto options = result.wide ? like.options().dtype(at::kFloat) : like.options();
  return at::empty_strided(result.sizes, result.strides, options);
}

// The result of a call for operands as it takes them; undefined where the driver refused it.
Tensor forward_of(const Call& call, const Tensor& x, const Tensor& w, const OptionalTensor& bias) {
  Tensor out = allocated(call.results[0], x), added;
  return run(call, {address(x), address(w), address(out), wide_address(bias, added)}, x) ? out : Tensor();
}

struct Gradients {
  Tensor x, w;
};

Gradients gradients_of(const Call& call, const Tensor& images, const Tensor& slopes, const Tensor& filter) {
  const Tensor x = as_walked(images, images.scalar_type()), dy = as_walked(slopes, slopes.scalar_type());
  const Tensor w = as_taps(filter, filter.scalar_type());
  Gradients made{allocated(call.results[0], x), allocated(call.results[1], x)};
  Tensor room;
  if (call.workspace) room = at::empty({call.workspace}, x.options().dtype(at::kByte));
  const bool done = run(call, {address(x), address(dy), address(w), address(made.x), address(made.w),
                               call.workspace ? address(room) : 0}, x);
  return done ? made : Gradients{};
}

Gradients pair_of(const py::object& made) {
  const auto pair = unpacked<2>(made);
  return {pair[0], pair[1]};
}

// -- autograd ---------------------------------------------------------------------------------------------------------

class Convolution : public torch::autograd::Function<Convolution> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                        const OptionalTensor& bias, int64_t moved, int64_t groups, const CallPointer& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor taps = as_taps(w, x.scalar_type());
    Tensor made = forward_of(*call, x, taps, bias);
    save(ctx, x, w, w.scalar_type() == x.scalar_type() ? Tensor() : taps);
    ctx->saved_data["moved"] = moved;
    ctx->saved_data["groups"] = groups;
    if (bias) ctx->saved_data["biased"] = true;
    TORCH_CHECK(made.defined(), "the driver refused a convolution");
    return made;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const auto [x, w, lowered] = saved(ctx, at::GradMode::is_enabled() && ctx->needs_input_grad(0));
    const Tensor& dy = given[0];
    const bool biased = ctx->saved_data.count("biased") != 0;
    const int64_t moved = ctx->saved_data["moved"].toInt(), groups = ctx->saved_data["groups"].toInt();
    const bool to_x = ctx->needs_input_grad(0), to_w = ctx->needs_input_grad(1);
    const Tensor taps = lowered.defined() ? lowered : w;
    Gradients made;
    if (to_x && to_w && !at::GradMode::is_enabled()) made = prepared(x, dy, taps, w.scalar_type(), moved, groups);
    if (!made.x.defined() && (to_x || to_w)) made = from_python(x, dy, w, taps, moved, groups, to_x, to_w);
    Tensor db;
    if (biased && ctx->needs_input_grad(2)) db = bias_gradient(dy);
    return {made.x, made.w, db, Tensor(), Tensor(), Tensor()};
  }

 private:
  static Gradients prepared(const Tensor& x, const Tensor& dy, const Tensor& taps, at::ScalarType made, int64_t moved,
                            int64_t groups) {
    if (!untraced()) return {};
    const auto call = known_gradients(x, dy, taps, taps.scalar_type(), made, moved, groups);
    const at::AutoDispatchBelowADInplaceOrView below;
    return call ? gradients_of(*call, x, dy, taps) : Gradients{};
  }

  static Gradients from_python(const Tensor& x, const Tensor& dy, const Tensor& w, const Tensor& taps, int64_t moved,
                               int64_t groups, bool to_x, bool to_w) {
    const py::gil_scoped_acquire gil;
    return pair_of(asked(served.backward,
                         {wrapped(x), wrapped(dy), wrapped(w), wrapped(taps.is_same(w) ? Tensor() : taps),
                          PyLong_FromLongLong(moved), PyLong_FromLongLong(groups), PyBool_FromLong(to_x),
                          PyBool_FromLong(to_w)}));
  }
};

// -- what a layer calls -----------------------------------------------------------------------------------------------

// Undefined where the call is Python's.
Tensor convolved(const Tensor& x, const Tensor& w, const OptionalTensor& bias, int64_t moved, int64_t groups) {
  if (!untraced()) return {};
  const bool cast = at::autocast::is_autocast_enabled(served.device);
  const auto dtype = cast ? at::autocast::get_autocast_dtype(served.device) : x.scalar_type();
  if (!is_half(dtype) || (!cast && w.scalar_type() != dtype)) return {};
  const auto call = known_forward(x, w, bias, dtype, moved, groups);
  if (!call) return {};
  const Tensor given = as_walked(x, dtype);  // what is no more x is on a node of its own
  const bool recorded = at::GradMode::is_enabled() &&
                        (given.requires_grad() || w.requires_grad() || (bias && bias->requires_grad()));
  if (recorded) return Convolution::apply(given, w, bias, moved, groups, call);
  const at::AutoDispatchBelowADInplaceOrView below;
  return forward_of(*call, given, as_taps(w, dtype), bias);
}

// convolve(x, w, bias, moved, groups)
PyObject* convolve(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3, int64_t, int64_t>(given, count, [](const auto& of, int64_t moved, int64_t groups) {
    return convolved(of[0], of[1], if_there(of[2]), moved, groups);
  });
}

// -- the operators in graphs of torch.compile -------------------------------------------------------------------------

using Two = std::tuple<Tensor, Tensor>;

// And the filter as it was brought to the type of x, of no elements where it was of that.
Two lowered(const Tensor& x, const Tensor& w, const OptionalTensor& bias, int64_t moved, int64_t groups) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto dtype = x.scalar_type();
  if (is_half(dtype) && (w.scalar_type() == dtype || w.scalar_type() == at::kFloat))
    if (const auto call = known_forward(x, w, bias, dtype, moved, groups)) {
      const Tensor taps = lowered_to(w, dtype), made = forward_of(*call, as_walked(x, dtype), as_taps(taps, dtype), bias);
      if (made.defined()) return {made, taps.is_same(w) ? at::empty({0}, x.options()) : taps};
    }
  const py::gil_scoped_acquire gil;
  const auto made = pair_of(asked(served.forward, {wrapped(x), wrapped(w), wrapped(bias.value_or(Tensor())),
                                                   PyLong_FromLongLong(moved), PyLong_FromLongLong(groups)}));
  return {made.x, made.w};
}

// `taps` is what `lowered` gave.
Two gradients(const Tensor& x, const Tensor& dy, const Tensor& w, const Tensor& taps, int64_t moved, int64_t groups) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto dtype = x.scalar_type();
  Gradients made;
  if (is_half(dtype) && (w.scalar_type() == dtype || w.scalar_type() == at::kFloat))
    if (const auto call = known_gradients(x, dy, w, dtype, w.scalar_type(), moved, groups))
      made = gradients_of(*call, x, dy, taps.numel() ? taps : lowered_to(w, dtype));
  if (!made.x.defined()) {
    const py::gil_scoped_acquire gil;
    made = pair_of(asked(served.gradients, {wrapped(x), wrapped(dy), wrapped(w), wrapped(taps),
                                            PyLong_FromLongLong(moved), PyLong_FromLongLong(groups)}));
  }
  return {made.x, made.w};
}

// -- what Python tells ------------------------------------------------------------------------------------------------

// The call of operands like these, which are of the types that kernels take.
void add_forward(const py::object& x, const py::object& w, const py::object& bias, int64_t moved, int64_t groups,
                 const py::bytes& words) {
  const Tensor &image = tensor_of(x), &taps = tensor_of(w);
  Key key;
  key.add(image.get_device() << 1 | (bias.is_none() ? 0 : 1));
  key.add(moved);
  key.add(groups);
  if (!bias.is_none()) key.add(tensor_of(bias).numel());
  key.add(image);
  key.add(taps);
  plans.add(key, described(words));
}

void add_gradients(const py::object& x, const py::object& dy, const py::object& w, bool wide, int64_t moved,
                   int64_t groups, const py::bytes& words) {
  const Tensor& image = tensor_of(x);
  Key key = gradients_key(image, tensor_of(dy), moved, groups, wide ? at::kFloat : image.scalar_type());
  key.add(tensor_of(w));
  plans.add(key, described(words));
}

}  // namespace
}  // namespace tapestry
