"""Pages of the documentation that use Spark do what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.notebooks import run_cells, texts
from docs.snippets import PAGES, ROOT, needs_spark, run_page

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def names(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A page's namespace, with this session as its own, and `tmp_path` as the working directory."""
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: spark)
    monkeypatch.chdir(tmp_path)
    listeners: list[Any] = []
    queries, add = spark.streams, type(spark.streams).addListener
    monkeypatch.setattr(
        type(queries), "addListener", lambda own, new: add(own, listeners.append(new) or new)
    )
    # The JVM has a working directory of its own, that of the process that started it; Spark's
    # relative paths are below it.
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.FileSystem.get(conf)
    before, provider = files.getWorkingDirectory(), spark.conf.get(PROVIDER)
    files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(str(tmp_path)))
    yield {"__name__": "page"}
    for query in spark.streams.active:
        query.stop()
    for listener in listeners:
        queries.removeListener(listener)
    files.setWorkingDirectory(before)
    spark.conf.set(PROVIDER, provider)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if needs_spark(page)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_does_what_it_shows(page: Path, names: dict[str, Any], tmp_path: Path) -> None:
    assert run_page(page, tmp_path, names) == []


def test_the_notebook_gives_what_it_shows(names: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    notebook = ROOT / "docs" / "notebooks" / "stream.ipynb"
    assert texts(run_cells(notebook, names)) == texts(json.loads(notebook.read_text()))
