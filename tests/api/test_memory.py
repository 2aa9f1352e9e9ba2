"""A result that will not fit into memory is refused before it is built; memory is simulated."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import thetajoin as tj
from thetajoin.engine import machine as here
from thetajoin.limits import change_limits
from thetajoin.planner import plan as size

ROWS = 3000
TABLE = pa.table({"x": range(ROWS), "y": [7919 * n % ROWS for n in range(ROWS)]})
PAIRS = ROWS * (ROWS - 1) // 2
WIDTH = 32  # bytes of a pair
ON = "l.x < r.x"
# Output in small pieces, and a look at each: what takes gigabytes in earnest.
SMALL: dict[str, Any] = {"chunk_rows": 1000, "threads": 1}


class Machine:
    """A machine whose memory is known, and shrinks as a result grows."""

    def __init__(self, room: int | None) -> None:
        self.room, self.asked = room, 0

    def free(self) -> int | None:
        self.asked += 1
        return self.room


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_memory(room: int | None) -> Machine:
        made = Machine(room)
        monkeypatch.setattr(here, "available_memory", made.free)
        return made

    with change_limits(large_result=1000):
        yield with_memory


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(tj.ThetaJoinError) as caught:
        tj.join(*args, **SMALL, **options)
    message = str(caught.value)
    assert type(caught.value).__name__ == "ResourceError"
    assert "\n" not in message
    for words in ("join_batches", "join_agg", "check_memory=False"):
        assert words in message
    return message


def test_a_clear_case_is_refused_by_its_estimate(machine: Any) -> None:
    machine(PAIRS * WIDTH // 10)
    message = refused(TABLE, TABLE, ON)
    assert "the result has about 4,49" in message
    assert "rows (137.3 MiB), and there is room for " in message


@pytest.mark.parametrize("on", [ON, "l.x < r.x AND l.y > r.y"])
def test_a_close_case_is_counted(machine: Any, on: str) -> None:
    count = tj.join_agg(TABLE, TABLE, on, aggs={"n": "count(*)"})["n"][0].as_py()
    machine(int(count * WIDTH * 0.9))
    assert f"the result has {count:,} rows" in refused(TABLE, TABLE, on)
    machine(int(count * WIDTH * 1.2))
    assert tj.join(TABLE, TABLE, on, **SMALL).num_rows == count


def test_a_window_is_counted_too(machine: Any) -> None:
    machine(1 << 20)
    options = {"window": tj.CountWindow(100), "order_by": "x"}
    got = tj.join(TABLE.slice(0, 200), TABLE.slice(0, 200), ON, **options, **SMALL)
    assert got.num_rows < 200 * 199 // 2
    # A right row sees the hundred left ones up to its own, which it does not match.
    count = sum(min(x, 99) for x in range(ROWS))
    assert f"the result has {count:,} rows" in refused(TABLE, TABLE, ON, **options)


def test_what_cannot_be_told_before_stops_on_the_way(machine: Any) -> None:
    free = machine(None)
    result = here.check_room((b for b in tj.join_batches(TABLE, TABLE, ON, **SMALL)), "no")
    free.room = PAIRS * WIDTH // 2
    got = 0
    with pytest.raises(tj.ThetaJoinError, match="the result has more than") as caught:  # noqa: PT012
        for batch in result:
            got += batch.num_rows
            free.room = PAIRS * WIDTH // 2 - got * WIDTH
    assert str(caught.value).endswith("in memory: no")
    assert 0.4 * PAIRS < got < 0.55 * PAIRS
    machine(100_000)
    residual = "l.x < r.x AND l.x * r.y != 5"
    assert "the result has more than" in refused(TABLE, TABLE, residual)


def test_going_ahead(machine: Any) -> None:
    free = machine(1000)
    assert tj.join(TABLE, TABLE, ON, check_memory=False, **SMALL).num_rows == PAIRS
    assert free.asked == 0
    with pytest.raises(tj.ThetaJoinError, match="check_memory=1: must be True or False"):
        tj.join(TABLE, TABLE, ON, check_memory=1)


def test_where_the_platform_does_not_say(machine: Any) -> None:
    free = machine(None)
    assert tj.join(TABLE, TABLE, ON, **SMALL).num_rows == PAIRS
    assert free.asked == 1


def test_another_librarys_table_is_there_beside_arrows(machine: Any) -> None:
    machine(int(PAIRS * WIDTH * 1.4))
    assert tj.join(TABLE, TABLE, ON, **SMALL).num_rows == PAIRS
    for left in (TABLE.to_pandas(), pl.from_arrow(TABLE), pl.from_arrow(TABLE).lazy()):
        assert f"the result has {PAIRS:,} rows" in refused(left, TABLE, ON)
    machine(PAIRS * WIDTH * 3)
    assert isinstance(tj.join(TABLE.to_pandas(), TABLE, ON, **SMALL), pd.DataFrame)


@pytest.mark.parametrize("how", ["left", "right", "full", "inner", "semi", "anti"])
def test_every_how(machine: Any, how: str) -> None:
    machine(PAIRS * WIDTH // 10)
    if how in ("semi", "anti"):
        assert tj.join(TABLE, TABLE, ON, how=how, **SMALL).num_rows in (1, ROWS - 1)
    else:
        refused(TABLE, TABLE, ON, how=how)


def test_other_calls(machine: Any) -> None:
    machine(PAIRS * WIDTH // 10)
    with pytest.raises(tj.ThetaJoinError, match="the result has"):
        tj.self_join(TABLE, ON, **SMALL)
    with pytest.raises(tj.ThetaJoinError, match="the result has"):
        tj.join_many({"a": TABLE, "b": TABLE}, "a.x < b.x", **SMALL)
    # What does not keep all rows needs no room for them.
    assert sum(b.num_rows for b in tj.join_batches(TABLE, TABLE, ON, **SMALL)) == PAIRS
    assert tj.join_agg(TABLE, TABLE, ON, aggs={"n": "count(*)"})["n"][0].as_py() == PAIRS


QUERY = "SELECT l.x, l.y, r.x AS rx, r.y AS ry FROM l JOIN r ON l.x < r.x"
SQL = {
    "plain": QUERY,
    "where": f"{QUERY} WHERE l.x + r.y != 5",
    "order": f"{QUERY} ORDER BY l.x DESC",
    "nested": f"SELECT x, y, rx, ry FROM ({QUERY}) AS t WHERE x + ry != 5",
    "engine": f"{QUERY} QUALIFY row_number() OVER (ORDER BY l.x) > 0",
    "engine order": f"{QUERY} UNION ALL {QUERY} ORDER BY x",
}


@pytest.mark.parametrize("query", SQL)
def test_sql(machine: Any, query: str) -> None:
    if "engine" in query:
        pytest.importorskip("duckdb", reason="DuckDB is not installed")
    machine(1000)
    tables = {"l": TABLE, "r": TABLE}
    with pytest.raises(tj.ThetaJoinError, match=r"the result has .* rows") as caught:
        tj.sql(SQL[query], **tables)
    message = str(caught.value)
    assert type(caught.value).__name__ == "ResourceError"
    assert "\n" not in message
    assert "LIMIT" in message
    assert "check_memory" not in message
    assert ("ORDER BY out" in message) == (query == "order")
    assert ("thetajoin run" in message) == (query != "order")
    # Few rows need little room, however many there would be.
    assert tj.sql(f"{SQL[query]} LIMIT 5", **tables).num_rows == 5
    total = f"SELECT count(*) AS n FROM ({SQL[query]}) AS t"
    if query in ("plain", "where"):
        assert tj.sql(total, **tables)["n"][0].as_py() > PAIRS // 2
    machine(PAIRS * WIDTH * 10)
    assert tj.sql(SQL[query], **tables).num_rows > PAIRS // 2


def test_sql_tells_how_many_rows_beforehand(machine: Any) -> None:
    machine(PAIRS * WIDTH // 10)
    with pytest.raises(tj.ThetaJoinError, match="the result has about 4,49"):
        tj.sql(QUERY, l=TABLE, r=TABLE)
    machine(int(PAIRS * WIDTH * 1.4))
    assert tj.sql(QUERY, l=TABLE, r=TABLE).num_rows == PAIRS
    with pytest.raises(tj.ThetaJoinError, match=f"the result has {PAIRS:,} rows"):
        tj.sql(QUERY, l=TABLE.to_pandas(), r=TABLE)


def test_an_ordinary_join_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "available_memory", lambda: pytest.fail("asked"))
    assert tj.join(TABLE.slice(0, 500), TABLE, ON).num_rows > 1_000_000


def test_a_result_with_much_room_is_not_estimated(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(PAIRS * WIDTH * 100)
    monkeypatch.setattr(size, "make_plan", lambda *_: pytest.fail("estimated"))
    assert tj.join(TABLE, TABLE, ON, **SMALL).num_rows == PAIRS


def test_few_pairs_of_a_sample_are_not_believed(machine: Any) -> None:
    """Equal keys that a sample happens to have: what it tells is checked by counting."""
    n = 40_000
    rare = pa.table({"k": [0 if at % 2000 == 0 else at for at in range(n)], "x": range(n)})
    count = tj.join_agg(rare, rare, "l.k = r.k", aggs={"n": "count(*)"})["n"][0].as_py()
    machine(int(count * WIDTH * 1.2))
    assert tj.join(rare, rare, "l.k = r.k", **SMALL).num_rows == count


def test_dictionaries_that_batches_share_count_once() -> None:
    values = pa.array(["a long text of a category " * 10])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), values)
    batch = pa.RecordBatch.from_arrays([column, pa.array(range(100))], names=["c", "x"])
    assert here._bytes(batch) == 100 + 800


# --- what the machine says -----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MEMORY", "GROUPS", "MOUNT"):
        monkeypatch.setattr(here, name, tmp_path / name)
    (tmp_path / "MOUNT").mkdir()
    return tmp_path


def group(folder: Path, limit: str, used: int, idle: int, *, new: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = here._NEW if new else here._OLD
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {idle}\nfile 7\n")


def test_no_files_as_on_macos(files: Path) -> None:
    assert here.available_memory() is None


def test_the_machines_memory(files: Path) -> None:
    (files / "MEMORY").write_text("MemTotal: 9000 kB\nMemAvailable:   2000 kB\n")
    assert here.available_memory() == 2000 * 1024
    (files / "MEMORY").write_text("nonsense\n")
    assert here.available_memory() is None


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("place", ["", "outer", "outer/inner"])
def test_a_containers_limit(files: Path, new: bool, place: str) -> None:
    (files / "MEMORY").write_text("MemAvailable: 2000 kB\n")
    (files / "GROUPS").write_text(
        "0::/outer/inner\n" if new else "4:cpu:/x\n3:memory:/outer/inner\n"
    )
    root = files / "MOUNT" / ("" if new else "memory")
    group(root / place, "1000000", 600_000, 50_000, new=new)
    assert here.available_memory() == 450_000
    group(root / place, "max" if new else str(2**63 - 4096), 600_000, 50_000, new=new)
    assert here.available_memory() == 2000 * 1024
    group(root / place, "100", 600_000, 0, new=new)
    assert here.available_memory() == 0


def test_this_machine() -> None:
    found = here.available_memory()
    assert found is None or found > 1 << 20


def test_threads_stop_when_a_result_is_refused(machine: Any) -> None:
    machine(PAIRS * WIDTH // 10)
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(tj.ThetaJoinError) as caught:
            tj.join(TABLE, TABLE, ON, chunk_rows=1000, threads=4)
    assert threading.active_count() == before, caught


# --- a limit in earnest -------------------------------------------------------------------------

LITTLE = """
import resource
import pyarrow as pa
import thetajoin as tj
table = pa.table({"a": range(20_000), "b": range(20_000)})
tj.join(table[:100], table[:100], "l.a < r.a")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)
calls = {
    "join": lambda: tj.join(table, table, "l.a < r.a"),
    "batches": lambda: next(tj.join_batches(table, table, "l.a < r.a", chunk_rows=2**31 - 1)),
    "self": lambda: tj.self_join(table, "l.a < r.a"),
    "push": lambda: tj.StreamJoin("l.a < r.a", window=tj.FullHistory()).push(table, table),
}
for name, call in calls.items():
    try:
        call()
    except tj.ThetaJoinError as error:
        print(name, error)
print(tj.join(table[:100], table[:100], "l.a < r.a").num_rows)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_too_little_memory() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LITTLE], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *told, last = done.stdout.splitlines()
    assert last == "4950"  # and goes on
    advice = {
        "join": "join_batches",
        "batches": "chunk_rows",
        "self": "join_batches",
        "push": "push",
    }
    assert [line.split()[0] for line in told] == list(advice)
    for line in told:
        name = line.split()[0]
        assert "not enough memory" in line
        assert advice[name] in line
