"""Importing kernels does nothing: no CuPy, no torch, no GPU; and what is missing is said when it is needed."""

from __future__ import annotations

import json
import subprocess
import symtable
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
ROOMS = ("tensors", "layers", "models")  # what is there imports torch, as the door to it does
OF_TORCH = sorted(path for room in ROOMS for path in (KERNELS / room).rglob("*.py"))
HEAVY = ("cupy", "cupy_backends", "torch", "cuda", "ctypes.wintypes")


def modules() -> list[str]:
    paths = sorted(path.relative_to(KERNELS) for path in KERNELS.rglob("*.py"))
    rest = [path for path in paths if path.parts[0] not in (*ROOMS, "torch.py")]
    return [".".join(["tapestry.kernels", *path.with_suffix("").parts]) for path in rest]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_every_module_loads_neither_cupy_nor_torch_nor_the_driver() -> None:
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules()}: importlib.import_module(name)\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "libraries = [name for name in ('libcuda.so', 'libcudart', 'libnvrtc', 'libtorch') if name in maps]\n"
        "print(json.dumps([loaded, libraries]))"
    )
    assert json.loads(run(code)) == [[], []]


def test_of_the_language_they_load_neither_front_end_nor_reference() -> None:
    """They know programs; a document is read and verified only when one is given."""
    others = {"dsl", "ops", "reference", "drawing", "testing", "planner", "workers", "serialize", "verify"}
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules()}: importlib.import_module(name)\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('tapestry.')}\n"
        f"print(json.dumps(sorted(rooms & {others})))"
    )
    assert json.loads(run(code)) == []


@pytest.mark.parametrize("path", OF_TORCH, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_super_is_said_in_functions_alone(path: Path) -> None:
    """At the top of a module it changes what Python 3.12 and later make of `super()` in methods, to a form at which
    torch.compile breaks a graph: so it was with fused layer norms.
    """
    assert "super" not in symtable.symtable(path.read_text(encoding="utf-8"), path.name, "exec").get_identifiers()


def test_there_are_modules_to_import() -> None:
    assert {"tapestry.kernels.errors", "tapestry.kernels.runtime.compiler"} <= set(modules())


BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('cupy', 'cupy_backends'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    "call",
    [
        "from tapestry.kernels.runtime.compiler import compile_source; compile_source('', name='f')",
        "from tapestry.kernels.runtime.device import properties; properties(0)",
    ],
)
def test_without_cupy_it_is_said_what_to_install(call: str) -> None:
    code = f"{BLOCK}\ntry:\n    {call}\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    said = run(code)
    assert said.startswith("MissingCuPy ")
    assert "expected   the module cupy_backends" in said
    assert 'pip install "tapestry-planner[cuda13]"' in said


def test_without_a_gpu_it_is_said_what_to_check() -> None:
    code = (
        "from tapestry.kernels.errors import MissingGPU\n"
        "from tapestry.kernels.runtime.device import device_count\n"
        "try: device_count()\n"
        "except MissingGPU as error: print(error)"
    )
    hidden = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n{code}"
    said = run(hidden)
    assert said.startswith("no GPU can be used here")
    assert "hint       check nvidia-smi and CUDA_VISIBLE_DEVICES" in said
