"""The list of shapes covers what it says it covers."""

import pytest

from .shapes import SHAPES, TABLE, WIDE, grouped

PROBLEMS = list(SHAPES.values())


def test_at_least_150_different_problems() -> None:
    assert len(SHAPES) >= 150
    assert len(set(PROBLEMS)) >= 0.95 * len(SHAPES)


@pytest.mark.parametrize("model", ["efficientnet", "convnext", "regnet", "resnext"])
def test_layers_of_every_model_family(model: str) -> None:
    assert sum(name.startswith(model) for name in SHAPES) >= 10


def test_every_filter_size_and_rectangles() -> None:
    filters = {(p.r, p.s) for p in PROBLEMS}
    assert {(k, k) for k in range(1, 8)} <= filters
    assert {r for r, _ in filters} == {s for _, s in filters} == set(range(1, 8))
    assert sum(r != s for r, s in filters) >= 10


def test_every_filter_size_of_a_depthwise_layer() -> None:
    assert set(range(1, 8)) <= {p.r for p in PROBLEMS if p.width == 1 and p.r == p.s}


def test_paddings() -> None:
    paddings = {p.padding for p in PROBLEMS}
    assert {(p, p, p, p) for p in (0, 2, 7)} <= paddings
    assert any(top != bottom for top, bottom, _, _ in paddings)
    assert any(left != right for _, _, left, right in paddings)
    assert any((top, bottom) != (left, right) for top, bottom, left, right in paddings)
    assert sum(len(set(sides)) == 4 for sides in paddings) >= 2


def test_group_counts_and_widths() -> None:
    assert {1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 128, 256} <= {p.groups for p in PROBLEMS if p.width == 8}
    for width in (1, 2, 4, 8, 16, 32):
        assert sum(p.width == width for p in PROBLEMS) >= 5
        assert {p.r for p in PROBLEMS if p.width == width} > {3}
    assert any(p.c * 2 % 16 for p in PROBLEMS)


def test_groups_of_other_widths_and_of_other_channels_out_than_in() -> None:
    assert {3, 5, 24, 40, 48, 56, 64, 80, 96, 112, 120, 128} <= {p.width for p in WIDE.values()}
    assert {1, 2} <= {p.stride[0] for p in WIDE.values()}
    assert {p.k // p.c for p in WIDE.values()} == {1, 2, 4}
    assert not {p for p in WIDE.values() if p.narrow}


def test_steps() -> None:
    assert {p.stride for p in PROBLEMS} == {(1, 1), (2, 2), (1, 2), (2, 1)}
    assert {p.dilation for p in PROBLEMS} == {(1, 1), (2, 2), (1, 2), (2, 1)}
    assert any(p.stride == p.dilation == (2, 2) for p in PROBLEMS)
    for width in (1, 8, 16, 32):
        assert {1, 2} <= {p.stride[0] for p in PROBLEMS if p.width == width}


def test_odd_tiny_and_large_extents() -> None:
    assert sum(p.h % 2 == p.w % 2 == 1 for p in PROBLEMS) >= 20
    assert (1, 1) in {(p.h, p.w) for p in PROBLEMS}
    assert max(p.h for p in PROBLEMS) >= 1000


def test_batches_and_types() -> None:
    assert {1, 2, 3, 64, 256, 1024} <= {p.n for p in PROBLEMS}
    assert min(sum(p.dtype == dtype for p in PROBLEMS) for dtype in ("f16", "bf16")) >= 12


def test_the_published_table() -> None:
    rows = [(p.n, p.c, p.h, p.r) for p in TABLE.values()]
    assert rows == [
        (64, 64, 64, 3),
        (256, 64, 64, 3),
        (64, 1024, 16, 3),
        (256, 1024, 16, 3),
        (64, 64, 64, 5),
        (256, 256, 28, 5),
    ]
    assert all(p.width == 8 and p.h == p.w == p.p == p.q for p in TABLE.values())


def test_none_is_larger_than_a_checked_gradient_can_hold() -> None:
    """Input, output and both gradients in f32 beside the reference stay under 16 GB."""
    assert max(p.input_elements + p.output_elements for p in PROBLEMS) <= 160e6


def test_same_padding_keeps_a_stride_1_extent() -> None:
    for k in range(1, 8):
        problem = grouped(1, (9, 10), 8, 8, k)
        assert (problem.p, problem.q) == (9, 10)
