"""Spark's own as-of join: the same rows, and which operator gave them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from benchmarks import asof_spark
from benchmarks.asof_spark import NATIVE, PEER

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def on_the_session_of_all_tests(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 3):
        pytest.skip(f"Spark {spark.version} has no ASOF JOIN")
    monkeypatch.setattr(asof_spark, "spark_on", lambda cores: spark)
    monkeypatch.setattr(asof_spark, "ROUNDS", 1)
    monkeypatch.setattr(asof_spark, "WARM_UP", 1)
    yield
    for setting in asof_spark.SETTINGS:
        spark.conf.unset(setting)


@pytest.mark.parametrize("name", NATIVE)
def test_both_give_the_same_rows_and_spark_tells_its_operator(name: str) -> None:
    found = NATIVE[name](1, 0.0005)
    assert found["peers"][PEER]["operator"] == "SortMergeAsOfJoin"
    assert found["result_rows"] == found["rows"]["left"] == 2500
    assert found["lower_bound"] is None
    (ratio,) = found["figures"].values()
    assert ratio == found["median"][PEER] / found["median"]["thetajoin"]
