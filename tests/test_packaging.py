"""Four folders, one package: the links, the wheel, and the import from outside the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
LINKED = ("kernels", "planner", "workers")
DATA = {".toml", ".json", ".html", ".js", ".css", ".cu", ".cuh", ".typed"}


def git(*arguments: str | Path) -> str:
    return subprocess.run(["git", *map(str, arguments)], check=True, capture_output=True, text=True, cwd=ROOT).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clone, so that nothing untracked helps it."""
    folder = tmp_path_factory.mktemp("wheel")
    git("clone", "--quiet", "--no-hardlinks", ROOT, folder / "clone")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, folder / "clone"], check=True, capture_output=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


def tracked(folder: str) -> set[str]:
    """What the last commit holds of a folder: modules and data, not notes."""
    names = git("ls-tree", "-r", "--name-only", "HEAD", f"{folder}/").splitlines()
    return {name for name in names if Path(name).suffix in DATA | {".py"} or name.endswith("py.typed")}


@pytest.mark.parametrize("folder", LINKED)
def test_the_folders_are_linked_into_the_package(folder: str) -> None:
    link = ROOT / "tapestry" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder
    assert git("ls-files", "--stage", f"tapestry/{folder}").startswith("120000 ")


def test_kernels_is_never_a_package_of_its_own() -> None:
    """A checkout on sys.path would otherwise shadow the other distribution named `kernels`."""
    assert list((ROOT / "kernels").rglob("__init__.py")) == []


def test_the_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tapestry/")}
    expected = tracked("tapestry") | {f"tapestry/{name}" for folder in LINKED for name in tracked(folder)}
    assert expected - packed == set()
    assert {name for name in packed if name.endswith(".py")} <= expected


def test_the_wheel_holds_the_cuda_sources(wheel: Path) -> None:
    """They stand in folders without a module among them, and are read when a kernel is compiled."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    sources = {name for name in tracked("kernels") if Path(name).suffix in {".cu", ".cuh", ".json"}}
    assert {Path(name).suffix for name in sources} >= {".cu", ".cuh"}
    assert {f"tapestry/{name}" for name in sources} <= packed


def test_the_wheel_holds_the_licence_and_nothing_beside_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        names = archive.namelist()
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tapestry"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import tapestry, tapestry.workers\n"
        "from tapestry.planner import load_machine, machine_names\n"
        "from tapestry.kernels.runtime.headers import package_headers\n"
        "assert {'tapestry/mma.cuh', 'tapestry/async.cuh'} <= set(package_headers())\n"
        "print(tapestry.__file__, *(load_machine(name).name for name in machine_names()))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=900
    )
    where, *machines = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path)
    assert machines == ["cpu-4", "h200", "h200x2", "h200x4", "h200x8", "h200x8-2node"]


@pytest.fixture(scope="module")
def beside_the_clone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder that holds a clone called `tapestry`, and a Python in which that clone is installed as editable."""
    folder = tmp_path_factory.mktemp("editable")
    git("clone", "--quiet", "--no-hardlinks", ROOT, folder / "tapestry")
    (folder / "pyproject.toml").write_bytes(b"")  # ends a type checker's search for settings here
    build = "import setuptools.build_meta as backend, sys; backend.build_editable(sys.argv[1])"
    clone = folder / "tapestry"
    subprocess.run([sys.executable, "-c", build, folder], cwd=clone, check=True, capture_output=True, timeout=900)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=900)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return folder, folder / "venv" / "bin" / "python"


def test_an_editable_install_is_a_plain_entry_on_the_path(beside_the_clone: tuple[Path, Path]) -> None:
    """What type checkers can follow: they do not run the import hooks of other kinds of editable install."""
    folder, python = beside_the_clone
    (entry,) = python.parents[1].glob("lib/python*/site-packages/*tapestry*.pth")
    assert entry.read_text(encoding="utf-8").strip() == str(folder / "tapestry")


def test_an_editable_install_is_seen_from_the_folder_that_holds_the_clone(beside_the_clone: tuple[Path, Path]) -> None:
    """There `tapestry` is the name of the clone as well."""
    folder, python = beside_the_clone
    code = "import sys; sys.path.insert(0, ''); import tapestry.errors, tapestry.planner; print(tapestry.__file__)"
    done = subprocess.run(
        [python, "-E", "-c", code], cwd=folder, check=True, capture_output=True, text=True, timeout=900
    )
    assert Path(done.stdout.strip()) == folder / "tapestry" / "tapestry" / "__init__.py"


def test_mypy_sees_an_editable_install_from_the_folder_of_the_clone(
    beside_the_clone: tuple[Path, Path],
) -> None:
    folder, python = beside_the_clone
    user = folder / "user.py"
    user.write_text("from tapestry.errors import UsageError\n\nreveal_type(UsageError.exit_code)\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable", python, user.name],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", ""), done.stdout


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", line)[0] for line in requirements}


def test_every_direct_dependency_is_pinned_once() -> None:
    """CuPy apart, which is chosen for the CUDA at hand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    direct = names(project["dependencies"]) | names(extras["dev"]) | names(extras["demo"])
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins)
    assert sorted(direct) == sorted(pin.partition("==")[0] for pin in pins)
