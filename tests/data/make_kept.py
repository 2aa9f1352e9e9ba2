"""Makes the checkpoints and snapshots of this version that later ones must be able to go on with.

    PYTHONPATH=src:tests:. python tests/data/make_kept.py

writes those of `tests/data/kept/VERSION/*.zip` that are not there. Run it once for each release.
What is there stays as it is: the files are what users of that version have.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import naive
import thetajoin as tj
from campaigns.upgrade import (
    CHECKPOINT,
    CLOSING,
    READ,
    SNAPSHOT,
    Kept,
    ids_of,
    listed,
    run_query,
)
from naive import Advance, Near, Push, naive_groups
from spark.harness import (
    EPOCH,
    LEFT,
    RIGHT,
    closing,
    distinct_times,
    expected,
    random_batches,
    seconds,
    with_watermarks,
)

HERE = Path(__file__).resolve().parent
ON = "l.a < r.b AND l.c >= r.d"
PRED = naive.conj(("a", "<", "b"), ("c", ">=", "d"))
EQUAL = "l.a = r.b AND l.c <= r.d"
EQUAL_PRED = naive.conj(("a", "=", "b"), ("c", "<=", "d"))
TEN = tj.TimeWindow("10 seconds", time="t"), naive.Time(seconds(10), seconds(10))
EIGHT = tj.CountWindow(8, slide=3), naive.Count(8, 3)
FULL = tj.FullHistory(), naive.Full()
STOPPED = 3


@dataclass(frozen=True)
class Case:
    """A join, and the same for the oracle."""

    name: str
    windows: tuple[Any, Any]
    on: str | None = ON
    pred: naive.Predicate = PRED
    how: str = "inner"
    seed: int = 1
    call: str = "join"
    more: dict[str, Any] = field(default_factory=dict)


CHECKPOINTS = [
    Case("inner-time-hash", TEN, EQUAL, EQUAL_PRED, more={"routing": "hash", "units": 3}),
    Case("left-time-broadcast", TEN, how="left", seed=2, more={"units": 2}),
    Case("semi-time-matrix", TEN, how="semi", seed=3, more={"units": 4, "routing": "matrix"}),
    Case("inner-full-matrix", FULL, seed=4, more={"units": 4, "routing": "matrix"}),
    Case("left-count-broadcast", EIGHT, how="left", seed=5, more={"order_by": "t", "units": 2}),
    Case(
        "totals-time",
        TEN,
        seed=6,
        call="join_agg",
        more={"group_by": {"a": "l.a"}, "aggs": {"n": "count(*)", "s": "sum(r.d)"}, "units": 2},
    ),
    Case("nearest-time", TEN, None, seed=7, call="nearest", how="left", more={"units": 2}),
]
SNAPSHOTS = [
    Case("inner-time", TEN, seed=11),
    Case("full-time", TEN, how="full", seed=12),
    Case("semi-count", EIGHT, how="semi", seed=20, more={"order_by": "t"}),
    Case("left-count", EIGHT, how="left", seed=14, more={"order_by": "t"}),
    Case("inner-full", FULL, EQUAL, EQUAL_PRED, seed=15),
    Case("nearest-time", TEN, None, seed=16, call="nearest", how="left"),
]


def batches_of(case: Case) -> list[Push]:
    """Micro-batches of a case, and a last one that closes its window."""
    made = random_batches(case.seed, batches=6)
    if isinstance(case.windows[1], naive.Count):
        return [*distinct_times(made, case.seed), closing(20)]
    if case.call == "nearest":  # no two right rows at one time, so that there are no ties
        step, at = seconds(0.001), 0
        rows = [[dict(r) for r in b.right] for b in made]
        for batch in rows:
            for row in batch:
                at += 1
                if row["t"] is not None:
                    row["t"] += at * step
        made = [Push(b.left, right) for b, right in zip(made, rows, strict=True)]
    return [*made, closing()]


def all_expected(case: Case, steps: list[Push | Advance]) -> Counter[Any]:
    """All that the oracle gives."""
    if case.call == "nearest":
        rows: tuple[list[Any], list[Any]] = ([], [])
        mark = None
        for step in steps:
            if isinstance(step, Advance):
                mark = step.watermark if mark is None else max(mark, step.watermark)
                continue
            for kept, new in zip(rows, (step.left, step.right), strict=True):
                kept += [r for r in new if r["t"] is None or mark is None or r["t"] >= mark]
        near = Near(("t", "t"), "backward", None, 1, "first", "rid")
        before = naive.Time(seconds(10), seconds(0))
        found = naive.naive_nearest(*rows, None, near, how="left", window=before)
        pairs = ((l["lid"], None if r is None else r["rid"]) for l, r in found if l)
        return Counter(pair for pair in pairs if max(pair[0], pair[1] or 0) < CLOSING)
    wanted, result = expected(
        steps,
        case.pred,
        how=case.how,
        window=case.windows[1],
        order_by=case.more.get("order_by"),
    )
    if case.call != "join_agg":
        return wanted
    totals = naive_groups(
        result.rows, [lambda l, r: l["a"]], [("count", None), ("sum", lambda l, r: r["d"])]
    )
    return Counter((*group, *values) for group, values in totals.items())


def kept_of(case: Case, kind: str, folder: Path) -> tuple[Kept, list[Push | Advance]]:
    """The rows of a case in files, and the steps that the oracle is given."""
    batches = batches_of(case)
    timed = isinstance(case.windows[1], naive.Time)
    for side, schema in (("l", LEFT), ("r", RIGHT)):
        (folder / side).mkdir()
        for number, batch in enumerate(batches):
            rows = batch.left if side == "l" else batch.right
            table = pa.Table.from_pylist(list(rows), schema)
            pq.write_table(table, folder / side / f"{number:04d}.parquet")
    steps: list[Push | Advance] = list(batches)
    marks: list[Any] = [None] * len(batches)
    if timed and kind == CHECKPOINT:
        steps = list(with_watermarks(batches, seconds(5), restart_at=STOPPED))
    elif timed:
        steps = []
        for number, batch in enumerate(batches):
            reached = EPOCH + timedelta(seconds=10 * number - 10)
            steps += [batch, Advance(reached)]
            marks[number] = reached.isoformat()
    call = {"window": case.windows[0].to_dict(), **case.more}
    if case.call == "nearest":
        call |= {"key": "t", "window": tj.TimeWindow(before="10 seconds", time="t").to_dict()}
        call |= {"order_by": "rid"}
    else:
        call |= {"on": case.on, "how": case.how}
    kept = Kept(
        name=case.name,
        folder=folder,
        kind=kind,
        kind_of_call=case.call,
        call=call,
        delay="5 seconds" if timed and kind == CHECKPOINT else None,
        stopped=STOPPED,
        batches=len(batches),
        marks=marks,
        before=Counter(),
        expected=all_expected(case, steps),
    )
    return kept, steps


def stopped_snapshot(kept: Kept) -> Counter[Any]:
    """Run a join up to the middle, and leave its snapshot."""
    given = kept.arguments()
    schemas = {"left_schema": LEFT, "right_schema": RIGHT}
    make = tj.StreamJoin.nearest if kept.kind_of_call == "nearest" else tj.StreamJoin
    join = make(**given, **schemas)
    out: Counter[Any] = Counter()
    for number in range(kept.stopped):
        out += ids_of(join.push(kept.batch("l", number), kept.batch("r", number)), "join")
        if kept.marks[number] is not None:
            join.advance(kept.marks[number])
    (kept.folder / "snapshot").write_bytes(join.snapshot())
    return out


def written(kept: Kept, before: Counter[Any], target: Path) -> None:
    """One zip file with everything; the folders a query read from are left out."""
    case = asdict(kept)
    for name in ("name", "folder"):
        del case[name]
    case |= {"before": listed(before), "expected": listed(kept.expected)}
    (kept.folder / "case.json").write_text(json.dumps(case))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(kept.folder.rglob("*")):
            name = file.relative_to(kept.folder)
            read = name.parts[0].startswith(READ)
            if file.is_file() and file.suffix != ".crc" and not read:
                archive.write(file, name)


def make(cases: list[Case], kind: str, target: Path, session: Any = None) -> None:
    for case in cases:
        file = target / f"{kind}-{case.name}.zip"
        if file.exists():
            continue
        folder = Path(tempfile.mkdtemp(prefix="thetajoin-make-"))
        try:
            kept, _ = kept_of(case, kind, folder)
            if kind == SNAPSHOT:
                before = stopped_snapshot(kept)
            else:
                before = run_query(kept, session, kept.stopped)
            written(kept, before, file)
            sys.stderr.write(f"{file} {file.stat().st_size:,} bytes\n")
        finally:
            shutil.rmtree(folder)


def main() -> None:
    from thetajoin.spark.session import local_session
    from thetajoin.spark.versions import local_checkpoints

    target = HERE / "kept" / tj.__version__
    target.mkdir(parents=True, exist_ok=True)
    make(SNAPSHOTS, SNAPSHOT, target)
    session = local_session(2, memory="1g", settings=local_checkpoints())
    make(CHECKPOINTS, CHECKPOINT, target, session)
    session.stop()


if __name__ == "__main__":
    main()
