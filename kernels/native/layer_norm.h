// Layer norms of rows, channels innermost in memory: `layer_norm` is what a layer calls.
//
// Launches take tensors in the order in which `tensors/layer_norm_calls` names them, without those that are not there.

#pragma once

#include "served.h"

namespace tapestry {
namespace {

Plans layer_norms, layer_norm_gradients;

// Over the last dimension or, `first`, over the channels of images.
struct LayerNorm {
  double epsilon;
  bool first;

  int64_t channels(const Tensor& x) const { return x.size(first ? 1 : -1); }

  at::MemoryFormat memory() const { return first ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous; }

  bool fits(const Tensor& x) const {
    const bool dense = first ? is_image(x) : is_plain(x) && x.dim() > 1 && x.is_contiguous() && !(address(x) & kAligned);
    return dense && x.numel();
  }

  // Where dense tensors have as many rows, their kernels know no other difference. `result` is the type of y.
  Key key(const Tensor& x, at::ScalarType result, const Tensor& weight) const {
    Key key;
    for (const int64_t word : {static_cast<int64_t>(x.get_device()), static_cast<int64_t>(x.scalar_type()),
                               static_cast<int64_t>(result), weight.defined() ? static_cast<int64_t>(weight.scalar_type()) : -1,
                               x.numel() / channels(x), channels(x)})
      key.add(word);
    key.add_bits(epsilon);
    return key;
  }

  Key key(const Tensor& x, at::ScalarType result, const Tensor& weight, const Tensor& bias) const {
    Key found = key(x, result, weight);
    found.add(bias.defined() ? static_cast<int64_t>(bias.scalar_type()) : -1);
    return found;
  }
};

struct RowsNormed {
  Tensor y, statistics;
};

// Undefined where the driver refused it.
RowsNormed rows_normed(const Call& call, const Tensor& x, const Tensor& weight, const Tensor& bias, LayerNorm norm,
                       at::ScalarType result) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const RowsNormed made{at::empty_strided(x.sizes(), x.strides(), x.options().dtype(result)),
                        at::empty({x.numel() / norm.channels(x), 2}, x.options().dtype(at::kFloat))};
  Addresses at;
  for (const auto* tensor : {&x, &made.y, &made.statistics, &weight, &bias}) at.add(*tensor);
  return run(call, at.words(), x) ? made : RowsNormed{};
}

using RowGradients = std::array<Tensor, 3>;  // of x, weight and bias

RowGradients row_gradients_of(const Call& call, const Tensor& x, const Tensor& dy, const Tensor& statistics,
                              const Tensor& weight, LayerNorm norm) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto options = x.options().dtype(parameter_type({&weight}));
  const auto channel = [&] { return at::empty({norm.channels(x)}, options); };
  const RowGradients made{made_like(x), channel(), channel()};
  const Tensor room = working(call, x);
  Addresses at;
  for (const auto* tensor : {&x, &dy, &statistics, &made[0], &made[1], &made[2], &room, &weight}) at.add(*tensor);
  return run(call, at.words(), x) ? made : RowGradients{};
}

class RecordedLayerNorm : public torch::autograd::Function<RecordedLayerNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const OptionalTensor& scale,
                        const OptionalTensor& shift, LayerNorm norm, at::ScalarType result, const CallPointer& call) {
    const Tensor weight = scale.value_or(Tensor()), bias = shift.value_or(Tensor());
    const RowsNormed made = rows_normed(*call, x, weight, bias, norm, result);
    TORCH_CHECK(made.y.defined(), "the driver refused a layer norm");
    ctx->save_for_backward({x, weight, bias, made.statistics});
    ctx->saved_data["epsilon"] = norm.epsilon;
    ctx->saved_data["first"] = norm.first;
    return made.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &statistics = saved[3], &dy = given[0];
    const LayerNorm norm{ctx->saved_data["epsilon"].toDouble(), ctx->saved_data["first"].toBool()};
    RowGradients made;
    if (!at::GradMode::is_enabled() && untraced() && norm.fits(x))
      if (const auto call = layer_norm_gradients.find(norm.key(x, dy.scalar_type(), weight)))
        if (const Tensor taken = as_taken(dy, norm.memory(), x); taken.defined())
          made = row_gradients_of(*call, x, taken, statistics, weight, norm);
    if (!made[0].defined()) made = from_python(x, dy, statistics, weight, bias, norm);
    return {made[0], weight.defined() ? made[1] : Tensor(), bias.defined() ? made[2] : Tensor(),
            Tensor(), Tensor(), Tensor()};
  }

 private:
  static RowGradients from_python(const Tensor& x, const Tensor& dy, const Tensor& statistics, const Tensor& weight,
                                  const Tensor& bias, LayerNorm norm) {
    const py::gil_scoped_acquire gil;
    return unpacked<3>(asked(served.layer_norm_backward,
                             {wrapped(x), wrapped(dy), wrapped(statistics), wrapped(weight), wrapped(bias),
                              PyFloat_FromDouble(norm.epsilon), PyBool_FromLong(norm.first)}));
  }
};

// As torch gives it; lower already, where it would be cast to that anyway.
at::ScalarType result_of(const Tensor& x, bool read_lowered) {
  if (!at::autocast::is_autocast_enabled(served.device)) return x.scalar_type();
  return read_lowered ? at::autocast::get_autocast_dtype(served.device) : at::kFloat;
}

// Undefined where the call is Python's.
Tensor layer_normed(const Tensor& x, const Tensor& weight, const Tensor& bias, LayerNorm norm, bool read_lowered) {
  if (!untraced() || !norm.fits(x)) return {};
  const auto type = parameter_type({&weight});
  if (!is_parameter_type(type, x)) return {};
  for (const auto* values : {&weight, &bias})
    if (values->defined() && !is_channels(*values, type, x, norm.channels(x))) return {};
  const auto result = result_of(x, read_lowered);
  const auto call = layer_norms.find(norm.key(x, result, weight, bias));
  if (!call) return {};
  if (at::GradMode::is_enabled())
    return RecordedLayerNorm::apply(x, if_there(weight), if_there(bias), norm, result, call);
  return rows_normed(*call, x, weight, bias, norm, result).y;
}

// layer_norm(x, weight, bias, epsilon, first, read_lowered)
PyObject* layer_norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<3, double, int64_t, int64_t>(
      given, count, [](const auto& of, double epsilon, int64_t first, int64_t read_lowered) {
        return layer_normed(of[0], of[1], of[2], {epsilon, first != 0}, read_lowered != 0);
      });
}

// -- what Python tells ------------------------------------------------------------------------------------------------

void add_layer_norm(const py::object& x, const py::object& y, const py::object& weight, const py::object& bias,
                    double epsilon, bool first, const py::bytes& words) {
  const LayerNorm norm{epsilon, first};
  layer_norms.add(norm.key(tensor_of(x), tensor_of(y).scalar_type(), given_or_none(weight), given_or_none(bias)),
                  described(words));
}

void add_layer_norm_gradient(const py::object& x, const py::object& dy, const py::object& weight, double epsilon,
                             bool first, const py::bytes& words) {
  const LayerNorm norm{epsilon, first};
  layer_norm_gradients.add(norm.key(tensor_of(x), tensor_of(dy).scalar_type(), given_or_none(weight)),
                           described(words));
}

}  // namespace
}  // namespace tapestry
