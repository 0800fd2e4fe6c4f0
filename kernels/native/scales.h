// Layer scales and the residuals behind them: `scaled_sum` is what a block calls.
//
// Launches take tensors in the order in which `tensors/scale_calls` names them, without factors where there are none.

#pragma once

#include "served.h"

namespace tapestry {
namespace {

Plans scaled_sums, scaled_sum_gradients;

// What a layer scale is of: images by their second dimension, rows by the last one.
struct Scaled {
  const Tensor &x, &gamma, &factors;  // factors may be undefined

  bool images() const { return gamma.dim() > 1; }

  int64_t channels() const { return x.size(images() ? 1 : -1); }

  at::MemoryFormat memory() const { return images() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous; }

  bool is_dense(const Tensor& of) const {
    return images() ? is_image(of) : is_plain(of) && of.dim() > 1 && of.is_contiguous() && !(address(of) & kAligned);
  }

  bool fits() const {
    if (!is_plain(gamma) || !gamma.dim() || !gamma.is_contiguous() || !is_dense(x) || !x.numel()) return false;
    if (gamma.device() != x.device()) return false;
    if (images() && (gamma.dim() < 3 || gamma.dim() > 4 || gamma.size(-1) != 1 || gamma.size(-2) != 1)) return false;
    if (gamma.numel() != channels() || gamma.size(images() ? -3 : -1) != channels()) return false;
    return !factors.defined() || (is_plain(factors) && factors.device() == x.device() && factors.is_contiguous() &&
                                  factors.numel() == x.size(0));
  }

  // Where dense tensors have as many rows and images, their kernels know no other difference. `added` is the residual's type.
  Key key(at::ScalarType added) const {
    Key key;
    for (const int64_t word : {static_cast<int64_t>(x.get_device()), static_cast<int64_t>(x.scalar_type()),
                               static_cast<int64_t>(gamma.scalar_type()), static_cast<int64_t>(added),
                               static_cast<int64_t>(factors.defined()), x.numel(), channels(), x.size(0)})
      key.add(word);
    return key;
  }

  at::ScalarType result(at::ScalarType added) const {
    return at::promote_types(at::promote_types(x.scalar_type(), gamma.scalar_type()), added);
  }

  Tensor wide_factors() const { return factors.defined() ? factors.to(at::kFloat) : Tensor(); }
};

// Undefined where the driver refused it.
Tensor scaled_sum_of(const Call& call, const Scaled& of, const Tensor& residual) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto options = of.x.options().dtype(of.result(residual.scalar_type()));
  const Tensor y = at::empty_strided(of.x.sizes(), of.x.strides(), options), factors = of.wide_factors();
  Addresses at;
  for (const auto* tensor : {&of.x, &of.gamma, &residual, &y, &factors}) at.add(*tensor);
  return run(call, at.words(), of.x) ? y : Tensor();
}

using ScaleGradients = std::array<Tensor, 2>;  // of x and gamma

ScaleGradients scale_gradients_of(const Call& call, const Scaled& of, const Tensor& dy) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const ScaleGradients made{made_like(of.x), made_like(of.gamma)};
  const Tensor room = working(call, of.x), factors = of.wide_factors();
  Addresses at;
  for (const auto* tensor : {&of.x, &dy, &of.gamma, &made[0], &made[1], &room, &factors}) at.add(*tensor);
  return run(call, at.words(), of.x) ? made : ScaleGradients{};
}

class RecordedScaledSum : public torch::autograd::Function<RecordedScaledSum> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& gamma,
                        const Tensor& residual, const OptionalTensor& dropped, const CallPointer& call) {
    const Tensor factors = dropped.value_or(Tensor());
    const Tensor made = scaled_sum_of(*call, {x, gamma, factors}, residual);
    TORCH_CHECK(made.defined(), "the driver refused a layer scale");
    ctx->save_for_backward({x, gamma, factors});
    ctx->saved_data["added"] = static_cast<int64_t>(residual.scalar_type());
    return made;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &gamma = saved[1], &factors = saved[2], &dy = given[0];
    const auto added = static_cast<at::ScalarType>(ctx->saved_data["added"].toInt());
    const Scaled of{x, gamma, factors};
    ScaleGradients made;
    if (!at::GradMode::is_enabled() && untraced() && of.fits())
      if (const auto call = scaled_sum_gradients.find(of.key(added)))
        if (const Tensor taken = as_taken(dy, of.memory(), x); taken.defined()) made = scale_gradients_of(*call, of, taken);
    if (!made[0].defined()) made = from_python(of, dy, added);
    const Tensor passed = !ctx->needs_input_grad(2) ? Tensor() : dy.scalar_type() == added ? dy : dy.to(added);
    return {made[0], made[1], passed, Tensor(), Tensor()};
  }

 private:
  static ScaleGradients from_python(const Scaled& of, const Tensor& dy, at::ScalarType added) {
    const py::gil_scoped_acquire gil;
    const Tensor like = at::empty({0}, of.x.options().dtype(added));
    return unpacked<2>(asked(served.scaled_sum_backward,
                             {wrapped(of.x), wrapped(dy), wrapped(of.gamma), wrapped(of.factors), wrapped(like)}));
  }
};

// scaled_sum(x, gamma, residual, factors); None where the call is Python's.
PyObject* scaled_sum(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<4>(given, count, [](const auto& of) -> Tensor {
    const Tensor &x = of[0], &residual = of[2];
    const Scaled scaled{x, of[1], of[3]};
    if (at::GradMode::is_enabled() && of[1].defined() && !of[1].requires_grad()) return {};  // torch keeps no x then
    if (!untraced() || !scaled.fits() || !is_plain(residual) || residual.device() != x.device() ||
        residual.sizes() != x.sizes() || residual.strides() != x.strides() || (address(residual) & kAligned))
      return {};
    const auto call = scaled_sums.find(scaled.key(residual.scalar_type()));
    if (!call) return {};
    if (at::GradMode::is_enabled()) return RecordedScaledSum::apply(x, of[1], residual, if_there(of[3]), call);
    return scaled_sum_of(*call, scaled, residual);
  });
}

// -- what Python tells ------------------------------------------------------------------------------------------------

void add_scaled_sum(const py::object& x, const py::object& gamma, const py::object& residual, const py::object& factors,
                    const py::bytes& words) {
  const Tensor dropped = given_or_none(factors);
  const Scaled of{tensor_of(x), tensor_of(gamma), dropped};
  scaled_sums.add(of.key(tensor_of(residual).scalar_type()), described(words));
}

// `like` is of the residual's type.
void add_scaled_sum_gradient(const py::object& x, const py::object& gamma, const py::object& like,
                             const py::object& factors, const py::bytes& words) {
  const Tensor dropped = given_or_none(factors);
  const Scaled of{tensor_of(x), tensor_of(gamma), dropped};
  scaled_sum_gradients.add(of.key(tensor_of(like).scalar_type()), described(words));
}

}  // namespace
}  // namespace tapestry
