"""The calls of one sequence, made in this process and checked against brute force.

`python -m tests.campaigns.sequence_calls SEED CALLS [WHICH]` prints what went wrong as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

import naive
import thetajoin as tj

Matrix = np.ndarray
HOWS = ("inner", "left", "right", "full", "semi", "anti")
# Conditions in SQL, and over columns of doubles in which NaN stands for NULL.
CONDITIONS: list[tuple[str, Callable[[Any, Any], Matrix]]] = [
    ("l.a < r.a", lambda l, r: l["a"] < r["a"]),
    ("l.a <= r.a AND l.b > r.b", lambda l, r: (l["a"] <= r["a"]) & (l["b"] > r["b"])),
    ("l.k = r.k AND l.a >= r.b", lambda l, r: (l["k"] == r["k"]) & (l["a"] >= r["b"])),
    ("ABS(l.a - r.b) <= 3", lambda l, r: np.abs(l["a"] - r["b"]) <= 3),
    (
        "l.a < r.a AND l.b > r.b AND l.a + 40 > r.a",
        lambda l, r: (l["a"] < r["a"]) & (l["b"] > r["b"]) & (l["a"] + 40 > r["a"]),
    ),
    (
        "l.a = r.a OR (l.b < r.b AND l.k = r.k)",
        lambda l, r: (l["a"] == r["a"]) | ((l["b"] < r["b"]) & (l["k"] == r["k"])),
    ),
    ("r.a BETWEEN l.a AND l.b", lambda l, r: (l["a"] <= r["a"]) & (r["a"] <= l["b"])),
]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "a", "b", "k", "t")])


@dataclass
class Rows:
    """A table, and the same as doubles to compare by brute force."""

    table: pa.Table
    values: dict[str, Any]

    @staticmethod
    def draw(rng: Random, size: int, first: int = 0, now: int = 0) -> Rows:
        """Values from a range about as wide as the table is long, some of them NULL."""
        numpy = np.random.default_rng(rng.getrandbits(32))
        width = max(6, rng.choice((size // 4, size, 1000)))
        columns: dict[str, Any] = {"id": np.arange(first, first + size, dtype=np.int64)}
        for name in ("a", "b"):
            values = numpy.integers(0, width, size).astype(np.float64)
            values[numpy.random(size) < 0.05] = np.nan
            columns[name] = values
        columns["k"] = numpy.integers(0, 3, size).astype(np.float64)
        columns["t"] = (now + numpy.integers(0, 10, size)).astype(np.float64)
        arrays = [
            pa.array(v.astype(np.int64), mask=np.isnan(v)) if v.dtype.kind == "f" else pa.array(v)
            for v in columns.values()
        ]
        return Rows(pa.table(arrays, schema=SCHEMA), columns)

    def given(self, kind: str) -> Any:
        """The table as a caller has it."""
        if kind == "pandas":
            return self.table.to_pandas(types_mapper=__import__("pandas").ArrowDtype)
        return __import__("polars").from_arrow(self.table) if kind == "polars" else self.table

    def column(self) -> dict[str, Any]:
        """As a column of the matrix that a condition gives; `row` is the other way."""
        return {name: value[:, None] for name, value in self.values.items()}

    def row(self) -> dict[str, Any]:
        """As a row of that matrix."""
        return {name: value[None, :] for name, value in self.values.items()}

    def dicts(self) -> list[naive.Row]:
        """For the naive join."""
        return list(self.table.to_pylist())


def concat(parts: list[Rows]) -> Rows:
    """Rows one after another."""
    table = pa.concat_tables([SCHEMA.empty_table(), *(part.table for part in parts)])
    names = SCHEMA.names
    none = np.zeros(0)
    return Rows(table, {n: np.concatenate([none, *(p.values[n] for p in parts)]) for n in names})


def pairs_of(matrix: Matrix, how: str, left: Rows, right: Rows) -> Counter[Any]:
    """The rows of a join by their ids."""
    lids, rids = (rows.values["id"].astype(np.int64) for rows in (left, right))
    alone_left, alone_right = lids[~matrix.any(axis=1)], rids[~matrix.any(axis=0)]
    if how == "semi":
        return Counter((i,) for i in lids[matrix.any(axis=1)].tolist())
    if how == "anti":
        return Counter((i,) for i in alone_left.tolist())
    at = np.nonzero(matrix)
    found = Counter(zip(lids[at[0]].tolist(), rids[at[1]].tolist(), strict=True))
    if how in ("left", "full"):
        found.update((i, None) for i in alone_left.tolist())
    if how in ("right", "full"):
        found.update((None, i) for i in alone_right.tolist())
    return found


def ids(result: Any) -> Counter[Any]:
    """The ids of a result of any kind."""
    if not isinstance(result, pa.Table):
        result = result.to_arrow() if hasattr(result, "to_arrow") else pa.Table.from_pandas(result)
    names = [name for name in ("id", "id_right") if name in result.column_names]
    return Counter(zip(*(result[name].to_pylist() for name in names), strict=True))


class Wrong(Exception):
    """A result that is not the right one."""


def check(got: Any, wanted: Any) -> None:
    """Compare as multisets."""
    if got != wanted:
        if isinstance(got, Counter) and isinstance(wanted, Counter):
            lost, more = wanted - got, got - wanted
            raise Wrong(
                f"lost {lost.total()} {list(lost)[:3]}, more {more.total()} {list(more)[:3]}"
            )
        raise Wrong(f"got {got!r:.200}, not {wanted!r:.200}")


def matches(condition: int, left: Rows, right: Rows) -> Matrix:
    """Where a condition holds."""
    with np.errstate(invalid="ignore"):
        return np.asarray(CONDITIONS[condition][1](left.column(), right.row()), np.bool_)


def draw_size(rng: Random) -> int:
    """None, a few, about as many as run without numba, or many."""
    return rng.choice(
        (0, 1, 3, 5, 8, 20, 30, 32, 33, 64, 65, 90, *((1500,) if rng.random() < 0.3 else ()))
    )


# --- kinds of call -------------------------------------------------------------------------------


def call_join(rng: Random, state: State) -> str:
    left, right = Rows.draw(rng, draw_size(rng)), Rows.draw(rng, draw_size(rng))
    at, how, kind = rng.randrange(len(CONDITIONS)), rng.choice(HOWS), state.kind(rng)
    state.told(f"join {len(left.table)} x {len(right.table)} {kind}, {CONDITIONS[at][0]}, {how}")
    options = rng.choice(({}, {"threads": 1}, {"threads": 2}, {"chunk_rows": 64}))
    got = tj.join(left.given(kind), right.given(kind), CONDITIONS[at][0], how=how, **options)
    check(ids(got), pairs_of(matches(at, left, right), how, left, right))
    return "join"


def call_batches(rng: Random, state: State) -> str:
    left, right = Rows.draw(rng, draw_size(rng)), Rows.draw(rng, draw_size(rng))
    at = rng.randrange(len(CONDITIONS))
    state.told(f"join_batches {len(left.table)} x {len(right.table)}, {CONDITIONS[at][0]}")
    wanted = pairs_of(matches(at, left, right), "inner", left, right)
    batches = tj.join_batches(left.table, right.table, CONDITIONS[at][0], chunk_rows=64)
    if rng.random() < 0.2:  # one who has had enough
        first = next(iter(batches), None)
        if first is not None and ids(pa.Table.from_batches([first])) - wanted:
            raise Wrong("the first batch has rows that are no matches")
        return "join_batches"
    got: Counter[Any] = Counter()
    for batch in batches:  # thousands of them; a sum would copy all pairs for each
        got.update(ids(pa.Table.from_batches([batch])))
    check(got, wanted)
    return "join_batches"


def call_self(rng: Random, state: State) -> str:
    rows, at = Rows.draw(rng, draw_size(rng)), rng.randrange(len(CONDITIONS))
    state.told(f"self_join {len(rows.table)}, {CONDITIONS[at][0]}")
    matrix = matches(at, rows, rows)
    np.fill_diagonal(matrix, val=False)
    got = tj.self_join(rows.given(state.kind(rng)), CONDITIONS[at][0])
    check(ids(got), pairs_of(matrix, "inner", rows, rows))
    counted = tj.self_join_agg(rows.table, CONDITIONS[at][0], aggs={"n": "count(*)"})
    check(counted["n"].to_pylist(), [int(matrix.sum())])
    return "self_join"


def call_agg(rng: Random, state: State) -> str:
    left, right = Rows.draw(rng, draw_size(rng)), Rows.draw(rng, draw_size(rng))
    at = rng.randrange(len(CONDITIONS))
    state.told(f"join_agg {len(left.table)} x {len(right.table)}, {CONDITIONS[at][0]}")
    aggs = {"n": "count(*)", "hi": "max(r.a)", "s": "sum(l.t)"}
    got = tj.join_agg(left.table, right.table, CONDITIONS[at][0], group_by="l.k", aggs=aggs)
    matrix, wanted = matches(at, left, right), {}
    for group in np.unique(left.values["k"]).tolist():
        mine = matrix & (left.values["k"] == group)[:, None]
        if mine.any():
            highs = right.values["a"][mine.any(axis=0)]
            high = None if np.isnan(highs).all() else int(np.nanmax(highs))
            total = int((mine.sum(axis=1) * left.values["t"]).sum())
            wanted[int(group)] = (int(mine.sum()), high, total)
    columns = (got[name].to_pylist() for name in ("k", "n", "hi", "s"))
    check({k: (n, hi, s) for k, n, hi, s in zip(*columns, strict=True)}, wanted)
    return "join_agg"


def call_nearest(rng: Random, state: State) -> str:
    sizes = (0, 1, 4, 30, 40, 70)
    left, right = (Rows.draw(rng, rng.choice(sizes)) for _ in range(2))
    direction = rng.choice(("backward", "forward", "nearest"))
    ties, k = rng.choice((None, "first", "last", "all")), rng.choice((1, 1, 2))
    state.told(f"nearest {len(left.table)} x {len(right.table)}, {direction}, {ties}, {k}")
    by = rng.choice(((), ("k",)))
    got = tj.nearest(
        left.given(state.kind(rng)),
        right.table,
        key="a",
        by=by,
        direction=direction,
        k=k,
        ties=ties,
    )
    near = naive.Near(("a", "a"), direction, None, k, ties)
    pred = naive.conj(("k", "=", "k")) if by else None
    wanted = naive.naive_nearest(left.dicts(), right.dicts(), pred, near)
    check(ids(got), Counter((l["id"], r and r["id"]) for l, r in wanted))
    return "nearest"


def call_sql(rng: Random, state: State) -> str:
    left, right = Rows.draw(rng, draw_size(rng)), Rows.draw(rng, draw_size(rng))
    at = rng.randrange(len(CONDITIONS))
    state.told(f"sql {len(left.table)} x {len(right.table)}, {CONDITIONS[at][0]}")
    wanted = pairs_of(matches(at, left, right), "inner", left, right)
    tables = {"l": left.table, "r": right.table}
    if rng.random() < 0.5:
        query = f"SELECT l.id, r.id AS id_right FROM l JOIN r ON {CONDITIONS[at][0]}"
        check(ids(tj.sql(query, **tables)), wanted)
    else:
        query = f"SELECT count(*) AS n FROM l JOIN r ON {CONDITIONS[at][0]}"
        check(tj.sql(query, **tables)["n"].to_pylist(), [wanted.total()])
    return "sql"


def call_many(rng: Random, state: State) -> str:
    r, s, t = (Rows.draw(rng, rng.choice((0, 3, 12))) for _ in range(3))
    state.told("join_many")
    tables = {"r": r.table, "s": s.table, "t": t.table}
    got = tj.join_many(tables, "r.a < s.a AND s.b >= t.b")
    with np.errstate(invalid="ignore"):
        first = r.values["a"][:, None] < s.values["a"][None, :]
        second = s.values["b"][:, None] >= t.values["b"][None, :]
    check(got.num_rows, int((first.sum(axis=0) * second.sum(axis=1)).sum()))
    return "join_many"


def call_explain(rng: Random, state: State) -> str:
    left, right = Rows.draw(rng, draw_size(rng)), Rows.draw(rng, draw_size(rng))
    state.told("explain")
    if not str(tj.explain(left.table, right.table, rng.choice(CONDITIONS)[0])):
        raise Wrong("explain says nothing")
    return "explain"


def call_bad(rng: Random, state: State) -> str:
    """Calls that cannot be right; each must say so, and leave nothing behind."""
    rows = Rows.draw(rng, rng.choice((0, 5, 70))).table
    stream = state.streams.get(0)
    bad: list[Callable[[], Any]] = [
        lambda: tj.join(rows, rows, "l.a < r.nothing"),
        lambda: tj.join(rows, rows, "l.a <"),
        lambda: tj.join(rows, rows, "1 = 1"),
        lambda: tj.join(rows, rows, "l.a < r.a", how="sideways"),
        lambda: tj.join(rows, 7, "l.a < r.a"),
        lambda: tj.nearest(rows, rows, key="nothing"),
        lambda: tj.join_agg(rows, rows, "l.a < r.a", aggs={"n": "count("}),
        lambda: tj.sql("SELECT nothing FROM l JOIN r ON l.a < r.a", l=rows, r=rows),
        lambda: tj.StreamJoin("l.a < r.a"),
        lambda: tj.StreamJoin.restore(b"something else"),
    ]
    if stream is not None and any(stream.given):  # what comes before columns are known has to wait
        bad.append(lambda: stream.join.push(left=pa.table({"a": ["text"]})))
        bad.append(lambda: stream.join.advance("no time"))
    at = rng.randrange(len(bad))
    state.told(f"bad call {at}")
    try:
        bad[at]()
    except tj.ThetaJoinError:
        return "bad"
    raise Wrong(f"bad call {at} was taken")


# --- streams -------------------------------------------------------------------------------------


@dataclass
class Stream:
    """A StreamJoin, what it was given and what it gave."""

    join: tj.StreamJoin
    condition: int
    how: str
    window: int | None
    given: tuple[list[Rows], list[Rows]] = field(default_factory=lambda: ([], []))
    got: Counter[Any] = field(default_factory=Counter)
    now: int = 0

    def push(self, rng: Random) -> None:
        """Rows of both sides, later than those before."""
        sizes = rng.choice(((3, 4), (0, 5), (40, 30), (1, 0), (70, 70), (200, 100)))
        new = []
        for side, size in zip(self.given, sizes, strict=True):
            first = sum(len(part.table) for part in side)
            new.append(Rows.draw(rng, size, first, self.now))
            side.append(new[-1])
        self.got += ids(self.join.push(new[0].table, new[1].table))
        self.now += rng.randint(0, 12)

    def finish(self) -> None:
        """End it, and compare everything."""
        self.got += ids(self.join.finish())
        left, right = map(concat, self.given)
        matrix = matches(self.condition, left, right)
        if self.window is not None:
            near = np.abs(left.values["t"][:, None] - right.values["t"][None, :]) <= self.window
            matrix &= near
        check(self.got, pairs_of(matrix, self.how, left, right))


def new_stream(rng: Random) -> Stream:
    """A stream that drops nothing as late: watermarks stay behind the rows."""
    window = rng.choice((None, 5, 15))
    how = rng.choice(("inner", "semi") if window is None else HOWS)
    at = rng.randrange(len(CONDITIONS))
    kind: Any = tj.FullHistory() if window is None else tj.TimeWindow(window, time="t")
    schemas = {"left_schema": SCHEMA, "right_schema": SCHEMA}
    options = {"head_rows": rng.choice((8, 2048)), **rng.choice((schemas, schemas, {}))}
    if how not in ("inner", "semi"):
        options |= schemas
    return Stream(
        tj.StreamJoin(CONDITIONS[at][0], how=how, window=kind, **options), at, how, window
    )


def call_stream(rng: Random, state: State) -> str:
    """The next thing that happens to one of two streams."""
    number = rng.randrange(2)
    stream = state.streams.get(number)
    if stream is None:
        stream = state.streams[number] = new_stream(rng)
    what = rng.choice(("push", "push", "push", "push", "advance", "snapshot", "finish"))
    state.told(f"stream {number} ({stream.how}, {CONDITIONS[stream.condition][0]}): {what}")
    if what == "push":
        stream.push(rng)
    elif what == "advance" and stream.window is not None:
        stream.join.advance(stream.now)
    elif what == "snapshot":
        stream.join = tj.StreamJoin.restore(stream.join.snapshot())
    elif what == "finish" and any(len(part.table) for side in stream.given for part in side):
        del state.streams[number]
        stream.finish()
    return "stream"


# --- threads and forks ---------------------------------------------------------------------------


def call_threads(rng: Random, state: State) -> str:
    """Several calls at once."""
    state.told("threads:")
    seeds = [rng.getrandbits(32) for _ in range(3)]
    faults: list[str] = []

    def work(seed: int) -> None:
        own = Random(seed)
        try:
            own.choice(ALONE)(own, state)
        except Exception:
            faults.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state.calls += len(seeds) - 1
    if faults:
        raise Wrong(f"in a thread: {faults[0]}")
    return "threads"


def call_fork(rng: Random, state: State) -> str:
    """A child that makes calls of its own and goes on with the streams; so does the parent."""
    state.told("fork:")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        fault = ""
        try:
            signal.alarm(60)
            faulthandler.dump_traceback_later(50, file=write)  # says where it hangs
            for _ in range(2):
                rng.choice(ALONE)(rng, state)
            for stream in state.streams.values():
                stream.push(rng)
                stream.join.snapshot()
                stream.finish()
        except BaseException:
            fault = traceback.format_exc()
        os.write(write, (fault or "well")[-4000:].encode())
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 90)
    said = ""
    while ready and (more := os.read(read, 5000).decode()):
        said += more
    os.close(read)
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    state.calls += 2
    if said != "well":
        raise Wrong(f"in the child of a fork: {said or 'did not end'}")
    return "fork"


ALONE = (call_join, call_join, call_batches, call_self, call_agg, call_nearest, call_sql)
KINDS = (
    *ALONE,
    *ALONE,
    call_many,
    call_explain,
    call_bad,
    call_bad,
    *(call_stream,) * 12,
    call_threads,
)


@dataclass
class State:
    """What one call of a sequence leaves to the next."""

    kinds: tuple[str, ...]
    streams: dict[int, Stream] = field(default_factory=dict)
    calls: int = 0
    log: list[str] = field(default_factory=list)

    def kind(self, rng: Random) -> str:
        """A kind of table."""
        return rng.choice(self.kinds)

    def told(self, line: str) -> None:
        """Note what is called."""
        self.log.append(line)


def run_sequence(seed: int, calls: int, kept: list[int] | None) -> dict[str, Any]:
    """Make the calls; ends at the first that goes wrong."""
    rng = Random(seed)
    state = State(rng.choice((("arrow",), ("arrow",), ("arrow", "pandas"), ("arrow", "polars"))))
    forks = hasattr(os, "fork") and rng.random() < 0.3
    while state.calls < calls if kept is None else kept:
        at = state.calls if kept is None else kept.pop(0)
        own = Random(f"{seed} {at}")
        call = own.choice((*KINDS, call_fork) if forks else KINDS)
        try:
            call(own, state)
        except Exception as error:
            what = f"{state.log[-1]}: {type(error).__name__}: {error}"
            if not isinstance(error, Wrong):
                what += f"\n{traceback.format_exc()[-1500:]}"
            return {"calls": state.calls, "wrong": [{"call": at, "what": what}], "told": state.log}
        state.calls += 1
    return {"calls": state.calls, "wrong": [], "told": state.log if kept is not None else []}


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[3].split(",")] if len(sys.argv) > 3 else None
    print(json.dumps(run_sequence(int(sys.argv[1]), int(sys.argv[2]), given)))
