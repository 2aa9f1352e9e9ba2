"""What type checkers are told: pandas in is pandas out, and a mistyped `how` is seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).parent / "typed" / "sample.py"


def test_the_sample() -> None:
    mypy = pytest.importorskip("mypy.api")
    options = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    out, err, _ = mypy.run([*options, "--hide-error-context", str(SAMPLE)])
    assert err == ""
    found = {}
    for number, kind, text in re.findall(r"sample\.py:(\d+): (error|note): (.*)", out):
        shown = re.match(r'Revealed type is "(.*)"', text)
        if kind == "error":
            found[int(number)] = "error"
        elif shown is not None:
            found[int(number)] = shown[1].replace("collections.abc.", "").replace("typing.", "")
    lines = SAMPLE.read_text().splitlines()
    marked = {
        at: said[1] for at, line in enumerate(lines, 1) if (said := re.search(r"\)  # (.+)$", line))
    }
    assert found == marked, out
