"""ASOF JOIN in SQL, in DuckDB's and in Spark's spelling, against the definition and DuckDB."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import thetajoin as tj
from naive import Near, naive_groups
from strategies import assert_same_groups, examples, left_rows, left_table, right_rows, right_table
from thetajoin.query.run import compile_query

HOWS = {"inner": "", "left": "LEFT ", "semi": "SEMI ", "anti": "ANTI "}
MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
OPS = st.sampled_from(list(MIRRORED))


def rows(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def ids(pairs: Any, how: str) -> Counter[Any]:
    if how in ("semi", "anti"):
        return Counter((l["lid"],) for l, _ in pairs)
    return Counter((l["lid"], None if r is None else r["rid"]) for l, r in pairs)


def definition(left: Any, right: Any, op: str, how: str, pred: Any = None) -> list[Any]:
    """The nearest rows of which the comparison is true."""
    compared = naive.conj(("a", op, "b"))
    both = compared if pred is None else naive.all_of(compared, pred)
    near = Near(("a", "b"), "backward" if op in (">", ">=") else "forward")
    return naive.naive_nearest(left, right, both, near, how=how)


@examples(150)
@given(
    left_rows(), right_rows(), OPS, st.sampled_from(list(HOWS)), st.booleans(), st.booleans(), OPS
)
def test_both_spellings(left, right, op, how, turned, equal, other):
    key = f"y.b {MIRRORED[op]} x.a" if turned else f"x.a {op} y.b"
    shown = "x.lid" if how in ("semi", "anti") else "x.lid, y.rid"
    tables = {"t1": left_table(left), "t2": right_table(right)}
    pred = naive.conj(("c", "=", "d")) if equal else None
    on = f"{key} AND x.c = y.d" if equal else key
    got = tj.sql(f"SELECT {shown} FROM t1 x ASOF {HOWS[how]}JOIN t2 y ON {on}", **tables)
    assert rows(got) == ids(definition(left, right, op, how, pred), how)
    # With MATCH_CONDITION ON may have comparisons of order.
    on = f" ON x.c {other} y.d AND y.d > 0" if equal else ""
    pred = naive.all_of(naive.conj(("c", other, "d")), lambda l, r: naive.compare(r["d"], ">", 0))
    for word, kept in (("ASOF", "inner"), ("LEFT OUTER ASOF", "left")):
        got = tj.sql(
            f"SELECT x.lid, y.rid FROM t1 x {word} JOIN t2 y MATCH_CONDITION ({key}){on}", **tables
        )
        assert rows(got) == ids(definition(left, right, op, kept, pred if equal else None), kept)


@examples(60)
@given(left_rows(), right_rows(), OPS, st.sampled_from(["inner", "left"]), OPS)
def test_where_is_about_the_joined_rows(left, right, op, how, other):
    """A row that WHERE removes was nearest before: no other takes its place."""
    tables = {"x": left_table(left), "y": right_table(right)}
    joined = f"SELECT x.lid, y.rid FROM x ASOF {HOWS[how]}JOIN y ON x.a {op} y.b"
    pairs = definition(left, right, op, how)

    def kept(test: Any) -> Counter[Any]:
        return ids([pair for pair in pairs if test(*pair) is True], how)

    def value(r: Any) -> Any:
        return None if r is None else r["d"]

    assert rows(tj.sql(f"{joined} WHERE y.d > 0", **tables)) == kept(
        lambda l, r: naive.compare(value(r), ">", 0)
    )
    assert rows(tj.sql(f"{joined} WHERE x.c {other} y.d AND x.c >= 0", **tables)) == kept(
        lambda l, r: naive.compare(l["c"], other, value(r)) and naive.compare(l["c"], ">=", 0)
    )
    assert rows(tj.sql(f"{joined} WHERE y.rid IS NULL", **tables)) == kept(lambda l, r: r is None)


T = pa.table({"symbol": ["A", "B", "A", "C"], "ts": [5, 7, 9, 1], "px": [1.0, 2.0, 3.0, 4.0]})
Q = pa.table({"symbol": ["A", "A", "B", "A"], "ts": [1, 5, 8, 9], "bid": [10, 11, 20, 12]})
U = pa.table({"symbol": ["A", "B"], "w": [1, 2]})


def run(query: str) -> Any:
    return tj.sql(query, t=T, q=Q, u=U)


def test_where_on_the_right_does_not_make_another_row_the_nearest():
    query = "SELECT t.ts, q.ts AS q FROM t ASOF JOIN q USING (symbol, ts) WHERE q.bid < 12"
    assert run(query).to_pylist() == [{"ts": 5, "q": 5}]
    query = "SELECT t.ts, q.ts AS q FROM t LEFT ASOF JOIN q MATCH_CONDITION (t.ts >= q.ts) "
    query += "ON t.symbol = q.symbol AND q.bid < 12 WHERE t.px > 1"
    assert run(query).to_pydict() == {"ts": [7, 9, 1], "q": [None, 5, None]}


def test_using_is_one_column():
    got = run("SELECT * FROM t ASOF LEFT JOIN q USING (symbol, ts)")
    assert got.schema.names == ["symbol", "ts", "px", "bid"]
    assert got["ts"].to_pylist() == T["ts"].to_pylist()
    got = run("SELECT ts, q.*, symbol FROM t ASOF JOIN q USING (SYMBOL, ts) WHERE ts > 5")
    assert got.to_pydict() == {
        "ts": [9], "symbol": ["A"], "ts_right": [9], "bid": [12], "symbol_right": ["A"]
    }  # fmt: skip
    query = "SELECT q.ts, symbol FROM t {}ASOF JOIN q MATCH_CONDITION (t.ts < q.ts) USING (symbol)"
    assert rows(run(query.format("INNER "))) == {(9, "A"): 1, (8, "B"): 1}
    got = run(query.format("LEFT "))
    assert rows(got) == {(9, "A"): 1, (8, "B"): 1, (None, "A"): 1, (None, "C"): 1}


def run_one(query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in run(query).to_pylist()]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT t.ts, bid, w FROM t ASOF JOIN q USING (symbol, ts) JOIN u ON u.symbol = t.symbol "
         "ORDER BY 1", [(5, 11, 1), (9, 12, 1)]),
        ("SELECT t.ts, bid FROM t JOIN u ON t.symbol = u.symbol ASOF JOIN q "
         "ON u.symbol = q.symbol AND t.ts + w >= q.ts WHERE bid < 20 ORDER BY t.ts",
         [(5, 11), (9, 12)]),
        ("SELECT a.ts, b.ts, c.ts FROM t a ASOF JOIN t b ON a.ts > b.ts ASOF LEFT JOIN q c "
         "ON b.ts > c.ts ORDER BY a.ts", [(5, 1, None), (7, 5, 1), (9, 7, 5)]),
        ("SELECT a.ts FROM t a ASOF ANTI JOIN q ON a.ts < q.ts AND a.symbol = q.symbol "
         "JOIN u ON a.px > u.w ORDER BY 1", [(1,), (1,), (9,), (9,)]),
        ("SELECT t.ts, x.bid FROM t ASOF JOIN (SELECT symbol AS s, ts + 1 AS at, bid FROM q) x "
         "ON s = symbol AND at <= ts ORDER BY bid DESC LIMIT 1", [(9, 11)]),
        ("SELECT t.ts, q.ts FROM t ASOF LEFT JOIN q ON t.symbol = q.symbol AND t.ts > q.ts "
         "WHERE t.px < 4 WITHIN 4 ON ts", [(5, 1), (7, None), (9, 5)]),
        ("SELECT t.ts, q.ts FROM t ASOF JOIN q ON t.ts + 1 >= q.ts * 2 OFFSET 2",
         [(9, 5), (1, 1)]),
        ("SELECT t.ts FROM t ASOF JOIN q ON ((t.symbol = q.symbol) AND (t.ts >= q.ts AND bid > 0))",
         [(5,), (9,)]),
        ("SELECT t.ts FROM t ASOF JOIN q ON (t.ts > q.ts) WHERE (t.ts < 9 AND (q.ts > 1))",
         [(7,)]),
        ("SELECT DISTINCT q.symbol FROM t ASOF JOIN q ON t.ts <= q.ts ORDER BY 1",
         [("A",), ("B",)]),
        ("SELECT t.ts FROM t ASOF INNER JOIN q MATCH_CONDITION (t.ts < q.ts) ORDER BY 1",
         [(1,), (5,), (7,)]),
    ],
)  # fmt: skip
def test_with_other_clauses(query, want):
    assert run_one(query) == want


@examples(40)
@given(left_rows(), right_rows(), OPS, st.sampled_from(["inner", "left"]), st.booleans())
def test_aggregates(left, right, op, how, where):
    """As SQL has them: over the joined rows, those without a match among them."""
    query = (
        "SELECT x.c, count(*) AS n, count(y.rid) AS m, sum(y.d) AS s, max(x.lid) AS t "
        f"FROM x ASOF {HOWS[how]}JOIN y ON x.a {op} y.b "
        f"{'WHERE y.d >= 0 ' * where}GROUP BY x.c HAVING count(*) > 0"
    )
    got = tj.sql(query, x=left_table(left), y=right_table(right))
    none = dict.fromkeys(("rid", "b", "d"))
    pairs = [(l, none if r is None else r) for l, r in definition(left, right, op, how)]
    pairs = [p for p in pairs if not where or naive.compare(p[1]["d"], ">=", 0) is True]
    want = naive_groups(
        pairs,
        [lambda l, r: l["c"]],
        [("count", None), ("count", lambda l, r: r["rid"]), ("sum", lambda l, r: r["d"]),
         ("max", lambda l, r: l["lid"])],
    )  # fmt: skip
    assert_same_groups(got, want, 1)


def test_aggregates_without_groups_and_in_expressions():
    query = "SELECT sum(bid) / count(*) + 1 AS m, count(*) AS n FROM t ASOF LEFT JOIN q "
    assert run_one(query + "USING (symbol, ts)") == [(6.75, 4)]
    assert run_one(query + "USING (symbol, ts) WHERE bid > 99") == [(None, 0)]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_kinds_of_tables(kind):
    given = {"t": T, "q": Q}
    module = pytest.importorskip(kind)
    kinds = {
        name: table.to_pandas() if kind == "pandas" else module.from_arrow(table)
        for name, table in given.items()
    }
    query = "SELECT ts, bid FROM t ASOF JOIN q USING (symbol, ts)"
    got = tj.sql(query, **kinds)
    assert isinstance(got, module.DataFrame)
    assert [tuple(row) for row in (got.to_numpy())] == [(5, 11), (9, 12)]


def without_ties(seed: int) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    size = 300
    return {
        "t": pa.table(
            {"s": random.integers(0, 5, size), "ts": random.permutation(4 * size)[:size]}
        ),
        "q": pa.table(
            {
                "s": random.integers(0, 6, size),
                "ts": random.permutation(4 * size)[:size],
                "v": random.random(size),
            }
        ),
        "u": pa.table({"s": range(4), "w": random.integers(0, 900, 4)}),
    }


@pytest.mark.parametrize("seed", range(2))
def test_against_duckdb(seed):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    tables = without_ties(seed)
    queries = [
        f"SELECT t.ts, q.ts AS at, v FROM t ASOF {how}JOIN q ON t.s = q.s AND {key} {where}"
        for how, key, where in itertools.product(
            ("", "LEFT "),
            ("t.ts >= q.ts", "t.ts > q.ts", "q.ts >= t.ts", "t.ts < q.ts", "t.ts + 50 >= q.ts - 9"),
            ("", "WHERE v < 0.5 AND t.ts > 100"),
        )
    ]
    queries += [
        "SELECT * FROM t ASOF JOIN q USING (s, ts)",
        "SELECT ts, v FROM t ASOF LEFT JOIN q USING (s, ts) WHERE v IS NULL OR q.ts < 200",
        "SELECT t.ts, v, w FROM t ASOF JOIN q USING (s, ts) JOIN u ON t.s = u.s AND t.ts > u.w",
        "SELECT t.ts, w, v FROM t JOIN u ON t.s = u.s ASOF LEFT JOIN q ON q.s = u.s AND t.ts - "
        "u.w >= q.ts",
        "SELECT t.s, count(*) AS n, count(v) AS m, max(v) AS top FROM t ASOF LEFT JOIN q "
        "USING (s, ts) GROUP BY t.s",
        "SELECT t.s, min(q.ts) AS low FROM t ASOF JOIN q ON t.s = q.s AND t.ts <= q.ts "
        "WHERE v > 0.2 GROUP BY t.s HAVING count(*) > 5 ORDER BY t.s DESC LIMIT 3",
    ]
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for query in queries:
            want = Counter(connection.execute(query).fetchall())
            assert rows(tj.sql(query, **tables)) == want, query
            assert want


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ("ASOF CROSS JOIN q", "ASOF CROSS JOIN is not supported"),
        ("ASOF OUTER JOIN q USING (ts)", "ASOF OUTER JOIN is not supported"),
        ("OUTER JOIN q ON t.ts < q.ts", "OUTER JOIN is not supported"),
        ("ASOF JOIN q", "ASOF JOIN q needs a comparison with <, <=, > or >="),
        ("ASOF JOIN q ON t.symbol = q.symbol", "needs a comparison with.*position 20: `ASOF JOIN`"),
        ("ASOF JOIN q ON t.ts >= 5", "needs a comparison with"),
        ("ASOF JOIN q ON t.ts - q.ts >= 5", "needs a comparison with"),
        ("ASOF JOIN q ON t.ts >= q.ts AND t.px > q.bid",
         "has 2 comparisons of order.*position 52: `t.px > q.bid`; name it in MATCH_CONDITION"),
        ("ASOF JOIN q MATCH_CONDITION (t.ts >= 5)", "one comparison of 'q' with.*`t.ts >= 5`"),
        ("ASOF JOIN q MATCH_CONDITION (q.bid >= q.ts)", "one comparison of 'q' with"),
        ("ASOF JOIN q MATCH_CONDITION (t.ts = q.ts)", "position 54: `=`"),
        ("ASOF JOIN q MATCH_CONDITION (t.ts >= q.nope)", "unknown column 'nope'"),
        ("ASOF JOIN q MATCH_CONDITION t.ts >= q.ts", r"\( is missing at position 48"),
        ("JOIN q MATCH_CONDITION (t.ts >= q.ts) ON t.ts < q.ts", "is for an ASOF JOIN"),
        ("JOIN q USING (nope)", "USING names 'nope', which is not in the tables before it"),
        ("ASOF JOIN q USING (symbol, nope)", "unknown column 'nope' at position 47"),
        ("ASOF JOIN q USING (bid)", "'q' is the table that is joined"),
        ("ASOF JOIN q USING (px)", "unknown column 'px'"),
        ("ASOF JOIN q ON t.ts >= q.ts ASOF JOIN u USING (ts)", "unknown column 'ts'|ambiguous"),
        ("ASOF JOIN q ON t.ts >= q.ts WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2')",
         "not by the number of rows"),
        ("ASOF JOIN q ON t.ts >= q.ts + 1 WITHIN 5 ON ts", "under a window is a column"),
        ("ASOF JOIN t s ON t.ts >= s.ts WITHIN 5 ON ts", "with itself has no window"),
        ("ASOF SEMI JOIN q ON t.ts >= q.ts WHERE q.ts > 1", "'q' gives no columns"),
    ],
)  # fmt: skip
def test_mistakes(join, message):
    with pytest.raises(tj.ThetaJoinError, match=message) as caught:
        run(f"SELECT t.ts FROM t {join}")
    assert "\n" not in str(caught.value)


def test_match_condition_is_a_name_elsewhere():
    table = pa.table({"match_condition": [1, 2]})
    query = "SELECT a.match_condition AS asof FROM match_condition a ASOF JOIN match_condition "
    query += "MATCH_CONDITION (a.match_condition > match_condition.match_condition)"
    assert tj.sql(query, match_condition=table).to_pydict() == {"asof": [2]}
    pairs = tj.join(table, table, "l.match_condition < r.match_condition")
    assert pairs.num_rows == 1


def test_the_last_of_rows_with_equal_keys():
    twice = pa.table({"symbol": ["A", "A"], "ts": [3, 3], "bid": [1, 2]})
    query = "SELECT t.ts, bid FROM t ASOF JOIN q USING (symbol, ts)"
    assert tj.sql(query, t=T, q=twice).to_pydict() == {"ts": [5, 9], "bid": [2, 2]}


def test_intervals_of_time():
    base = dt.datetime(2024, 1, 1)
    times = [base + dt.timedelta(seconds=n) for n in (0, 10, 20)]
    trades, quotes = pa.table({"ts": times}), pa.table({"ts": times, "n": [1, 2, 3]})
    query = "SELECT n FROM t ASOF LEFT JOIN q ON t.ts - INTERVAL 5 SECONDS >= q.ts ORDER BY t.ts"
    assert tj.sql(query, t=trades, q=quotes).to_pydict() == {"n": [None, 1, 2]}
    query = "SELECT n FROM t ASOF LEFT JOIN q ON t.ts > q.ts WITHIN 10 seconds ORDER BY t.ts"
    assert tj.sql(query, t=trades, q=quotes).to_pydict() == {"n": [None, 1, 2]}


def test_nothing_to_explain():
    query = "SELECT t.ts FROM t ASOF JOIN q ON t.ts >= q.ts"
    with pytest.raises(tj.ThetaJoinError, match="an ASOF JOIN has no plan to choose from"):
        compile_query(query, {"t": T, "q": Q}).explain()
