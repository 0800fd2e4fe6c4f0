"""Spio's kernels for group width 8 (pip install spio), each configuration it offers timed, the best one kept."""

from __future__ import annotations

import contextlib
import ctypes
import random
import sys
import types
from pathlib import Path
from typing import Any

import torch
from gpu_timing import median_us  # type: ignore[import-not-found, unused-ignore]

from tapestry.kernels.convolution.problem import ConvolutionProblem


class Spio:
    """The library, loaded. Raises ImportError (or OSError) where it is not installed or finds no compiler."""

    def __init__(self) -> None:
        _find_compiler()
        from spio.compiler import compile_kernel_configs
        from spio.cuda import driver
        from spio.kernels.conv2d_gw8_kernel import conv2d_gw8_kernel_factory
        from spio.kernels.conv2d_gw8_params import Conv2dGw8Params
        from spio.kernels.conv2d_gw8_wgrad_kernel import conv2d_gw8_wgrad_kernel_factory

        self._compile, self._parameters = compile_kernel_configs, Conv2dGw8Params
        self._dense, self._weights = conv2d_gw8_kernel_factory, conv2d_gw8_wgrad_kernel_factory
        self._attributes = driver.get_device_attributes(0)

    def takes(self, problem: ConvolutionProblem) -> bool:
        top, bottom, left, right = problem.padding
        plain = problem.stride == problem.dilation == (1, 1) and problem.dtype == "f16"
        return plain and problem.width == 8 and (top, left) == (bottom, right)

    def best_us(self, problem: ConvolutionProblem, operands: Any, what: str, most: int) -> tuple[float, int, int]:
        """(median microseconds of the best, configurations tried, configurations there are)."""
        top, _, left, _ = problem.padding
        extents = {name: getattr(problem, name) for name in ("n", "c", "h", "w", "r", "s")}
        parameters = self._parameters(**extents, padding=(top, left))
        factory = self._weights if what == "weight_gradient" else self._dense
        options = {"igrad": True} if what == "input_gradient" else {}
        offered = sorted(set(factory.configs(parameters, self._attributes, **options)), key=repr)
        tried = offered if len(offered) <= most else random.Random(0).sample(offered, most)
        compiled = self._compile(factory, parameters, configs=tried, device_attr=self._attributes, **options)
        return min(self._time(kernel, operands, what) for kernel in compiled), len(tried), len(offered)

    def _time(self, kernel: Any, operands: Any, what: str) -> float:
        xs, dys = operands.xs, operands.dys
        result = torch.zeros_like(operands.w, dtype=torch.float32) if what == "weight_gradient" else None
        outs = operands.outs[what]

        def arguments(i: int) -> tuple[Any, ...]:
            if what == "forward":
                return (outs[i % len(outs)], xs[i % len(xs)], operands.w, None)
            if what == "input_gradient":
                return (outs[i % len(outs)], dys[i % len(dys)], operands.w, None)
            return (result, xs[i % len(xs)], dys[i % len(dys)])

        kernel.load(0)
        launch = kernel.kernel_spec.launch_params
        try:
            return median_us(lambda i: kernel.function.launch(launch.grid, launch.block, arguments(i)), 12)
        finally:
            kernel.unload()


def _find_compiler() -> None:
    """Spio asks package resources of CUDA 12 for its compiler and headers; CUDA 13 keeps them in one folder. It also
    imports xgboost for its own choice of configuration, which is not asked for here."""
    import importlib_resources
    import nvidia

    toolkit = next(Path(place, "cu13") for place in nvidia.__path__ if Path(place, "cu13", "lib").is_dir())
    for library in sorted((toolkit / "lib").glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    headers = toolkit if (toolkit / "include" / "cuda_pipeline_primitives.h").exists() else Path("/usr/local/cuda")
    compiler = types.SimpleNamespace(joinpath=lambda _: str(toolkit / "lib" / "libnvrtc.so.13"))
    places = {"nvidia.cuda_nvrtc.lib": compiler, "nvidia.cuda_runtime": headers}
    original = importlib_resources.files
    importlib_resources.files = lambda package: places.get(package) or original(package)
    with contextlib.suppress(ImportError):
        import xgboost  # noqa: F401

        return
    stub: Any = types.ModuleType("xgboost")
    stub.Booster = stub.DMatrix = object
    sys.modules["xgboost"] = stub
