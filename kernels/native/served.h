// What the extension is served with, what it takes, and its ways to Python.

#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "plans.h"

// As <ATen/autocast_mode.h> declares them, which includes every operator.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType);
}  // namespace at::autocast

namespace tapestry {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using OptionalTensor = std::optional<Tensor>;

// What `serve` was given: the device that tensors are of, the driver, torch's current stream, and ways to Python.
struct Served {
  at::DeviceType device = at::kCUDA;
  DispatchKeySet plain;
  Driver driver{};
  int (*stream)(int32_t, void**) = nullptr;
  PyObject *forward = nullptr, *backward = nullptr, *gradients = nullptr, *norm_backward = nullptr,
           *layer_norm_backward = nullptr, *squeeze_backward = nullptr, *excite_backward = nullptr, *first_backward = nullptr,
           *sums = nullptr, *lowered_norm = nullptr, *lowered_norm_gradients = nullptr, *scaled_sum_backward = nullptr,
           *gelu = nullptr, *gelu_gradient = nullptr, *pool_backward = nullptr;
};

Served served;
Plans plans;

bool is_half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

// Types of a bias: as `tensors/operands.ADDED`.
bool is_added(at::ScalarType dtype) { return is_half(dtype) || dtype == at::kFloat; }

bool is_plain(const Tensor& tensor) {
  // Not the difference of key sets, which keeps the bits of backends.
  return tensor.defined() && tensor.device().type() == served.device &&
         !(tensor.key_set().raw_repr() & ~served.plain.raw_repr());
}

// Nothing traces, transforms or records by other means than autograd.
bool untraced() {
  static const DispatchKeySet others({DispatchKey::Python, DispatchKey::PythonTLSSnapshot, DispatchKey::Functionalize,
                                      DispatchKey::FuncTorchDynamicLayerFrontMode, DispatchKey::Tracer});
  return !c10::impl::tls_local_dispatch_key_set().included_.has_any(others) &&
         !torch::autograd::ForwardADLevel::try_get_by_idx(0);  // forward differentiation is told by no key
}

uint64_t address(const Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.const_data_ptr()); }

// Channels-last, at an address of whole accesses.
bool is_image(const Tensor& x) {
  return is_plain(x) && x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast) && !(address(x) & kAligned);
}

// The type of a layer's parameters, that of the first one that is there: f32 where none is.
at::ScalarType parameter_type(std::initializer_list<const Tensor*> values) {
  for (const auto* value : values)
    if (value->defined()) return value->scalar_type();
  return at::kFloat;
}

// Whether kernels of tensors like x take parameters of a type.
bool is_parameter_type(at::ScalarType type, const Tensor& x) { return type == at::kFloat || type == x.scalar_type(); }

bool is_channels(const Tensor& values, at::ScalarType type, const Tensor& x, int64_t channels) {
  return is_plain(values) && values.scalar_type() == type && values.dim() == 1 && values.size(0) == channels &&
         values.is_contiguous() && values.device() == x.device();
}

bool is_like(const Tensor& x, const Tensor& other) {
  return is_image(other) && other.scalar_type() == x.scalar_type() && other.sizes() == x.sizes() &&
         other.device() == x.device();
}

// The gradient of a result as the kernels take it: this one, or a copy; undefined where it is another kind of tensor.
Tensor as_taken(const Tensor& dy, at::MemoryFormat memory, const Tensor& like) {
  if (!is_plain(dy) || dy.device() != like.device() || dy.sizes() != like.sizes()) return {};
  const Tensor dense = dy.contiguous(memory);
  return address(dense) & kAligned ? dense.clone() : dense;
}

Tensor made_like(const Tensor& x) { return at::empty_strided(x.sizes(), x.strides(), x.options()); }

OptionalTensor if_there(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

// What a call works in, f32.
Tensor working(const Call& call, const Tensor& x) {
  return at::empty({call.workspace}, x.options().dtype(at::kFloat));
}

// The same of a call that may work in nothing: undefined then.
Tensor if_works(const Call& call, const Tensor& x) { return call.workspace ? working(call, x) : Tensor(); }

uint64_t address_or_none(const Tensor& tensor) { return tensor.defined() ? address(tensor) : 0; }

// Operands of a launch, as they come.
class Addresses {
 public:
  void add(const Tensor& tensor) {
    if (tensor.defined()) words_[count_++] = address(tensor);
  }

  const std::array<uint64_t, Launch::kOperands>& words() const { return words_; }

 private:
  std::array<uint64_t, Launch::kOperands> words_{};
  size_t count_ = 0;
};

// Launches on torch's current stream; whether the driver took them.
bool run(const Call& call, const std::array<uint64_t, Launch::kOperands>& addresses, const Tensor& on) {
  void* stream = nullptr;
  return served.stream(on.get_device(), &stream) == 0 &&
         call.launches.run(served.driver, addresses.data(), stream) == 0;
}

// -- ways to Python ---------------------------------------------------------------------------------------------------

PyObject* wrapped(const Tensor& tensor) {
  if (tensor.defined()) return THPVariable_Wrap(tensor);
  Py_RETURN_NONE;
}

PyObject* text(c10::string_view of) {
  return PyUnicode_FromStringAndSize(of.data(), static_cast<Py_ssize_t>(of.size()));
}

// A tensor, or undefined for None.
Tensor unwrapped(PyObject* object) {
  if (object == Py_None) return Tensor();
  TORCH_CHECK(THPVariable_Check(object), "not a tensor");
  return THPVariable_Unpack(object);
}

[[noreturn]] void raise_python() {
  python_error error;
  error.persist();
  throw std::move(error);
}

// A call of a function of Python's; with the GIL.
py::object asked(PyObject* function, std::initializer_list<PyObject*> given) {
  py::tuple arguments(given.size());
  size_t at = 0;
  for (PyObject* object : given) {
    if (!object) raise_python();
    PyTuple_SET_ITEM(arguments.ptr(), at++, object);
  }
  PyObject* made = PyObject_CallObject(function, arguments.ptr());
  if (!made) raise_python();
  return py::reinterpret_steal<py::object>(made);
}

// A value of Python's, a number mostly.
template <class Value>
Value value(PyObject* object) {
  if constexpr (std::is_class_v<Value>) return py::cast<Value>(py::handle(object));
  else {
    Value found;
    if constexpr (std::is_same_v<Value, double>) found = PyFloat_AsDouble(object);
    else found = PyLong_AsLongLong(object);
    if (found == -1 && PyErr_Occurred()) raise_python();
    return found;
  }
}

// What a function of Python's gave, so many tensors, undefined for None.
template <size_t count>
std::array<Tensor, count> unpacked(const py::object& made) {
  TORCH_CHECK(PyTuple_Check(made.ptr()) && PyTuple_GET_SIZE(made.ptr()) == count, "not ", count, " tensors");
  std::array<Tensor, count> found;
  for (size_t i = 0; i < count; ++i) found[i] = unwrapped(PyTuple_GET_ITEM(made.ptr(), i));
  return found;
}

CallPointer described(const py::bytes& words) {
  char* data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(words.ptr(), &data, &size)) raise_python();
  return std::make_shared<const Call>(Words(data, size));
}

const Tensor& tensor_of(const py::handle& object) {
  TORCH_CHECK(THPVariable_Check(object.ptr()), "not a tensor");
  return THPVariable_Unpack(object.ptr());
}

Tensor given_or_none(const py::object& object) { return object.is_none() ? Tensor() : tensor_of(object); }

// The first arguments of a call as tensors, undefined for None; false where one is of another kind.
template <size_t count>
bool taken(PyObject* const* given, std::array<Tensor, count>& tensors) {
  for (size_t i = 0; i < count; ++i) {
    if (given[i] == Py_None) continue;
    if (!THPVariable_CheckExact(given[i])) return false;
    tensors[i] = THPVariable_Unpack(given[i]);
  }
  return true;
}

// A function that Python calls with so many tensors, None for what is not there, and `Values`: the result of `compute`
// without the GIL, or None where Python is to compute it.
template <size_t tensors, class... Values, class Compute>
PyObject* computed(PyObject* const* given, Py_ssize_t count, Compute compute) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == tensors + sizeof...(Values), "not ", tensors, " tensors and ", sizeof...(Values), " values");
  std::array<Tensor, tensors> operands;
  if (!taken(given, operands)) Py_RETURN_NONE;
  size_t at = tensors;
  const std::tuple<Values...> values{value<Values>(given[at++])...};  // braces: one after another
  Tensor made;
  {
    const py::gil_scoped_release others;
    made = std::apply([&](const auto&... each) { return compute(operands, each...); }, values);
  }
  return wrapped(made);
  END_HANDLE_TH_ERRORS
}

}  // namespace
}  // namespace tapestry
