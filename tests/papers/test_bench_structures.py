"""The structures' benchmark at a size that says nothing about speed, and its plots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import structures
from benchmarks.papers.windows import SideWindow, band
from benchmarks.plots import plot_curves
from thetajoin.papers.catalog import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_structure_counts_the_same_matches(name: str) -> None:
    random = np.random.default_rng(1)
    side = SideWindow(name, 500)
    keys = random.integers(0, 1000, 1200)
    for at in range(0, 1200, 100):
        side.insert(keys[at : at + 100])
    probes = random.integers(0, 1000, 50)
    expected = (np.abs(keys[-500:][None, :] - probes[:, None]) <= 3).sum()
    assert side.probe(band(probes, 3)) == expected


def test_rivals_of_q2_find_the_same_number_of_matches() -> None:
    figures, details = structures.q2(0.005)
    assert set(figures) <= set(structures.TARGETS)
    assert min(details["matches_per_probe"].values()) > 0


def test_plots_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    curve = {"title": "t", "x": "x", "y": "y", "at": [1, 16], "lines": {"a": [1.0, 90.0]}}
    named = curve | {"at": ["uniform", "zipf"]}
    made = plot_curves({"one": curve, "two": named}, tmp_path)
    assert [path.name for path in made] == ["one.png", "two.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
