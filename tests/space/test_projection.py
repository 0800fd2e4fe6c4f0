"""What operations read, write and compute, per shard: convolutions, reshapes, attention, against enumeration."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound, Read
from tapestry.program import Block, Dim, Operation
from tapestry.space import Box, Grid, IntSet, Region, count_points, operand_images, read_image, write_image
from tapestry.testing.spaces import affines, points
from tapestry.testing.spaces import bounds as conditions

D = Affine.dim


def operation(
    extents: dict[str, int], write: str, *reads: Read, where: tuple[Bound, ...] = (), reduce: str = ""
) -> Operation:
    dims = tuple(Dim(name, extent) for name, extent in extents.items())
    rows = tuple(map(D, write))
    return Operation("op", dims, "y", rows, Block("test", reads), tuple(reduce), "sum" if reduce else None, where)


def conv(stride: int, dilation: int, pad: int, size: int, k: int) -> Operation:
    row = stride * D("p") + dilation * D("r") - pad
    outputs = (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    image = Read("x", (D("c"), row), (Bound(row, 0, size),) if pad else ())
    weights = Read("w", (D("k"), D("c"), D("r")))
    return operation({"k": 4, "p": outputs, "c": 3, "r": k}, "kp", image, weights, reduce="cr")


def touched(op: Operation, read: Read, domain: Region) -> set[tuple[int, ...]]:
    names = [dim.name for dim in op.dims]
    found = set()
    for point in points(domain):
        values = dict(zip(names, point, strict=True))
        if all(bound.holds(values) for bound in (*op.where, *read.guard)):
            found.add(tuple(row.evaluate(values) for row in read.index))
    return found


def box(op: Operation, **cut: tuple[int, int]) -> Region:
    spans = [cut.get(dim.name, (0, dim.extent)) for dim in op.dims]
    return Box(tuple(lo for lo, _ in spans), tuple(hi for _, hi in spans)).region()


@given(
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.sampled_from([1, 3, 5, 7]), st.integers(1, 8), st.data()
)
def test_convolution_shards_read_their_windows(
    stride: int, dilation: int, pad: int, k: int, parts: int, data: st.DataObject
) -> None:
    op = conv(stride, dilation, pad, 17, k)
    extent, r = op.extents["p"], data.draw(st.integers(0, parts - 1))
    domain = box(op, p=(r * extent // parts, (r + 1) * extent // parts))
    images = operand_images(op, {"x": (3, 17), "w": (4, 3, k)}, domain)
    for read in op.reads:
        assert images[read.tensor].exact
        assert points(images[read.tensor].region) == touched(op, read, domain)
    assert points(write_image(op, domain).region) == {(point[0], point[1]) for point in points(domain)}


def test_halo_of_a_padded_convolution() -> None:
    op = conv(1, 1, 1, 224, 3)
    first = read_image(op.reads[0], op, box(op, p=(0, 56)), (3, 224))
    middle = read_image(op.reads[0], op, box(op, p=(56, 112)), (3, 224))
    assert (str(first.region), first.exact) == ("0:3,0:57", True)
    assert (str(middle.region), middle.exact) == ("0:3,55:113", True)


def test_a_read_outside_of_the_tensor_is_not_clipped() -> None:
    op = operation({"p": 8, "r": 3}, "p", Read("x", (D("p") + D("r") - 1,)), reduce="r")
    assert str(read_image(op.reads[0], op, box(op), (8,)).region) == "-1:9"


def test_several_reads_of_one_tensor_are_united() -> None:
    stencil = [Read("x", (D("y") + dy + 1, D("x") + dx + 1)) for dy, dx in product((-1, 0, 1), repeat=2)]
    op = operation({"y": 10, "x": 10}, "yx", *stencil)
    image = operand_images(op, {"x": (12, 12)}, box(op, y=(2, 5)))["x"]
    assert (str(image.region), image.exact) == ("2:7,0:12", True)


def attention(tokens: int, keys: int, heads: int, groups: int, width: int) -> Operation:
    inside = Bound(D("c"), None, width)
    query = Read("q", (D("t"), D("h"), D("c")), (inside,))
    others = [Read(name, (D("s"), D("h") // groups, D("c")), (inside,)) for name in "kv"]
    causal = Bound(D("s") - D("t"), None, 1)
    extents = {"t": tokens, "h": heads, "s": keys, "c": width + 2}
    return operation(extents, "thc", query, *others, where=(causal,), reduce="s")


def test_causal_attention_reads_keys_up_to_its_last_query() -> None:
    op = attention(8192, 8192, 32, 4, 128)
    shapes = {"q": (8192, 32, 128), "k": (8192, 8, 128), "v": (8192, 8, 128)}
    images = operand_images(op, shapes, box(op, t=(1024, 2048), h=(6, 10)))
    assert all(image.exact for image in images.values())
    assert str(images["q"].region) == "1024:2048,6:10,0:128"
    assert str(images["k"].region) == str(images["v"].region) == "0:2048,1:3,0:128"


def test_zigzag_shards_of_causal_attention_do_equal_work() -> None:
    op = attention(4096, 4096, 2, 1, 4)
    chunks = [IntSet.interval(k * 512, (k + 1) * 512) for k in range(8)]
    whole = box(op).grids[0]
    zigzag = [Region((Grid((chunks[r] | chunks[7 - r], *whole.axes[1:])),)) for r in range(4)]
    counts = [count_points(op, shard) for shard in zigzag]
    assert all(count.exact for count in counts)
    assert {count.value for count in counts} == {4096 * 4097 // 2 * 2 * 6 // 4}
    assert str(read_image(op.reads[1], op, zigzag[3], (4096, 2, 4)).region) == "0:2560,0:2,0:4"


def test_where_restricts_what_is_written_unless_a_reduction_writes_its_identity() -> None:
    after = Bound(D("s") - D("t"), None, 1)
    plain = operation({"t": 16, "s": 16}, "ts", Read("x", (D("s"),)), where=(Bound(D("t"), 3, None), after))
    short = write_image(plain, box(plain, t=(0, 6), s=(4, 6)))
    assert points(short.region) == {(4, 4), (5, 4), (5, 5)}
    assert short.exact
    folded = attention(16, 16, 1, 1, 2)
    assert str(write_image(folded, box(folded, s=(8, 16))).region) == "0:16,0:1,0:4"


def test_an_empty_domain_reads_and_writes_nothing() -> None:
    op = conv(1, 1, 1, 9, 3)
    images = operand_images(op, {"x": (3, 9), "w": (4, 3, 3)}, Region())
    assert set(images) == {"x", "w"}
    assert all(image.exact and not image.region for image in images.values())
    assert not write_image(op, Region()).region
    assert count_points(op, Region()).value == 0


def test_a_scalar_operation_reads_and_writes_one_element() -> None:
    op = operation({}, "", Read("x", ()))
    domain = Box((), ()).region()
    assert operand_images(op, {"x": ()}, domain)["x"].region.size == 1
    assert write_image(op, domain).region.size == 1
    assert count_points(op, domain).value == 1


def test_a_hull_stays_in_the_tensor() -> None:
    """i*i is no row; [i + j, i - j] over a square is a diamond, and its hull is cut to the shape."""
    read = Read("x", (D("i") + D("j"), D("i") - D("j")))
    op = operation({"i": 40, "j": 40}, "ij", read, where=(Bound(D("i") - D("j"), 0, None),))
    image = read_image(read, op, box(op), (79, 30))
    assert not image.exact
    assert image.region <= Box((0, 0), (79, 30)).region()


@given(st.data())
def test_counts_within_where_are_those_of_enumeration(data: st.DataObject) -> None:
    names = ("a", "b", "c")
    where = tuple(data.draw(st.lists(conditions(names), max_size=2)))
    op = operation({"a": 5, "b": 6, "c": 4}, "abc", Read("x", (data.draw(affines(names)),)), where=where)
    domain = box(op, b=(data.draw(st.integers(0, 3)), 6))
    truth = sum(all(b.holds(dict(zip(names, p, strict=True))) for b in where) for p in points(domain))
    assert count_points(op, domain).exact
    assert count_points(op, domain).value == truth


def test_asking_needs_no_isl() -> None:
    names = "s.read_image, s.Access, s.Partition, s.IndexSet"
    code = f"import sys, tapestry.space as s; {names}; print('islpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    assert done.stdout.strip() == "False"
