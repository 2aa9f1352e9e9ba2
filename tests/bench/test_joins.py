"""bench joins: every engine gives the same rows, a wrong result is told, and the keys are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed")

from benchmarks import join_data, joins
from benchmarks.case import Case
from benchmarks.harness import Report, TooSlowError
from benchmarks.join_data import Tables
from benchmarks.joins import CASES, PARTS, TARGETS, best_peer, compare, in_rounds, parts_of
from benchmarks.names import BENCHMARKS
from benchmarks.same_rows import check_same_rows, checksum
from thetajoin.errors import OptionError

SCALE = 0.002
TABLE = pa.table({"id": [1, 2, 2, 3], "x": [0.5, 1.5, 1.5, None], "s": ["a", "b", "b", None]})


# The others' rows are compared by every run of the benchmark too.
QUICK = ("overlap_keyed", "asof", "micro_iejoin_employees", "micro_asof_no_key", "kx_large")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
)
def test_every_engine_gives_the_same_rows_and_is_measured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "ROUNDS", 2)
    found = compare(name, CASES[name](1, SCALE))
    ours, *peers = found["median"]
    assert ours == "thetajoin"
    assert any(who.startswith("DuckDB") for who in peers)
    assert found["best_peer"] in peers
    assert found["result_rows"] > 0
    ratio = found["median"][found["best_peer"]] / found["median"]["thetajoin"]
    assert found["figures"] == {f"{name}_vs_best_peer": ratio}
    assert set(found["peers"]) == set(found["median"])
    assert all(peer["version"] for peer in found["peers"].values())
    assert all(found["peers"][who]["operator"] for who in peers if who != "pandas")
    for who, (least, most) in found["spread"].items():
        assert 0 < least <= found["median"][who] <= most


def _replaced(column: str, values: list[object]) -> pa.Table:
    place = TABLE.column_names.index(column)
    return TABLE.set_column(place, column, pa.array(values, TABLE.schema.field(column).type))


WRONG = {
    "a row is missing": TABLE.slice(1),
    "a row comes twice, another not at all": TABLE.take([0, 0, 1, 2]),
    "a value is another": _replaced("x", [0.5, 1.5, 1.6, None]),
    "NULL is a zero": _replaced("x", [0.5, 1.5, 1.5, 0.0]),
    "NULL is an empty string": _replaced("s", ["a", "b", "b", ""]),
    "the values of two rows are exchanged": _replaced("x", [1.5, 0.5, 1.5, None]),
    "two columns are exchanged in value": _replaced("s", ["b", "a", "b", None]),
    "no rows": TABLE.slice(0, 0),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_peer_with_other_rows_is_told(wrong: pa.Table) -> None:
    case = Case(Tables(TABLE, TABLE), 1, "id x s")
    case.runs = {"thetajoin": lambda: TABLE, "peer": lambda: wrong}
    with pytest.raises(RuntimeError, match=r"disagree on the rows: thetajoin 4 rows.*peer \d rows"):
        compare("scd2", case)


def test_a_peer_that_takes_too_long_is_left_out() -> None:
    def slow() -> pa.Table:
        raise TooSlowError("no result in 600 s")

    case = Case(Tables(TABLE, TABLE), 1, "id x s")
    case.runs = {"thetajoin": lambda: TABLE, "near": lambda: TABLE, "slow": slow}
    found = compare("scd2", case)
    assert found["left_out"] == {"slow": "no result in 600 s"}
    assert list(found["median"]) == ["thetajoin", "near"]


def test_threads_are_measured_on_equal_results_only() -> None:
    case = Case(Tables(TABLE, TABLE), 1, "id x s")
    case.runs = {"thetajoin": lambda: TABLE, "peer": lambda: TABLE.take([3, 2, 1, 0])}
    turns = joins._compare_in_turns("scd2", case)
    assert [set(next(turns)) for _ in range(2)] == [{"thetajoin", "peer"}] * 2
    case.runs["peer"] = lambda: TABLE.slice(1)
    with pytest.raises(RuntimeError, match="scd2: the engines disagree on the rows"):
        next(joins._compare_in_turns("scd2", case))
    with pytest.raises(RuntimeError, match="band: the engines disagree on the number of pairs"):
        next(joins._count_in_turns("band", {"thetajoin": lambda: 3, "peer": lambda: 4}))


def test_rows_are_the_same_in_any_order_width_and_kind() -> None:
    narrow = TABLE.set_column(0, "id", TABLE["id"].cast(pa.int32()))
    encoded = TABLE.set_column(2, "s", TABLE["s"].combine_chunks().dictionary_encode())
    results: dict[str, Callable[[], object]] = {
        "as it is": lambda: TABLE,
        "turned": lambda: TABLE.take([3, 1, 0, 2]),
        "narrow": lambda: narrow,
        "encoded": lambda: encoded,
        "in chunks": lambda: pa.concat_tables([TABLE.slice(2), TABLE.slice(0, 2)]),
        "further columns": lambda: TABLE.append_column("id", TABLE["id"]),
    }
    assert check_same_rows("table", results, ["id", "x", "s"]) == 4


def test_signed_zeros_are_one_number() -> None:
    zeros = [pa.table({"x": [zero]}) for zero in (0.0, -0.0)]
    assert checksum(zeros[0], ["x"]) == checksum(zeros[1], ["x"])
    assert checksum(zeros[0], ["x"]) != checksum(pa.table({"x": [1.0]}), ["x"])


def test_an_engine_that_is_far_behind_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"thetajoin": 0, "near": 0, "slow": 0}
    clock = [0.0]
    monkeypatch.setattr("benchmarks.harness.time.perf_counter", lambda: clock[0])

    def run(who: str, seconds: float) -> Callable[[], None]:
        def go() -> None:
            calls[who] += 1
            clock[0] += seconds

        return go

    found = in_rounds(
        {"thetajoin": run("thetajoin", 1.0), "near": run("near", 2.0), "slow": run("slow", 99.0)}
    )
    assert calls == {"thetajoin": joins.ROUNDS, "near": joins.ROUNDS, "slow": 1}
    assert found["slow"] == [99.0]
    assert best_peer({"thetajoin": 1.0, "near": 2.0, "slow": 99.0}) == "near"
    assert best_peer({"thetajoin": 1.0}) is None


def test_the_command_gives_every_key_and_the_parts_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    BENCHMARKS.run("joins", as_json=True, scale=SCALE, words=["--only", "scd2,overlap"])
    found = json.loads(capsys.readouterr().out)
    assert list(found["figures"]) == list(TARGETS)
    measured = {key for key, value in found["figures"].items() if value is not None}
    assert measured == {"scd2_vs_best_peer", "scd2_spread", "overlap_vs_best_peer"}
    assert list(found["details"]) == ["scd2", "overlap"]
    assert found["details"]["scd2"]["spread"].keys() == found["details"]["scd2"]["median"].keys()


def test_only_names_parts() -> None:
    assert parts_of("") == list(PARTS)
    assert parts_of("asof, scd2") == ["scd2", "asof"]
    with pytest.raises(OptionError, match="no part 'scd3': did you mean 'scd2'"):
        BENCHMARKS.run("joins", as_json=True, scale=SCALE, words=["--only=scd3"])


@pytest.mark.parametrize("make", [join_data.genome, join_data.scd2, join_data.trades])
def test_tables_are_the_same_each_time(make: Callable[[float], Tables]) -> None:
    assert make(SCALE) == make(SCALE)


def test_no_two_quotes_are_of_one_instant_and_versions_do_not_overlap() -> None:
    quotes = join_data.trades(SCALE).right["ts"].to_numpy()
    assert len(np.unique(quotes)) == len(quotes)
    versions = join_data.scd2(SCALE).right.sort_by(
        [("k", "ascending"), ("valid_from", "ascending")]
    )
    k, begin, end = (versions[name].to_numpy() for name in ("k", "valid_from", "valid_to"))
    same = k[1:] == k[:-1]
    assert same.sum() == 9 * len(k) / 10
    assert (begin[1:][same] == end[:-1][same]).all()


def test_the_picture_has_a_panel_for_each_part_that_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert set(joins.TITLES) <= set(PARTS)
    found = {
        "median": {"thetajoin": 0.2, "DuckDB": 0.5, "Polars": 31.0},
        "rows": {"left": 5_000_000, "right": 1_000_000},
    }
    details = dict.fromkeys(["scd2", "overlap", "asof", "spark_scd2", "threads_band"], found)
    (made,) = joins.plot(Report("joins", details=details), tmp_path / "new")
    assert made.read_bytes().startswith(b"\x89PNG")
    assert made.stat().st_size > 10_000
    assert joins.plot(Report("joins"), tmp_path) == []
