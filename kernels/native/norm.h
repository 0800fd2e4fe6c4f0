// Batch norms in training with the activation behind them: `norm` is what a layer calls, `lowered_norm` and
// `lowered_norm_gradients` are operators of graphs of torch.compile.
//
// Launches take a norm's tensors in the order in which `tensors/norm_calls` names them, without those that are not there.

#pragma once

#include "served.h"

namespace tapestry {
namespace {

Plans norms, norm_gradients;

// A number for epsilon and activation; its lowest bits say what a gradient asks for where a residual was added.
struct Setting {
  int64_t number;

  bool activated() const { return number & 1; }
  bool told_by_result() const { return number & 2; }
};

// Settings by what they say, which is what operators of graphs are given.
class Settings {
 public:
  void add(int64_t number, double epsilon, std::string activation) {
    const std::lock_guard<std::mutex> turn(lock_);
    if (!found(epsilon, activation)) known_.push_back({epsilon, std::move(activation), {number}});
  }

  std::optional<Setting> find(double epsilon, c10::string_view activation) {
    const std::lock_guard<std::mutex> turn(lock_);
    const auto* known = found(epsilon, activation);
    return known ? std::optional<Setting>(known->setting) : std::nullopt;
  }

 private:
  struct Known {
    double epsilon;
    std::string activation;
    Setting setting;
  };

  const Known* found(double epsilon, c10::string_view activation) const {
    for (const auto& known : known_)
      if (known.epsilon == epsilon && known.activation == activation) return &known;
    return nullptr;
  }

  std::mutex lock_;
  std::vector<Known> known_;  // a few
};

Settings settings;

// What a layer remembers; undefined where it does not.
struct Remembered {
  Tensor mean, variance, batches;
  double momentum;

  bool fit(const Tensor& x, at::ScalarType type) const;
};

// `type` is that of parameters.
Key norm_key(const Tensor& x, at::ScalarType type, Setting setting, std::initializer_list<const Tensor*> there) {
  Key key;
  key.add(x.get_device() << 8 | static_cast<int64_t>(type));
  key.add(setting.number);
  for (const auto* tensor : there) key.add(tensor->defined());
  key.add(x);
  return key;
}

bool Remembered::fit(const Tensor& x, at::ScalarType type) const {
  if (!mean.defined()) return !variance.defined() && !batches.defined();
  return is_channels(mean, type, x, x.size(1)) && is_channels(variance, type, x, x.size(1)) && is_plain(batches) &&
         batches.device() == x.device() && batches.scalar_type() == at::kLong;
}

Key forward_key(const Tensor& x, Setting setting, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                const Remembered& remembered) {
  Key key = norm_key(x, parameter_type({&weight, &bias, &remembered.mean}), setting,
                     {&residual, &weight, &bias, &remembered.mean});
  key.add_bits(remembered.momentum);
  return key;
}

struct Normed {
  Tensor y, statistics;
};

// Undefined where the driver refused it.
Normed norm_of(const Call& call, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
               const Remembered& remembered) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Normed made{made_like(x), at::empty({2, x.size(1)}, x.options().dtype(at::kFloat))};
  const Tensor room = working(call, x);
  Addresses at;
  for (const auto* tensor : {&x, &made.y, &made.statistics, &room, &residual, &weight, &bias, &remembered.mean,
                             &remembered.variance, &remembered.batches})
    at.add(*tensor);
  return run(call, at.words(), x) ? made : Normed{};
}

Key gradient_key(const Tensor& x, Setting setting, const Tensor& other, const Tensor& weight, const Tensor& bias) {
  return norm_key(x, parameter_type({&weight, &bias}), setting, {&other, &weight, &bias});
}

struct NormGradients {
  Tensor x, weight, bias, passed;
};

NormGradients norm_gradients_of(const Call& call, const Tensor& x, const Tensor& dy, const Tensor& other,
                                const Tensor& statistics, const Tensor& weight, const Tensor& bias) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto options = x.options().dtype(parameter_type({&weight, &bias}));
  const auto channel = [&] { return at::empty({x.size(1)}, options); };
  const NormGradients made{made_like(x), channel(), channel(), other.defined() ? made_like(x) : Tensor()};
  const Tensor room = working(call, x);
  Addresses at;
  for (const auto* tensor : {&x, &dy, &made.x, &made.weight, &made.bias, &room, &statistics, &other, &made.passed,
                             &weight, &bias})
    at.add(*tensor);
  return run(call, at.words(), x) ? made : NormGradients{};
}

// Undefined where no such call is known.
NormGradients known_gradients(const Tensor& x, const Tensor& dy, const Tensor& other, const Tensor& statistics,
                              const Tensor& weight, const Tensor& bias, Setting setting) {
  if (!untraced() || !is_image(x) || dy.scalar_type() != x.scalar_type()) return {};
  const auto call = norm_gradients.find(gradient_key(x, setting, other, weight, bias));
  if (!call) return {};
  const Tensor taken = as_taken(dy, at::MemoryFormat::ChannelsLast, x);
  return taken.defined() ? norm_gradients_of(*call, x, taken, other, statistics, weight, bias) : NormGradients{};
}

class RecordedNorm : public torch::autograd::Function<RecordedNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const OptionalTensor& added,
                        const OptionalTensor& scale, const OptionalTensor& shift, const Remembered& remembered,
                        Setting setting, const CallPointer& call) {
    const Tensor residual = added.value_or(Tensor()), weight = scale.value_or(Tensor()), bias = shift.value_or(Tensor());
    const Normed made = norm_of(*call, x, residual, weight, bias, remembered);
    TORCH_CHECK(made.y.defined(), "the driver refused a batch norm");
    const bool keeps = residual.defined() && setting.activated();
    const Tensor other = !keeps ? Tensor() : setting.told_by_result() ? made.y : residual;
    ctx->save_for_backward({x, other, made.statistics, weight, bias});
    ctx->saved_data["setting"] = setting.number;
    ctx->saved_data["residual"] = residual.defined();
    return made.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& given) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &other = saved[1], &statistics = saved[2], &weight = saved[3], &bias = saved[4];
    const Tensor& dy = given[0];
    const Setting setting{ctx->saved_data["setting"].toInt()};
    NormGradients made;
    if (!at::GradMode::is_enabled()) made = known_gradients(x, dy, other, statistics, weight, bias, setting);
    if (!made.x.defined()) made = from_python(x, dy, other, statistics, weight, bias, setting);
    const bool residual = ctx->saved_data["residual"].toBool();
    return {made.x, !residual ? Tensor() : other.defined() ? made.passed : dy,
            weight.defined() ? made.weight : Tensor(), bias.defined() ? made.bias : Tensor(),
            Tensor(), Tensor(), Tensor()};
  }

 private:
  static NormGradients from_python(const Tensor& x, const Tensor& dy, const Tensor& other, const Tensor& statistics,
                                   const Tensor& weight, const Tensor& bias, Setting setting) {
    const py::gil_scoped_acquire gil;
    const auto made = unpacked<4>(
        asked(served.norm_backward, {wrapped(x), wrapped(dy), wrapped(other), wrapped(statistics), wrapped(weight),
                                     wrapped(bias), PyLong_FromLongLong(setting.number)}));
    return {made[0], made[1], made[2], made[3]};
  }
};

// Whether the kernels take such operands.
bool fits(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
          const Remembered& remembered) {
  if (!untraced() || !is_image(x) || x.numel() <= x.size(1) || (residual.defined() && !is_like(x, residual))) return false;
  const auto type = parameter_type({&weight, &bias, &remembered.mean});
  if (!is_parameter_type(type, x)) return false;
  for (const auto* values : {&weight, &bias})
    if (values->defined() && !is_channels(*values, type, x, x.size(1))) return false;
  return remembered.fit(x, type);
}

// Undefined where the call is Python's.
Tensor normed(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
              const Remembered& remembered, Setting setting) {
  if (!fits(x, residual, weight, bias, remembered)) return {};
  const auto call = norms.find(forward_key(x, setting, residual, weight, bias, remembered));
  if (!call) return {};
  if (at::GradMode::is_enabled())
    return RecordedNorm::apply(x, if_there(residual), if_there(weight), if_there(bias), remembered, setting, call);
  return norm_of(*call, x, residual, weight, bias, remembered).y;
}

// norm(x, residual, weight, bias, mean, variance, batches, setting, momentum)
PyObject* norm(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return computed<7, int64_t, double>(given, count, [](const auto& of, int64_t setting, double momentum) {
    return normed(of[0], of[1], of[2], of[3], {of[4], of[5], of[6], momentum}, {setting});
  });
}

// -- the operators in graphs of torch.compile -------------------------------------------------------------------------

std::tuple<Tensor, Tensor> lowered_norm(const Tensor& x, const OptionalTensor& added, const OptionalTensor& scale,
                                        const OptionalTensor& shift, const Tensor& mean, const Tensor& variance,
                                        const Tensor& batches, double momentum, double epsilon,
                                        c10::string_view activation) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor residual = added.value_or(Tensor()), weight = scale.value_or(Tensor()), bias = shift.value_or(Tensor());
  const Remembered remembered{mean, variance, batches, momentum};
  if (const auto setting = settings.find(epsilon, activation); setting && fits(x, residual, weight, bias, remembered))
    if (const auto call = norms.find(forward_key(x, *setting, residual, weight, bias, remembered)))
      if (const Normed made = norm_of(*call, x, residual, weight, bias, remembered); made.y.defined())
        return {made.y, made.statistics};
  const py::gil_scoped_acquire gil;
  const auto made = unpacked<2>(
      asked(served.lowered_norm, {wrapped(x), wrapped(residual), wrapped(weight), wrapped(bias), wrapped(mean),
                                  wrapped(variance), wrapped(batches), PyFloat_FromDouble(momentum),
                                  PyFloat_FromDouble(epsilon), text(activation)}));
  return {made[0], made[1]};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lowered_norm_gradients(const Tensor& x, const Tensor& dy,
                                                                  const OptionalTensor& kept, const Tensor& statistics,
                                                                  const OptionalTensor& scale,
                                                                  const OptionalTensor& shift, double epsilon,
                                                                  c10::string_view activation) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Tensor other = kept.value_or(Tensor()), weight = scale.value_or(Tensor()), bias = shift.value_or(Tensor());
  NormGradients made;
  if (const auto setting = settings.find(epsilon, activation)) made = known_gradients(x, dy, other, statistics, weight, bias, *setting);
  if (made.x.defined()) return {made.x, made.weight, made.bias, made.passed.defined() ? made.passed : at::empty({0}, x.options())};
  const py::gil_scoped_acquire gil;
  const auto four = unpacked<4>(
      asked(served.lowered_norm_gradients, {wrapped(x), wrapped(dy), wrapped(other), wrapped(statistics), wrapped(weight),
                                            wrapped(bias), PyFloat_FromDouble(epsilon), text(activation)}));
  return {four[0], four[1], four[2], four[3]};
}

// -- what Python tells ------------------------------------------------------------------------------------------------

void name_setting(int64_t number, double epsilon, const std::string& activation) {
  settings.add(number, epsilon, activation);
}

void add_norm(const py::object& x, const py::object& residual, const py::object& weight, const py::object& bias,
              const py::object& mean, int64_t setting, double momentum, const py::bytes& words) {
  const Remembered remembered{given_or_none(mean), {}, {}, momentum};
  norms.add(forward_key(tensor_of(x), {setting}, given_or_none(residual), given_or_none(weight), given_or_none(bias),
                        remembered),
            described(words));
}

void add_norm_gradient(const py::object& x, const py::object& other, const py::object& weight, const py::object& bias,
                       int64_t setting, const py::bytes& words) {
  const Tensor kept = given_or_none(other), scale = given_or_none(weight), shift = given_or_none(bias);
  norm_gradients.add(gradient_key(tensor_of(x), {setting}, kept, scale, shift), described(words));
}

}  // namespace
}  // namespace tapestry
