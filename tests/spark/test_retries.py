"""A task that Spark runs again may get its rows in another order and in other batches.

What other tasks had from its first attempt stays, so where each row goes, and what it is numbered,
must depend on the row and the plan alone.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.ipc import batches_from_ipc

pytestmark = [pytest.mark.spark]

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
SCHEMA = "k long, p double, q double, s string"


def rows(n: int, seed: int) -> list[tuple[Any, ...]]:
    """Rows that Spark's hash takes for one: NULL here or there, -0.0 and 0.0; and equal rows."""
    rng = random.Random(seed)
    made: list[tuple[Any, ...]] = []
    for _ in range(n // 4):
        value, text = float(rng.randint(0, 5)), rng.choice(["", "a", None])
        made += [(1, value, None, text), (1, None, value, text), (1, -0.0, value, text)]
        made.append((rng.randint(0, 3), 0.0, value, text))
    rng.shuffle(made)
    return made


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Task]]:
    """What a join has Spark do with its tables: each frame, and the task over its batches."""
    from thetajoin.spark import exchange
    from thetajoin.spark.tables import table

    found: list[tuple[Any, Task]] = []
    map_batches = table.map_batches

    def record(frame: Any, task: Task, schema: Any) -> Any:
        found.append((frame, task))
        return map_batches(frame, task, schema)

    class OutsideSpark:
        @staticmethod
        def get() -> Any:
            return OutsideSpark

        @staticmethod
        def partitionId() -> int:
            return 3

    monkeypatch.setattr(table, "map_batches", record)
    monkeypatch.setattr(exchange, "TaskContext", OutsideSpark)
    return found


def cuts(whole: pa.Table) -> Iterator[list[pa.RecordBatch]]:
    """The same rows as a task may be given them."""
    yield whole.combine_chunks().to_batches()
    yield whole.combine_chunks().to_batches(max_chunksize=3)
    order = list(range(whole.num_rows))
    random.Random(7).shuffle(order)
    yield whole.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=5)


def targets(task: Task, batches: list[pa.RecordBatch], columns: int) -> Counter[Any]:
    """Which rows go where: a cell, a role, the first columns' values."""
    sent: Counter[Any] = Counter()
    for batch in task(iter(batches)):
        for cell, role, blob in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            for row in pa.ipc.open_stream(blob).read_all().to_pylist():
                values = [repr(value) for value in list(row.values())[:columns]]
                sent[(cell, role, *values)] += 1
    return sent


def same_targets(found: list[tuple[Any, Task]], columns: int) -> int:
    cells = set()
    for frame, task in found:
        whole = frame.toArrow()
        first, *others = (targets(task, batches, columns) for batches in cuts(whole))
        assert first.total() >= whole.num_rows
        for other in others:
            assert other == first
        cells |= {cell for cell, *_ in first}
    return len(cells)


def test_an_aggregate_s_cells_get_the_same_rows_again(
    spark: Any, recorded: list[tuple[Any, Task]]
) -> None:
    left, right = (spark.createDataFrame(rows(60, seed), SCHEMA) for seed in (1, 2))
    aggs = {"n": "count(*)", "m": "sum(r.p)", "s": "max(r.s)", "q": "max(l.q)"}
    tj.join_agg(left, right, "l.k <= r.k", aggs=aggs, units=6)
    assert len(recorded) == 2
    assert same_targets(recorded, 4) > 4
    recorded.clear()
    tj.self_join_agg(left, "l.k <= r.k", aggs=aggs, units=6)
    assert len(recorded) == 1
    assert same_targets(recorded, 4) > 4


@pytest.mark.parametrize("how", ["inner", "left", "self"])
def test_a_join_s_cells_get_the_same_rows_again(
    spark: Any, recorded: list[tuple[Any, Task]], how: str
) -> None:
    left, right = (spark.createDataFrame(rows(60, seed), SCHEMA) for seed in (1, 2))
    if how == "self":
        tj.self_join(left, "l.k <= r.k", held_rows=10)
    else:
        tj.join(left, right, "l.k <= r.k", how=how, broadcast_rows=0, held_rows=10)
    routes = [(frame, task) for frame, task in recorded if len(frame.columns) == 4]
    assert routes
    assert same_targets(routes, 4) > 4


def test_a_count_window_numbers_the_same_rows_alike(spark: Any) -> None:
    from thetajoin.spark.row_order import number_rows

    made = rows(60, 3)
    found = []
    for order in (made, made[::-1], sorted(made, key=repr)):
        frame = spark.createDataFrame(order, SCHEMA).coalesce(1)
        table = number_rows({"t": frame}, [0], tj.CountWindow(7, slide=2))["t"].toArrow()
        found.append(Counter(repr(row) for row in table.to_pylist()))
    assert found[0] == found[1] == found[2]


def test_an_aggregate_in_a_count_window_is_the_join_s(spark: Any) -> None:
    """Where rows tie in `order_by`, both take them in one order, whatever order they came in."""
    one, two = rows(60, 4), rows(60, 5)
    window, on = tj.CountWindow(5, slide=2), "l.p <= r.q OR l.q < r.p"
    found = []
    for left, right in ((one, two), (one[::-1], two[::-1])):
        frames = [spark.createDataFrame(part, SCHEMA).coalesce(1) for part in (left, right)]
        asked = {"window": window, "order_by": "k"}
        totals = tj.join_agg(*frames, on, group_by="l.p", aggs={"n": "count(*)"}, **asked)
        found.append(Counter({row.p: row.n for row in totals.collect()}))
        pairs = tj.join(*frames, on, broadcast_rows=0, **asked).select("p").collect()
        found.append(Counter(row.p for row in pairs))
    assert all(counts == found[0] for counts in found)


def test_an_aggregate_over_a_self_join_in_a_count_window_is_the_self_join_s(spark: Any) -> None:
    rows_of_one = rows(60, 4)
    on, asked = "l.p <= r.q OR l.q < r.p", {"window": tj.CountWindow(5, slide=2), "order_by": "k"}
    found = []
    for order in (rows_of_one, rows_of_one[::-1]):
        frame = spark.createDataFrame(order, SCHEMA).coalesce(1)
        totals = tj.self_join_agg(frame, on, group_by="l.p", aggs={"n": "count(*)"}, **asked)
        found.append(Counter({row.p: row.n for row in totals.collect()}))
        pairs = tj.self_join(frame, on, **asked).select("p").collect()
        found.append(Counter(row.p for row in pairs))
    assert all(counts == found[0] for counts in found)


@pytest.mark.parametrize("partitioning", ["default", "prefap"])
def test_rows_that_were_not_there_when_the_join_was_planned(
    spark: Any, tmp_path: Path, partitioning: str
) -> None:
    """The row in the gap could match what was left out, because nothing was there to match it."""
    file = tmp_path / "k.txt"
    file.write_text("\n".join(map(str, [*range(1000, 1100), *range(1900, 2000)])))
    changing = spark.read.text(str(tmp_path)).selectExpr("CAST(value AS LONG) AS k")
    other = spark.createDataFrame([(k,) for k in range(1400, 1600)], "k long")
    if partitioning == "prefap":
        joined = tj.join(changing, other, "l.k <= r.k", partitioning="prefap", p=3)
        file.write_text(file.read_text().replace("1050", "0500"))
    else:
        joined = tj.join(changing, other, "l.k = r.k", broadcast_rows=0)
        file.write_text(file.read_text().replace("1950", "1500"))
    with pytest.raises(Exception, match="gave other rows than when the join was planned"):
        joined.collect()


def test_blobs_are_of_bounded_size(set_limits: Any) -> None:
    from thetajoin.spark import exchange

    set_limits(blob_bytes=1000)
    batch = pa.record_batch({"s": ["x" * 90] * 50 + ["y" * 5000], "l": [[1, 2]] * 51})
    blobs = list(exchange.to_blobs(batch))
    back = pa.Table.from_batches([rows for blob in blobs for rows in batches_from_ipc(blob)])
    assert back.equals(pa.Table.from_batches([batch]))
    assert sorted(blob.size for blob in blobs)[-2] < 2000
    assert len(blobs) > 5
    set_limits(sample_bytes=1000)
    assert exchange.sample_rows(batch, 40).nbytes <= 1000


def test_a_cell_of_more_than_one_table_of_held_rows(set_limits: Any) -> None:
    from thetajoin.engine.spec import JoinSpec
    from thetajoin.spark.exchange import send
    from thetajoin.spark.tables import cell
    from thetajoin.spark.unit_spec import UnitSpec

    set_limits(blob_bytes=200, held_bytes=300)
    batch = pa.record_batch({"k": list(range(30)), "s": ["x" * 40] * 30})
    spec = JoinSpec("l.k < r.k AND l.k + 3 >= r.k", "left")
    task = cell.join_cell(
        UnitSpec.of(spec, batch.schema, batch.schema), cell.CellJob("l", True, "unmatched")
    )
    routed = list(send([(0, 0, batch), (0, 1, batch)]))
    assert sum(batch.num_rows for batch in routed) > 10
    found = pa.Table.from_batches(list(task(iter(routed))))
    pairs = Counter(zip(*(found[name].to_pylist() for name in ("k", "k_right")), strict=True))
    expected = [(l, r) for l in range(30) for r in range(30) if l < r <= l + 3]
    assert pairs == Counter([*expected, (29, None)])


JOB = """
import os, signal, sys, time
from collections import Counter
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession, functions as F
import thetajoin as tj

folder = Path(sys.argv[1])
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "37",
    "spark.sql.adaptive.enabled": "false",
}.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")


def rows(seed):
    made = session.range(2400, numPartitions=6).selectExpr(
        f"id", f"pmod(hash(id, {seed}), 50) AS k",
        f"CASE WHEN id % 3 = 0 THEN NULL ELSE -0.0D END AS p",
        f"CASE WHEN id % 3 = 1 THEN NULL ELSE CAST(id % 5 AS DOUBLE) END AS q")
    return made.repartition(5, "q")  # what a task reads comes in any order


def once(marker):
    def kill(batches):
        # The executor goes with all that was shuffled there, once the first task has its rows.
        for at, batch in enumerate(batches):
            if not at and batch.num_rows:
                try:
                    os.close(os.open(folder / marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    with open(f"/proc/{os.getppid()}/stat") as stat:
                        executor = int(stat.read().rsplit(")", 1)[1].split()[1])
                    os.kill(executor, signal.SIGKILL)
                    time.sleep(60)
            yield batch
    return kill


left, right = rows(1), rows(2)
ls, rs = ([(row.id, row.k) for row in df.select("id", "k").collect()] for df in (left, right))
pairs = Counter((a, b) for a, x in ls for b, y in rs if x < y <= x + 3)
key = dict(ls)
want = Counter(key[a] for a, _ in pairs.elements())
on = "l.k < r.k AND r.k <= l.k + 3"
totals = tj.join_agg(left, right, on, group_by="l.k", aggs={"n": "count(*)"}, units=6)
# A stage that has given out results cannot be gone back to, so the killing is before the last one.
got = totals.mapInArrow(once("agg"), totals.schema).repartition(2, "k").collect()
assert (folder / "agg").exists()
assert Counter({row.k: row.n for row in got}) == want, ("agg", got)

joined = tj.join(left, right, on, broadcast_rows=0, units=4).select("id", "id_right")
spread = joined.mapInArrow(once("join"), joined.schema).repartition(3, "id")
got = Counter((row.id, row.id_right) for row in spread.collect())
assert (folder / "join").exists()
assert got == pairs, ("join", got - pairs, pairs - got)
session.stop()
"""


@pytest.mark.slow
def test_an_executor_that_is_killed(tmp_path: Path) -> None:
    """Its part of the shuffle is computed again while the other's results stay."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    tests = Path(__file__).resolve().parent.parent
    env = os.environ | {
        "PYTHONPATH": str(tests.parent / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
