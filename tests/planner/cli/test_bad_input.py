"""Bad input as a user meets it: one clear message with the place, exit code 2 (1 for a plan that fails its check),
no traceback, nothing half-written. One test for each kind in the list that the command line promises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

Tapestry = Callable[..., Any]
Change = Callable[[dict[str, Any]], None]

NET = """
import tapestry as tp
from tapestry import Tensor, f32, param

@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]]) -> Tensor:
    return tp.relu(tp.relu(x) @ w)

@tp.op
def shifted(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n + 1]

@tp.program
def outside(x: f32[Tensor, "n"]) -> Tensor:
    return shifted(x)

@tp.program
def mismatched(x: f32[Tensor, "n m"], w: f32[Tensor, "n m"]) -> Tensor:
    return x @ w
"""
SET = ("n=12", "m=8", "k=10")
# The plan on every desk, made on the first one: nothing in it says where that was.
MADE: list[bytes] = []


class Desk:
    """A folder with a program and a plan in it, and the command line."""

    def __init__(self, tapestry: Tapestry, folder: Path) -> None:
        self.tapestry, self.folder = tapestry, folder
        self.net = self.write("net.py", NET)
        self.plan = folder / "plan.json"
        if not MADE:
            sizes = ("--set", *SET, "--machine", "cpu-4", "--mesh", "4")
            assert tapestry("plan", f"{self.net}:net", *sizes, "-o", self.plan).code == 0
            MADE.append(self.plan.read_bytes())
        self.plan.write_bytes(MADE[0])

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def edited(self, change: Change) -> Path:
        """The plan with its lists written out and changed by hand."""
        import msgspec

        from tapestry.planner.format.codec import decode

        data: dict[str, Any] = msgspec.to_builtins(decode(self.plan.read_bytes()))
        data = json.loads(json.dumps(data))
        change(data)
        return self.write("edited.json", json.dumps(data))

    def refused(self, *arguments: object, code: int = 2) -> str:
        """Run a command that must fail, cleanly; its message."""
        before = self.content()
        ended = self.tapestry(*arguments)
        assert ended.code == code, ended
        assert ended.err.count("rror") >= 1
        assert "internal:" not in ended.err
        assert "Traceback" not in ended.err
        assert self.content() == before
        message: str = ended.err
        return message

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}


@pytest.fixture
def desk(tapestry: Tapestry, tmp_path: Path) -> Desk:
    return Desk(tapestry, tmp_path)


def planning(desk: Desk, *arguments: object) -> str:
    message = desk.refused("plan", *arguments, "-o", desk.folder / "new.json")
    assert not (desk.folder / "new.json").exists()
    return message


def test_a_program_file_that_does_not_import(desk: Desk) -> None:
    broken = desk.write("broken.py", "x = 1\nx = = 2\n")
    message = planning(desk, f"{broken}:net", "--machine", "cpu-4")
    assert f"{broken}:2" in message
    assert "SyntaxError" in message


def test_a_program_file_that_is_not_there(desk: Desk) -> None:
    assert "none.py" in planning(desk, f"{desk.folder / 'none.py'}:net", "--machine", "cpu-4")


def test_no_such_program(desk: Desk) -> None:
    message = planning(desk, f"{desk.net}:nett", "--machine", "cpu-4")
    assert "no program 'nett'" in message
    assert "did you mean 'net'" in message


def test_unknown_extents(desk: Desk) -> None:
    message = planning(desk, f"{desk.net}:net", "--machine", "cpu-4", "--set", "n=12", "q=3")
    assert "'q'" in message
    message = planning(desk, f"{desk.net}:net", "--machine", "cpu-4", "--set", "n=12")
    assert "needs   m, k" in message
    assert "--set m=... k=..." in message


def test_a_program_file_without_the_name_of_a_program(desk: Desk) -> None:
    message = planning(desk, desk.net, "--machine", "cpu-4")
    assert f"{desk.net}:net" in message
    assert "a program is given as FILE.py:PROGRAM" in planning(desk, "net", "--machine", "cpu-4")


def test_shapes_that_do_not_match(desk: Desk) -> None:
    message = planning(desk, f"{desk.net}:mismatched", "--machine", "cpu-4", "--set", "n=3", "m=4")
    assert "net.py:18" in message
    assert "matmul" in message


def test_an_access_out_of_bounds(desk: Desk) -> None:
    message = planning(desk, f"{desk.net}:outside", "--machine", "cpu-4", "--set", "n=6")
    assert "shifted (net.py:12) reads x[n + 1] outside its shape" in message
    assert "called at net.py:16" in message
    assert "reads   n + 1 in [1, 6] along n" in message
    assert "holds   n in [0, 5]      witness: n=6" in message


def test_an_unknown_machine(desk: Desk) -> None:
    assert "did you mean 'cpu-4'" in planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", "cpu4")
    assert "mine.toml" in planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", desk.folder / "mine.toml")


def machine(desk: Desk, change: Callable[[str], str]) -> Path:
    packaged = Path(__file__).parents[3] / "planner" / "machines" / "cpu-4.toml"
    text = packaged.read_text(encoding="utf-8")
    assert change(text) != text
    return desk.write("mine.toml", change(text))


def test_a_machine_with_a_field_too_many(desk: Desk) -> None:
    path = machine(desk, lambda text: text.replace("hosts = 1", "hosts = 1\ncolour = 'red'"))
    message = planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", path)
    assert "unknown key 'colour'" in message
    assert str(path) in message


def test_zero_devices(desk: Desk) -> None:
    path = machine(desk, lambda text: text.replace("devices_per_host = 4", "devices_per_host = 0"))
    message = planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", path)
    assert "'devices_per_host'" in message
    assert "1 or more" in message
    assert "--mesh" in planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", "cpu-4", "--mesh", "0")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("devices_per_host", "9" * 5000, "not TOML"),
        ("capacity_gb", "1e300", "'capacity_gb'"),
        ("read_gb_per_s", "1e-300", "'read_gb_per_s'"),
        ("read_gb_per_s", "1e-9", "takes too long"),
        ("launch_overhead_us", "1e300", "'launch_overhead_us'"),
        ("latency_us", "1e300", "'latency_us'"),
    ],
)
def test_numbers_of_a_machine_that_no_time_is_made_of(desk: Desk, key: str, value: str, said: str) -> None:
    path = machine(desk, lambda text: re.sub(rf"{key} = [0-9.]+", f"{key} = {value}", text, count=1))
    sizes = ("n=1200000", "m=8", "k=10")
    assert said in planning(desk, f"{desk.net}:net", "--set", *sizes, "--machine", path)


def test_a_step_that_takes_longer_than_can_be_counted(desk: Desk) -> None:
    sizes = ("n=4000000000", "m=800000", "k=100000")
    message = planning(desk, f"{desk.net}:net", "--set", *sizes, "--machine", "cpu-4", "--mesh", "4")
    assert "takes too long" in message
    assert "one device" in message


@pytest.mark.parametrize(("option", "said"), [("--mesh", "has an axis of size"), ("--memory", "not a size in bytes")])
def test_numbers_of_thousands_of_digits(desk: Desk, option: str, said: str) -> None:
    assert said in planning(desk, f"{desk.net}:net", "--set", *SET, "--machine", "cpu-4", option, "9" * 5000)


# The commands that read plans. All refuse what is no plan; `check` says what is wrong with one, the others stop there.
READERS: list[tuple[str, tuple[object, ...]]] = [
    ("check", ()),
    ("simulate", ()),
    ("explain", ()),
    ("show", ("--text",)),
    ("run", ("--random", 0)),
]
readers = pytest.mark.parametrize(("command", "more"), READERS, ids=[command for command, _ in READERS])


@readers
def test_a_truncated_plan(desk: Desk, command: str, more: tuple[object, ...]) -> None:
    whole = desk.plan.read_bytes()
    for part in (0, 1, 7, 10):
        cut = desk.write("cut.json", whole[: len(whole) * part // 11])
        message = desk.refused(command, cut, *more)
        assert f"{cut}: not a complete JSON document" in message


@readers
def test_a_plan_of_another_version(desk: Desk, command: str, more: tuple[object, ...]) -> None:
    path = desk.edited(lambda data: data.update(format="tapestry.plan/9"))
    message = desk.refused(command, path, *more)
    assert f"{path}: a plan of another version" in message
    assert "tapestry.plan/9" in message


def set_to(*path: Any) -> Change:
    """Sets the field at path[:-1] to path[-1]."""

    def change(data: Any) -> None:
        for key in path[:-2]:
            data = data[key]
        data[path[-2]] = path[-1]

    return change


# Edits that leave no document: exit code 2 from every command, and the field in the message.
MALFORMED: list[tuple[Change, str]] = [
    (set_to("colour", "red"), "unknown field `colour`"),
    (set_to("tasks", 0, "lane", 3), "`$.tasks[0].lane`"),
    (set_to("buffers", 0, "offset", "0"), "`$.buffers[0].offset`"),
    (lambda data: data.pop("layouts"), "`layouts`"),
]


@readers
@pytest.mark.parametrize(("change", "said"), MALFORMED, ids=[said for _, said in MALFORMED])
def test_a_plan_with_a_wrong_field(
    desk: Desk, command: str, more: tuple[object, ...], change: Change, said: str
) -> None:
    path = desk.edited(change)
    message = desk.refused(command, path, *more)
    assert f"{path}: malformed plan" in message
    assert said in message


# Edits that leave a document that means nothing: it fails its check, and no command goes on with it.
MEANINGLESS: list[tuple[str, Change]] = [
    ("reference", set_to("tasks", 0, "op", "dance")),
    ("reference", set_to("tasks", 0, "write", "nowhere")),
    ("layout", set_to("layouts", "L0", "regions", 0, "0:3,zzz")),
    ("duplicate", lambda data: data["tasks"].append(data["tasks"][0])),
    ("program", lambda data: data["program"]["operations"].pop()),
    ("task", set_to("tasks", 0, "lane", "express")),
    ("storage", set_to("buffers", 0, "offset", -256)),
    ("machine", set_to("mesh", [8])),
    ("deadlock", lambda data: data["tasks"][0].update(waits=[data["tasks"][-1]["id"]])),
]


@readers
@pytest.mark.parametrize(("code", "change"), MEANINGLESS, ids=[code for code, _ in MEANINGLESS])
def test_a_plan_that_fails_its_check(
    desk: Desk, command: str, more: tuple[object, ...], code: str, change: Change
) -> None:
    path = desk.edited(change)
    before = desk.content()
    ended = desk.tapestry(command, path, *more)
    assert desk.content() == before
    assert ended.code in ((1,) if command == "check" else (1, 2))
    assert "internal:" not in ended.err
    assert code in (ended.out if command == "check" else ended.err) or ended.code == 2


def test_a_cyclic_plan(desk: Desk) -> None:
    """Two tasks that wait for one another: named by the check, refused by the simulator and the engine."""

    def cycle(data: dict[str, Any]) -> None:
        first, last = data["tasks"][0], data["tasks"][-1]
        first["waits"], last["waits"] = [last["id"]], [first["id"]]

    path = desk.edited(cycle)
    assert "deadlock: task 0" in desk.tapestry("check", path).out
    for command in ("simulate", "explain", "show"):
        assert "deadlock: task 0" in desk.refused(command, path, code=1)
    out = desk.folder / "out.safetensors"
    assert "deadlock: task 0" in desk.refused("run", path, "--random", 0, "--outputs", out, code=1)


def test_a_plan_with_a_race_fails_its_check(desk: Desk) -> None:
    """Each product's operand must be gathered first; without waits nothing makes it."""
    pins = desk.write(
        "pins.toml", "[[pin]]\nop = 'relu'\ncut = { mesh0 = 'm' }\n[[pin]]\nop = '*_1'\ncut = { mesh0 = 'n' }\n"
    )
    desk.tapestry(
        "plan", f"{desk.net}:net", "--set", *SET, "--machine", "cpu-4", "--pin", pins, "-o", desk.plan, "--force"
    )
    assert desk.tapestry("check", desk.plan).code == 0

    def unordered(data: dict[str, Any]) -> None:
        assert any(task["waits"] for task in data["tasks"])
        for task in data["tasks"]:
            task["waits"] = []

    ended = desk.tapestry("check", desk.edited(unordered))
    assert ended.code == 1
    assert "race: " in ended.out


X, W = np.ones((12, 8), np.float32), np.ones((8, 10), np.float32)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X.astype(np.float64), "w": W}, ["'x'", "F64", "F32"]),
        ({"x": X.T.copy(), "w": W}, ["'x'", "8, 12", "12, 8"]),
        ({"x": X}, ["'w' is missing"]),
        ({"x": X, "v": W}, ["'v'"]),
    ],
    ids=["dtype", "shape", "missing", "another"],
)
def test_inputs_of_the_wrong_dtype_or_shape(desk: Desk, arrays: dict[str, Any], said: list[str]) -> None:
    given = desk.folder / "in.safetensors"
    save_file(arrays, given)
    message = desk.refused("run", desk.plan, "--inputs", given, "--outputs", desk.folder / "out.safetensors")
    assert str(given) in message
    assert [text for text in said if text.lower() not in message.lower()] == []


def lying(header: Change) -> Callable[[bytes], bytes]:
    """A safetensors file whose header is changed, its length told truly."""

    def change(data: bytes) -> bytes:
        size = int.from_bytes(data[:8], "little")
        fields = json.loads(data[8 : 8 + size])
        header(fields)
        text = json.dumps(fields).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + size :]

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:5],
        lambda data: b"",
        lambda data: (1 << 62).to_bytes(8, "little") + data[8:],
        lying(lambda fields: fields["x"].update(shape=[12, 9])),
        lying(lambda fields: fields["x"].update(shape=[1 << 40, 1 << 40])),
        lying(lambda fields: fields["x"].update(data_offsets=[0, 1 << 50])),
        lying(lambda fields: fields["x"].update(data_offsets=[8, 0])),
        lying(lambda fields: fields["x"].update(dtype="F63")),
    ],
    ids=["half", "a byte", "five bytes", "empty", "header", "shape", "huge", "offsets", "backwards", "dtype"],
)
def test_a_safetensors_file_that_is_truncated_or_lies(desk: Desk, change: Callable[[bytes], bytes]) -> None:
    given = desk.folder / "in.safetensors"
    save_file({"x": X, "w": W}, given)
    given.write_bytes(change(given.read_bytes()))
    message = desk.refused("run", desk.plan, "--inputs", given, "--outputs", desk.folder / "out.safetensors")
    assert f"{given}: not a whole safetensors file" in message
