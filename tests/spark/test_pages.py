"""Pages of the documentation that use Spark do what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.snippets import PAGES, ROOT, needs_spark, run_page


@pytest.mark.parametrize(
    "page", filter(needs_spark, PAGES), ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_does_what_it_shows(
    page: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thetajoin.spark.session.local_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.chdir(tmp_path)
    before = {key: spark.conf.get(key) for key in (MADE_BY_PAGES)}
    try:
        assert run_page(page, tmp_path, {"__name__": "page", "spark": spark}) == []
    finally:
        for query in spark.streams.active:
            query.stop()
        for key, value in before.items():
            spark.conf.set(key, value)


MADE_BY_PAGES = ("spark.sql.streaming.stateStore.providerClass",)
