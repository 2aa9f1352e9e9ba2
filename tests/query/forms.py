"""Queries as people write them, each with its rows: one table for every engine.

Expected rows were worked out by hand or with DuckDB and Spark running the whole query. What is in
ARROW_ONLY Spark has no words for, or means otherwise; the line says which.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

INT = pa.int64()
R = pa.table({"a1": [1, 5, 9, None], "a2": ["x", "y", "x", "z"], "k": [1, 2, 3, 4]})
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30], "k": [1, 2, 2]})
N = pa.table(
    {
        "id": [1, 2, 3],
        "st": pa.array([{"p": 1, "q": 1}, {"p": 1, "q": 2}, None]),
        "li": pa.array([[1], [1, 2], None], pa.list_(INT)),
    }
)
T = pa.table({"sym": ["A", "B", "A", "C"], "ts": [5, 7, 9, 1]})
Q = pa.table({"sym": ["A", "A", "B", "A"], "at": [1, 5, 8, 9], "bid": [10, 11, 20, 12]})
TABLES = {"R": R, "S": S, "N": N, "T": T, "Q": Q}

PAIRS = [(1, 0), (5, 0), (5, 4), (9, 0), (9, 4), (9, 8)]

FORMS: list[tuple[str, list[tuple[Any, ...]]]] = [
    # An output's name used later.
    ("SELECT a1 AS x, x + 1 AS y, b1 FROM R JOIN S ON a1 < b1", [(1, 2, 4), (1, 2, 8), (5, 6, 8)]),
    ("SELECT a1 - b1 AS d FROM R JOIN S ON a1 > b1 WHERE d > 4", [(5,), (5,), (9,)]),
    ("SELECT a1 * 2 AS x FROM R WHERE x > 3", [(10,), (18,)]),
    ("SELECT a1 AS x, x * 2 AS y FROM R JOIN S ON a1 > b1 WHERE y = 10", [(5, 10), (5, 10)]),
    ("SELECT a2 AS g, count(*) AS n FROM R JOIN S ON a1 > b1 GROUP BY g HAVING n > 2", [("x", 4)]),
    # Conditions that join nothing.
    ("SELECT count(*) FROM R JOIN S ON true", [(12,)]),
    ("SELECT count(*) FROM R JOIN S ON 1 = 0", [(0,)]),
    ("SELECT count(*) FROM R LEFT JOIN S ON 1 = 0", [(4,)]),
    ("SELECT count(*) FROM R JOIN S ON a1 > b1 AND false", [(0,)]),
    ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 > b1 AND false",
     [(1, None), (5, None), (9, None), (None, None)]),
    ("SELECT count(*) FROM R FULL JOIN S ON a1 > b1 AND 1 = 0", [(7,)]),
    ("SELECT count(*) FROM R JOIN S ON a1 > 4", [(6,)]),
    ("SELECT a1, b1 FROM R LEFT JOIN S ON a1 > 5 AND b1 > 5",
     [(1, None), (5, None), (9, 8), (None, None)]),
    ("SELECT count(*) FROM R JOIN S", [(12,)]),
    ("SELECT count(*) FROM R, S", [(12,)]),
    ("SELECT a1, b1 FROM R JOIN S WHERE a1 > b1", PAIRS),
    # Structs and lists.
    ("SELECT x.id, y.id AS j FROM N x JOIN N y ON x.st = y.st AND x.id <= y.id", [(1, 1), (2, 2)]),
    ("SELECT x.id, y.id AS j FROM N x JOIN N y ON x.li != y.li", [(1, 2), (2, 1)]),
    ("SELECT x.id, y.id AS j FROM N x JOIN N y ON x.li = y.li WHERE x.id <= y.id",
     [(1, 1), (2, 2)]),
    ("SELECT x.id, y.id AS j FROM N x JOIN N y ON x.id < y.id AND x.st != y.st", [(1, 2)]),
    ("SELECT x.id FROM N x JOIN N y ON x.st.q < y.st.q", [(1,)]),
    # Orders.
    ("SELECT a2, b1 FROM R JOIN S ON a1 > b1 ORDER BY ALL",
     [("x", 0), ("x", 0), ("x", 4), ("x", 8), ("y", 0), ("y", 4)]),
    ("SELECT a2, count(*) AS n FROM R JOIN S ON a1 > b1 GROUP BY ALL ORDER BY ALL",
     [("x", 4), ("y", 2)]),
    ("SELECT * FROM R JOIN S ON a1 > b1 ORDER BY 1 DESC, 4 LIMIT 2",
     [(9, "x", 3, 0, 10, 1), (9, "x", 3, 4, 20, 2)]),
    ("SELECT a1 + b1 AS s, count(*) AS n FROM R JOIN S ON a1 > b1 GROUP BY a1 + b1 "
     "ORDER BY b1 + a1 DESC LIMIT 2", [(17, 1), (13, 1)]),
    ("SELECT a1, b1 FROM R JOIN S ON a1 > b1 ORDER BY (b1, a1) LIMIT 4",
     [(1, 0), (5, 0), (9, 0), (5, 4)]),
    # Rows compared part by part; NULL is below everything.
    ("SELECT a1, b1 FROM R JOIN S ON (a1, R.k) >= (b1, S.k) AND a1 < 9",
     [(1, 0), (5, 0), (5, 4)]),
    ("SELECT a1, b1 FROM R JOIN S ON (R.k, a1) < (S.k, b1)", [(1, 4), (1, 8), (5, 8)]),
    ("SELECT x.a1 FROM R x JOIN R y ON (x.a1, x.k) = (y.a1, y.k)", [(1,), (5,), (9,), (None,)]),
    # NEAREST BY.
    ("SELECT T.ts, Q.at FROM T JOIN Q APPROX NEAREST 1 BY DISTANCE abs(T.ts - Q.at)",
     [(5, 5), (7, 8), (9, 9), (1, 1)]),
    ("SELECT T.ts, Q.at FROM T JOIN Q EXACT NEAREST 2 BY SIMILARITY -abs(Q.at - T.ts) "
     "WHERE T.ts = 5", [(5, 5), (5, 8)]),
    ("SELECT T.ts, q.bid FROM T LEFT JOIN (SELECT * FROM Q WHERE bid > 99) q "
     "EXACT NEAREST BY DISTANCE abs(T.ts - q.at)", [(5, None), (7, None), (9, None), (1, None)]),
    ("SELECT T.ts, Q.at FROM T JOIN Q EXACT NEAREST 1 BY DISTANCE T.ts - Q.at",
     [(5, 9), (7, 9), (9, 9), (1, 9)]),
    ("SELECT T.ts, Q.at FROM T JOIN Q EXACT NEAREST 1 BY SIMILARITY Q.at + 0 * T.ts",
     [(5, 9), (7, 9), (9, 9), (1, 9)]),
    # As-of joins.
    ("SELECT T.ts, Q.at FROM T ASOF JOIN Q MATCH_CONDITION (T.ts >= Q.at) ON T.sym = Q.sym",
     [(5, 5), (9, 9)]),
    ("SELECT T.ts, Q.at FROM T LEFT ASOF JOIN Q MATCH_CONDITION (T.ts >= Q.at) USING (sym)",
     [(5, 5), (7, None), (9, 9), (1, None)]),
    ("SELECT T.ts, Q.at FROM T LEFT OUTER ASOF JOIN Q ON T.ts > Q.at AND T.sym = Q.sym",
     [(5, 1), (7, None), (9, 5), (1, None)]),
    ("SELECT T.ts, Q.at FROM T ASOF RIGHT JOIN Q ON T.sym = Q.sym AND T.ts >= Q.at",
     [(5, 5), (9, 9), (None, 1), (None, 8)]),
    ("SELECT T.ts, Q.at FROM T ASOF FULL JOIN Q ON T.sym = Q.sym AND T.ts >= Q.at",
     [(5, 5), (9, 9), (7, None), (1, None), (None, 1), (None, 8)]),
    ("SELECT sym, ts, bid FROM T ASOF FULL JOIN (SELECT sym, at AS ts, bid FROM Q) q "
     "USING (sym, ts)",
     [("A", 5, 11), ("A", 9, 12), ("B", 7, None), ("C", 1, None), ("A", 1, 10), ("B", 8, 20)]),
    ("SELECT T.ts, Q.at FROM T ASOF LEFT JOIN Q ON T.sym = Q.sym AND T.ts > Q.at "
     "AND T.ts - 3 <= Q.at", [(5, None), (7, None), (9, None), (1, None)]),
    ("SELECT T.sym, count(*) AS n, max(bid) AS m FROM T LEFT ASOF JOIN Q "
     "MATCH_CONDITION (T.ts >= Q.at) ON T.sym = Q.sym GROUP BY T.sym",
     [("A", 2, 12), ("B", 1, None), ("C", 1, None)]),
    # Queries inside.
    ("SELECT a1 FROM R WHERE EXISTS (SELECT 1 FROM (SELECT b1 AS b FROM S WHERE b2 > 10) s "
     "WHERE s.b > a1)", [(1,), (5,)]),
    ("SELECT a1 FROM R WHERE NOT EXISTS (SELECT 1 FROM (SELECT b1 FROM S) s WHERE b1 > a1)",
     [(9,), (None,)]),
    ("SELECT a1 FROM R WHERE EXISTS (SELECT 1 WHERE a1 > 4)", [(5,), (9,)]),
    ("SELECT a1, (WITH w AS (SELECT a1 + 1 AS y) SELECT y FROM w) AS z FROM R WHERE a1 > 1",
     [(5, 6), (9, 10)]),
    ("SELECT a1, (SELECT max(b1) FROM S WHERE b1 < a1) AS m FROM R WHERE a1 IS NOT NULL",
     [(1, 0), (5, 4), (9, 8)]),
    # Joins in parentheses.
    ("SELECT x.a1, y.b1, z.b2 FROM R x JOIN (S y JOIN S z ON y.b1 < z.b1) ON x.a1 < y.b1",
     [(1, 4, 30)]),
    ("SELECT x.a1, y.b1, z.b2 FROM R x LEFT JOIN (S y JOIN S z ON y.b1 < z.b1) ON x.a1 < y.b1",
     [(1, 4, 30), (5, None, None), (9, None, None), (None, None, None)]),
    ("SELECT k, S.k AS s, a1, b1, id FROM (R JOIN S USING (k)) JOIN N ON N.id < a1 AND id > 2",
     [(2, 2, 5, 4, 3), (2, 2, 5, 8, 3)]),
    ("SELECT k, id FROM N LEFT JOIN (R JOIN S USING (k)) ON N.id = k",
     [(1, 1), (2, 2), (2, 2), (None, 3)]),
    ("SELECT k, id, ts FROM ((R JOIN S USING (k)) JOIN N ON N.id = k) JOIN T ON ts > a1 "
     "AND b1 < 8", [(1, 1, 5), (1, 1, 7), (1, 1, 9), (2, 2, 7), (2, 2, 9)]),
    ("SELECT p.a1, z.b1 FROM (((SELECT a1 FROM R) p JOIN S y ON p.a1 > y.b1)) JOIN S z "
     "ON y.b1 < z.b1 AND p.a1 > 5 AND z.b2 > 20", [(9, 8), (9, 8)]),
    ("SELECT * FROM (R JOIN S USING (k)) JOIN (SELECT 2 AS k, 5 AS lim) x USING (k) WHERE lim > b1",
     [(2, 5, "y", 4, 20, 5)]),
    ("SELECT a1, v.w FROM (R JOIN (VALUES (4), (8)) AS v(w) ON a1 > v.w)",
     [(5, 4), (9, 4), (9, 8)]),
    ("SELECT p.a1, p.b1 FROM (R JOIN S ON a1 > b1) AS p WHERE p.b1 > 3", [(5, 4), (9, 4), (9, 8)]),
    # LATERAL.
    ("SELECT R.a1, e.v, S.b1 FROM R JOIN S ON a1 < b1 LATERAL VIEW explode(array(1, 2)) e AS v",
     [(1, 1, 4), (1, 2, 4), (1, 1, 8), (1, 2, 8), (5, 1, 8), (5, 2, 8)]),
    ("SELECT a1, v, b1 FROM R JOIN S ON a1 < b1 LATERAL VIEW explode(array(1, 2)) e AS v "
     "WHERE v > 1 AND b2 > 20", [(1, 2, 8), (5, 2, 8)]),
    ("SELECT a1, v FROM R JOIN S ON R.k = S.k LATERAL VIEW explode(array(1, 5)) e AS v "
     "WHERE b1 < v AND a1 + v > 1", [(1, 1), (1, 5), (5, 5)]),
    ("SELECT R.a1, s.m FROM R, LATERAL (SELECT max(b1) AS m FROM S WHERE b1 < R.a1) s "
     "WHERE a1 > 1", [(5, 4), (9, 8)]),
    ("SELECT R.a1, b1, z.y FROM R JOIN S ON a1 < b1, LATERAL (SELECT a1 + b1 AS y) z",
     [(1, 4, 5), (1, 8, 9), (5, 8, 13)]),
    ("SELECT R.a1, e.v FROM R CROSS JOIN LATERAL explode(array(a1, 7)) AS e(v) WHERE a1 = 5",
     [(5, 5), (5, 7)]),
    ("SELECT id, e.v FROM N, LATERAL explode(li) AS e(v)", [(1, 1), (2, 1), (2, 2)]),
    ("SELECT g.id, b1 FROM range(3) g JOIN S ON g.id > b1", [(1, 0), (2, 0)]),
    # Other joins.
    ("SELECT b1 FROM R RIGHT SEMI JOIN S ON a1 < b1", [(4,), (8,)]),
    ("SELECT b1 FROM R RIGHT ANTI JOIN S ON a1 < b1", [(0,)]),
    ("SELECT S.* FROM R RIGHT SEMI JOIN S ON R.k = S.k AND a1 <= b2",
     [(0, 10, 1), (4, 20, 2), (8, 30, 2)]),
    ("SELECT count(*) FROM R, R", [(16,)]),
    ("SELECT count(*) FROM R JOIN R USING (k)", [(4,)]),
    ("SELECT * FROM S NATURAL JOIN (SELECT k, a1 FROM R) r WHERE a1 > b1",
     [(0, 10, 1, 1), (4, 20, 2, 5)]),
    ("SELECT * FROM R JOIN S USING (k) WHERE a1 > b1", [(1, "x", 1, 0, 10), (5, "y", 2, 4, 20)]),
    ("SELECT a1, b1 FROM (SELECT a1 FROM R) r NATURAL JOIN (SELECT b1 FROM S) s WHERE a1 > b1",
     PAIRS),
    ("SELECT p.* FROM (VALUES (1, 2), (3, 0)) AS p(v, w) WHERE EXISTS (SELECT 1 FROM S "
     "WHERE b1 < p.w)", [(1, 2)]),
    # Names in double quotes.
    ('SELECT "R"."a1", "S"."b1" AS "other" FROM R JOIN S ON "R"."a1" > "S"."b1"', PAIRS),
    ('SELECT a1, b1 FROM R JOIN S ON "a1" > "b1"', PAIRS),
    ('SELECT a1, "a1" AS t FROM R JOIN S ON a1 > b1 WHERE a2 = "y" AND b1 > 0', [(5, "a1")]),
    # Clauses that need no pairs, and some that do.
    ("SELECT a2, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS k FROM R JOIN S ON a1 > b1 "
     "GROUP BY a2 HAVING n > 1", [("x", 4, 1), ("y", 2, 2)]),
    ("SELECT a2, count(DISTINCT b1) AS n FROM R JOIN S ON a1 > b1 GROUP BY a2",
     [("x", 3), ("y", 2)]),
    ("SELECT a2, count(*) AS n FROM R JOIN S ON a1 > b1 GROUP BY ROLLUP (a2)",
     [("x", 4), ("y", 2), (None, 6)]),
    ("SELECT DISTINCT a1 % 4 AS m FROM R JOIN S ON a1 > b1", [(1,)]),
    ("SELECT DISTINCT x.li FROM N x JOIN N y ON x.id <= y.id LIMIT 3",
     [([1],), ([1, 2],), (None,)]),
    ("SELECT a1, b1 FROM R JOIN S ON a1 > b1 AND R.k = S.k", [(1, 0), (5, 4)]),
    ("SELECT a1, b1 FROM R JOIN S ON R.k = S.k", [(1, 0), (5, 4), (5, 8)]),
]  # fmt: skip

WRONG: list[tuple[str, str]] = [
    ("selct a1 from R", "a query begins with SELECT at position 1: `selct`"),
    ("SELECT T.ts FROM T ASOF JOIN Q MATCH_CONDITION (T.ts >= (SELECT max(at) FROM Q))",
     "MATCH_CONDITION is one comparison"),
    ("SELECT T.ts FROM T ASOF JOIN Q MATCH_CONDITION (T.ts >= rank() OVER (ORDER BY Q.at))",
     "MATCH_CONDITION is one comparison|window function"),
    ("SELECT R.a1 FROM R, R", "'R.a1' is ambiguous at position 8"),
    ("SELECT a1 FROM R JOIN S ON a1 > b1 NATURAL JOIN R x", "'k' is ambiguous|'a1' is ambiguous"),
    ("SELECT 1 FROM T RIGHT JOIN Q EXACT NEAREST BY DISTANCE abs(ts - at)",
     "NEAREST BY is for JOIN and LEFT JOIN, not RIGHT"),
    ("SELECT 1 FROM T JOIN Q EXACT NEAREST 0 BY DISTANCE abs(ts - at)", "1 to 100000 rows, not 0"),
    ("SELECT T.ts FROM T ASOF JOIN Q ON T.ts >= Q.at AND T.ts > Q.bid", "2 comparisons of order"),
]  # fmt: skip

# What Spark refuses in one line, with a part of that line.
ON_SPARK = {
    query: "NEAREST BY on Spark goes by the distance of a column of each side"
    for query, _ in FORMS
    if "DISTANCE T.ts - " in query or "SIMILARITY Q.at + " in query
}
