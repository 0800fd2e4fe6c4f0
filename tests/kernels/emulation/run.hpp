// Calls a kernel block by block with arguments given by address.
#pragma once

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

template <class... Parameters, std::size_t... I>
void call(void (*kernel)(Parameters...), const void* const* arguments, std::index_sequence<I...>) {
    kernel(*static_cast<const std::remove_cv_t<std::remove_reference_t<Parameters>>*>(arguments[I])...);
}

// What went wrong, or an empty string. A cluster is so many blocks along y.
template <class... Parameters>
const char* run_grid(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* threads, const void* const* arguments, unsigned seed,
                     unsigned cluster = 1) {
    static std::string failure;
    failure.clear();
    try {
        for (unsigned z = 0; z < grid[2]; ++z)
            for (unsigned y = 0; y < grid[1]; y += cluster)
                for (unsigned x = 0; x < grid[0]; ++x) {
                    std::vector<Index> blocks;
                    for (unsigned rank = 0; rank < cluster; ++rank) blocks.push_back({x, y + rank, z});
                    emulated::run_cluster({grid[0], grid[1], grid[2]}, blocks, {threads[0], threads[1], threads[2]}, seed++, [&] {
                        call(kernel, arguments, std::index_sequence_for<Parameters...>());
                    });
                }
    } catch (const std::exception& error) {
        failure = error.what();
    }
    return failure.c_str();
}
