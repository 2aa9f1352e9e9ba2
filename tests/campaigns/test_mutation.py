"""The mutation tester: the mistakes it makes, and whether it sees which of them tests notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import ROOT, import_path
from campaigns import mutation
from campaigns.equivalents import EQUIVALENTS
from campaigns.mutants import code_in, function_in, mutants_of
from thetajoin.errors import OptionError

SOURCE = '''
class Window:
    @property
    def size(self) -> int:
        """The size is < 3."""
        return self._size + 1


def left_out(items):
    kept = [item for item in items if item]
    if not kept and len(items) < 2:
        raise ValueError(f"{len(items) + 1} of 3")
    items.clear()
    assert items == []
    return {"l": max(kept), "left": -kept[0]}
'''


def test_mistakes_a_reader_could_miss() -> None:
    found = [(m.function, m.line, m.after) for m in mutants_of("x.py", SOURCE)]
    assert sorted(found) == sorted(
        [
            ("Window.size", 6, "return (self._size - 1)"),
            ("Window.size", 6, "return self._size + 2"),
            ("left_out", 10, "kept = [item for item in items if (not item)]"),
            ("left_out", 11, "if (not (not kept and len(items) < 2)):"),
            ("left_out", 11, "if (not kept or len(items) < 2):"),
            ("left_out", 11, "if (kept) and len(items) < 2:"),
            ("left_out", 11, "if not kept and (len(items) <= 2):"),
            ("left_out", 11, "if not kept and len(items) < 3:"),
            ("left_out", 13, "pass"),
            ("left_out", 15, """return {'r': max(kept), "left": -kept[0]}"""),
            ("left_out", 15, """return {"l": max(kept), 'right': -kept[0]}"""),
            ("left_out", 15, 'return {"l": min(kept), "left": -kept[0]}'),
            ("left_out", 15, 'return {"l": max(kept), "left": (kept[0])}'),
            ("left_out", 15, 'return {"l": max(kept), "left": -kept[1]}'),
        ]
    )
    assert not mutants_of("x.py", SOURCE, frozenset({"size", "left_out"}))


def test_mutants_of_the_deciding_parts_can_be_put_in_place() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")  # some parts import it
    every = mutation.all_mutants(ROOT)
    assert len(every) >= mutation.MUTANTS
    drawn = mutation.drawn(every, 40)
    assert len(drawn) == 40
    for mutant in drawn:
        source = (ROOT / mutant.path).read_text()
        code = code_in(compile(mutant.source(source), mutant.path, "exec"), mutant.function)
        there = function_in(mutation._module(mutant.path), mutant.function)
        assert code.co_name == there.__code__.co_name
        assert code.co_freevars == there.__code__.co_freevars
        assert mutant.before != mutant.after


def test_the_same_mutants_are_drawn_whatever_else_there_is() -> None:
    every = mutation.all_mutants(ROOT)
    drawn = mutation.drawn(every, 100)
    assert set(mutation.drawn(every[::2], 100)) >= set(drawn) & set(every[::2])


@pytest.mark.parametrize("pattern", mutation.PARTS)
def test_the_deciding_parts_are_where_they_are_said_to_be(pattern: str) -> None:
    package = ROOT / "src" / "thetajoin"
    paths = list(package.glob(pattern))
    assert paths
    text = "".join(path.read_text() for path in paths)
    for name in mutation.PARTS[pattern]:
        assert f"def {name}(" in text


def test_every_mutant_that_changes_nothing_still_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "EQUIVALENTS", frozenset())
    every = {mutant.identity for mutant in mutation.all_mutants(ROOT)}
    assert not EQUIVALENTS - every
    assert len(EQUIVALENTS) < 0.08 * len(every)


TINY = """
import os


def above(number):
    '''
    >>> above(4)
    True
    '''
    if number > 3:
        return True
    return False


def untested(number):
    return number + 1


def endless(number):
    while number < 3:
        number += 1
    return number


def deadly(number):
    if number > 0:
        os.abort()
    return number
"""
TINY_TESTS = """
from tiny import above, deadly, endless


def test_above():
    assert above(9)
    assert not above(1)


def test_endless():
    assert endless(1) == 3


def test_deadly():
    assert deadly(0) == 0
"""
TRY = """
import json, sys
from pathlib import Path
import pytest
from campaigns import mutation
from campaigns.mutants import mutants_of

mutation.GRACE = 3.0
root = Path.cwd()
mutants = mutants_of("src/tiny.py", (root / "src" / "tiny.py").read_text())
trial = mutation.Trial(root, mutants, sys.stderr)
given = ["-p", "no:terminal", "-p", "no:xdist", "--doctest-modules", "tests", "src"]
pytest.main(given, plugins=[trial])
told = {
    f"{m.function}: {m.after}": "a test" if "::" in killer else killer
    for m, killer in trial.outcomes.items()
}
Path("told").write_text(json.dumps(told))
Path("result").write_text(json.dumps(trial.result(len(mutants))))
"""


def test_a_small_project_from_end_to_end(tmp_path: Path) -> None:
    for name, text in (
        ("src/tiny.py", TINY),
        ("tests/test_tiny.py", TINY_TESTS),
        ("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["src"]\n'),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", TRY],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": import_path(tmp_path / "src", ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told").read_text())
    assert told == {
        "above: if (not number > 3):": "a test",
        "above: if (number >= 3):": "",
        "above: if number > 4:": "a test",
        "above: return False": "a test",
        "above: return True": "a test",
        "untested: return (number - 1)": "",
        "untested: return number + 2": "",
        "endless: while (not number < 3):": "a test",
        "endless: while (number <= 3):": "a test",
        "endless: while number < 4:": "a test",
        "endless: pass": "its time",
        "endless: number += 2": "",
        "deadly: if (not number > 0):": "a crash",
        "deadly: if (number >= 0):": "a crash",
        "deadly: if number > 1:": "",
        "deadly: pass": "",
    }
    found = json.loads((tmp_path / "result").read_text())
    assert (found["caught"], found["mutants"]) == (10, 16)
    assert [s["at"] for s in found["survivors"]][1:3] == ["src/tiny.py:16", "src/tiny.py:16"]
    assert [s["tests"] for s in found["survivors"]] == [2, 0, 0, 1, 1, 0]


def test_it_says_that_it_needs_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(OptionError, match="runs the project's tests"):
        mutation.run(lambda _: None)
