// Calls a kernel block by block with arguments given by address.
#pragma once

#include <type_traits>
#include <utility>

#include "machine.hpp"

template <class... Parameters, std::size_t... I>
void call(void (*kernel)(Parameters...), const void* const* arguments, std::index_sequence<I...>) {
    kernel(*static_cast<const std::remove_cv_t<std::remove_reference_t<Parameters>>*>(arguments[I])...);
}

// Bytes of a kernel's parameter; none beyond the last.
template <class... Parameters>
constexpr unsigned parameter_bytes(void (*)(Parameters...), unsigned index) {
    constexpr unsigned sizes[] = {sizeof(Parameters)..., 0u};
    return index < sizeof...(Parameters) ? sizes[index] : 0u;
}

// What went wrong, or an empty string. A cluster is so many blocks along y.
template <class... Parameters>
const char* run_grid(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* threads, const void* const* arguments, unsigned seed,
                     unsigned cluster = 1) {
    struct Call {
        void (*kernel)(Parameters...);
        const void* const* arguments;
    };
    const Call made{kernel, arguments};
    const auto one_lane = [](const void* given) {
        const Call& made = *static_cast<const Call*>(given);
        call(made.kernel, made.arguments, std::index_sequence_for<Parameters...>());
    };
    return emulated::run(grid, threads, seed, cluster, one_lane, &made);
}
