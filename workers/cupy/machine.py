"""What the device asks of a GPU: memory, launches, copies. `cuda` is the one there is; tests have another.

Everything here but memory happens on the machine's current stream, in the order of the calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...kernels.cost.gpu import tuned_gpu
from ..device import Bound, DType, Replay, Runner
from .arrays import DeviceArray, Memory
from .scratch import Scratch

if TYPE_CHECKING:
    from .exchange import Exchange

THREADS, WARP = 256, 32
PAGE = 1 << 21  # what other processes open are whole pages of the device


@dataclass(frozen=True)
class Unit:
    """A kernel of one launch: its source, the name in it, blocks and threads. Its parameters are pointers.

    exact: every function is rounded for itself, as the language says; otherwise a product and a sum may be one.
    ``shared``: bytes of dynamic shared memory of a block. ``cluster``: blocks of a cluster, as the source says too.
    own: it needs what no newer architecture has (sm_90a). Parameters may then be tensor maps and numbers too.
    ``follows``: it waits itself for the kernels ahead of it (`follow` of order.cuh), and may start before they end.
    """

    source: str
    entry: str
    blocks: int
    threads: int = THREADS
    exact: bool = True
    shared: int = 0
    cluster: int = 1
    own: bool = False
    follows: bool = False


@dataclass(frozen=True)
class OfTorch:
    """What torch is asked for, and what that is called."""

    run: Runner
    kernels: tuple[str, ...]

    def __call__(self) -> None:
        self.run()


@dataclass(frozen=True)
class Heads:
    """Vectors in an array: element e of head h of row t of batch b is at offset + b*batch + t*row + h*head + e."""

    array: DeviceArray
    offset: int
    batch: int
    row: int
    head: int


@dataclass(frozen=True)
class Keys:
    """So many keys from one on: all queries see all of them, or (causal) query t the keys up to the t-th."""

    first: int
    count: int
    causal: bool


@dataclass(frozen=True)
class Attention:
    """States (o, l, m) of queries over some ranges of keys.

    heads are those of queries, ``groups`` those of keys and values; a state's elements lie one after another.
    ``finished``: not the states are wanted but o / l, as wide and of the type as the queries. ``read_by``: nor is that
    wanted, but the product whose left operand it is; it may be stored or not.
    """

    query: Heads
    key: Heads
    value: Heads
    state: Heads
    batches: int
    rows: int
    heads: int
    groups: int
    width: int
    scale: float
    parts: tuple[Keys, ...]
    finished: bool = False
    read_by: Product | None = None


@dataclass(frozen=True)
class Matrices:
    """Matrices of one operand in an array: element (i, j) of matrix b lies at offset + b*batch + i*row + j*column.

    Offsets and steps count elements. One of row and column is 1, or that axis is 1 long.
    """

    array: DeviceArray
    offset: int
    batch: int
    row: int
    column: int


@dataclass(frozen=True)
class Product:
    """out[b] = left[b] @ right[b] for matrices [rows, folded] and [folded, columns]; and added[b] where it is given.

    What is added lies as out does, or is out itself. ``positive``: what is less than 0 in the end is 0.
    """

    left: Matrices
    right: Matrices
    out: Matrices
    batches: int
    rows: int
    columns: int
    folded: int
    added: Matrices | None = None
    positive: bool = False


@dataclass(frozen=True)
class Paired:
    """out = function(left @ first, left @ second) for bf16 matrices [rows, folded] and [folded, columns].

    ``function``: a C++ expression's statements, of the f32 sums ``a`` and ``b``, the last of which returns.
    """

    left: Matrices
    first: Matrices
    second: Matrices
    out: Matrices
    rows: int
    columns: int
    folded: int
    function: tuple[str, ...]


@dataclass(frozen=True)
class Strided:
    """A part of an array: extents, and the steps along each axis; offset and steps count elements."""

    array: DeviceArray
    offset: int
    extents: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """One direction: x index = stride * y index + dilation * w index - before.

    x reads as zero, or is not written, that many places before its first element and after its last one.
    """

    stride: int
    dilation: int
    before: int
    after: int


@dataclass(frozen=True)
class Convolution:
    """One of x [n, c, ..], w [k, c, ..] and y [n, k, ..] from the other two; behind those an axis for each window.

    y is the sum of x * w over c and the taps; x and w are the gradients of that sum, y being what it is multiplied by.
    Of several groups x has the channels c, and w and y the channels k, one group after another.
    """

    x: Strided
    w: Strided
    y: Strided
    windows: tuple[Window, ...]
    groups: int
    computed: Literal["x", "w", "y"]

    @property
    def result(self) -> Strided:
        """What is computed."""
        return {"x": self.x, "w": self.w, "y": self.y}[self.computed]

    def even(self, k: int) -> bool:
        """Whether as many zeros after x's last element as there are before its first one leave y as long as it is."""
        window, taps = self.windows[k], self.w.extents[k + 2]
        room = self.x.extents[k + 2] + 2 * window.before - window.dilation * (taps - 1) - 1
        return room // window.stride + 1 == self.y.extents[k + 2]


@dataclass(frozen=True)
class Lines:
    """Elements of ``width`` bytes to copy: extents, and the steps in bytes on either side."""

    source: int
    target: int
    width: int
    extents: tuple[int, ...]
    source_steps: tuple[int, ...]
    target_steps: tuple[int, ...]


@dataclass(frozen=True)
class Meeting:
    """Rank ``number`` comes to it, counts it at the address ``held``, writes that as its flag to the ranks whose bits
    are in ``tell``, and waits for as much in its own flags of the ranks in ``hear``. The flags of the meeting begin
    ``offset`` bytes into the memories whose addresses by rank are in ``table``.
    """

    held: int
    table: DeviceArray
    offset: int
    number: int
    tell: int
    hear: int


class Machine(ABC):
    """One GPU. ``number``: what CUDA calls it; ``worth``: multiplications that are worth a library's call;
    ``clusters``: whether blocks form clusters; ``multiprocessors``: how many it has, by default as many as the GPU that
    kernels were tuned on; ``product_bytes``: what the library of products works in, if it may.
    """

    number: int = 0
    # 655,360 of them take 6 to 12 us by cuBLASLt, and 2 to 3 by a kernel of their own (f32, H200, 2026-11-22).
    worth: int = 1 << 20
    clusters: bool = True
    product_bytes: int = 0

    @property
    def multiprocessors(self) -> int:
        return tuned_gpu().sms

    @abstractmethod
    def memory(self, tier: str, nbytes: int) -> Memory:
        """Exactly so many bytes of the device, or of page-locked host memory. MemoryError if there is no room."""

    @abstractmethod
    def fill(self, array: DeviceArray, byte: int) -> None:
        """Set every byte of an array."""

    def zeros(self, size: int, dtype: DType) -> DeviceArray:
        """An array of one axis, of memory of its own, all 0 from now on until a kernel writes to it."""
        found = DeviceArray(self.memory("", size * dtype.itemsize), 0, (size,), dtype)
        self.fill(found, 0)
        return found

    @abstractmethod
    def launch(self, unit: Unit, arrays: Sequence[DeviceArray]) -> Runner:
        """A launch of a kernel with the arrays' addresses as its arguments."""

    @abstractmethod
    def copy(self, lines: Lines, arrays: Sequence[DeviceArray]) -> Runner:
        """A copy between arrays of the device or of page-locked memory."""

    @abstractmethod
    def product(self, product: Product, space: DeviceArray) -> Runner | None:
        """Matrix products by a library; None where it has none of these dtypes. space: bytes of its own while it runs,
        which may be none.
        """

    @abstractmethod
    def paired(self, paired: Paired) -> Runner | None:
        """Two products and a function of both, neither of which is written; None where the GPU has no way to do so."""

    @abstractmethod
    def convolution(self, convolution: Convolution, scratch: Scratch) -> Runner | None:
        """A convolution by a library; None where it has none for these. What is taken is its own while it runs."""

    @abstractmethod
    def attention(self, attentions: Sequence[Attention], scratch: Scratch) -> Runner | None:
        """Attention by a library, all computed before any result is written; None where it has none for these. What is
        taken is its own while it runs.
        """

    @property
    @abstractmethod
    def attention_slopes(self) -> Callable[..., tuple[Any, Any, Any]] | None:
        """The slopes of q, k and v by a library, of torch's tensors [batch, head, row, element]: the slope of the
        result, q, k, v, the result, the logs of the sums of all weights [batch, head, row, 1], whether a query sees the
        keys up to its own alone, and the scale. None where there is none.
        """

    @abstractmethod
    def tensor(self, array: DeviceArray) -> Any:
        """torch's tensor of the elements of an array, where they lie."""

    @abstractmethod
    def torch(self, run: Runner, kernels: tuple[str, ...] = ("torch",)) -> Runner:
        """What a function asks of torch, on the current stream; what it allocates stays where it is when replayed.
        ``kernels``: what to call it.
        """

    @abstractmethod
    def upload(self, host: bytes, target: DeviceArray) -> None:
        """Bytes of the host into an array, at once."""

    @abstractmethod
    def download(self, source: DeviceArray) -> bytes:
        """The bytes of an array, at once, after all that was asked for before."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait for all streams."""

    @abstractmethod
    def mark(self) -> Callable[[], float]:
        """See `Device.mark`."""

    @abstractmethod
    def reached(self) -> Callable[[], bool]:
        """See `Device.reached`."""

    @abstractmethod
    def replay(self, tasks: Sequence[Bound], *, side_by_side: bool) -> Replay:
        """Tasks of one rank on their lanes side by side, or of any ranks in the order that is given."""

    @abstractmethod
    def captured(self, run: Runner) -> Runner:
        """What a function asks for, as one thing to be asked for again. It has run once."""

    @abstractmethod
    def before_torch(self) -> AbstractContextManager[Any]:
        """See `Device.before_torch`."""

    @abstractmethod
    def running(self) -> AbstractContextManager[Any]:
        """What holds while runners run; all kernels are loaded once it is entered."""

    @abstractmethod
    def close(self) -> None:
        """Wait, and give back what libraries hold. Nothing may be asked for any more."""

    # -- other processes --------------------------------------------------------------------------------------------

    @abstractmethod
    def handle(self, memory: Memory) -> str | None:
        """What other processes open a memory of the device by; None for memory of the host."""

    @abstractmethod
    def opened(self, handle: str, nbytes: int) -> Memory | None:
        """The memory of another process, until it is `let_go`; None where the GPUs have no way to each other."""

    @abstractmethod
    def let_go(self, memory: Memory) -> None:
        """Close what was opened. Nothing that was asked for uses it any more."""

    @abstractmethod
    def meet(self, meeting: Meeting) -> Runner:
        """Come to a meeting."""

    @abstractmethod
    def exchange(self, exchange: Exchange) -> Runner:
        """A meeting, copies, a meeting, as one."""

    @abstractmethod
    def behind(self) -> AbstractContextManager[Any]:
        """Inside, what CuPy is asked for, and what DLPack waits for, comes before whatever is asked of the machine."""

    @abstractmethod
    def baseline_bytes(self) -> int:
        """Bytes in use on the GPU beside the memory that `memory` gave for tiers."""

    @abstractmethod
    def torch_device(self) -> str:
        """What torch calls the GPU."""
