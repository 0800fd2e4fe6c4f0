// Squeeze-and-excitations: a module or a graph calls `squeezed`, computes a gate of the means, and calls `excited`.

#pragma once

#include <torch/csrc/utils/pybind.h>

#include "served.h"

namespace tapestry {
namespace {

enum ImageCall : int64_t { kMeans, kScaled, kProducts, kMapped };  // in the order of `tensors/image_calls.TOLD`

Plans images;

Key image_key(int64_t what, const Tensor& x) {
  Key key;
  key.add(what);
  key.add(x.get_device());
  key.add(x);
  return key;
}

CallPointer known_images(ImageCall what, const Tensor& x) {
  return untraced() && is_image(x) ? images.find(image_key(what, x)) : nullptr;
}

// What `excited` tells the gradient of `squeezed`.
struct Link : torch::CustomClassHolder {
  Tensor gate;
};

using LinkPointer = c10::intrusive_ptr<Link>;

bool is_gate(const Tensor& gate, const Tensor& x) {
  return is_plain(gate) && gate.device() == x.device() && gate.scalar_type() == x.scalar_type() && gate.dim() == 4 &&
         gate.size(0) == x.size(0) && gate.size(1) == x.size(1) && gate.numel() == x.size(0) * x.size(1) &&
         gate.is_contiguous();
}

Tensor empty_gate(const Tensor& x) { return at::empty({x.size(0), x.size(1), 1, 1}, x.options()); }

class Squeeze : public torch::autograd::Function<Squeeze> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const Tensor& x,
                                                const LinkPointer& link, const CallPointer& call) {
    Tensor mean;
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      mean = empty_gate(x);
      const Tensor room = if_works(*call, x);
      TORCH_CHECK(run(*call, {address(x), address(mean), address_or_none(room)}, x), "the driver refused means");
    }
    ctx->saved_data["link"] = c10::IValue::make_capsule(link);
    return {x.view_as(x), mean};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const Tensor &dy = given[0], &dm = given[1];
    const Tensor gate = c10::static_intrusive_pointer_cast<Link>(ctx->saved_data["link"].toCapsule())->gate;
    const auto call = at::GradMode::is_enabled() ? nullptr : known_images(kMapped, dy);
    if (call && is_gate(gate, dy) && is_gate(dm, dy)) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const Tensor dx = made_like(dy);
      if (run(*call, {address(dy), address(gate), address(dm), address(dx)}, dy)) return {dx, Tensor(), Tensor()};
    }
    const py::gil_scoped_acquire gil;
    const py::object made = asked(served.squeeze_backward, {wrapped(dy), wrapped(dm), wrapped(gate)});
    return {unwrapped(made.ptr()), Tensor(), Tensor()};
  }
};

class Excite : public torch::autograd::Function<Excite> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& gate,
                        const LinkPointer& link, const CallPointer& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    link->gate = gate.detach();
    ctx->save_for_backward({x});
    const Tensor y = made_like(x);
    TORCH_CHECK(run(*call, {address(x), address(gate), address(y)}, x), "the driver refused a product");
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const Tensor x = ctx->get_saved_variables()[0], &dy = given[0];
    const auto call = at::GradMode::is_enabled() || !is_image(x) || !is_like(x, dy) ? nullptr : known_images(kProducts, x);
    if (call) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const Tensor to_gate = empty_gate(x);
      const Tensor room = if_works(*call, x);
      if (run(*call, {address(x), address(dy), address(to_gate), address_or_none(room)}, x)) return {dy, to_gate, Tensor(), Tensor()};
    }
    const py::gil_scoped_acquire gil;
    const auto made = unpacked<2>(asked(served.excite_backward, {wrapped(x), wrapped(dy)}));
    return {made[0], made[1], Tensor(), Tensor()};
  }
};

// squeezed(x): x, its means and what `excited` takes then, or None where Python is to compute it.
PyObject* squeezed(PyObject*, PyObject* given) {
  HANDLE_TH_ERRORS
  if (!THPVariable_CheckExact(given)) Py_RETURN_NONE;
  const Tensor x = THPVariable_Unpack(given);
  const auto link = c10::make_intrusive<Link>();
  torch::autograd::variable_list made;
  {
    const py::gil_scoped_release others;
    if (!at::GradMode::is_enabled() || x.requires_grad())
      if (const auto call = known_images(kMeans, x)) made = Squeeze::apply(x, link, call);
  }
  if (made.empty()) Py_RETURN_NONE;
  const auto object = [](const Tensor& one) { return py::reinterpret_steal<py::object>(wrapped(one)); };
  return py::make_tuple(object(made[0]), object(made[1]), link).release().ptr();
  END_HANDLE_TH_ERRORS
}

// excited(x, gate, link)
PyObject* excited(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count == 3 && !py::isinstance<Link>(py::handle(given[2]))) Py_RETURN_NONE;
  return computed<2, LinkPointer>(given, count, [](const auto& of, const LinkPointer& link) -> Tensor {
    const auto call = of[1].defined() ? known_images(kScaled, of[0]) : nullptr;
    return call && is_gate(of[1], of[0]) ? Excite::apply(of[0], of[1], link, call) : Tensor();
  });
}

void add_images(int64_t what, const py::object& x, const py::bytes& words) {
  images.add(image_key(what, tensor_of(x)), described(words));
}

}  // namespace
}  // namespace tapestry
