"""Pictures of figures are drawn, and say whose bar is whose."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from thetajoin.bench import engine, scale_out
from thetajoin.bench.harness import Report

MEDIANS = {"median": {"thetajoin": 0.2, "duckdb": 0.5, "polars": 1.0}}


def test_the_engine_chart_has_a_panel_for_each_kind_of_join(tmp_path: Path) -> None:
    details = {
        "step": {"seconds_per_step": {"thetajoin": 0.03, "duckdb": 5.0, "duckdb_own_table": 0.2}},
        "oneshot_2_threads": MEDIANS,
        "band_2_threads": MEDIANS,
        "spark": {"median": {"thetajoin": 1.0, "Spark": 30.0}},
    }
    (made,) = engine.plot(Report("engine", details=details), tmp_path / "new")
    assert made.read_bytes().startswith(b"\x89PNG")
    assert made.stat().st_size > 5000


def test_what_more_units_gain_is_drawn(tmp_path: Path) -> None:
    at = [1, 4, 16]
    curve = {"title": "t", "x": "units", "y": "times", "at": at, "lines": {"a": at, "b": [1, 3, 9]}}
    (made,) = scale_out.plot(Report("scale-out", curves={"speedup": curve}), tmp_path)
    assert made == tmp_path / "speedup.png"
    assert made.stat().st_size > 5000
