"""Programs as pictures: well-formed, whole in themselves, names as they are, layers folded where they are the same."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.drawing.folding import find_runs
from tapestry.drawing.graph import Notes, graph_of
from tapestry.drawing.program import program_html, program_svg
from tapestry.drawing.svg import Drawing, clean, tag, text

SVG = "{http://www.w3.org/2000/svg}"


@tp.program
def deep(x: f32[Tensor, "n d"], *, layers: int = 5, odd: int = -1) -> dict[str, Tensor]:
    h = x
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            w = tp.param("w", "f32", (h.shape[1], h.shape[1]), axes=("d", "e"))
            h = h + (tp.tanh(h @ w) if layer == odd else tp.softmax(h @ w))
    return {"out": h}


def labels(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def test_the_picture_names_inputs_operations_parameters_and_outputs() -> None:
    found = labels(program_svg(deep.bind(n=4, d=8, layers=2)))
    assert {"x", "matmul", "f32[n=4, d=8]", "out", "output"} <= set(found)
    assert any("w f32[d=8, e=8]" in label for label in found)


def test_equal_layers_are_drawn_once() -> None:
    program = deep.bind(n=4, d=8, layers=5)
    found = labels(program_svg(program))
    assert "layers.0 … 4   × 5" in found
    assert found.count("matmul") == 1
    again = [edge for edge in graph_of(program).edges if edge.again]
    assert len(again) == 1


def test_a_layer_that_differs_is_drawn_by_itself() -> None:
    found = labels(program_svg(deep.bind(n=4, d=8, layers=5, odd=2)))
    assert "layers.0 … 1   × 2" in found
    assert "layers.3 … 4   × 2" in found
    assert found.count("matmul") + found.count("layers.2.matmul") == 3


def test_layers_with_different_notes_are_not_folded() -> None:
    program = deep.bind(n=4, d=8, layers=4)
    notes = Notes({"layers.1.matmul": "cut n"})
    runs = find_runs(program, notes.of)
    assert {(run.first, run.count) for run in runs.values()} == {(2, 2)}
    assert "cut n" in labels(program_svg(program, notes))


def test_composites_are_boxed() -> None:
    assert "softmax" in labels(program_svg(deep.bind(n=4, d=8, layers=2)))


@pytest.mark.parametrize("name", ["a<b", 'say "x"', "ä & ö", "]]>", "tab\x07bell", "</svg><script>"])
def test_names_are_escaped(name: str) -> None:
    program = deep.bind(n=4, d=8, layers=1)
    renamed = replace(program, tensors=(replace(program.tensor("x"), name=name), *program.tensors))
    for made in (program_svg(renamed), program_html(renamed)):
        assert "<script" not in made
        assert "\x07" not in made
    shown = name.replace("\x07", "\\x07")
    assert shown in labels(program_svg(renamed))


def test_nothing_is_loaded_from_elsewhere() -> None:
    for made in (program_svg(deep.bind(n=4, d=8)), program_html(deep.bind(n=4, d=8))):
        assert not re.search(r"""(?:href|src)\s*=\s*["'](?!#|data:)""", made)
        assert "url(" not in made.replace("url(#", "")
        assert "@import" not in made
        assert "http" not in made.replace("http://www.w3.org/2000/svg", "")


def test_the_picture_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import importlib.util as util, sys; spec = util.spec_from_file_location('deep', sys.argv[1]);"
        "module = util.module_from_spec(spec); spec.loader.exec_module(module);"
        "print(module.program_svg(module.deep.bind(n=4, d=8)))"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code, __file__], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


def test_jupyter_gets_the_picture_and_the_text() -> None:
    program = deep.bind(n=4, d=8, layers=1)
    bundle = program._repr_mimebundle_()
    assert bundle == {"image/svg+xml": program_svg(program), "text/plain": str(program)}


def test_elements_are_written_as_xml() -> None:
    assert tag("rect", x=1.0, stroke_width=0.25, class_=None) == '<rect x="1" stroke-width="0.25"/>'
    assert clean("a\x00<") == "a\\x00&lt;"
    root = ET.fromstring(Drawing(10, 20, text(0, 0, "<&>"), 'a "label"').alone())
    assert root.get("viewBox") == "0 0 10 20"
    assert [node.text for node in root.iter(f"{SVG}title")] == ['a "label"']
