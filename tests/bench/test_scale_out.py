"""bench scale-out: units in one process find what one unit finds, and what is measured adds up."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from benchmarks.scale_units import WORKLOADS, measure

ROUTINGS = {
    "hash": "hash",
    "band": "cells",
    "interval": "cells",
    "ranges_related": "ranges",
    "ranges_unrelated": "ranges",
    "zipf": "contrand",
    "drift": "matrix",
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_many_units_find_what_one_finds(name: str) -> None:
    one, many = (measure(name, units, 1500) for units in (1, 9))
    assert one["matches"] == many["matches"]
    assert sum(one["matches"]) > 0
    assert one["copies"] == 1
    assert many["routing"].startswith(ROUTINGS[name])
    assert 1 <= many["copies"] <= 4
    assert 1 / 9 <= many["intake"] <= 1
    assert many["imbalance"] >= 1
    assert many["seconds_busiest"] <= many["seconds_all"]
