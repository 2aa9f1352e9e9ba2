"""Spark's own as-of join: the same rows, and a limit that stops it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from thetajoin.bench import asof_spark
from thetajoin.bench.asof_spark import NATIVE, PEER, stopped_after
from thetajoin.bench.harness import TooSlowError

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


def test_an_operator_that_is_stopped_gives_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asof_spark, "LIMIT", 0.05)
    found = NATIVE["spark_asof_none"](1, 0.01)
    assert found["lower_bound"] == "no result in 0.05 s"
    assert found["median"][PEER] == 0.05
    assert found["compared_on_sample"] == 1000


def test_only_what_takes_too_long_is_stopped(spark: Any) -> None:
    with stopped_after(spark, 60):
        assert spark.range(10).count() == 10
    with pytest.raises(TooSlowError), stopped_after(spark, 0.2):
        spark.range(10**12).selectExpr("sum(id * id % 7)").collect()
    with pytest.raises(ValueError, match="another"), stopped_after(spark, 60):
        raise ValueError("another")
    assert spark.range(10).count() == 10
