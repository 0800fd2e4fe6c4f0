// Calls of torch tensors without Python: what was prepared there is repeated here.
//
// What is not known here goes to the functions that `serve` was given, which are the path in Python, and tell
// (`add_forward`, `add_gradients`) what they prepared.

#include "convolution.h"
#include "direct.h"
#include "excitation.h"
#include "first.h"
#include "followed.h"
#include "fused.h"
#include "gelu.h"
#include "layer_norm.h"
#include "norm.h"
#include "pools.h"
#include "scales.h"

namespace tapestry {
namespace {

void serve(const std::string& device, const py::tuple& functions, const py::args& ways) {
  const auto at = [&](size_t i) { return reinterpret_cast<void*>(functions[i].cast<uintptr_t>()); };
  served.device = c10::Device(device).type();
  const auto backend = served.device == at::kCUDA ? c10::BackendComponent::CUDABit : c10::BackendComponent::CPUBit;
  served.plain = DispatchKeySet(backend) | DispatchKeySet(DispatchKey::Dense) |
                 c10::getAutogradRelatedKeySetFromBackend(backend) | c10::getAutocastRelatedKeySetFromBackend(backend);
  served.driver = {reinterpret_cast<decltype(Driver::launch)>(at(0)), reinterpret_cast<decltype(Driver::current)>(at(1)),
                   reinterpret_cast<decltype(Driver::push)>(at(2)), reinterpret_cast<decltype(Driver::pop)>(at(3))};
  served.stream = reinterpret_cast<decltype(Served::stream)>(at(4));
  size_t way = 0;
  for (PyObject** function : {&served.forward, &served.backward, &served.gradients, &served.norm_backward,
                              &served.layer_norm_backward, &served.squeeze_backward, &served.excite_backward,
                              &served.first_backward, &served.sums, &served.lowered_norm,
                              &served.lowered_norm_gradients, &served.scaled_sum_backward, &served.gelu,
                              &served.gelu_gradient, &served.pool_backward})
    *function = py::function(ways[way++]).release().ptr();
}

// Says nothing: that an operator's kernel is replaced is what is meant.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// From here on the operators of graphs are computed here.
void take_over() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  static torch::Library library(torch::Library::IMPL, "tapestry",
                                served.device == at::kCUDA ? DispatchKey::CUDA : DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("grouped_conv2d_lowered", lowered);
  library.impl("grouped_conv2d_gradients", gradients);
  library.impl("batch_norm_act_lowered", lowered_norm);
  library.impl("batch_norm_act_gradients", lowered_norm_gradients);
}

// Tensors, None for what is not there, and numbers: the result, or None where Python is to compute it.
PyMethodDef with(const char* name, PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL, nullptr};
}

PyMethodDef fast[] = {
    with("convolve", convolve),
    with("fused", fused),
    with("norm", norm),
    with("layer_norm", layer_norm),
    with("excited", excited),
    with("first", first),
    with("linked", linked),
    with("biased_linear", biased_linear),
    with("biased_convolution", biased_convolution),
    with("scaled_sum", scaled_sum),
    with("gelu", gelu),
    with("followed", followed),
    with("pooled", pooled),
    {"squeezed", squeezed, METH_O, nullptr},
    {"identity", identity, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace
}  // namespace tapestry

PYBIND11_MODULE(tapestry_native, module) {
  py::class_<tapestry::Link, tapestry::LinkPointer>(module, "Link")
      .def_property(
          "gate", [](const tapestry::Link& link) { return py::reinterpret_steal<py::object>(tapestry::wrapped(link.gate)); },
          [](tapestry::Link& link, const py::object& gate) { link.gate = tapestry::given_or_none(gate); });
  module.def("add_forward", tapestry::add_forward);
  module.def("add_fused", tapestry::add_fused);
  module.def("add_gradients", tapestry::add_gradients);
  module.def("name_setting", tapestry::name_setting);
  module.def("add_norm", tapestry::add_norm);
  module.def("add_norm_gradient", tapestry::add_norm_gradient);
  module.def("add_layer_norm", tapestry::add_layer_norm);
  module.def("add_layer_norm_gradient", tapestry::add_layer_norm_gradient);
  module.def("forget_convolutions", [] {
    tapestry::plans.clear();
    tapestry::fused_plans.clear();
  });
  module.def("forget_norms", [] {
    tapestry::norms.clear();
    tapestry::norm_gradients.clear();
  });
  module.def("add_first", tapestry::add_first);
  module.def("add_first_gradient", tapestry::add_first_gradient);
  module.def("forget_firsts", [] { tapestry::firsts.clear(); });
  module.def("add_sums", tapestry::add_sums);
  module.def("forget_sums", [] { tapestry::sums.clear(); });
  module.def("add_scaled_sum", tapestry::add_scaled_sum);
  module.def("add_scaled_sum_gradient", tapestry::add_scaled_sum_gradient);
  module.def("forget_scales", [] {
    tapestry::scaled_sums.clear();
    tapestry::scaled_sum_gradients.clear();
  });
  module.def("add_gelu", tapestry::add_gelu);
  module.def("add_gelu_gradient", tapestry::add_gelu_gradient);
  module.def("forget_gelus", [] {
    tapestry::gelus.clear();
    tapestry::gelu_gradients.clear();
  });
  module.def("add_followed", tapestry::add_followed);
  module.def("forget_followers", [] { tapestry::followers.clear(); });
  module.def("add_pool", [](int64_t setting, const py::object& x, const py::bytes& words) {
    tapestry::add_pool(false, setting, x, words);
  });
  module.def("add_recorded_pool", [](int64_t setting, const py::object& x, const py::bytes& words) {
    tapestry::add_pool(true, setting, x, words);
  });
  module.def("add_pool_gradient", tapestry::add_pool_gradient);
  module.def("forget_pools", [] {
    tapestry::pools.clear();
    tapestry::pool_gradients.clear();
  });
  module.def("add_images", tapestry::add_images);
  module.def("forget_images", [] { tapestry::images.clear(); });
  module.def("forget_layer_norms", [] {
    tapestry::layer_norms.clear();
    tapestry::layer_norm_gradients.clear();
  });
  module.def("repeated", tapestry::repeated);
  module.def("serve", tapestry::serve);
  module.def("take_over", tapestry::take_over);
  PyModule_AddFunctions(module.ptr(), tapestry::fast);
}
