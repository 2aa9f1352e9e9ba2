"""The recipes of docs/aggregates.md print what they show."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "aggregates.md"


def test_the_recipes_print_what_they_show():
    (recipes,) = re.findall(r"^## Recipes\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"```python\n(.*?)```", recipes, re.DOTALL)
    out = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(out):
        for block in blocks:
            exec(block, names)
    shown = [line.removeprefix("# ") for line in recipes.splitlines() if line.startswith("# {")]
    assert len(shown) == 5
    assert out.getvalue().splitlines() == shown
