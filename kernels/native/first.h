// First layers over blocks of pixels: `first` is what a layer calls whose images have no gradient.

#pragma once

#include "convolution.h"

namespace tapestry {
namespace {

Plans firsts;

// `biases` are those that are added, 0 for none; `form` is a number of Python's, for the blocks and how a filter is moved.
Key first_key(const Tensor& x, const Tensor& w, int64_t biases, at::ScalarType dtype, int64_t form) {
  Key key;
  key.add(x.get_device() << 8 | static_cast<int64_t>(dtype));
  key.add(biases);
  key.add(form);
  key.add(x, x.scalar_type(), 0);  // read number by number: anywhere in memory
  key.add(w, w.scalar_type(), 0);
  return key;
}

Key first_gradient_key(const Tensor& images, const Tensor& dy, bool wide, int64_t form) {
  Key key;
  key.add(images.get_device() << 1 | (wide ? 1 : 0));
  key.add(form);
  key.add(images);
  key.add(dy);
  return key;
}

struct FirstMade {
  Tensor images, out;
};

FirstMade first_of(const Call& call, const Tensor& x, const Tensor& w, const OptionalTensor& bias, at::ScalarType dtype) {
  const auto room = [&](size_t i) {
    return at::empty_strided(call.results[i].sizes, call.results[i].strides, x.options().dtype(dtype));
  };
  const Tensor images = room(0), taps = room(1), out = room(2);
  Tensor added;
  const bool done = run(call, {address(x), address(w), address(images), address(taps), address(out),
                               wide_address(bias, added)}, x);
  TORCH_CHECK(done, "the driver refused a first layer");
  return {images, out};
}

class First : public torch::autograd::Function<First> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                        const OptionalTensor& bias, int64_t form, at::ScalarType dtype, const CallPointer& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto made = first_of(*call, x, w, bias, dtype);
    ctx->save_for_backward({made.images});
    ctx->saved_data["form"] = form;
    ctx->saved_data["wide"] = w.scalar_type() == at::kFloat;
    if (bias) ctx->saved_data["biased"] = true;
    return made.out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const Tensor images = ctx->get_saved_variables()[0], &dy = given[0];
    const int64_t form = ctx->saved_data["form"].toInt();
    const bool wide = ctx->saved_data["wide"].toBool();
    Tensor dw, db;
    if (ctx->needs_input_grad(1)) {
      if (!at::GradMode::is_enabled()) dw = prepared(images, dy, wide, form);
      if (!dw.defined()) {
        const py::gil_scoped_acquire gil;
        dw = unwrapped(asked(served.first_backward, {wrapped(images), wrapped(dy), PyLong_FromLongLong(form),
                                                     PyBool_FromLong(wide)}).ptr());
      }
    }
    if (ctx->saved_data.count("biased") && ctx->needs_input_grad(2)) db = bias_gradient(dy);
    return {Tensor(), dw, db, Tensor(), Tensor(), Tensor()};
  }

 private:
  static Tensor prepared(const Tensor& images, const Tensor& dy, bool wide, int64_t form) {
    if (!untraced() || !is_plain(dy) || dy.dim() != 4 || dy.device() != images.device()) return {};
    const auto call = firsts.find(first_gradient_key(images, dy, wide, form));
    if (!call) return {};
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor taps = allocated(call->results[0], images), made = allocated(call->results[1], images);
    Tensor room;
    if (call->workspace) room = at::empty({call->workspace}, images.options().dtype(at::kByte));
    const bool done = run(*call, {address(images), address(dy), address(taps), address(made),
                                  call->workspace ? address(room) : 0}, images);
    return done ? made : Tensor();
  }
};

// Undefined where the call is Python's.
Tensor first_convolved(const Tensor& x, const Tensor& w, const OptionalTensor& bias, int64_t form) {
  if (!untraced() || !is_plain(x) || !is_plain(w) || x.dim() != 4 || w.dim() != 4 || x.device() != w.device()) return {};
  if (bias && !is_vector(*bias, x)) return {};
  const bool cast = at::autocast::is_autocast_enabled(served.device), learns = at::GradMode::is_enabled();
  const auto dtype = cast ? at::autocast::get_autocast_dtype(served.device) : x.scalar_type();
  if (!is_half(dtype) || (!cast && w.scalar_type() != dtype) || (learns && x.requires_grad())) return {};
  const auto call = firsts.find(first_key(x, w, bias ? bias->numel() : 0, dtype, form));
  if (!call) return {};
  if (learns && (w.requires_grad() || (bias && bias->requires_grad())))
    return First::apply(x, w, bias, form, dtype, call);
  const at::AutoDispatchBelowADInplaceOrView below;
  return first_of(*call, x, w, bias, dtype).out;
}

// first(x, w, bias, form)
PyObject* first(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3, int64_t>(given, count, [](const auto& of, int64_t form) -> Tensor {
    return of[0].defined() && of[1].defined() ? first_convolved(of[0], of[1], if_there(of[2]), form) : Tensor();
  });
}

void add_first(const py::object& x, const py::object& w, const py::object& bias, const py::object& images, int64_t form,
               const py::bytes& words) {
  const auto dtype = tensor_of(images).scalar_type();
  firsts.add(first_key(tensor_of(x), tensor_of(w), bias.is_none() ? 0 : tensor_of(bias).numel(), dtype, form), described(words));
}

void add_first_gradient(const py::object& images, const py::object& dy, bool wide, int64_t form, const py::bytes& words) {
  firsts.add(first_gradient_key(tensor_of(images), tensor_of(dy), wide, form), described(words));
}

}  // namespace
}  // namespace tapestry
