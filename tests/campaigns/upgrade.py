"""Do checkpoints and snapshots of earlier versions go on exactly?

`tests/data/kept` has some of every version since the first that promised it: joins that were
stopped in the middle, each a zip file with the rows before and after, what had been given out, and
all that the naive oracle gives. `tests/data/make_kept.py` makes them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import thetajoin as tj
from benchmarks.harness import Report
from thetajoin.errors import OptionError
from thetajoin.window.windows import window_from_dict

Progress = Callable[[str], None]
Rows = Counter[tuple[Any, ...]]
TARGETS = {"upgrade_ok": ">= 1"}
KEPT = Path(__file__).parents[1] / "data" / "kept"
SNAPSHOT, CHECKPOINT = "snapshot", "checkpoint"
# Rows from this number on only serve to move the window past all others.
CLOSING = 1_000_000
# How the folders begin that a query reads its files from.
READ = "read-"


@dataclass(frozen=True)
class Kept:
    """A join that was stopped in the middle.

    call: the arguments of `join`, `join_agg` or `nearest`, as `kind_of_call` says. stopped: how
    many micro-batches it had taken. marks: watermarks behind the micro-batches of a snapshot.
    before: what it had given out. expected: what it has to have given out in the end.
    """

    name: str
    folder: Path
    kind: str
    kind_of_call: str
    call: dict[str, Any]
    delay: str | None
    stopped: int
    batches: int
    marks: list[int | None]
    before: Rows
    expected: Rows

    def batch(self, side: str, number: int) -> pa.Table:
        """One side's rows of a micro-batch."""
        return pq.read_table(self.folder / side / f"{number:04d}.parquet")

    def arguments(self) -> dict[str, Any]:
        """The call with its window."""
        given = {name: value for name, value in self.call.items() if value is not None}
        if isinstance(given.get("order_by"), list):
            given["order_by"] = tuple(given["order_by"])
        return given | {"window": window_from_dict(self.call["window"])}


def listed(rows: Rows) -> list[list[Any]]:
    """Rows and how often each is there, as JSON has them."""
    return sorted(([*row, count] for row, count in rows.items()), key=str)


def counted(rows: list[list[Any]]) -> Rows:
    """What `listed` was given."""
    return Counter({tuple(row[:-1]): row[-1] for row in rows})


def ids_of(table: pa.Table, kind_of_call: str) -> Rows:
    """An output's rows by their ids, or whole where they are totals; closing rows left out."""
    if kind_of_call == "join_agg":
        return Counter(tuple(row.values()) for row in table.to_pylist())
    none = [None] * table.num_rows
    names = table.column_names
    left, right = (table[n].to_pylist() if n in names else none for n in ("lid", "rid"))
    pairs = zip(left, right, strict=True)
    return Counter(pair for pair in pairs if max(pair[0] or 0, pair[1] or 0) < CLOSING)


@contextmanager
def unpacked(file: Path) -> Iterator[Kept]:
    """A kept join, unpacked into a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="thetajoin-kept-") as made:
        folder = Path(made)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder)
        case = json.loads((folder / "case.json").read_text())
        case |= {name: counted(case[name]) for name in ("before", "expected")}
        yield Kept(name=f"{file.parent.name}/{file.stem}", folder=folder, **case)


def goes_on(kept: Kept, session: Any = None) -> Rows:
    """All that a kept join has given out once it has gone on to its end."""
    if kept.kind == SNAPSHOT:
        return kept.before + _embedded(kept)
    after = _on_spark(kept, session)
    return after if kept.kind_of_call == "join_agg" else kept.before + after


def _embedded(kept: Kept) -> Rows:
    join = tj.StreamJoin.restore((kept.folder / "snapshot").read_bytes())
    given: Rows = Counter()
    for number in range(kept.stopped, kept.batches):
        given += ids_of(join.push(kept.batch("l", number), kept.batch("r", number)), "join")
        mark = kept.marks[number]
        if mark is not None:
            join.advance(mark)
    return given + ids_of(join.finish(), "join")


def streams(kept: Kept, session: Any, end: int) -> list[Any]:
    """Both streams with the files of the first micro-batches, in the order of their numbers."""
    sides = []
    for side in "lr":
        folder = kept.folder / f"{READ}{side}"
        folder.mkdir()
        for number in range(end):
            file = folder / f"{number:04d}.parquet"
            os.link(kept.folder / side / file.name, file)
            os.utime(file, (1e9 + number, 1e9 + number))  # Spark reads the oldest file first
        schema = session.read.parquet(str(kept.folder / side)).schema
        source = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        frame = source.parquet(str(folder))
        sides.append(frame if kept.delay is None else frame.withWatermark("t", kept.delay))
    return sides


def query_of(kept: Kept, sides: list[Any]) -> tuple[Any, str]:
    """The streaming join, and the output mode that shows all of it."""
    call = getattr(tj, kept.kind_of_call)
    mode = "complete" if kept.kind_of_call == "join_agg" else "append"
    return call(*sides, **kept.arguments()), mode


def _moved_here(kept: Kept) -> None:
    """Have a checkpoint name its own files, and the files of its streams where they are now."""
    from thetajoin.jobs.checkpoint import relocate

    checkpoint = kept.folder / CHECKPOINT
    relocate(str(checkpoint))
    for source, side in enumerate("lr"):
        for file in (checkpoint / "sources" / str(source)).iterdir():
            version, *entries = file.read_text().splitlines()
            read = [json.loads(entry) for entry in entries]
            for entry in read:
                name = entry["path"].rpartition("/")[2]
                entry["path"] = f"file://{kept.folder}/{READ}{side}/{name}"
            file.write_text("\n".join([version, *map(json.dumps, read)]))


def run_query(kept: Kept, session: Any, end: int) -> Rows:
    """What a query adds to its output that reads up to a micro-batch, from its checkpoint on."""
    checkpoint = kept.folder / CHECKPOINT
    if checkpoint.exists():
        _moved_here(kept)
    frame, mode = query_of(kept, streams(kept, session, end))
    given: list[pa.Table] = []
    writer = frame.writeStream.outputMode(mode)
    writer = writer.foreachBatch(lambda part, _: given.append(part.toArrow()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    shown = given[-1:] if mode == "complete" else given
    return sum((ids_of(table, kept.kind_of_call) for table in shown), Counter())


def _on_spark(kept: Kept, session: Any) -> Rows:
    return run_query(kept, session, kept.batches)


def files(kind: str | None = None) -> list[Path]:
    """The kept joins; those of one kind begin with its name."""
    return sorted(KEPT.glob(f"*/{kind or ''}*.zip"))


def measure(progress: Progress = lambda _: None, session: Any = None) -> dict[str, Any]:
    """How many of the kept checkpoints and snapshots there are, and how many go on exactly."""
    own = session is None
    if own:
        from thetajoin.spark.session import local_session
        from thetajoin.spark.versions import local_checkpoints

        session = local_session(2, memory="1g", settings=local_checkpoints())
    wrong = []
    try:
        for file in files():
            progress(f"going on with {file.parent.name}/{file.stem}")
            with unpacked(file) as kept:
                if goes_on(kept, session) != kept.expected:
                    wrong.append(kept.name)
    finally:
        if own:
            session.stop()
    kept_files = len(files())
    return {"upgrade_ok": kept_files - len(wrong), "upgrade_kept": kept_files, "wrong": wrong}


def run(progress: Progress, scale: float = 1.0) -> Report:
    """All that is kept, whatever the `scale`."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("campaign upgrade needs PySpark: pip install 'thetajoin[spark]'")
    found = measure(progress)
    kept = found["upgrade_kept"]
    figures = {"upgrade_ok": found["upgrade_ok"] / kept, "upgrade_kept": kept}
    return Report("upgrade", figures | {"wrong": len(found["wrong"])}, TARGETS, found)
