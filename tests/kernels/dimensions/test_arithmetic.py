"""Folds, layouts, cursors and compound indices against NumPy, on generated specifications.

Every example is a batch of specifications that become one shared library: the declarations under test, and for each a
function that answers for arrays of indices.
"""

import ctypes
from math import prod

import numpy as np
import numpy.typing as npt
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tapestry.kernels.dimensions.declarations import declarations
from tapestry.kernels.dimensions.specification import (
    AnyDimension,
    Axis,
    Compound,
    Dimension,
    Extent,
    Fold,
    Module,
    Specification,
    Tensor,
)

from .toolchain import compiler, shared_library

compiler()
Ints = npt.NDArray[np.int64]
BATCHES = settings(max_examples=5, phases=[Phase.generate])  # shrinking a batch compiles it again and again


def build(texts: list[str]) -> ctypes.CDLL:
    return shared_library("\n".join(texts))


def call(library: ctypes.CDLL, name: str, inputs: Ints, results: int, *numbers: int) -> Ints:
    """Row i of the answer is what the function makes of row i of the inputs."""
    given_rows = np.ascontiguousarray(inputs, dtype=np.int32)
    answers = np.full((len(inputs), results), -(2**60), dtype=np.int64)
    function = getattr(library, name)
    extra = [ctypes.c_longlong(number) for number in numbers]
    function(ctypes.c_void_p(given_rows.ctypes.data), ctypes.c_void_p(answers.ctypes.data), len(inputs), *extra)
    return answers


def rows_function(name: str, columns: int, results: list[str], before: str = "", numbers: tuple[str, ...] = ()) -> str:
    """C++ over rows: `in[0]`, `in[1]`, ... are the row's indices, the results go to the row's answers."""
    extra = "".join(f", long long {number}" for number in numbers)
    body = " ".join(f"out[{i}] = {result};" for i, result in enumerate(results))
    step = f"in += {columns}, out += {len(results)}"
    loop = f"for (int row = 0; row < count; ++row, {step}) {{ {before} {body} }}"
    return f'extern "C" void {name}(const int* in, long long* out, int count{extra}) {{ {loop} }}'


# --- indices


def test_an_index_counts_like_a_number() -> None:
    results = {
        "(a + b).get()": lambda a, b: a + b,
        "(a - b).get()": lambda a, b: a - b,
        "(a + in[1]).get()": lambda a, b: a + b,
        "(in[1] + a).get()": lambda a, b: a + b,
        "(a - in[1]).get()": lambda a, b: a - b,
        "(a * in[1]).get()": lambda a, b: a * b,
        "(in[1] * a).get()": lambda a, b: a * b,
        "(-a).get()": lambda a, b: -a,
        "min(a, b).get()": np.minimum,
        "max(a, b).get()": np.maximum,
        "a == b": lambda a, b: a == b,
        "a != b": lambda a, b: a != b,
        "a < b": lambda a, b: a < b,
        "a <= b": lambda a, b: a <= b,
        "a > b": lambda a, b: a > b,
        "a >= b": lambda a, b: a >= b,
        "(c += b, c -= 1, ++c, c -= a, c += 5, --c, c).get()": lambda a, b: b + 4,
        "steps(range(b))": lambda a, b: np.maximum(b, 0),
        "steps(range(a, b))": lambda a, b: np.maximum(b - a, 0),
    }
    head = """#include <tapestry/dim.cuh>
using namespace tapestry; using K = Dim<struct K_>;
template <class R> int steps(R range) { int n = 0; for (K k : range) n += k.get() == k.get(); return n; }
"""
    library = build([head, rows_function("numbers", 2, list(results), "const K a(in[0]), b(in[1]); K c(a);")])
    pairs = np.stack(np.meshgrid(np.arange(-9, 10), np.arange(-9, 10)), axis=-1).reshape(-1, 2)
    answers = call(library, "numbers", pairs, len(results))
    for column, (text, oracle) in enumerate(results.items()):
        np.testing.assert_array_equal(answers[:, column], oracle(pairs[:, 0], pairs[:, 1]), err_msg=text)


# --- folds and modules


@st.composite
def chains(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Folds and modules taken one of the other; after a module of n, sizes divide n."""
    steps: list[tuple[str, int]] = []
    left: int | None = None
    for _ in range(draw(st.integers(1, 4))):
        divisors = [n for n in range(1, 49) if left is None or left % n == 0]
        kind, size = draw(st.sampled_from(["Fold", "Module"])), draw(st.sampled_from(divisors))
        steps.append((kind, size))
        left = size if kind == "Module" else None if left is None else left // size
    return steps


def chain_type(steps: list[tuple[str, int]]) -> str:
    made = "K"
    for kind, size in steps:
        made = f"{kind}<{made}, {size}>"
    return made


@BATCHES
@given(st.lists(chains(), min_size=16, max_size=16))
def test_a_part_of_a_part_is_the_digit_of_the_index(batch: list[list[tuple[str, int]]]) -> None:
    head = "#include <tapestry/coord.cuh>\nusing namespace tapestry; using K = Dim<struct K_>;"
    texts = [head]
    for i, steps in enumerate(batch):
        last, before = steps[-1][1], chain_type(steps[:-1])
        unfolded = f"unfold(fold<{last}>({before}(k)), modulo<{last}>({before}(k))).get()"
        from_parts = f"coord(modulo<{last}>(k), fold<{last}>(k)).get<K>().get()"
        ring = f"next_in_ring(modulo<{last}>({before}(k))).get()"
        results = [
            f"{chain_type(steps)}(k).get()",
            unfolded,
            from_parts,
            ring,
            f"module_size<Module<{before}, {last}>>()",
        ]
        texts.append(rows_function(f"chain_{i}", 1, results, "const K k(in[0]);"))
    library = build(texts)
    index = np.arange(-300, 3000, dtype=np.int64)
    for i, steps in enumerate(batch):
        expected, before = index, index
        for kind, size in steps:
            before, expected = expected, expected // size if kind == "Fold" else expected % size
        digits, unfolded, whole, ring, size = call(library, f"chain_{i}", index[:, None], 5).T
        last = steps[-1][1]
        np.testing.assert_array_equal(ring, (before + 1) % last)
        assert (size == last).all()
        np.testing.assert_array_equal(digits, expected, err_msg=chain_type(steps))
        np.testing.assert_array_equal(unfolded, before)
        np.testing.assert_array_equal(whole, index)


# --- layouts


BASES = ("A", "B", "C")


@st.composite
def specifications(draw: st.DrawFn) -> Specification:
    """A tensor over up to three dimensions, each whole or in two parts, packed or strided, partly at run time."""
    dims: list[AnyDimension] = []
    extents: list[tuple[str, int]] = []
    for base in BASES[: draw(st.integers(1, 3))]:
        dims.append(Dimension(base))
        if draw(st.booleans()):
            size = draw(st.integers(1, 9))
            dims += [Fold(f"{base}hi", base, size), Module(f"{base}lo", base, size)]
            extents += [(f"{base}hi", draw(st.integers(1, 5))), (f"{base}lo", size)]
        else:
            extents.append((base, draw(st.integers(1, 9))))
    extents = draw(st.permutations(extents))
    if draw(st.booleans()):
        strides = [draw(st.integers(-50, 50)) for _ in extents]
        tensor = Tensor(
            "T", "u8", tuple(Axis(dim, n, stride) for (dim, n), stride in zip(extents, strides, strict=True))
        )
    else:
        tensor = Tensor("T", "u8", tuple(Extent(dim, n) for dim, n in extents))
    return Specification("drawn", tuple(dims), (tensor,))


def run_time_twin(spec: Specification, hidden: list[bool]) -> Specification:
    """The same tensor with some extents (and then all strides, if there are any) known at run time only."""
    axes = spec.tensors[0].axes
    changed = tuple(
        Extent(axis.dim, None if hide else axis.size)
        if isinstance(axis, Extent)
        else Axis(axis.dim, None if hide else axis.size)
        for axis, hide in zip(axes, hidden, strict=True)
    )
    return Specification(spec.name, spec.dims, (Tensor("T", "u8", changed),))  # type: ignore[arg-type]


def expected_offsets(spec: Specification) -> tuple[Ints, Ints]:
    """Indices of the axes (one row an element) and NumPy's offset of that element."""
    axes = spec.tensors[0].axes
    shape = [axis.size or 0 for axis in axes]
    indices = np.indices(shape).reshape(len(shape), -1).T
    if isinstance(axes[0], Extent):
        return indices, np.arange(prod(shape)).reshape(shape)[tuple(indices.T)]
    origin = 5000
    memory = np.arange(10_000)
    steps = [8 * (axis.stride or 0) for axis in axes if isinstance(axis, Axis)]
    return indices, np.lib.stride_tricks.as_strided(memory[origin:], shape, steps).ravel() - origin


def whole_indices(spec: Specification, indices: Ints) -> tuple[list[str], Ints]:
    """The indices of the whole dimensions of which the axes are the parts."""
    names = [axis.dim for axis in spec.tensors[0].axes]
    column = {name: indices[:, i] for i, name in enumerate(names)}
    sizes = {dim.of: dim.size for dim in spec.dims if isinstance(dim, Fold)}
    wholes = [dim.name for dim in spec.dims if isinstance(dim, Dimension)]
    found = [column[w] if w in column else column[f"{w}hi"] * sizes[w] + column[f"{w}lo"] for w in wholes]
    return wholes, np.stack(found, axis=1)


def layout_text(spec: Specification, number: int, arguments: str, numbers: tuple[str, ...]) -> str:
    names = [axis.dim for axis in spec.tensors[0].axes]
    wholes = [dim.name for dim in spec.dims if isinstance(dim, Dimension)]
    whole_coord = ", ".join(f"{w}(in[{len(names) + i}])" for i, w in enumerate(wholes))
    parts = "".join(f"[{name}(in[{i}])]" for i, name in reversed(list(enumerate(names))))
    steps = " ".join(f"stepped += {name}(in[{i}] + 3); stepped -= {name}(3);" for i, name in enumerate(names))
    zero = ", ".join(f"{name}(0)" for name in names)
    coords = ", ".join(f"{name}(in[{i}])" for i, name in enumerate(names))
    before = f"""
        const auto memory = reinterpret_cast<unsigned char*>(1 << 20);
        const T::L layout{{{arguments}}}; const T tensor(memory, layout);
        auto stepped = tensor[coord({zero})]; {steps}"""
    results = [
        f"tensor[coord({whole_coord})].address() - memory",
        f"tensor{parts}.address() - memory",
        "stepped.address() - memory",
        f"layout.offset(coord({coords}))",
        f"tensor.place(coord({names[0]}(in[0])))[coord({coords})][coord({names[0]}(-in[0]))].address() - memory",
        f"layout.contains_coord(coord({coords}))",
        f"layout.contains_coord(coord({names[0]}(layout.extent<{names[0]}>())))",
        "layout.size()",
    ]
    function = rows_function("offsets", len(names) + len(wholes), results, before, numbers)
    text = declarations(spec).replace(f"}}  // namespace {spec.name}", function + "\n}")
    return text.replace(f"namespace {spec.name} {{", f"namespace drawn_{number} {{ using namespace tapestry;").replace(
        "void offsets(", f"void offsets_{number}("
    )


def check_layout(library: ctypes.CDLL, spec: Specification, number: int, *numbers: int) -> None:
    indices, expected = expected_offsets(spec)
    _, wholes = whole_indices(spec, indices)
    answers = call(library, f"offsets_{number}", np.hstack([indices, wholes]), 8, *numbers)
    for column, what in enumerate(("by whole dimensions", "axis by axis", "stepped", "offset", "placed twice")):
        np.testing.assert_array_equal(answers[:, column], expected, err_msg=f"{what}: {declarations(spec)}")
    assert (answers[:, 5] == 1).all()
    assert (answers[:, 6] == 0).all()
    assert (answers[:, 7] == len(indices)).all()


@BATCHES
@given(st.lists(specifications(), min_size=8, max_size=8))
def test_elements_lie_where_numpy_puts_them(batch: list[Specification]) -> None:
    library = build([layout_text(spec, i, "", ()) for i, spec in enumerate(batch)])
    for i, spec in enumerate(batch):
        check_layout(library, spec, i)


@BATCHES
@given(st.lists(st.tuples(specifications(), st.lists(st.booleans(), min_size=6, max_size=6)), min_size=8, max_size=8))
def test_run_time_extents_and_strides_are_given_by_their_types(batch: list[tuple[Specification, list[bool]]]) -> None:
    texts, values = [], []
    for i, (spec, hidden) in enumerate(batch):
        axes = spec.tensors[0].axes
        twin = run_time_twin(spec, hidden[: len(axes)])
        hides = [axis for axis, hide in zip(axes, hidden, strict=False) if hide]
        given_extents = [(f"{axis.dim}(n{axis.dim})", f"n{axis.dim}", axis.size or 0) for axis in hides]
        given_strides = [
            (f"Stride<{axis.dim}>{{s{axis.dim}}}", f"s{axis.dim}", axis.stride or 0)
            for axis in axes
            if isinstance(axis, Axis)
        ]
        given = [*reversed(given_extents), *given_strides]
        texts.append(layout_text(twin, i, ", ".join(g[0] for g in given), tuple(g[1] for g in given)))
        values.append([g[2] for g in given])
    library = build(texts)
    for i, (spec, _) in enumerate(batch):
        check_layout(library, spec, i, *values[i])


# --- compound indices


@BATCHES
@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=12, max_size=12))
def test_a_compound_index_is_unravelled_and_put_together_again(batch: list[list[int]]) -> None:
    texts = ["using namespace tapestry;"]
    names = "NYXC"
    for i, sizes in enumerate(batch):
        extents = tuple(Extent(name, size) for name, size in zip(names, sizes, strict=False))
        free = (Extent("N", None), *extents[1:])
        spec = Specification(
            f"drawn_{i}",
            tuple(Dimension(name) for name in names),
            compounds=(Compound("T", extents, prod(sizes)), Compound("Free", free)),
        )
        results = [f"t.get<{extent.dim}>().get()" for extent in extents]
        results += [
            "T::linear(t.coord())",
            "Free::linear(Free(in[0]).coord())",
            "T::size()",
            "Free(in[0]).get<N>().get()",
        ]
        function = rows_function(f"split_{i}", 1, results, "const T t(in[0]);")
        texts.append(declarations(spec).replace("}  // namespace", function + "\n}  //"))
    library = build([declarations(Specification("first", (Dimension("N"),))), *texts])
    for i, sizes in enumerate(batch):
        linear = np.arange(prod(sizes))
        answers = call(library, f"split_{i}", linear[:, None], len(sizes) + 4)
        expected = np.stack(np.unravel_index(linear, sizes), axis=1)
        np.testing.assert_array_equal(answers[:, : len(sizes)], expected)
        np.testing.assert_array_equal(answers[:, -4], linear)
        assert (answers[:, -2] == len(linear)).all()
        if len(sizes) > 1:
            np.testing.assert_array_equal(answers[:, -1], expected[:, 0])
