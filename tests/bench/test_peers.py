"""Peers that not everyone has: those that are here give our rows and tell how they found them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed")

from benchmarks import case as case_module
from benchmarks import own_process
from benchmarks.asof_spark import time_within
from benchmarks.case import Case
from benchmarks.harness import TooSlowError
from benchmarks.join_cases import asof_small, attribution_small, overlap, overlap_left
from benchmarks.joins import compare
from benchmarks.operators import (
    chdb_operators,
    datafusion_operators,
    duckdb_operators,
    polars_operators,
)
from benchmarks.own_process import Pathway, pathway_python

SCALE = 0.002
TIMES = pa.table({"id": [1, 2], "ts": [5, 9]})
SERIES = pa.table({"ts": [1, 8], "v": [10, 20]})


def test_two_inequalities_are_one_operator_of_most_engines() -> None:
    for make in (overlap, overlap_left):
        peers = compare(make.__name__, make(1, SCALE))["peers"]
        assert peers["DuckDB"]["operator"] in (
            "IE_JOIN",
            "NESTED_LOOP_JOIN",
            "PIECEWISE_MERGE_JOIN",
        )
        if "Polars" in peers:
            assert "JOIN" in peers["Polars"]["operator"]


def test_clickhouse_joins_by_two_inequalities_with_its_iejoin() -> None:
    pytest.importorskip("chdb", reason="chdb is not installed")
    peers = compare("overlap_left", overlap_left(1, SCALE))["peers"]
    assert peers["chDB"]["operator"] == "IEJoin"
    assert "ClickHouse" in peers["chDB"]["version"]


def test_datafusion_is_not_asked_for_too_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datafusion", reason="datafusion is not installed")
    assert overlap(1, SCALE).peers()["DataFusion"]["operator"] == "NestedLoopJoinExec"
    monkeypatch.setattr(case_module, "MOST_PAIRS", 10)
    case = overlap(1, SCALE)
    assert "DataFusion" not in case.runs
    assert case.left_out["DataFusion"].startswith("NestedLoopJoinExec over 1e+06 pairs")


@pytest.mark.slow
@pytest.mark.parametrize("make", [asof_small, attribution_small])
def test_pathway_gives_the_same_rows(make: Callable[[int, float], Case]) -> None:
    if pathway_python() is None:
        pytest.skip("no Python with Pathway is named")
    found = compare(make.__name__, make(1, SCALE))
    assert found["median"]["Pathway"] > 0
    assert found["peers"]["Pathway"]["operator"] in ("asof_join", "interval_join")


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    if pathway_python() is None:
        pytest.skip("no Python with Pathway is named")
    run = Pathway("asof_join", (TIMES, SERIES), "ts", "ts", "id v", 1)
    assert run.result().sort_by("id")["v"].to_pylist() == [10, 20]
    monkeypatch.setattr(own_process.OwnProcess, "LIMIT", 0.001)
    with pytest.raises(TooSlowError, match=r"no result in 0\.001 s"):
        run.result()


def test_pathway_is_asked_for_small_tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(own_process.PATHWAY, "no-such-python")
    monkeypatch.setattr(case_module, "PATHWAY_ROWS", 1)
    case = asof_small(1, SCALE)
    assert "Pathway" not in case.runs
    assert "rows a side" in case.left_out["Pathway"]


def test_operators_are_read_from_plans() -> None:
    plan = '[{"name": "PROJECTION", "children": [{"name": "IE_JOIN", "children": []}]}]'
    assert duckdb_operators(plan) == "IE_JOIN"
    assert datafusion_operators("SortExec: x\n  HashJoinExec: on=y\n    Scan") == "HashJoinExec"
    hashed = "Join (JOIN FillRightFirst)\n  Strictness: asof | Algorithm: HashJoin\n"
    assert chdb_operators(hashed) == "asof HashJoin"
    assert chdb_operators("Filter\n  IEJoin\n") == "IEJoin"
    told = "FILTER x\nFROM\n  ASOF JOIN:\n  LEFT PLAN ON: [x]\n  END ASOF JOIN"
    assert polars_operators(told) == "ASOF JOIN"


def test_a_call_has_a_limit_and_its_errors_are_told() -> None:
    done = threading.Event()
    assert time_within(0.01, lambda: done.wait(60)) is None
    done.set()
    seconds = time_within(60, lambda: None)
    assert seconds is not None
    assert seconds < 60
    with pytest.raises(ZeroDivisionError):
        time_within(60, lambda: 1 // 0)
