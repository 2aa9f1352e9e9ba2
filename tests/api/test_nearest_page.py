"""The examples of docs/nearest.md print what they show."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nearest.md"


def test_the_examples_print_what_they_show():
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block, names)
        shown = [line[2:] for line in block.splitlines() if line.startswith("# ")]
        assert shown
        assert [line.strip() for line in out.getvalue().splitlines()] == [s.strip() for s in shown]
    assert len(blocks) == 8
