"""Pictures of figures are drawn, and say whose bar is whose."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from benchmarks import engine, plots, scale_out
from benchmarks.harness import Report

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


def test_a_picture_is_drawn_from_a_kept_report(tmp_path: Path) -> None:
    kept = Path(__file__).resolve().parents[2] / "docs" / "img" / "speed.json"
    (made,) = plots.redraw(kept, tmp_path)
    assert made == tmp_path / "speed.png"


@pytest.mark.parametrize("at", [[1000, 2000], [1 << 10, 1 << 16, 1 << 20, 1 << 24], ["a", "b"]])
def test_no_axis_has_an_offset_or_an_exponent(at: list[int], monkeypatch, tmp_path: Path) -> None:
    drawn = []
    figure = plots._figure
    monkeypatch.setattr(plots, "_figure", lambda size: drawn.append(figure(size)) or drawn[-1])
    lines = {"x": [1_500_000.0] * len(at), "y": [20_000_000.0 / (n + 1) for n in range(len(at))]}
    curve = {"title": "t", "x": "rows", "y": "rows a second", "at": at, "lines": lines}
    plots.plot_curves({"made": curve}, tmp_path)
    (axes,) = drawn[0].axes
    texts = [
        label.get_text() for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()
    ]
    assert "5M" in texts or "10M" in texts
    assert not any("e+" in text or "^" in text for text in texts)
    assert axes.yaxis.get_offset_text().get_text() == ""
    assert bool(axes.patches) == (len(at) < 4)  # too few places for a line
