"""On a GPU: launches, streams, graphs, devices, threads, tensor maps, and what a launch costs the host.

`python tests/kernels/gpu/test_runtime.py` prints the host's cost of a launch; the tests assert no times.
"""

from __future__ import annotations

import threading
import timeit
from typing import Any

import numpy as np
import pytest

from tapestry.kernels.errors import KernelError, Unavailable
from tapestry.kernels.runtime.array import array
from tapestry.kernels.runtime.compiler import compile_source
from tapestry.kernels.runtime.device import device_architecture, device_count, properties
from tapestry.kernels.runtime.module import Kernel, load
from tapestry.kernels.runtime.stream import stream_pointer
from tapestry.kernels.runtime.tensor_map import TensorMap

SOURCE = """
extern "C" __global__ void affine(float* y, const float* x, int n, float a, double b) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + (float)b;
}
extern "C" __global__ void spin(long long cycles) { long long t = clock64(); while (clock64() - t < cycles) {} }
extern "C" __global__ void reverse(unsigned char* y, int n) {
  extern __shared__ unsigned char tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = y[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}
struct alignas(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void fetch(const __grid_constant__ Map map, unsigned short* y, int x0, int y0) {
  alignas(1024) __shared__ unsigned short tile[8 * 64];
  __shared__ unsigned long long barrier;
  unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(8 * 64 * 2) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(&map), "r"(at), "r"(x0), "r"(y0) : "memory");
  }
  __syncthreads();
  asm volatile("{.reg .pred done;\\nwait: mbarrier.try_wait.parity.shared.b64 done, [%0], 0;\\n"
               "@!done bra wait;}" ::"r"(at));
  for (int i = threadIdx.x; i < 8 * 64; i += blockDim.x) y[i] = tile[i];
}
struct Long { int numbers[2000]; };
extern "C" __global__ void sum(int* y, const __grid_constant__ Long given, int last) {
  int found = last;
  for (int i = 0; i < 2000; ++i) found += given.numbers[i];
  y[0] = found;
}
extern "C" __global__ void after(int* y) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  y[0] += 1;
}
extern "C" __global__ void before(int* y) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  long long t = clock64();
  while (clock64() - t < 100000) {}
  y[0] *= 10;
}
"""


def absent() -> str:
    """Why there is nothing to test here, or nothing."""
    try:
        return "" if device_count() else "no GPU"
    except Unavailable as error:
        return error.what


pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "a GPU is here")


def kernel(name: str, device: int = 0) -> Kernel:
    return load(compile_source(SOURCE, name=name, arch=device_architecture(device)), device)


def cupy() -> Any:
    return pytest.importorskip("cupy")


def test_the_device_describes_itself() -> None:
    found = properties(0)
    assert found.sms > 0
    assert found.shared_per_sm >= found.shared_per_block >= 48 << 10
    assert found.memory_bytes > found.l2_bytes > 0
    assert device_architecture(0) == f"sm_{10 * found.capability[0] + found.capability[1]}"
    with pytest.raises(KernelError, match="no such device"):
        properties(device_count())


def test_a_launch_computes() -> None:
    cp = cupy()
    x = cp.random.rand(10_001, dtype=cp.float32)
    y = cp.full_like(x, cp.nan)
    kernel("affine").launch(40, 256, (array(y), array(x), x.size, 2.0, 1.0))
    np.testing.assert_array_equal(y.get(), np.float32(2) * x.get() + np.float32(1))


def test_a_prepared_launch_computes_again() -> None:
    cp = cupy()
    x, y = cp.arange(100, dtype=cp.float32), cp.zeros(100, cp.float32)
    prepared = kernel("affine").prepare(1, 128, (array(y), array(x), 100, 1.0, 5.0))
    prepared.launch()
    x += 1
    prepared.launch()
    np.testing.assert_array_equal(y.get(), np.arange(100) + 6)


def test_a_launch_takes_more_than_4_kilobytes_of_arguments() -> None:
    cp = cupy()
    y = cp.zeros(1, cp.int32)
    kernel("sum").launch(1, 1, (array(y), np.arange(2000, dtype=np.int32).tobytes(), 7))
    assert int(y[0]) == 2000 * 1999 // 2 + 7


def test_work_is_ordered_on_the_callers_cupy_stream() -> None:
    cp = cupy()
    x, y = cp.zeros(1000, cp.float32), cp.zeros(1000, cp.float32)
    side = cp.cuda.Stream(non_blocking=True)
    spin, affine = kernel("spin"), kernel("affine")
    spin.launch(1, 1, (1,))  # compiled and loaded, which a busy host takes longer for than the device spins
    affine.launch(4, 256, (array(y), array(y), 1000, 1.0, 0.0))
    cp.cuda.Device().synchronize()
    with side:
        assert stream_pointer(None) == side.ptr
        spin.launch(1, 1, (1_000_000_000,))
        affine.launch(4, 256, (array(x), array(x), 1000, 1.0, 3.0))
        affine.launch(4, 256, (array(y), array(x), 1000, 2.0, 0.0))
    assert not side.done  # which takes a busy host its time to ask
    side.synchronize()
    assert (y.get() == 6).all()


def test_torch_tensors_run_on_torchs_stream() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    y = torch.full_like(x, float("nan"))
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        found = array(y)
        assert found.framework == "torch"
        assert stream_pointer(None, found) == side.cuda_stream
        kernel("affine").launch(4, 256, (found, array(x), 1000, 2.0, 0.0), stream=stream_pointer(None, found))
        doubled = y * 2
    side.synchronize()
    assert torch.equal(doubled, 4 * x)
    half = torch.zeros(4, 4, device="cuda", dtype=torch.bfloat16)
    assert array(half).dtype == "bf16"


@pytest.mark.parametrize("programmatic", [False, True])
def test_launches_are_captured_in_a_graph(programmatic: bool) -> None:
    cp = cupy()
    y = cp.full(1, 3, cp.int32)
    first, second = kernel("before"), kernel("after")
    side = cp.cuda.Stream(non_blocking=True)
    side.begin_capture()
    first.launch(1, 1, (array(y),), stream=side)
    second.launch(1, 1, (array(y),), stream=side, programmatic=programmatic)
    graph = side.end_capture()
    assert y.get()[0] == 3
    for _ in range(2):
        graph.launch(stream=side)
    side.synchronize()
    assert y.get()[0] == (3 * 10 + 1) * 10 + 1


def test_torch_captures_launches() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    affine = kernel("affine")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = array(y)
        affine.launch(4, 256, (found, array(x), 1000, 3.0, 0.0), stream=stream_pointer(None, found))
    x.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert (y == 6).all()


def test_a_programmatic_launch_waits_for_the_memory_of_the_one_before() -> None:
    cp = cupy()
    y = cp.full(1, 3, cp.int32)
    first, second = kernel("before"), kernel("after")
    for _ in range(3):
        first.launch(1, 1, (array(y),))
        second.launch(1, 1, (array(y),), programmatic=True)
    assert y.get()[0] == 3111


@pytest.mark.parametrize("size", [1000, 48 << 10, 100_000, 200_000])
def test_a_block_has_the_shared_memory_it_asks_for(size: int) -> None:
    cp = cupy()
    if size > properties(0).shared_per_block:
        pytest.skip("this GPU has less shared memory")
    y = cp.random.randint(0, 256, size, dtype=cp.uint8)
    wanted = y.get()[::-1]
    kernel("reverse").launch(1, 1024, (array(y), size), shared=size)
    np.testing.assert_array_equal(y.get(), wanted)


@pytest.mark.parametrize(("x0", "y0"), [(0, 0), (8, 3), (-8, -1), (72, 18), (0, -9)])
def test_a_tensor_map_fetches_boxes_and_zeros_outside(x0: int, y0: int) -> None:
    cp = cupy()
    if properties(0).capability < (9, 0):
        pytest.skip("the bulk copy engine came with Hopper")
    x = cp.arange(1, 20 * 96 + 1, dtype=cp.uint16).reshape(20, 96)
    y = cp.zeros((8, 64), cp.uint16)
    found = array(x)
    tensor = TensorMap.tiled(found.pointer, "uint16", (96, 20), found.strides[:1], (64, 8), swizzle="none")
    kernel("fetch").launch(1, 64, (tensor, array(y), x0, y0))
    padded = np.zeros((60, 260), np.uint16)
    padded[20:40, 80:176] = x.get()
    np.testing.assert_array_equal(y.get(), padded[20 + y0 : 28 + y0, 80 + x0 : 144 + x0])


def test_a_swizzle_exchanges_sixteen_byte_pieces_within_rows() -> None:
    cp = cupy()
    if properties(0).capability < (9, 0):
        pytest.skip("the bulk copy engine came with Hopper")
    x = cp.arange(8 * 64, dtype=cp.uint16).reshape(8, 64)
    y = cp.zeros((8, 64), cp.uint16)
    tensor = TensorMap.tiled(array(x).pointer, "uint16", (64, 8), (128,), (64, 8), swizzle="128B")
    kernel("fetch").launch(1, 64, (tensor, array(y), 0, 0))
    pieces, got = x.get().reshape(8, 8, 8), y.get().reshape(8, 8, 8)
    for row in range(8):
        for piece in range(8):
            np.testing.assert_array_equal(got[row, piece ^ row], pieces[row, piece])


def test_threads_share_a_kernel() -> None:
    cp = cupy()
    affine = kernel("affine")
    x = cp.ones(1000, cp.float32)
    ys = [cp.zeros(1000, cp.float32) for _ in range(8)]
    cp.cuda.Device().synchronize()

    def work(index: int) -> None:
        for _ in range(200):
            affine.launch(4, 256, (array(ys[index]), array(x), 1000, float(index), 0.0), stream=0)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cp.cuda.Device().synchronize()
    assert all((y.get() == index).all() for index, y in enumerate(ys))


@pytest.mark.parametrize("current", [0, 1])
def test_a_kernel_runs_on_its_own_device(current: int) -> None:
    cp = cupy()
    if device_count() < 2:
        pytest.skip("one GPU")
    for device in (0, 1):
        with cp.cuda.Device(device):
            x, y = cp.ones(1000, cp.float32), cp.zeros(1000, cp.float32)
            cp.cuda.Device().synchronize()
        assert array(y).device == device
        with cp.cuda.Device(current):
            kernel("affine", device).launch(4, 256, (array(y), array(x), 1000, 2.0, float(device)))
            assert cp.cuda.runtime.getDevice() == current
        with cp.cuda.Device(device):
            assert (y.get() == 2 + device).all()


def test_portable_assembly_is_finished_by_the_driver() -> None:
    cp = cupy()
    major, minor = properties(0).capability
    made = compile_source(SOURCE, name="affine", arch=f"compute_{major}{minor}")
    x, y = cp.ones(10, cp.float32), cp.zeros(10, cp.float32)
    load(made).launch(1, 32, (array(y), array(x), 10, 2.0, 1.0))
    assert (y.get() == 3).all()


def host_cost() -> dict[str, float]:
    """Microseconds of host time a call, the GPU kept nearly idle by a grid of one block."""
    cp = cupy()
    x, y = cp.ones(10, cp.float32), cp.zeros(10, cp.float32)
    affine = kernel("affine")
    args = (array(y), array(x), 10, 2.0, 1.0)
    prepared = affine.prepare(1, 32, args)
    later = affine.prepare(1, 32, args, programmatic=True)
    raw = cp.RawModule(code=SOURCE, options=("--std=c++17",)).get_function("affine")
    plain = (y, x, np.int32(10), np.float32(2), np.float64(1))
    tensor = (array(x).pointer, "f32", (64, 8), (256,), (32, 8))
    calls: dict[str, Any] = {
        "CuPy's own launch": lambda: raw((1,), (32,), plain),
        "launch": lambda: affine.launch(1, 32, args, stream=0),
        "launch on the current stream": lambda: affine.launch(1, 32, args),
        "launch, arrays described each time": lambda: affine.launch(
            1, 32, (array(y), array(x), 10, 2.0, 1.0), stream=0
        ),
        "prepared": lambda: prepared.launch(0),
        "prepared, current stream": lambda: prepared.launch(),
        "prepared, programmatic": lambda: later.launch(0),
        "describing a CuPy array": lambda: array(x),
        "a remembered tensor map": lambda: TensorMap.tiled(*tensor),
    }
    try:
        import torch

        t = torch.zeros(8, 64, 28, 28, device="cuda", dtype=torch.bfloat16)
        found = array(t)
        calls["describing a torch tensor"] = lambda: array(t)
        calls["torch's current stream"] = lambda: stream_pointer(None, found)
    except ImportError:
        pass
    costs = {}
    for what, call in calls.items():
        call()
        rounds = []
        for _ in range(5):
            cp.cuda.Device().synchronize()
            rounds.append(timeit.timeit(call, number=500) / 500)
        costs[what] = 1e6 * sorted(rounds)[2]
    return costs


if __name__ == "__main__":
    for what, cost in host_cost().items():
        print(f"{cost:8.2f} us  {what}")
