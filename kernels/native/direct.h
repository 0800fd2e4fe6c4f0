// Calls that are given their results: what they are known by, and launches at fixed addresses.

#pragma once

#include "served.h"

namespace tapestry {
namespace {

constexpr int64_t kMostAxes = 8;

// identity(x): what a prepared call depends on of a tensor, as bytes.
PyObject* identity(PyObject*, PyObject* object) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_CheckExact(object) && is_plain(THPVariable_Unpack(object)), "not a plain tensor");
  const Tensor& tensor = THPVariable_Unpack(object);
  std::array<int64_t, 2 + 2 * kMostAxes> words{};
  TORCH_CHECK_TYPE(tensor.dim() <= kMostAxes, "a tensor of too many axes");
  size_t count = 0;
  words[count++] = static_cast<int64_t>(address(tensor));
  words[count++] = static_cast<int64_t>(tensor.scalar_type());
  for (const auto extent : tensor.sizes()) words[count++] = extent;
  for (const auto step : tensor.strides()) words[count++] = step;
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words.data()), count * sizeof(int64_t));
  END_HANDLE_TH_ERRORS
}

constexpr const char* kLaunches = "tapestry launches";

// A function of a stream's handle: it queues launches there, and returns the driver's error code.
PyObject* repeat(PyObject* capsule, PyObject* stream) {
  HANDLE_TH_ERRORS
  const auto* launches = static_cast<const Launches*>(PyCapsule_GetPointer(capsule, kLaunches));
  void* queue = PyLong_AsVoidPtr(stream);
  if (PyErr_Occurred()) raise_python();
  static const uint64_t fixed[Launch::kOperands] = {};
  int status;
  {
    const py::gil_scoped_release others;
    status = launches->run(served.driver, fixed, queue);
  }
  return PyLong_FromLong(status);
  END_HANDLE_TH_ERRORS
}

PyMethodDef repeating = {"repeat", repeat, METH_O, nullptr};

// repeated(words): the function that repeats launches at fixed addresses.
py::object repeated(const py::bytes& words) {
  char* data;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(words.ptr(), &data, &size)) raise_python();
  Words given(data, size);
  const py::capsule held(new Launches(given), kLaunches, [](PyObject* capsule) {
    delete static_cast<Launches*>(PyCapsule_GetPointer(capsule, kLaunches));
  });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&repeating, held.ptr()));
}

}  // namespace
}  // namespace tapestry
