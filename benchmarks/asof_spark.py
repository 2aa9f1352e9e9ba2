"""As-of joins on Spark against the operator that Spark has for them since 4.3.

That operator sorts both sides by key and time and then looks, for each left row, through the rows
of its key. With few keys this may take longer than anyone would wait, so it has a time limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import thetajoin as tj
from benchmarks import join_data
from benchmarks.harness import alternate, medians, run_workload
from benchmarks.join_data import Tables
from benchmarks.joins_spark import QUOTED, ROUNDS, WARM_UP, check_on_spark, views
from benchmarks.spark_batch import through
from benchmarks.spark_stream import spark_on

# Both are off by default. The first lets SQL know ASOF JOIN; the second has the operator used for
# the as-of joins of pandas on Spark too.
SETTINGS = ("spark.sql.join.asofJoin.enabled", "spark.sql.join.sortMergeAsOfJoin.enabled")
PEER = "Spark ASOF JOIN"
# Rows a side: with a thousand symbols Spark's operator ends, and with one it takes hours.
ROWS = 1_000_000
# Seconds for Spark's operator to give its result once.
LIMIT = 150.0
# The share of the tables on which rows are compared, whether or not the whole ends in time.
SAMPLE = 0.1


def _against_native(name: str, symbols: int, cores: int, scale: float) -> dict[str, Any]:
    """Trades with the last quote of their symbol, or with the last of all where there is none."""
    session = spark_on(cores)
    part = f"spark_asof_{name}"
    result: dict[str, Any] = {"figures": {f"spark_asof_vs_native_{name}": None}}
    try:
        for setting in SETTINGS:
            session.conf.set(setting, "true")
        sample = join_data.trades(scale * SAMPLE, rows=ROWS, symbols=symbols or 1000)
        with views(session, sample) as sides:
            number, peers = check_on_spark(part, _queries(session, bool(symbols), *sides), QUOTED)
    except Exception as error:
        if tuple(map(int, session.version.split(".")[:2])) >= (4, 3):
            raise
        return result | {"left_out": {PEER: f"Spark {session.version}: {type(error).__name__}"}}
    whole = join_data.trades(scale, rows=ROWS, symbols=symbols or 1000)
    result |= {"compared_on_sample": number, "peers": peers}
    with views(session, whole) as sides:
        result |= _time_both(part, session, _queries(session, bool(symbols), *sides), whole)
    ratio = result["median"][PEER] / result["median"]["thetajoin"]
    return result | {"figures": {f"spark_asof_vs_native_{name}": ratio}}


def _queries(session: Any, keyed: bool, left: Any, right: Any) -> dict[str, Callable[[], Any]]:
    equal = "ON l.symbol = r.symbol" if keyed else ""
    own = (
        "SELECT l.*, r.quote, r.price FROM l LEFT ASOF JOIN r "
        f"MATCH_CONDITION (l.ts >= r.ts) {equal}"
    )

    def ours() -> Any:
        by = "symbol" if keyed else ()
        found = tj.nearest(left, right, key="ts", by=by, order_by="quote")
        return found.select(*QUOTED.split())

    return {"thetajoin": ours, PEER: partial(session.sql, own)}


def _time_both(
    part: str, session: Any, queries: dict[str, Callable[[], Any]], rows: Tables
) -> dict[str, Any]:
    """Seconds of both; those of the limit, and `lower_bound`, where Spark's did not end in it."""
    runs = {who: (lambda query=query: through(query())) for who, query in queries.items()}
    found: dict[str, Any] = {
        "rows": {"left": rows.left.num_rows, "right": rows.right.num_rows},
        "limit_s": LIMIT,
        "lower_bound": None,
    }
    ours = {"thetajoin": runs["thetajoin"]}
    alternate(ours, WARM_UP, warm_up=False)
    seconds = alternate(ours, ROUNDS, warm_up=False)
    # Last, because what does not end in time keeps the session's cores until the process ends.
    first = time_within(LIMIT, runs[PEER])
    if first is None:
        found["lower_bound"] = f"no result in {LIMIT:g} s"
    else:
        found["result_rows"], found["peers"] = check_on_spark(part, queries, QUOTED)
    if first is not None and first <= LIMIT / 10:
        alternate(runs, WARM_UP - 1, warm_up=False)
        seconds = alternate(runs, ROUNDS, warm_up=False)
    else:
        # Once is enough, and warming up matters little to what takes so long.
        seconds[PEER] = [LIMIT if first is None else first]
    return found | {
        "best_peer": PEER,
        "median": medians(seconds),
        "spread": {who: [min(taken), max(taken)] for who, taken in seconds.items()},
        "seconds": seconds,
    }


def time_within(limit: float, run: Callable[[], Any]) -> float | None:
    """The seconds that a call took; None where it went on for longer, as it then still does."""
    taken: list[float] = []
    errors: list[Exception] = []

    def go() -> None:
        begun = time.perf_counter()
        try:
            run()
        except Exception as error:
            errors.append(error)
        taken.append(time.perf_counter() - begun)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    return taken[0] if taken else None


NATIVE: dict[str, Callable[[int, float], dict[str, Any]]] = {
    f"spark_asof_{name}": partial(_against_native, name, symbols)
    for name, symbols in {"1000": 1000, "20": 20, "none": 0}.items()
}


if __name__ == "__main__":
    run_workload(NATIVE)
