"""README's examples as a clean install runs them: without pandas, Polars and Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    if "spark." not in block
]
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "polars", "pyspark", "duckdb", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr


def shown(block: str) -> list[str]:
    """The lines that a block says it prints."""
    return [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]


def printing(block: str) -> str:
    """The block, with what its lines are said to give printed."""
    return re.sub(r"^(\w+\..*?)  # \d.*$", r"print(\1)", block, flags=re.MULTILINE)


def said(block: str) -> list[str]:
    return re.findall(r"^\w+\..*?  # (\d+)", block, re.MULTILINE)


def test_the_examples_print_what_they_show():
    assert len(BLOCKS) == 2
    out, err = run("\n".join(printing(block) for block in BLOCKS))
    assert err == ""
    expected = [line for block in BLOCKS for line in (*shown(block), *said(block))]
    assert out.splitlines() == expected
    assert len(expected) == 5


def test_the_mistake_is_the_one_that_is_shown():
    [(call, error)] = re.findall(r"^>>> (.+)\n(.+)$", README, re.MULTILINE)
    _, err = run(BLOCKS[0] + call)
    assert err.splitlines()[-1] == f"thetajoin.errors.{error}"
