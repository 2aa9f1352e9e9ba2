"""Whatever is wrong in a query's text ends in one line of ours."""

from __future__ import annotations

import random
import sys

import pyarrow as pa
import pytest

import thetajoin as tj

R = pa.table(
    {
        "a1": [1, 5, None],
        "a2": ["x", "y", "x"],
        "st": [{"f": 1}, {"f": 2}, None],
        "order": [1, 2, 3],
        "fl": [1.0, float("nan"), -0.0],
        "nu": pa.nulls(3),
        "dic": pa.array(["p", "q", None]).dictionary_encode(),
    }
)
S = pa.table({"b1": [0, 4, 8], "b2": [10, 20, 30], "li": [[1], [2], None]})
LONG = "9" * 100_000


def refused(query, match=""):
    with pytest.raises(tj.ThetaJoinError, match=match) as caught:
        tj.sql(query, R=R, S=S)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (5, "a query is text, not int"),
        (None, "a query is text, not NoneType"),
        (b"SELECT 1", "a query is text, not bytes"),
        (" ; ", "the query is empty"),
        ("-- nothing", "query is empty|one query is expected"),
        ("SELECT a1 FROM R, S WHERE a1 > b1; SELECT 1", "one query is expected, not several"),
        ("\0", "a query begins with SELECT"),
        ("SELECT a1\0 FROM R, S WHERE a1 > b1", r"unknown column 'a1\\x00'"),
        ("SELECT a1 FROM", "expected table name at position"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 AND a1 < {LONG}", "100000 digits is too long"),
        (f"SELECT {LONG} FROM R, S WHERE a1 > b1", "100000 digits is too long"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 LIMIT {LONG}", "LIMIT is at most 2147483647"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 OFFSET 2147483648", "OFFSET is at most 2147483647"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 ORDER BY {LONG}", "there are 1 columns"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 GROUP BY 1.5", "GROUP BY 1.5: there are 1 columns"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 WINDOW AS (SLIDE INTERVAL '1' ON COUNT '{LONG}')",
         "100000 digits is too large"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 WITHIN {LONG} ON a1, b1", "digits is too large"),
        ("SELECT a1 FROM R, S WHERE a1 > b1 WITHIN 1.5 ON a1, b1", "is a whole number"),
        (f"SELECT {'(' * 5000}a1{')' * 5000} FROM R, S WHERE a1 > b1", "nested too deeply"),
        (f"SELECT a1{' + 1' * 2000} AS z FROM R, S WHERE a1 > b1", "nested too deeply"),
        (f"SELECT max(a1{' + 1' * 2000}) AS z FROM R, S WHERE a1 > b1", "nested too deeply"),
        (f"SELECT a1 FROM R, S WHERE a1 > b1 AND {'NOT ' * 5000}a1 > 0", "nested too deeply"),
        (f"SELECT * FROM {'(SELECT * FROM ' * 900}R{') x' * 900}, S WHERE a1 > b1",
         "nested too deeply"),
        ("SELECT a2, count(*) AS n FROM R, S WHERE a1 > b1 GROUP BY a2 HAVING n",
         "must be true or false, not BIGINT"),
        ("SELECT a1 FROM R LEFT JOIN S ON a1 > b1 WHERE a2", "must be true or false, not STRING"),
        ("SELECT a1 FROM R JOIN S ON a2 AND a1 > b1", "true or false|takes|BOOLEAN|STRING"),
        ("SELECT ? FROM R JOIN S ON a1 > b1", "not supported"),
        ("SELECT nosuch(a1) FROM R JOIN S ON a1 > b1", "unknown function 'nosuch'"),
        ("SELECT CAST(a1 AS FOO) FROM R JOIN S ON a1 > b1", "TYPE|FOO"),
        ("VALUES (1)", "begins with SELECT"),
    ],
)  # fmt: skip
def test_mistakes(query, message):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # Python's own; some libraries raise it when they are imported
    try:
        refused(query, message)
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT st.f, R.st.f AS g FROM R, S WHERE st.f < b1 AND b1 < 5", [(1, 1), (2, 2)]),
        ("SELECT `order`, R.order AS o FROM R, S WHERE R.order < b1 AND b1 < 5 AND order < 2",
         [(1, 1)]),
        ("SELECT DISTINCT dic FROM R, S WHERE R.order < b1 ORDER BY dic",
         [(None,), ("p",), ("q",)]),
        ("SELECT dic, count(*) FROM R, S WHERE R.order < b1 GROUP BY dic ORDER BY 1",
         [(None, 2), ("p", 2), ("q", 2)]),
        ("SELECT a1 FROM R JOIN S ON nu AND a1 > b1", []),
        ("SELECT a1 FROM R JOIN S ON nu WHERE a1 > b1", []),
        ("SELECT a1 FROM R LEFT JOIN S ON a1 > b1 WHERE nu", []),
        ("SELECT DISTINCT li FROM R JOIN S ON a1 > b1 ORDER BY li", [([1],), ([2],)]),
        ("SELECT li, count(*) FROM R JOIN S ON a1 > b1 GROUP BY li ORDER BY 1",
         [([1], 2), ([2], 1)]),
    ],
)  # fmt: skip
def test_what_looks_like_a_mistake_and_is_none(query, want):
    assert [tuple(row.values()) for row in tj.sql(query, R=R, S=S).to_pylist()] == want


def test_names_that_meet():
    """A column's new name may be one that another column has."""
    a = pa.table({"k": [1], "a_k": [10], "K2": [3]})
    b = pa.table({"k": [2], "b_k": [20], "k2": [4]})
    got = tj.sql("SELECT a.k, a.a_k, b.k AS j, b.b_k, a.K2, b.k2 AS i FROM a, b WHERE a.k < b.k",
                 a=a, b=b)  # fmt: skip
    assert [tuple(row.values()) for row in got.to_pylist()] == [(1, 10, 2, 20, 3, 4)]


def test_tables_whose_names_differ_in_case():
    one, two = pa.table({"k": [1]}), pa.table({"j": [2]})
    assert tj.sql("SELECT t.k, u.j FROM t JOIN T u ON t.k < u.j", t=one, T=two).num_rows == 1
    refused_names = {"tt": one, "TT": two}
    with pytest.raises(tj.ThetaJoinError, match="table 'Tt', which was not given"):
        tj.sql("SELECT 1 FROM Tt a, tt b WHERE 1 < 2", **refused_names)


WORDS = """
SELECT DISTINCT FROM JOIN ASOF MATCH_CONDITION LEFT RIGHT FULL SEMI ANTI ON USING WHERE
GROUP BY HAVING ORDER LIMIT
OFFSET WITHIN WINDOW AS SLIDE INTERVAL COUNT UNION WITH CASE WHEN THEN END IN BETWEEN AND OR
NOT NULL IS LIKE CAST ( ) , . * + - / % = < >= <> ; ' " ` R S a1 b1 st.f `order` order li nu
fl dic count(*) sum(b1) max(a1) 1 0 1.5 1e400 'x' TRUE zz DESC OVER abs( coalesce( \0 -- /*
? :p @ # é DATE '2024-13-01' TIMESTAMP LATERAL VALUES ::int [0] -> || ! 9999999999999999999
"""
QUERIES = [
    "SELECT a1 , b1 FROM R , S WHERE a1 > b1",
    "SELECT a2 , count(*) AS n FROM R JOIN S ON a1 > b1 GROUP BY a2 HAVING n > 0 ORDER BY 1",
    "SELECT * FROM R LEFT JOIN S ON a1 < b1 WHERE b1 IS NULL OFFSET 1",
    "SELECT DISTINCT a2 FROM R x JOIN ( SELECT b1 AS q FROM S WHERE b2 > 10 ) y ON a1 > q",
    "SELECT * FROM R ASOF JOIN S MATCH_CONDITION ( a1 >= b1 ) ON a1 + b2 > 3 WHERE b2 > 10",
    "SELECT a2 , count(*) AS n FROM R x ASOF LEFT JOIN R y USING ( a2 , a1 ) GROUP BY a2",
    "SELECT a.a1 FROM R a , R b WHERE a.a1 < b.a1 WINDOW AS (SLIDE INTERVAL '1' ON COUNT '2' )",
]


@pytest.mark.parametrize("seed", range(4))
def test_words_in_the_wrong_place(seed):
    """Queries with words put in, replaced, dropped and exchanged."""
    draw = random.Random(seed)
    for _ in range(150):
        words = draw.choice(QUERIES).split(" ")
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(words))
            other = draw.randrange(len(words))
            match draw.randrange(4):
                case 0:
                    words.insert(at, draw.choice(WORDS.split()))
                case 1:
                    words[at] = draw.choice(WORDS.split())
                case 2:
                    words[at], words[other] = words[other], words[at]
                case _:
                    words = words[: max(1, at)] + words[at + 1 :]
        message = told(" ".join(words))
        assert len(message.splitlines()) <= 1, words
        assert "Token" not in message, words


def told(query):
    """What is said against a query, if anything."""
    try:
        tj.sql(query, R=R, S=S)
    except tj.ThetaJoinError as error:
        return str(error)
    return ""


def test_a_table_with_two_columns_of_one_name():
    twice = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(tj.ThetaJoinError, match=r"'y'.*two columns 'a'"):
        tj.sql("SELECT x.a FROM x, y WHERE x.a < y.a", x=pa.table({"a": [1]}), y=twice)
