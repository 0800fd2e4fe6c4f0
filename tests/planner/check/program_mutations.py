"""Seeded alterations of what a plan embeds and states: text of operations, tensors, blocks, the machine, figures.

They know nothing of what makes a program right: a number, a name or a sign of the JSON is changed in place.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

Json = Any
Place = tuple[Json, Any]
"""A container and the key or index in it."""

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?")
WORD = re.compile(r"[A-Za-z_]\w*")
SIGN = re.compile(r"//|<=|[-+*%<]|, | and | if ")
SIGNS = {
    "//": ["*", "%", "+"],
    "<=": ["<", "<= 1 + "],
    "<": ["<=", "< 1 + "],
    "+": ["-", "*", "+ 1 +"],
    "-": ["+", "*", "- 1 -"],
    "*": ["+", "-", "//", "% "],
    "%": ["//", "*"],
    ", ": [", 0, ", " + ", " , "],
    " and ": [" or ", ", "],
    " if ": [" and ", " if 0 <= 0 < 0 and "],
}
ODD: list[Json] = [None, True, -1, 0, 1, 1.5, "x", "", [], {}, 1 << 62, 1 << 63, 1 << 200, 1e308, "nan"]


def altered(raw: Json, part: str, rng: random.Random) -> tuple[str, Json]:
    """A copy of a document, as JSON, with one thing of a part of it altered; and what."""
    made = copy.deepcopy(raw)
    change = rng.choice(PARTS[part])
    return change(made, rng), made


def _leaves(data: Json) -> Iterator[Place]:
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _leaves(data[key])


def _inner(data: Json) -> Iterator[Place]:
    return _leaves(data) if isinstance(data, dict | list) else iter(())


def _written(place: Place, value: Json) -> str:
    container, key = place
    text = f"{key}: {container[key]!r} becomes {value!r}"
    container[key] = value
    return text


def _other_number(value: float, rng: random.Random) -> Json:
    changes = [value + 1, value - 1, value * 2, value // 2, -value, 0, value + 2, 1 << 63, value + 0.5]
    return rng.choice([change for change in changes if change != value])


def _other_text(text: str, names: list[str], rng: random.Random) -> str:
    """A number, a name or a sign of a text is another; a piece is left out, or is there twice."""
    found: list[tuple[int, int, str]] = []
    found += [(m.start(), m.end(), str(_other_number(int(m[0]), rng))) for m in NUMBER.finditer(text) if m[0].isdigit()]
    found += [(m.start(), m.end(), repr(float(m[0]) * 2 + 1)) for m in NUMBER.finditer(text) if not m[0].isdigit()]
    found += [(m.start(), m.end(), rng.choice(names)) for m in WORD.finditer(text)]
    found += [(m.start(), m.end(), rng.choice(SIGNS[m[0]])) for m in SIGN.finditer(text)]
    found += [(m.start(), m.end(), "") for m in re.finditer(r"!|[-+] \w+|\w+ [-+*] |, \w+|\w+, ", text)]
    found += [(len(text), len(text), more) for more in ("!", " + 1", "]")]
    start, end, instead = rng.choice(found)
    return text[:start] + instead + text[end:]


def _strings(data: Json) -> list[Place]:
    return [(container, key) for container, key in _leaves(data) if isinstance(container[key], str)]


def _numbers(data: Json) -> list[Place]:
    return [(container, key) for container, key in _leaves(data) if type(container[key]) in (int, float)]


def text_changed(raw: Json, rng: random.Random) -> str:
    """One of the texts of an operation."""
    program = raw["program"]
    op = rng.choice(program["operations"])
    names = [tensor["name"] for tensor in program["tensors"]] + WORD.findall(op["dims"])
    names += ["sum", "max", "min", "exp", "abs", "maximum", "minimum", "where", "index", "nothing"]
    places = [(c, k) for c, k in _strings(op) if k not in ("name", "source", "group", "kernel")]
    container, key = rng.choice(places)
    return _written((container, key), _other_text(container[key], names, rng))


def monoid_changed(raw: Json, rng: random.Random) -> str:
    """The monoid of a fold, in the program and maybe in the transfers that fold it."""
    folds = [op for op in raw["program"]["operations"] if op.get("monoid")]
    if not folds:
        return text_changed(raw, rng)
    op = rng.choice(folds)
    other = rng.choice([m for m in ("sum", "max", "min", "prod", "argmax", "online_softmax", "?") if m != op["monoid"]])
    if rng.random() < 0.7:
        for task in raw["tasks"]:
            if task.get("monoid") == op["monoid"]:
                task["monoid"] = other
    return _written((op, "monoid"), other)


def tensor_changed(raw: Json, rng: random.Random) -> str:
    """The type, role, axes, shape or a value of a tensor."""
    tensor = rng.choice(raw["program"]["tensors"])
    field = rng.choice([key for key in tensor if key != "name"])
    if field == "dtype":
        return _written(
            (tensor, field), rng.choice(["bool", "int8", "int32", "int64", "bf16", "f16", "f32", "f64", "?"])
        )
    if field == "role":
        return _written((tensor, field), rng.choice(["input", "param", "state", "const", "value", "?"]))
    if not tensor[field]:
        return _written((tensor, field), [1])
    k = rng.randrange(len(tensor[field]))
    value = tensor[field][k]
    return _written((tensor[field], k), value + "x" if isinstance(value, str) else _other_number(value, rng))


def block_changed(raw: Json, rng: random.Random) -> str:
    """Something of the body of a block: its kernel, a read, an attribute."""
    blocks = [op["body"] for op in raw["program"]["operations"] if isinstance(op["body"], dict)]
    if not blocks:
        return text_changed(raw, rng)
    block = rng.choice(blocks)
    places = [*_leaves(block)]
    container, key = rng.choice(places)
    value = container[key]
    if isinstance(value, bool):
        return _written((container, key), not value)
    if isinstance(value, int | float):
        return _written((container, key), _other_number(value, rng))
    if isinstance(value, list) and len(value) > 1:
        shuffled = value[:]
        rng.shuffle(shuffled)
        return _written((container, key), rng.choice([shuffled, value[:-1], [*value, value[0]]]))
    return _written((container, key), rng.choice([value[::-1] if isinstance(value, str) else "x", *ODD]))


def program_shuffled(raw: Json, rng: random.Random) -> str:
    """Two operations, tensors, outputs or states exchange places; one is left out or there twice."""
    key = rng.choice(("operations", "tensors", "outputs", "states", "pins", "bindings"))
    items = raw["program"][key]
    if not items:
        return text_changed(raw, rng)
    k = rng.randrange(len(items))
    changes = [items[:k] + items[k + 1 :], [*items, copy.deepcopy(items[k])], items[::-1], items[1:] + items[:1]]
    return _written((raw["program"], key), rng.choice(changes))


def name_exchanged(raw: Json, rng: random.Random) -> str:
    """Everything that is called one thing is called another, and the other way round, in one operation."""
    op = rng.choice(raw["program"]["operations"])
    known = [tensor["name"] for tensor in raw["program"]["tensors"]]
    names = WORD.findall(op["dims"]) if rng.random() < 0.5 else known
    one, other = rng.choice(names), rng.choice(names)
    key = rng.choice([key for key in ("body", "write", "where", "over", "dims") if key in op])

    def exchanged(text: str) -> str:
        return WORD.sub(lambda m: {one: other, other: one}.get(m[0], m[0]), text)

    if isinstance(op[key], str):
        return _written((op, key), exchanged(op[key]))
    values = op[key] if isinstance(op[key], list) else op[key]["reads"]
    k = rng.randrange(len(values))
    return _written((values, k), exchanged(values[k]))


def machine_changed(raw: Json, rng: random.Random) -> str:
    container, key = rng.choice([*_leaves(raw["machine"])])
    value = container[key]
    if type(value) in (int, float) and rng.random() < 0.8:
        return _written((container, key), _other_number(value, rng))
    if rng.random() < 0.2:
        del container[key]
        return f"{key} of the machine is not there"
    if isinstance(value, list) and value and rng.random() < 0.5:
        return _written((container, key), [*value, copy.deepcopy(value[0])])
    return _written((container, key), rng.choice(ODD))


FIGURES = ("predicted", "traffic", "peak_bytes", "shardings", "bound")


def figure_changed(raw: Json, rng: random.Random) -> str:
    """A number or a name among what the plan states of itself."""
    places = [place for part in FIGURES if raw[part] for place in _leaves(raw[part])]
    container, key = rng.choice(places)
    value = container[key]
    if type(value) in (int, float) and rng.random() < 0.8:
        return _written((container, key), rng.choice([_other_number(value, rng), value * 0.999, value * 1.001]))
    if rng.random() < 0.3:
        del container[key]
        return f"the figure {key} is not there"
    return _written((container, key), rng.choice([*ODD, "mesh0", "block", "cyclic"]))


def anything_changed(raw: Json, rng: random.Random) -> str:
    """Any value of the document but its claims is another one, of any type, or is not there."""
    parts = [part for part in raw if part not in ("claims", "format", "digests")]
    container, key = rng.choice([(raw, part) for part in parts] + [p for part in parts for p in _inner(raw[part])])
    if rng.random() < 0.2:
        del container[key]
        return f"{key} is not there"
    return _written((container, key), rng.choice(ODD))


PARTS: dict[str, tuple[Callable[[Json, random.Random], str], ...]] = {
    "program": (
        text_changed,
        text_changed,
        text_changed,
        monoid_changed,
        tensor_changed,
        program_shuffled,
        name_exchanged,
    ),
    "blocks": (block_changed, block_changed, text_changed, name_exchanged),
    "machine": (machine_changed,),
    "figures": (figure_changed,),
    "anything": (anything_changed,),
}
