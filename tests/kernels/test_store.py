"""Kept kernels: a stale, foreign or damaged one is never run, and one process compiles for all."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import thetajoin
from thetajoin.kernels import store

# Compiles one small kernel, of which a piece is in another file, and says where it came from.
SCRIPT = """
import numpy as np
from thetajoin.kernels.hashes import hash_bytes
out = np.zeros(2, np.int64)
hash_bytes(np.array([0, 1, 2]), np.array([65, 66], np.uint8), out)
stats = hash_bytes.compile().stats
print(out.tolist(), sum(stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, whose files a test may change."""
    copy = tmp_path / "src" / "thetajoin"
    ignored = shutil.ignore_patterns("__pycache__", "ready")
    shutil.copytree(Path(thetajoin.__file__).parent, copy, ignore=ignored)
    return copy


def run(package: Path, kept: Path, **environment: str) -> str:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    usual |= {"PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(kept)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=usual | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


compiles = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)


@compiles
def test_a_kept_kernel_serves_until_any_source_changes(package, tmp_path):
    kept = tmp_path / "kept"
    first = run(package, kept)
    assert first.endswith(" 0")
    assert run(package, kept) == first[:-1] + "1"
    os.utime(package / "kernels" / "hashes.py", (1, 1))  # an installed file is as old as its copy
    assert run(package, kept) == first[:-1] + "1"
    with (package / "kernels" / "boxes.py").open("a") as file:
        file.write("\n# changed\n")
    assert run(package, kept) == first


@compiles
def test_a_damaged_kernel_is_compiled_again(package, tmp_path):
    kept = tmp_path / "kept"
    first = run(package, kept)
    (entry,) = kept.rglob("*.kernel")
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(bytes(content))
    assert run(package, kept) == first
    assert run(package, kept) == first[:-1] + "1"
    entry.write_bytes(b"")
    assert run(package, kept) == first


@compiles
def test_kernels_that_came_with_the_package_serve_the_processors_they_fit(package, tmp_path):
    from thetajoin.kernels.compiler import find_baselines

    if not find_baselines():
        pytest.skip("no baseline for this machine")
    name, features = find_baselines()[0]
    ahead = tmp_path / "ahead"
    first = run(package, ahead, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features)
    shutil.copytree(ahead / "thetajoin", package / "kernels" / "ready")
    assert run(package, tmp_path / "none") == first[:-1] + "1"
    assert not list((tmp_path / "none").rglob("*.kernel"))
    # Somebody who asks for a processor gets what is compiled for it.
    assert run(package, tmp_path / "other", NUMBA_CPU_NAME="generic") == first


def test_a_machine_without_a_feature_has_no_use_for_kernels_that_need_it(monkeypatch):
    pytest.importorskip("numba")
    from thetajoin.kernels import compiler

    third = dict.fromkeys(compiler._THIRD, True)
    for machine, features, names in (
        ("x86_64", third, ["x86-64-v3", "x86-64-v2"]),
        ("AMD64", third | {"avx2": False}, ["x86-64-v2"]),
        ("x86_64", {}, []),
        ("arm64", {}, ["generic"]),
        ("riscv64", third, []),
    ):
        monkeypatch.setattr(compiler.platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(compiler.binding, "get_host_cpu_features", lambda found=features: found)
        compiler.find_baselines.cache_clear()
        assert [name for name, _ in compiler.find_baselines()] == names
    compiler.find_baselines.cache_clear()


def test_entries_differ_by_function_types_and_processor():
    names = {
        store.entry_name(function, types, processor)
        for function in ("thetajoin.kernels.a.f", "thetajoin.kernels.b.f")
        for types in ("(int64,)", "(float64,)")
        for processor in ("x86-64-v2", "x86-64-v3")
    }
    assert len(names) == 8
    assert store.stamp("0.61") != store.stamp("0.62")


def test_the_stamp_follows_python(monkeypatch):
    before = store.stamp.__wrapped__("1")
    monkeypatch.setattr(store.sys.implementation, "cache_tag", "cpython-399")
    assert store.stamp.__wrapped__("1") != before


def test_what_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store.write(tmp_path / "file" / "folder", "entry", b"code")
    store.write(tmp_path, "entry", b"code")
    assert store.read(tmp_path, "entry") == b"code"
    assert [path.name for path in tmp_path.iterdir() if path.name != "file"] == ["entry"]
    assert store.read(tmp_path, "other") is None


def test_a_second_process_waits_for_the_first_and_a_dead_one_is_not_waited_for(
    tmp_path, monkeypatch
):
    order = []

    def second() -> None:
        with store.take_turn(tmp_path, "entry"):
            order.append("second")

    waiting = threading.Thread(target=second)
    with store.take_turn(tmp_path, "entry"):
        waiting.start()
        time.sleep(0.1)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    (tmp_path / "entry.lock").touch()
    os.utime(tmp_path / "entry.lock", (1, 1))
    second()
    monkeypatch.setattr(store, "LONGEST_WAIT", 0.05)
    with store.take_turn(tmp_path, "other"):
        os.utime(tmp_path / "other.lock", (time.time() + 60,) * 2)
        with store.take_turn(tmp_path, "other"):
            order.append("would not wait for ever")
    assert len(order) == 4
    with store.take_turn(None, "entry"), store.take_turn(tmp_path / "entry.lock" / "no", "entry"):
        pass


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_system_has_a_folder_for_what_a_user_keeps(system, tmp_path, monkeypatch):
    monkeypatch.setattr(store.sys, "platform", system)
    monkeypatch.setattr(store, "WINDOWS", system == "win32")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("LOCALAPPDATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    parts = {"linux": [".cache"], "darwin": ["Library", "Caches"], "win32": ["AppData", "Local"]}
    assert store._of_user() == tmp_path.joinpath(*parts[system])


def test_a_user_without_a_home_and_a_system_without_user_numbers(tmp_path, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr(store, "PACKAGE", Path(os.devnull))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delattr(os, "getuid", raising=False)
    monkeypatch.setattr(store.tempfile, "gettempdir", lambda: str(tmp_path))
    assert store.find_writable.__wrapped__() == tmp_path / "thetajoin-kernels-own"


def test_old_versions_are_swept_away(tmp_path):
    for name, age in (("old", store.UNUSED_DAYS + 1), ("new", 1)):
        (tmp_path / name).mkdir()
        long_ago = time.time() - age * 24 * 3600
        os.utime(tmp_path / name, (long_ago, long_ago))
    store._sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "seconds", "said"),
    [(Terminal, 0.3, 1), (Terminal, 0.0, 0), (io.StringIO, 0.3, 0), (lambda: None, 0.0, 0)],
)
def test_a_terminal_that_waits_is_told_once(stream, seconds, said, monkeypatch):
    compiler = pytest.importorskip("thetajoin.kernels.compiler")
    screen = stream()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(compiler, "SILENT", 0.05)
    monkeypatch.setattr(compiler, "_has_told", False)
    for _ in range(2):
        with compiler._announce():
            time.sleep(seconds)
    assert screen is None or screen.getvalue() == "thetajoin: compiling, once\n" * said
