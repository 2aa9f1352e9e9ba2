"""The examples of docs/inputs.md give what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inputs.md"


def test_the_examples_give_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with a comment gives its value; lines of comments are what the line above prints."""
    for library in ("pandas", "polars", "duckdb"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    seen = 0
    for block in blocks:
        exec(block, names)
        for line, value in re.findall(r"^(tj\..+?)  # ([\d\[].*)$", block, re.MULTILINE):
            assert str(eval(line, names)) == value
            seen += 1
        for line, table in re.findall(r"^(tj\..+)\n((?:# .*\n)+)", block, re.MULTILINE):
            shown = [row[2:].rstrip() for row in table.splitlines()]
            assert [row.rstrip() for row in str(eval(line, names)).splitlines()] == shown
            seen += 1
    assert len(blocks) == 5
    assert seen == 5
