"""Random queries from a grammar, and what DuckDB makes of the same query.

Most go to DuckDB as they are. Joins whose words or meaning differ there are written another way:
SEMI and ANTI as counts, since DuckDB's own are wrong at times, MATCH_CONDITION in ON.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import thetajoin as tj
from fuzz.trials import Failure
from thetajoin.predicate.parse import Source, parse
from thetajoin.query.on_duckdb import connect, to_duckdb

OPS = ("<", "<=", ">", ">=", "<>", "=")
COLUMNS = {"t1": ("i", "a", "c", "x"), "t2": ("j", "b", "d", "y"), "t3": ("k", "e", "s")}
WORDS = """
SELECT DISTINCT FROM JOIN ASOF MATCH_CONDITION LEFT RIGHT FULL SEMI ANTI ON USING NATURAL WHERE
GROUP BY HAVING ORDER LIMIT OFFSET WITHIN WINDOW AS UNION WITH RECURSIVE LATERAL EXISTS VALUES
APPROX NEAREST BY DISTANCE QUALIFY CASE WHEN THEN END IN BETWEEN AND OR NOT NULL IS LIKE CAST ( )
, . * + - / % = < >= <> ; ' " ` t1 t2 p q p.a q.b i count(*) sum(b) max(a) 1 0 1.5 1e400 'x' TRUE zz
DESC OVER ROLLUP ALL abs( coalesce( ? :v @ # é ::int [0] -> || ! 9999999999999999999
"""


@dataclass
class Tally:
    """What a block of queries gave."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    cases: int = 0


class Grammar:
    """One random query; `told` is what DuckDB is asked where that differs."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        # Enough for whatever is nested in what; none is a column's.
        self.names = iter([*"pqruvwmnfgh", *(f"n{number}_" for number in range(100))])

    def pick(self, *given: Any) -> Any:
        """One of several."""
        return self.draw.choice(given)

    def chance(self, share: float) -> bool:
        """True in so many of all cases."""
        return self.draw.random() < share

    def query(self) -> tuple[str, str]:
        """A query, and the same for DuckDB."""
        query, told = self.select()
        if self.chance(0.08):
            other, other_told = self.select(columns=2)
            query, told = self.select(columns=2)
            word = self.pick("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
            query, told = f"{query} {word} {other}", f"{told} {word} {other_told}"
        if self.chance(0.12):
            query, told = (f"WITH z AS ({q}) SELECT count(*) AS n FROM z" for q in (query, told))
        elif self.chance(0.08):
            query, told = (f"SELECT * FROM ({q}) AS o" for q in (query, told))
        return query, told

    def item(self) -> tuple[str, str, list[str]]:
        """What stands in FROM, its name and its columns of numbers."""
        name, table = next(self.names), self.pick("t1", "t2", "t3")
        columns = [c for c in COLUMNS[table] if c not in "sxy"]
        roll = self.draw.random()
        if roll < 0.7:
            return f"{table} {name}", name, columns
        if roll < 0.85:
            chosen = self.draw.sample(columns, 2)
            where = f" WHERE {chosen[0]} {self.pick(*OPS)} 1" if self.chance(0.5) else ""
            return f"(SELECT {', '.join(chosen)} FROM {table}{where}) {name}", name, chosen
        if roll < 0.93:
            return f"(VALUES (1, 2), (3, 0), (NULL, 1)) AS {name}(v, w)", name, ["v", "w"]
        other, op = next(self.names), self.pick(*OPS)
        first = columns[1]
        return (
            f"(SELECT {name}1.{first} AS {first}, {other}.b AS b2 FROM {table} {name}1 JOIN t2 "
            f"{other} ON {name}1.{first} {op} {other}.b) {name}",
            name,
            [first, "b2"],
        )

    def column(self, *tables: tuple[str, list[str]]) -> str:
        """A column of one of several tables."""
        name, columns = self.pick(*tables)
        return f"{name}.{self.pick(*columns)}"

    def value(self, *tables: tuple[str, list[str]]) -> str:
        """An expression of numbers."""
        column = self.column(*tables)
        return self.pick(
            column, column, f"{column} + 1", f"abs({column})", f"coalesce({column}, 0)",
            f"CASE WHEN {column} > 0 THEN 1 ELSE {self.column(*tables)} END", f"-{column}",
        )  # fmt: skip

    def condition(self, *tables: tuple[str, list[str]]) -> str:
        """A condition about some tables."""
        one, other = (self.value(*tables) for _ in range(2))
        op = self.pick(*OPS)
        return self.pick(
            f"{one} {op} {other}",
            f"{one} {op} {self.draw.randint(-1, 3)}",
            f"{one} BETWEEN {other} - 1 AND {other} + 1",
            f"({one} {op} {other} OR {self.column(*tables)} IS NULL)",
            f"{one} IN (1, 2)",
            f"NOT {one} {op} {other}",
            self.pick("true", "1 = 1", "1 = 0", "NULL"),
            f"{one} IN (SELECT b FROM t2)",
            f"{one} >= (SELECT min(d) FROM t2)",
            f"EXISTS (SELECT 1 FROM t3 WHERE t3.e {op} {self.column(*tables)})",
            f"NOT EXISTS (SELECT * FROM t3 WHERE t3.e {op} {self.column(*tables)} AND k > 0)",
        )

    def on(self, before: list[Any], mine: Any) -> str:
        """A condition between a table and those before it, and perhaps another."""
        op = self.pick(*OPS)
        key = f"{self.value(*before)} {op} {self.value(mine)}"
        if self.chance(0.15):
            key = f"{self.column(*before)} - {self.column(mine)} = 1"
        if self.chance(0.3):
            key += f" AND {self.column(*before)} {self.pick(*OPS)} {self.column(mine)}"
        if self.chance(0.25):
            key += f" AND {self.condition(*before, mine)}"
        return self.condition(*before, mine) if self.chance(0.07) else key

    def joined(self) -> tuple[str, str, list[tuple[str, list[str]]], list[str]]:
        """A FROM, the same for DuckDB, its tables, and conditions for its WHERE."""
        text, name, columns = self.item()
        told, tables, where = text, [(name, columns)], []
        wheres: list[str] = []
        for _ in range(self.pick(0, 1, 1, 1, 1, 2, 2)):
            item, name, columns = self.item()
            mine = (name, columns)
            kind = self.pick(
                "JOIN",
                "JOIN",
                "LEFT JOIN",
                "RIGHT JOIN",
                "FULL JOIN",
                ",",
                "LEFT SEMI JOIN",
                "LEFT ANTI JOIN",
                "ASOF",
                "CROSS JOIN",
                "USING",
            )
            on = self.on(tables, mine)
            if kind == ",":
                text, told = f"{text}, {item}", f"{told}, {item}"
                where.append(on)
            elif kind == "USING":
                shared = self.pick(*[c for _, known in tables for c in known])
                every = [c for _, known in tables for c in known]
                rest = next((c for c in columns if c not in every), None)
                if rest is None or where or every.count(shared) > 1 or not item.startswith("t"):
                    continue
                item = f"(SELECT {columns[1]} AS {shared}, {rest} FROM {item.split()[0]}) {name}"
                mine = (name, [shared, rest])
                side = self.pick("", "", "LEFT ", "RIGHT ", "FULL ")
                more = self.pick(
                    f"{side}JOIN {item} USING ({shared})", f"NATURAL {side}JOIN {item}"
                )
                text, told = f"{text} {more}", f"{told} {more}"
            elif kind == "CROSS JOIN":
                text, told = f"{text} CROSS JOIN {item}", f"{told} CROSS JOIN {item}"
            elif kind == "ASOF" and "VALUES" not in item and len(tables) == 1:
                left = self.pick("", "LEFT ")
                # Without ties, so that there is one answer.
                unique = f"{self.column(*tables)} {self.pick('>', '>=', '<', '<=')} {name}.u"
                if not item.startswith("t"):
                    item, mine = f"t2 {name}", (name, ["j", "b", "d"])
                item = (
                    f"(SELECT *, row_number() OVER (ORDER BY {mine[1][0]}) AS u FROM "
                    f"{item.split()[0]}) {name}"
                )
                mine = (name, [*mine[1], "u"])
                spelled = self.pick(
                    f"ASOF {left}JOIN {item} ON {unique}",
                    f"{left}ASOF JOIN {item} MATCH_CONDITION ({unique})",
                )
                text = f"{text} {spelled}"
                told = f"{told} ASOF {left}JOIN {item} ON {unique}"
            elif kind == "ASOF":
                continue
            elif "SEMI" in kind or "ANTI" in kind:
                text = f"{text} {kind} {item} ON {on}"
                wheres.append(
                    f"(SELECT count(*) FROM {item} WHERE {on}) {'>' if 'SEMI' in kind else '='} 0"
                )
                if len(tables) > 1 or where:
                    told = ""  # what comes later would see other rows
                return text, told, tables, [*where, *[f"\0{w}" for w in wheres]]
            else:
                text, told = (f"{part} {kind} {item} ON {on}" for part in (text, told))
            tables.append(mine)
            if self.chance(0.1) and not where and kind != "ASOF":
                text, told = f"({text})", f"({told})"
        if self.chance(0.06):
            name = next(self.names)
            view = f" LATERAL VIEW explode(array(1, 2, NULL)) {name} AS {name}w"
            text, told = f"{text}{view}", f"{told}{view}"
            tables.append((name, [f"{name}w"]))
        return text, told, tables, where

    def select(self, columns: int = 0) -> tuple[str, str]:
        """A SELECT, and the same for DuckDB."""
        text, told, tables, where = self.joined()
        where = [*where, *(self.condition(*tables) for _ in range(self.pick(0, 0, 1, 2)))]
        tail = ""
        count = columns or self.pick(1, 2, 3)
        outputs = [f"{self.value(*tables)} AS o{at}" for at in range(count)]
        roll = self.draw.random()
        if columns:
            pass
        elif roll < 0.1:
            outputs = [f"{name}.*" for name, _ in tables]
        elif roll < 0.35:
            keys = [self.column(*tables) for _ in range(self.pick(0, 1, 1, 2))]
            keys = list(dict.fromkeys(keys))
            calls = (
                "count(*)",
                "sum({})",
                "min({})",
                "max({})",
                "count({})",
                "count(DISTINCT {})",
                "count(*) FILTER (WHERE {} > 0)",
            )
            totals = [self.pick(*calls).format(self.column(*tables)) for _ in range(2)]
            outputs = [f"{key} AS g{at}" for at, key in enumerate(keys)]
            outputs += [f"{call} AS n{at}" for at, call in enumerate(totals)]
            if keys:
                tail = f" GROUP BY {', '.join(keys)}"
                tail += self.pick("", f" HAVING {totals[0]} > 1", " HAVING n0 > 0")
        elif roll < 0.45:
            outputs.append(f"rank() OVER (ORDER BY {self.column(*tables)}) AS r")
        elif roll < 0.55:
            outputs[0] = "DISTINCT " + outputs[0]
        elif roll < 0.65:
            outputs.append("o0 + 1 AS later")
            where += ["o0 > 0"] if self.chance(0.5) else []
        if not columns and not tail and self.chance(0.2) and "*" not in outputs[0]:
            tail = " ORDER BY " + self.pick("ALL", "1", "1 DESC NULLS LAST")
            tail += self.pick("", " LIMIT 3", " LIMIT 2 OFFSET 1")
        ours = [one for one in where if not one.startswith("\0")]
        theirs = [one.lstrip("\0") for one in where]
        shown = ", ".join(outputs)
        query = f"SELECT {shown} FROM {text}{_where(ours)}{tail}"
        return query, f"SELECT {shown} FROM {told}{_where(theirs)}{tail}" if told else ""


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _table(draw: random.Random, names: tuple[str, ...]) -> pa.Table:
    """A small table with many ties, NULL and NaN."""
    size = draw.randrange(7)
    made: dict[str, Any] = {}
    for name in names:
        if name in "ijk":
            made[name] = pa.array(range(size), pa.int64())
        elif name in "xy":
            values = [draw.choice([None, float("nan"), -0.0, 1.5, -1.0]) for _ in range(size)]
            made[name] = pa.array(values, pa.float64())
        elif name == "s":
            made[name] = pa.array([draw.choice([None, "", "a", "é"]) for _ in range(size)])
        else:
            values = [draw.choice([None, -1, 0, 1, 2, 3]) for _ in range(size)]
            made[name] = pa.array(values, pa.int64())
    return pa.table(made)


def trials(seed: int, start: int, stop: int) -> Tally:
    """Run the queries of these numbers; each depends on the seed and its number alone."""
    tally = Tally(cases=stop - start)
    for number in range(start, stop):
        _try(random.Random(f"{seed} {number}"), number, tally)
    return tally


def killed(seed: int, number: int) -> Tally:
    """The tally of a query whose process died; nothing is run."""
    query, _ = Grammar(random.Random(f"{seed} {number}")).query()
    failure = Failure(number, "the process died", query)
    return Tally(Counter({"raw error": 1}), Counter(died=1), [failure], cases=1)


def _try(draw: random.Random, number: int, tally: Tally) -> None:
    query, told = Grammar(draw).query()
    tables = {name: _table(draw, columns) for name, columns in COLUMNS.items()}
    if number % 4 == 0:
        query, told = _broken(draw, query), ""
    try:
        got = tj.sql(query, **tables)
    except tj.ThetaJoinError as error:
        _refused(query, told, tables, error, number, tally)
        return
    except Exception as error:  # a raw traceback is what is looked for
        why = f"{type(error).__name__}: {error}"
        tally.failures.append(Failure(number, why, query))
        tally.outcomes["raw error"] += 1
        return
    want = _in_duckdb(told, tables) if told else None
    if want is None:
        tally.outcomes["ran"] += 1
        return
    rows = [tuple(row.values()) for row in got.to_pylist()]
    same = len(rows) == len(want) if " LIMIT " in query else _bag(rows) == _bag(want)
    tally.outcomes["right" if same else "wrong"] += 1
    if not same:
        script = f"{query}\n{ {n: t.to_pydict() for n, t in tables.items()} }\n{rows}\n{want}"
        tally.failures.append(Failure(number, "other rows", script))


def _refused(
    query: str, told: str, tables: dict[str, Any], error: Exception, number: int, tally: Tally
) -> None:
    said = str(error)
    if "\n" in said or "thetajoin_" in said:
        tally.failures.append(Failure(number, f"more than a line: {said}", query))
        tally.outcomes["raw error"] += 1
    elif told and _in_duckdb(told, tables) is not None:
        tally.outcomes["refused"] += 1
        tally.reasons[re.sub(r"'.*?'|`.*?`|\d+", "_", said)[:120]] += 1
    else:
        tally.outcomes["mistake"] += 1


def _in_duckdb(query: str, tables: dict[str, Any]) -> list[Any] | None:
    """What DuckDB makes of the whole query; None if it makes nothing of it."""
    connection = connect(1)
    try:
        for name, table in tables.items():
            connection.register(name, table)
        return list(connection.sql(to_duckdb(parse(Source(query, "", "query")))).fetchall())
    except Exception:  # whatever it says: then there is nothing to compare with
        return None
    finally:
        connection.close()


def _bag(rows: list[Any]) -> Counter[str]:
    return Counter(repr(tuple(0.0 if value == 0 else value for value in row)) for row in rows)


def _broken(draw: random.Random, query: str) -> str:
    """The query with words put in, replaced, dropped and exchanged."""
    words = query.split(" ")
    for _ in range(draw.randint(1, 3)):
        at, other = draw.randrange(len(words)), draw.randrange(len(words))
        way = draw.randrange(4)
        if way == 0:
            words.insert(at, draw.choice(WORDS.split()))
        elif way == 1:
            words[at] = draw.choice(WORDS.split())
        elif way == 2:
            words[at], words[other] = words[other], words[at]
        elif len(words) > 1:
            del words[at]
    return " ".join(words)
