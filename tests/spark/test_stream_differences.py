"""Where Spark's own stream-stream join and ours differ, and what is right."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import thetajoin as tj
from naive import Row
from spark.harness import Streams, at
from spark.parity import (
    HOWS,
    RANGE,
    WINDOW,
    Both,
    last_rows,
    random_rows,
    sides,
    unmatched,
    write,
)

pytestmark = [pytest.mark.spark]


def test_where_sparks_own_join_differs(streams: Streams) -> None:
    """What the documentation says of Spark, and what is right instead, row by row.

    - a row with exactly the watermark's time: late in Spark (a)
    - NULL keys: a full join of Spark's pairs them with each other (b)
    - NULL times: Spark never gives such a row out (c)
    """
    from pyspark.sql import functions as F

    def spark() -> Any:
        left, right = sides(streams, ("1 second", "1 second"))
        return left.join(right, F.expr(f"k = rk AND {RANGE}"), "full_outer")

    def ours() -> Any:
        inputs = sides(streams, ("1 second", "1 second"))
        return tj.join(*inputs, "l.k = r.rk", how="full", window=WINDOW)

    both = Both(streams, lambda: {"full": spark()}, lambda: {"full": ours()})

    def left(lid: int, k: int | None, t: float | None) -> Row:
        return {"lid": lid, "k": k, "v": 0, "t": at(t)}

    def right(rid: int, rk: int | None, t: float | None) -> Row:
        return {"rid": rid, "rk": rk, "w": 0, "rt": at(t)}

    write(
        streams,
        ([left(0, 7, 101), left(1, None, 100)], [right(0, 8, 101), right(1, None, 100)]),
        ([left(2, 7, None)], [right(2, 8, None)]),
        ([left(3, 1, 100), left(4, 1, 99)], [right(3, 1, 100), right(4, 1, 99)]),
        last_rows(),
    )
    both.run()

    def ids(whose: str) -> Counter[tuple[int | None, int | None]]:
        rows = [json.loads(given.row) for given in both.given[whose]]
        return Counter((row["lid"], row["rid"]) for row in rows)

    both_have = [(0, None), (None, 0)]
    only_ours = [(3, 3), (1, None), (None, 1), (2, None), (None, 2)]
    assert ids("ours") == Counter([*both_have, *only_ours])
    assert ids("sparks") == Counter([*both_have, (1, 1)])
    assert both.late == 2, "the rows of second 99"


@pytest.mark.slow
def test_where_sparks_semi_join_loses_rows(streams: Streams) -> None:
    """Two rows of a micro-batch match; the newest watermark has passed the right one already."""
    from pyspark.sql import functions as F

    delays = "1 second", "1 second"

    def spark(how: str) -> Any:
        left, right = sides(streams, delays)
        return left.join(right, F.expr(f"k = rk AND {RANGE}"), HOWS[how])

    def ours(how: str) -> Any:
        return tj.join(*sides(streams, delays), "l.k = r.rk", how=how, window=WINDOW)

    hows = "inner", "semi"
    both = Both(
        streams, lambda: {how: spark(how) for how in hows}, lambda: {how: ours(how) for how in hows}
    )

    def at_once(k: int, rk: int, t: float) -> tuple[list[Row], list[Row]]:
        left: Row = {"lid": k, "k": k, "v": 0, "t": at(t)}
        return [left], [{"rid": rk, "rk": rk, "w": 0, "rt": at(t)}]

    write(streams, at_once(50, 51, 100), at_once(1, 1, 90), last_rows())
    both.run()
    mine, theirs = both.take_out("semi")
    assert [json.loads(row)["lid"] for row in mine] == [1]
    assert not theirs
    both.check()


@pytest.mark.slow
def test_where_spark_never_gives_unmatched_rows_out(streams: Streams) -> None:
    """A filter with a lower bound beside a time range: Spark takes the number for a time."""
    from pyspark.sql import functions as F

    write(streams, *random_rows(0), last_rows())
    delays = "4500 milliseconds", "7500 milliseconds"

    def spark(on: str) -> Any:
        left, right = sides(streams, delays)
        return left.join(right, F.expr(f"k = rk AND {on} AND {RANGE}"), "left_outer")

    def ours(on: str) -> Any:
        return tj.join(*sides(streams, delays), f"l.k = r.rk AND {on}", how="left", window=WINDOW)

    # The second says the same, in words that Spark does not mistake.
    lower, other = "v > 2", "v NOT IN (0, 1, 2)"
    both = Both(
        streams,
        lambda: {lower: spark(lower), other: spark(other)},
        lambda: {lower: ours(f"l.{lower}"), other: ours(f"l.{other}")},
    )
    both.run()

    def of(whose: str, join: str) -> Counter[str]:
        return Counter(given.row for given in both.given[whose] if given.join == join)

    assert of("ours", lower) == of("ours", other) == of("sparks", other)
    missing = of("ours", lower) - of("sparks", lower)
    assert missing
    assert not of("sparks", lower) - of("ours", lower)
    assert all(unmatched(json.loads(row)) for row in missing)
