"""Cases joined on Spark, by this package and by Spark itself, in one session."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import thetajoin as tj
from fuzz.cases import Case, case
from fuzz.check import Outcome, compare
from fuzz.code import script
from fuzz.expected import Expected, Ids, expected, may_fail
from fuzz.trials import Failure, Tally

# Arrow types that Spark has too, as they are.
TYPES = {
    *(f"pa.int{bits}()" for bits in (8, 16, 32, 64)),
    *("pa.float32()", "pa.float64()", "pa.string()", "pa.binary()", "pa.bool_()", "pa.date32()"),
    *("pa.decimal128(9, 2)", "pa.decimal128(18, 0)", "pa.decimal128(30, 4)"),
    *("pa.timestamp('us')", "pa.timestamp('us', 'UTC')", "pa.duration('us')"),
}
# What Spark itself is not asked, and why: there it is known to differ from this package.
LEFT_OUT = {
    "try_cast": "it is evaluated before a filter that would keep it from a row",
    "span": "INTERVAL '5' MICROSECOND is of a type of its own there, which has no order",
    "date": "DATE - DATE and DATE + INT are kept out with the spans that they give and take",
}


def trials(seed: int, count: int) -> Tally:
    """The first cases that Spark's types can hold."""
    from thetajoin.spark.session import local_session

    session = local_session(2, shuffle_partitions=2, settings=_SETTINGS)
    tally = Tally()
    number = 0
    try:
        while tally.cases < count:
            drawn = case(seed, number)
            if can_answer(drawn):
                _tried(session, replace(drawn, options={}, inputs={}), number, tally)
                tally.cases += 1
            number += 1
    finally:
        session.stop()
    return tally


_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def can_answer(drawn: Case) -> bool:
    """Whether a case is one join of two tables whose types Spark has."""
    codes = {column.code for table in drawn.tables.values() for column in table.columns}
    # Rows on Spark have no order of their own.
    counted = drawn.window is not None and drawn.window.name == "count"
    return drawn.call == "join" and codes <= TYPES and (bool(drawn.order_by) or not counted)


def _tried(session: Any, drawn: Case, number: int, tally: Tally) -> None:
    want = expected(drawn)
    frames = [session.createDataFrame(table.arrow()) for table in drawn.tables.values()]
    # Few rows with an equality are left to Spark's own join, if it means the same.
    for engine in ("thetajoin", "auto"):
        outcome = _ours(drawn, frames, want, engine)
        tally.outcomes[outcome.name] += 1
        if outcome.wrong:
            why = f"on Spark, engine={engine!r}: {outcome.why}"
            tally.failures.append(Failure(number, why, script(drawn, f"{why}\n{outcome.detail}")))
    names = {node.op for node in drawn.on.walk()} | {node.kind.name for node in drawn.on.walk()}
    if drawn.window is None and not want.undecided and not names & LEFT_OUT.keys():
        told = _theirs(drawn, frames, want)
        if told:
            tally.disagreements.append(Failure(number, "Spark differs", script(drawn, told)))


def _ours(drawn: Case, frames: list[Any], want: Expected, engine: str) -> Outcome:
    from fuzz.code import on_code, window_code

    space = {"tj": tj, **_names()}
    on = eval(on_code(drawn), space)
    window = None if drawn.window is None else eval(window_code(drawn), space)
    how: dict[str, Any] = {"how": drawn.spelling, "engine": engine}
    order_by = "t" if drawn.order_by else None
    try:
        joined = tj.join(*frames, on, window=window, order_by=order_by, **how)
        got = joined.toArrow()
    except Exception as error:
        if want.notes.may_fail or may_fail(drawn):
            return Outcome("refused", "DataError")
        if isinstance(error, tj.ThetaJoinError):
            return Outcome("wrong", f"refused: {type(error).__name__}", str(error))
        return Outcome("wrong", f"raw {type(error).__name__}", str(error)[:500])
    return Outcome("undecided") if want.undecided else compare(drawn, got, want)


def _theirs(drawn: Case, frames: list[Any], want: Expected) -> str:
    """How Spark's own join differs from the naive one."""
    from pyspark.sql.functions import expr

    left, right = frames[0].alias("l"), frames[1].alias("r")
    wanted = ["l.lid"] if drawn.how in ("semi", "anti") else ["l.lid", "r.rid"]
    try:
        rows = left.join(right, expr(drawn.on.sql()), drawn.spelling).select(*wanted).collect()
    except Exception as error:
        if want.notes.may_fail or may_fail(drawn):
            return ""
        return f"Spark: {str(error).splitlines()[0][:300]}"
    got: Counter[Ids] = Counter(tuple(row) for row in rows)
    if got == want.rows:
        return ""
    without, more = (sorted(some, key=str)[:6] for some in (want.rows - got, got - want.rows))
    return f"Spark has not {without}\nand has {more}"


def _names() -> dict[str, Any]:
    from datetime import UTC, datetime, timedelta
    from decimal import Decimal

    return {"UTC": UTC, "datetime": datetime, "timedelta": timedelta, "Decimal": Decimal}
