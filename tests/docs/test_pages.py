"""Every page of the documentation does what it shows; tests/spark/test_pages.py has Spark's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.snippets import PAGES, ROOT, blocks_of, needs_spark, run_page

HERE = [page for page in PAGES if not needs_spark(page)]


@pytest.mark.parametrize("page", HERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "polars" in page.read_text():
        pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    assert run_page(page, tmp_path) == []


PAGE = """
```python
x = 1
x + 1  # 2: one more
print(x)
print(3)
# 1
# 3

# a remark
y = x
```
```console
$ echo hello
hello
```
<!-- not run: needs a broker somewhere -->
```python
1 / 0
```
>>> nothing
"""


@pytest.mark.parametrize(
    ("was", "becomes", "finds"),
    [
        ("", "", 0),
        ("# 2:", "# 3:", 1),
        ("# 1\n", "# 2\n", 1),
        ("\nhello", "\ngoodbye", 1),
        ("needs a broker somewhere", "", 1),
        ("<!-- not run: needs a broker somewhere -->", "", 1),
        ("x = 1\n", "x = 5\n", 2),
        ("y = x", "y = z", 1),
        ("echo hello", "python -m benchmarks nothing", 1),
        ("echo hello", "python -m benchmarks joins --bits 3", 1),
        ("echo hello", "python -m tests.campaigns fuzz --cases 3", 0),
    ],
)
def test_what_is_not_as_shown_is_found(
    was: str, becomes: str, finds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docs.snippets.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(was, becomes) if was else PAGE)
    wrong = run_page(page, tmp_path)
    assert len(wrong) == finds, wrong


def test_every_block_has_a_language_or_is_plain_text() -> None:
    run = {"python", "pycon", "console", "sh", "toml", "file"}
    known = run | {"", "sql", "text", "not run"}
    for page in PAGES:
        for block in blocks_of(page.read_text()):
            assert block.kind in known, f"{page.name}:{block.line}: ```{block.kind}"


def test_nothing_is_run_that_a_reader_does_not_see() -> None:
    hidden = [str(page) for page in PAGES if re.search(r"<!--\s*(run|sh):", page.read_text())]
    assert not hidden
