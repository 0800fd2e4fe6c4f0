"""The public convolutions against a GPU that only takes notes: operands, errors, which kernels run, what is remembered.

Arrays are CuPy's, at addresses nobody owns; kernels are really compiled, so that every argument is packed into the
parameters the machine code declares.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest

from tapestry.kernels import conv2d as public
from tapestry.kernels.conv2d import conv2d, conv2d_input_gradient, conv2d_weight_gradient, weight_gradient_workspace
from tapestry.kernels.convolution import depthwise_weight_gradient_configuration, operands, prepare, weight_gradient
from tapestry.kernels.convolution.configuration import ForwardConfiguration
from tapestry.kernels.convolution.problem import BadConvolution, ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient_candidates import configurations
from tapestry.kernels.cost.gpu import tuned_gpu
from tapestry.kernels.errors import KernelError, WrongDevice, WrongDtype, WrongLayout, WrongShape, WrongType, WrongValue
from tapestry.kernels.runtime import bindings, device, tensor_map
from tapestry.kernels.runtime.arguments import Arguments
from tapestry.kernels.runtime.compiler import Recipe, compile_source
from tapestry.kernels.runtime.device import DeviceProperties
from tapestry.kernels.sharded import conv2d_input_gradient_shard, conv2d_shard, conv2d_weight_gradient_shard

H200 = DeviceProperties("NVIDIA H200", (9, 0), 132, 60 << 20, 227 << 10, 228 << 10, 65536, 2048, 141 << 30)
STREAM = 0x5EED
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "uint8": np.uint8}
_addresses = itertools.count(0x7000_0000_0000, 1 << 32)


def on_device(shape: tuple[int, ...], dtype: str = "f16", where: int = 0, shift: int = 0) -> Any:
    """A CuPy array at a fresh address nobody owns, moved by `shift` bytes."""
    memory = cupy.cuda.UnownedMemory(next(_addresses) + shift, 1 << 31, None, where)
    return cupy.ndarray(shape, dtype=DTYPES[dtype], memptr=cupy.cuda.MemoryPointer(memory, 0))


@dataclass
class Notes:
    """What the GPU was asked: kernels prepared, launches (kernel, stream), arrays allocated."""

    prepared: list[dict[str, Any]] = field(default_factory=list)
    launched: list[tuple[str, int]] = field(default_factory=list)
    allocated: list[tuple[tuple[int, ...], str]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [launch[0] for launch in self.launched]


class FakeKernel:
    """Packs arguments as a real one would."""

    device = 0

    def __init__(self, notes: Notes, name: str, source: str) -> None:
        self.notes, self.name, self.source = notes, name, source

    def prepare(
        self, grid: Any, block: Any, args: Any, shared: int = 0, programmatic: bool = False, cluster: Any = 1
    ) -> Any:
        entry = compile_source(self.source, name=self.name).entries[self.name]
        threads = block if isinstance(block, int) else int(np.prod(block))
        assert 0 < threads <= (entry.threads or 1024)
        assert 0 <= shared <= H200.shared_per_block
        Arguments(self.name, entry.parameters).pack(args)
        taken = {"name": self.name, "grid": grid, "programmatic": programmatic, "cluster": cluster}
        self.notes.prepared.append(taken)
        return FakePrepared(self)


@dataclass
class FakePrepared:
    kernel: FakeKernel

    def launch(self, stream: int) -> None:
        self.kernel.notes.launched.append((self.kernel.name, stream))


def encode(out: Any, *rest: Any) -> int:
    ctypes.memmove(out.value, bytes(range(128)), 128)
    return 0


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    """A GPU that takes notes."""
    found = Notes()

    def load(recipe: Recipe, where: int) -> FakeKernel:
        return FakeKernel(found, recipe.name, recipe.source)

    def all_of(problem: Any, chosen: Any, partial: bool, where: int) -> tuple[FakeKernel, ...]:
        source = weight_gradient.source(problem, chosen)
        return tuple(FakeKernel(found, name, source) for name in weight_gradient.kernel_names(chosen, partial))

    def empty(source: Any, x: Any, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        assert stream == STREAM
        found.allocated.append((shape, dtype))
        return on_device(shape, dtype, x.device)

    remembered = (public._forward_steps, public._input_gradient_steps, public._weight_gradient_steps)
    caches = [*remembered, prepare._forward_kernel, prepare.weight_gradient_choice, tensor_map._encoded]
    for cache in caches:
        cache.cache_clear()
    public._prepared.clear()
    monkeypatch.setattr(prepare, "_loaded", load)
    monkeypatch.setattr(weight_gradient, "kernels", all_of)
    monkeypatch.setattr(operands, "empty", empty)
    monkeypatch.setattr(device, "properties", lambda where: H200)
    monkeypatch.setattr(bindings, "runtime", lambda: found)
    monkeypatch.setattr(tensor_map, "driver_function", lambda name: encode)
    monkeypatch.setattr(public, "stream_pointer", lambda stream, *arrays: stream or STREAM)
    yield found
    for cache in caches:
        cache.cache_clear()


X, W = (8, 28, 28, 64), (64, 3, 3, 8)
LARGE = (64, 64, 64, 64)


def test_a_convolution_is_one_launch_of_the_tensor_core_kernel(notes: Notes) -> None:
    y = conv2d(on_device(X), on_device(W), groups=8, padding=1)
    assert y.shape == (8, 28, 28, 64)
    assert y.dtype == np.float16
    assert notes.launched == [("forward", STREAM)]
    assert notes.allocated == [((8, 28, 28, 64), "f16")]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_everything_can_be_given(notes: Notes, dtype: str) -> None:
    y = on_device((8, 14, 14, 64), dtype)
    found = conv2d(
        on_device(X, dtype),
        on_device(W, dtype),
        on_device((64,), "f32"),
        groups=8,
        stride=2,
        padding=(0, 2, 1, 1),
        scale=on_device((64,), "f32"),
        activation="silu",
        residual=on_device((8, 14, 14, 64), dtype),
        out=y,
        stream=0x77,
    )
    assert found is y
    assert notes.launched == [("forward", 0x77)]
    assert notes.allocated == []


def test_the_same_arrays_are_prepared_once(notes: Notes) -> None:
    x, w, y = on_device(X), on_device(W), on_device(X)
    for _ in range(3):
        conv2d(x, w, groups=8, padding=[1, 1], out=y)
    assert len(notes.prepared) == 1
    assert len(notes.launched) == 3
    conv2d(on_device(X), w, groups=8, padding=1, out=y)
    assert len(notes.prepared) == 2


@pytest.mark.parametrize(
    ("x", "w", "groups"),
    [
        (on_device((2, 9, 9, 12)), on_device((12, 3, 3, 4)), 3),  # 24 bytes a position
        (on_device((2, 9, 9, 64), shift=8), on_device(W), 8),
        (on_device((2, 9, 9, 68))[..., :64], on_device(W), 8),
        (on_device((2, 9, 9, 64))[:, ::-1], on_device(W), 8),
        (on_device((2, 9, 9, 7)), on_device((7, 3, 3, 1)), 7),
    ],
)
def test_what_the_copy_engine_cannot_fetch_is_computed_plainly(notes: Notes, x: Any, w: Any, groups: int) -> None:
    y = conv2d(x, w, groups=groups, padding=1)
    conv2d_input_gradient(y, w, shape=x.shape, groups=groups, padding=1, out=x)
    conv2d_weight_gradient(x, y, filter=(3, 3), groups=groups, padding=1)
    assert notes.names == ["direct", "direct", "direct_weight_gradient_rounded"]


@pytest.mark.parametrize(
    "x",
    [
        on_device((4, 20, 28, 64))[:, 3:13],
        on_device((8, 10, 28, 64))[::2],
        on_device((4, 10, 28, 128))[..., 64:],
        on_device((4, 10, 30, 64))[:, :, 1:29],
        on_device((28, 10, 4, 64)).transpose(2, 1, 0, 3),
    ],
)
def test_views_are_fetched_where_they_lie(notes: Notes, x: Any) -> None:
    conv2d(x, on_device(W), groups=8, padding=1)
    assert notes.names == ["forward"]


def test_an_axis_of_one_element_may_have_any_stride(notes: Notes) -> None:
    x = on_device((3, 10, 28, 64))[1:2]
    odd = cupy.ndarray((1, 10, 28, 64), np.float16, memptr=x.data, strides=(2, 3584, 128, 2))
    conv2d(odd, on_device(W), groups=8, padding=1)
    assert notes.names == ["forward"]


@pytest.mark.parametrize(("size", "stride", "dilation"), [(3, 1, 1), (3, 1, 2), (3, 2, 1), (3, 2, 2), (1, 2, 1)])
@pytest.mark.parametrize("square", [True, False])
def test_an_input_gradient_is_one_launch(notes: Notes, size: int, stride: int, dilation: int, square: bool) -> None:
    steps = (stride, stride) if square else (stride, 1)
    w = (64, size, size, 8)
    problem = ConvolutionProblem(8, 28, 28, 64, 8, size, size, steps, (dilation, dilation), (1, 1, 1, 1))
    dx = conv2d_input_gradient(
        on_device(problem.output_shape), on_device(w), shape=X, groups=8, stride=steps, dilation=dilation, padding=1
    )
    assert dx.shape == X
    assert notes.names == ["forward"]


def test_the_gradient_of_a_strided_view_is_one_launch(notes: Notes) -> None:
    out = on_device((8, 28, 60, 128))[:, :, 2:58:2, 64:]
    conv2d_input_gradient(on_device((8, 14, 14, 64)), on_device(W), shape=X, groups=8, stride=2, padding=1, out=out)
    assert notes.names == ["forward"]


def test_a_large_plain_weight_gradient_is_two_launches(notes: Notes) -> None:
    x = on_device((64, 56, 56, 12))
    conv2d_weight_gradient(x, x, filter=(3, 3), groups=12, padding=1)
    assert notes.names == ["direct_weight_gradient", "fold_rounded"]
    assert [kernel["programmatic"] for kernel in notes.prepared] == [True, True]


@pytest.mark.parametrize("partial", [False, True])
def test_a_small_weight_gradient_is_one_launch_of_clusters(notes: Notes, partial: bool) -> None:
    problem = ConvolutionProblem(4, 14, 14, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    x = on_device(problem.input_shape)
    chosen = next(chosen for chosen in configurations(problem, tuned_gpu()) if chosen.together and chosen.splits == 4)
    for configuration in (chosen, replace(chosen, splits=1)):
        conv2d_weight_gradient(x, x, filter=(3, 3), groups=8, padding=1, partial=partial, configuration=configuration)
    assert notes.names == [f"weight_gradient_{'partial' if partial else 'rounded'}"] * 2
    assert [kernel["cluster"] for kernel in notes.prepared] == [(1, 4), (1, 1)]
    assert [dtype for _, dtype in notes.allocated] == ["f32" if partial else "f16"] * 2
    assert [kernel["programmatic"] for kernel in notes.prepared] == [True, True]


@pytest.mark.parametrize(("partial", "fold"), [(False, "fold_rounded"), (True, "fold_partials")])
def test_a_weight_gradient_is_two_launches(notes: Notes, partial: bool, fold: str) -> None:
    dw = conv2d_weight_gradient(on_device(LARGE), on_device(LARGE), filter=(3, 3), groups=8, padding=1, partial=partial)
    assert dw.shape == W
    assert dw.dtype == (np.float32 if partial else np.float16)
    assert notes.names == ["weight_gradient", fold]
    assert [kernel["programmatic"] for kernel in notes.prepared] == [True, True]
    assert [dtype for _, dtype in notes.allocated] == ["f32" if partial else "f16", "uint8"]


def test_a_given_workspace_is_used(notes: Notes) -> None:
    x, dy = on_device(LARGE), on_device(LARGE)
    size = weight_gradient_workspace(x, dy, filter=(3, 3), groups=8, padding=1)
    room, dw = on_device((size,), "uint8"), on_device(W)
    conv2d_weight_gradient(x, dy, filter=(3, 3), groups=8, padding=1, out=dw, workspace=room)
    assert notes.allocated == []
    with pytest.raises(WrongShape, match=rf"workspace is too small[\s\S]*{size} bytes, aligned to 16[\s\S]*{size - 1}"):
        conv2d_weight_gradient(x, dy, filter=(3, 3), groups=8, padding=1, out=dw, workspace=room[:-1])


def test_configurations_can_be_given(notes: Notes) -> None:
    problem = ConvolutionProblem(8, 28, 28, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    x = on_device(X)
    apart = [choice for choice in configurations(problem, tuned_gpu()) if not choice.together]
    for choice in apart[:3]:
        conv2d_weight_gradient(x, on_device(X), filter=(3, 3), groups=8, padding=1, configuration=choice)
    assert notes.names == ["weight_gradient", "fold_rounded"] * 3
    odd = on_device((2, 9, 9, 12))
    with pytest.raises(WrongLayout, match="leave the configuration out"):
        conv2d(odd, on_device((12, 3, 3, 4)), groups=3, padding=1, configuration=ForwardConfiguration())
    with pytest.raises(WrongLayout, match="leave the configuration out"):
        conv2d_input_gradient(
            odd, on_device((12, 3, 3, 4)), shape=(2, 18, 18, 12), groups=3, stride=2, padding=1,
            configuration=ForwardConfiguration(),
        )  # fmt: skip


GOOD: dict[str, Any] = {"x": on_device(X), "w": on_device(W), "groups": 8, "padding": 1}


@pytest.mark.parametrize(
    ("changes", "kind", "expected", "came"),
    [
        ({"x": np.zeros(X, np.float16)}, WrongDevice, "an array on a GPU", "numpy.ndarray"),
        ({"x": on_device((28, 28, 64))}, WrongShape, "[n, h, w, c]", "(28, 28, 64)"),
        ({"x": on_device(X, "f32")}, WrongDtype, "f16 or bf16", "f32"),
        ({"x": on_device((8, 64, 28, 28)).transpose(0, 2, 3, 1)}, WrongLayout, "a stride of 2 bytes", "1568)"),
        ({"w": on_device((64, 8, 3, 3)).transpose(0, 2, 3, 1)}, WrongLayout, "dense", "strides"),
        ({"w": on_device(W, "bf16")}, WrongDtype, "f16", "bf16"),
        ({"w": on_device(W, where=1)}, WrongDevice, "device 0", "device 1"),
        ({"w": on_device((30, 3, 3, 8))}, BadConvolution, "a multiple of 8", "30"),
        ({"w": on_device((64, 3, 3, 4))}, WrongShape, "(64, 3, 3, 8)", "(64, 3, 3, 4)"),
        ({"w": on_device((64, 9, 9, 8))}, BadConvolution, "1 to 7", "9"),
        ({"w": None}, WrongType, "CuPy array", "NoneType"),
        ({"groups": 3}, BadConvolution, "a multiple of 3", "64"),
        ({"groups": 0}, WrongValue, "a positive integer", "0"),
        ({"groups": 8.0}, WrongValue, "a positive integer", "8.0"),
        ({"groups": 1}, WrongShape, "(64, 3, 3, 64)", "(64, 3, 3, 8)"),
        ({"x": on_device((8, 9, 9, 256)), "w": on_device((256, 3, 3, 256)), "groups": 1}, BadConvolution, "128", "256"),
        ({"stride": 3}, BadConvolution, "1 or 2", "(3, 3)"),
        ({"stride": (1, 1, 1)}, WrongValue, "(rows, columns)", "(1, 1, 1)"),
        ({"padding": (1, 1, 1)}, WrongValue, "(top, bottom, left, right)", "(1, 1, 1)"),
        ({"padding": (-20, -20, 0, 0)}, BadConvolution, ">= 1", "-1"),
        ({"bias": on_device((64,))}, WrongDtype, "f32", "f16"),
        ({"bias": on_device((32,), "f32")}, WrongShape, "(64,)", "(32,)"),
        ({"scale": on_device((128,), "f32")[::2]}, WrongLayout, "dense", "strides"),
        ({"residual": on_device((8, 28, 28, 32))}, WrongShape, "(8, 28, 28, 64)", "(8, 28, 28, 32)"),
        ({"activation": "tanh"}, WrongValue, "relu, silu, gelu", "'tanh'"),
        ({"out": on_device((8, 26, 26, 64))}, WrongShape, "(8, 28, 28, 64)", "(8, 26, 26, 64)"),
        ({"out": on_device(X, "f32")}, WrongDtype, "f16", "f32"),
    ],
)  # fmt: skip
def test_a_bad_call_is_refused(
    notes: Notes, changes: dict[str, Any], kind: type[KernelError], expected: str, came: str
) -> None:
    given = {**GOOD, **changes}
    with pytest.raises(kind) as caught:
        conv2d(given.pop("x"), given.pop("w"), given.pop("bias", None), **given)
    error = caught.value
    assert expected in str(error.expected)
    assert came in str(error.came)
    assert notes.launched == []


def test_an_output_must_not_be_the_input(notes: Notes) -> None:
    x = on_device(X)
    with pytest.raises(WrongValue, match="out is x"):
        conv2d(x, on_device(W), groups=8, padding=1, out=x)


def test_too_many_elements_are_refused() -> None:
    with pytest.raises(BadConvolution, match=r"elements of the input[\s\S]*2147483647"):
        conv2d(on_device((1024, 256, 128, 64)), on_device(W), groups=8)


def test_gradients_check_their_shapes() -> None:
    w = on_device(W)
    with pytest.raises(WrongShape, match=r"dy has the wrong shape[\s\S]*\(8, 28, 28, 64\)[\s\S]*\(8, 26, 26, 64\)"):
        conv2d_input_gradient(on_device((8, 26, 26, 64)), w, shape=X, groups=8, padding=1)
    with pytest.raises(WrongShape, match="shape of the input"):
        conv2d_input_gradient(on_device(X), w, shape=(8, 28, 28), groups=8, padding=1)
    with pytest.raises(WrongShape, match="shape of the input"):
        conv2d_input_gradient_shard(on_device(X), w, shape=(8, 28, 28), groups=8, padding=1)
    with pytest.raises(WrongShape, match="dy has the wrong shape"):
        conv2d_weight_gradient(on_device(X), on_device((8, 26, 26, 64)), filter=(3, 3), groups=8, padding=1)
    with pytest.raises(WrongDtype, match=r"out has the wrong type[\s\S]*f32"):
        conv2d_weight_gradient(
            on_device(X), on_device(X), filter=(3, 3), groups=8, padding=1, partial=True, out=on_device(W)
        )
    assert replace(prepare.Steps(())).launches == ()


def test_gradients_that_are_written_several_elements_at_once_begin_where_that_goes() -> None:
    """Those of depthwise layers of large filters on the GPU that they were measured on."""
    x, shape = on_device((64, 28, 28, 192)), (192, 7, 7, 1)
    problem = ConvolutionProblem(64, 28, 28, 192, 192, 7, 7, padding=(3, 3, 3, 3))
    cut = depthwise_weight_gradient_configuration.configurations(problem, tuned_gpu())[0]
    for dtype, step in (("f16", 8), ("f32", 16)):
        steps: dict[str, Any] = {"partial": dtype == "f32", "configuration": cut, "groups": 192, "padding": 3}
        with pytest.raises(
            WrongLayout, match=rf"out does not begin[\s\S]*multiple of {step} bytes[\s\S]*4 bytes beyond"
        ):
            conv2d_weight_gradient(x, x, filter=(7, 7), out=on_device(shape, dtype, shift=4), **steps)


def test_a_shard_refuses_a_ring_that_does_not_hold_what_its_rows_meet() -> None:
    """With halos that is more than the image has rows: a block of the grid would wait for the last of them for ever."""
    x, w, halo = on_device((8, 7, 7, 8)), on_device((8, 7, 7, 1)), on_device((8, 3, 7, 8))
    cut = ForwardConfiguration(8, 1, 1, 1, stages=7, chunk=7, pairs=2, leaving=7, together=2, filter="staged")
    given: dict[str, Any] = {"above": halo, "below": halo, "groups": 8, "padding": 3, "stream": 7, "configuration": cut}
    with pytest.raises(WrongValue, match="rows of a shard do not fit"):
        conv2d_shard(x, w, out=on_device((8, 7, 7, 8)), **given)


def test_a_shard_launches_its_own_rows_and_one_boundary_for_each_halo(notes: Notes) -> None:
    x, dy, w, halo = on_device(X), on_device(X), on_device(W), on_device((8, 1, 28, 64))
    given: dict[str, Any] = {"above": halo, "below": halo, "groups": 8, "padding": 1, "stream": 7}
    conv2d_shard(x, w, on_device((64,), "f32"), activation="relu", out=on_device(X), **given)
    assert notes.launched == [("forward", 7)] * 3
    conv2d_input_gradient_shard(dy, w, shape=X, out=on_device(X), **given)
    assert notes.launched == [("forward", 7)] * 6
    strided = (on_device((8, 56, 56, 64)), {**given, "stride": 2})
    conv2d_input_gradient_shard(dy, w, shape=strided[0].shape, out=strided[0], **strided[1])
    # Only the last rows read a halo, that below.
    assert notes.launched == [("forward", 7)] * 8
    space = on_device((1 << 28,), "f32")
    conv2d_weight_gradient_shard(x, dy, filter=(3, 3), out=on_device(W, "f32"), workspace=space, **given)
    # x lies in three buffers; the fold ends it.
    assert len(notes.launched) == 12
    # The halo arrives with an event: what reads it is launched in the plain way.
    assert [kernel["programmatic"] for kernel in notes.prepared[-4:]] == [True, False, False, True]
