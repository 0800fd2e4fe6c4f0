"""Text of repeated layers: written once, and what it stands for is exactly the text of each copy."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.rolling import rolled


def unrolled(lines):
    """The oracle: every copy written out again, by evaluating what stands in braces."""
    found, n = [], 0
    while n < len(lines):
        head = re.fullmatch(r"  repeat k in 0:(\d+)", lines[n])
        n += 1
        if head is None:
            found.append(lines[n - 1])
            continue
        body = []
        while n < len(lines) and lines[n].startswith("    "):
            body.append(lines[n][2:])
            n += 1
        for k in range(int(head[1])):
            found += [re.sub(r"\{([^}]*)\}", lambda m, k=k: str(eval(m[1], {"k": k})), line) for line in body]
    return found


def test_layers_stand_once():
    items = [(f"  l.{k}.{name} of {k + 3} and {10 - 1}",) for k in range(126) for name in ("norm", "matmul")]
    assert rolled(items) == [
        "  repeat k in 0:126",
        "    l.{k}.norm of {k+3} and 9",
        "    l.{k}.matmul of {k+3} and 9",
    ]


def test_few_copies_stand_as_they_are():
    items = [(f"  l.{k}",) for k in range(7)]
    assert rolled(items) == [line for item in items for line in item]


def test_numbers_that_do_not_count_along_end_a_run():
    items = [(f"  l.{k}",) for k in [*range(9), 20, 21]]
    assert rolled(items) == ["  repeat k in 0:9", "    l.{k}", "  l.20", "  l.21"]


LINES = st.one_of(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 4), st.integers(1, 12)),
)


@given(st.lists(LINES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_what_is_rolled_stands_for_every_line(stretches):
    items = [
        (f"  {'abc'[kind]}.{start + step * k}", *([f"  {'abc'[kind]} {7 * k}"] if kind == 2 else []))
        for kind, start, step, count in stretches
        for k in range(count)
    ]
    assert unrolled(rolled(items)) == [line for item in items for line in item]
