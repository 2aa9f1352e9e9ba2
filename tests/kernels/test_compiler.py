"""Kernels where numba may write to none of its folders: compiled, and kept where they can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import thetajoin

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled"
)

SCRIPT = """
import numpy as np
from thetajoin.kernels.hashes import hash_bytes
import thetajoin.kernels.order
out = np.zeros(2, np.int64)
hash_bytes(np.array([0, 1, 2]), np.array([65, 66], np.uint8), out)
print(out[0] != out[1], sum(hash_bytes.compile().stats.cache_hits.values()))
"""


class Machine:
    """A package and a home that cannot be written to; root may write past any permissions."""

    def __init__(self, folder: Path) -> None:
        package = folder / "src" / "thetajoin"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(thetajoin.__file__).parent, package, ignore=ignored)
        (package / "kernels" / "__pycache__").write_text("in the way")
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("NUMBA")
        } | {
            "PYTHONPATH": str(folder / "src"),
            "HOME": os.devnull,
            "XDG_CACHE_HOME": os.devnull,
            "TMPDIR": str(self.temporary),
        }

    @property
    def kept(self) -> Path:
        return self.temporary / f"thetajoin-kernels-{os.getuid()}"

    def run(self, **environment: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize("given", ["", f"{os.devnull}/kernels"])
def test_they_go_to_a_folder_of_the_users_own(machine, given):
    environment = {"NUMBA_CACHE_DIR": given} if given else {}
    assert machine.run(**environment) == ("True 0", "")
    assert machine.kept.stat().st_mode & 0o777 == 0o700
    assert list(machine.kept.rglob("*.kernel"))
    assert machine.run(**environment) == ("True 1", "")  # the next process compiles nothing


def test_a_folder_that_others_may_write_to_is_not_trusted(machine):
    machine.kept.mkdir()
    machine.kept.chmod(0o777)
    out, err = machine.run()
    assert out == "True 0"
    assert err.count("NUMBA_CACHE_DIR") == 1
    assert list(machine.kept.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="folders have no modes")
@pytest.mark.parametrize("open_part", [".", "thetajoin"])
@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_no_folder_that_others_may_write_to_is_trusted(machine, variable, open_part, tmp_path):
    folder = tmp_path / "given"
    (folder / "thetajoin").mkdir(parents=True)
    (folder / open_part).chmod(0o777)
    out, err = machine.run(**{variable: str(folder)})
    assert (out, err) == ("True 0", "")
    assert not list(folder.rglob("*.kernel"))
    assert list(machine.kept.rglob("*.kernel"))


@pytest.mark.skipif(os.name != "posix", reason="folders have no modes")
def test_kernels_in_a_folder_that_was_opened_later_are_not_read(machine, tmp_path):
    given = {"NUMBA_CACHE_DIR": str(tmp_path / "given")}
    assert machine.run(**given) == ("True 0", "")
    assert machine.run(**given) == ("True 1", "")
    (stamped,) = (tmp_path / "given" / "thetajoin").iterdir()
    stamped.chmod(0o777)
    assert machine.run(**given)[0] == "True 0"


def test_kernels_with_bounds_checks_are_others(machine):
    assert machine.run() == ("True 0", "")
    assert machine.run(NUMBA_BOUNDSCHECK="1")[0] == "True 0"
    assert machine.run(NUMBA_BOUNDSCHECK="1")[0] == "True 1"
    assert machine.run()[0] == "True 1"


def test_without_any_folder_they_are_compiled_with_one_warning(machine):
    machine.kept.write_text("in the way")
    out, err = machine.run()
    assert out == "True 0"
    assert err.count("no folder for compiled kernels") == 1


def test_the_users_own_functions_keep_their_place(machine):
    script = "import numba, thetajoin.kernels.order; print(repr(numba.config.CACHE_DIR))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=machine.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "''\n"
