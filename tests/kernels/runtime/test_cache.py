"""The cache on disk: whole entries or none, many processes, damage, nowhere to write, a bound on its size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.kernels.runtime import cache, compiler
from tapestry.kernels.runtime.cache import Cache, Record
from tapestry.kernels.runtime.compiler import compile_source

SOURCE = 'extern "C" __global__ void fill(int* y) { *y = 1; }'
KEY = "ab" * 32
SCRIPT = Path(__file__).parent / "compile_once.py"


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=3000), st.dictionaries(st.text(), st.text()))
def test_what_was_kept_is_what_is_found(tmp_path: Path, image: bytes, head: dict[str, str]) -> None:
    kept = Cache(tmp_path)
    kept.put(KEY, Record(image, head))
    assert kept.get(KEY) == Record(image, head)
    assert Cache(tmp_path).get(KEY) == Record(image, head)
    assert kept.get("cd" * 32) is None


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_seen_and_removed(tmp_path: Path, data: st.DataObject) -> None:
    kept = Cache(tmp_path)
    kept.put(KEY, Record(b"image" * 20, {"log": "text"}))
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    path.write_bytes(data.draw(st.sampled_from([flipped, whole[:place], whole + b"x"])))
    assert kept.get(KEY) is None
    assert not path.exists()


@pytest.mark.parametrize("damaged", [b"", b"TAPESTRY", b"garbage" * 1000])
def test_a_damaged_entry_is_compiled_again(own_cache: Path, damaged: bytes) -> None:
    made = compile_source(SOURCE, name="fill")
    (path,) = entries(own_cache)
    path.write_bytes(damaged)
    compiler.forget()
    assert compile_source(SOURCE, name="fill") == made
    assert len(path.read_bytes()) > len(made.cubin)


def test_many_processes_compile_each_kernel_once(own_cache: Path, tmp_path: Path) -> None:
    notes = tmp_path / "compiled"
    command = [sys.executable, str(SCRIPT), "3", str(notes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate(timeout=900)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 8
    assert len(set(said)) == 1
    assert len(said[0].splitlines()) == 3
    assert Counter(notes.read_text().split()) == {"k0": 1, "k1": 1, "k2": 1}
    assert len(entries(own_cache)) == 3
    assert not list(own_cache.glob("*.tmp"))


def test_readers_see_whole_entries_while_others_write(tmp_path: Path) -> None:
    """Eight processes write the same key again and again; every read is one of the records, never a piece."""
    code = (
        "import sys; from pathlib import Path; from tapestry.kernels.runtime.cache import Cache, Record\n"
        f"kept = Cache(Path({str(tmp_path)!r}))\n"
        f"for _ in range(200): kept.put({KEY!r}, Record(sys.argv[1].encode() * 5000, {{'from': sys.argv[1]}}))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, letter]) for letter in "abcd"]
    seen = Counter[str]()
    kept = Cache(tmp_path)
    while any(process.poll() is None for process in running):
        record = kept.get(KEY)
        if record is not None:
            letter = record.head["from"]
            assert record.image == letter.encode() * 5000
            seen[letter] += 1
    assert [process.wait() for process in running] == [0] * 4
    assert sum(seen.values()) > 0
    assert len(entries(tmp_path)) == 1


def test_a_process_that_dies_while_writing_leaves_nothing_that_is_read(own_cache: Path) -> None:
    own_cache.mkdir(parents=True)
    left = own_cache / "abandoned.tmp"
    left.write_bytes(b"half of an entry")
    recent = own_cache / "being-written.tmp"
    recent.write_bytes(b"half of another")
    claimed, held = (own_cache / f"{digits}.lock" for digits in ("abcde", "abcdf"))
    claimed.touch()
    held.touch()
    os.utime(claimed, (time.time() - 7200,) * 2)
    long_ago = time.time() - 7200
    os.utime(left, (long_ago, long_ago))
    compile_source(SOURCE, name="fill")
    assert not left.exists()
    assert recent.exists()
    assert not claimed.exists()
    assert held.exists()


def test_a_claim_ends_with_its_process(own_cache: Path) -> None:
    code = (
        "import os; from pathlib import Path; from tapestry.kernels.runtime.cache import Cache\n"
        f"with Cache(Path({str(own_cache)!r})).claim({KEY!r}): os._exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=900).returncode == 3
    with Cache(own_cache).claim(KEY):
        assert (own_cache / f"{KEY[:5]}.lock").exists()


def test_a_slow_holder_is_not_waited_for_for_ever(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_PATIENCE_S", 0.05)
    with Cache(own_cache).claim(KEY), Cache(own_cache).claim(KEY):
        assert compile_source(SOURCE, name="fill").registers


def test_others_are_not_waited_for(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that begin alike, as two of a few dozen do."""

    def never(_: float) -> None:
        raise AssertionError("waited")

    monkeypatch.setattr(time, "sleep", never)
    like = KEY[:4] + "".join("1" if digit == "0" else "0" for digit in KEY[4:])
    with Cache(own_cache).claim(KEY), Cache(own_cache).claim(like):
        pass
    with pytest.raises(AssertionError, match="waited"), Cache(own_cache).claim(KEY), Cache(own_cache).claim(KEY):
        pass


def test_nowhere_to_write_is_said_once_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "file"
    taken.write_text("not a directory")
    monkeypatch.setenv("TAPESTRY_CACHE", str(taken))
    compiler.forget()
    with pytest.warns(RuntimeWarning, match="compiled kernels are not kept: .*file.*TAPESTRY_CACHE"):
        assert compile_source(SOURCE, name="fill").registers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_source(SOURCE + "\n", name="fill").registers


def test_the_cache_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache.directory() is None
    assert compile_source(SOURCE, name="fill").registers
    assert not (tmp_path / "caches").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the place differs on other systems")
def test_the_users_cache_directory_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TAPESTRY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "tapestry" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.directory() == tmp_path / ".cache" / "tapestry" / "kernels"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    kept = Cache(tmp_path, limit=10_000)
    now = time.time()
    for index in range(9):
        kept.put(f"{index:064}", Record(b"x" * 1000, {}))
        os.utime(tmp_path / f"{index:064}.kernel", (now - 100 + index,) * 2)
    assert kept.get(f"{0:064}") is not None  # used: now the most recent
    kept.put(f"{9:064}", Record(b"x" * 1000, {}))
    left = {int(path.stem) for path in entries(tmp_path)}
    assert left == {0, 9, 8, 7, 6, 5, 4}
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 7_500
