"""One history: a join, micro-batches and faults drawn from a seed, run, and judged."""

from __future__ import annotations

import json
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import naive
from naive import Pair, Push, Row
from simulation.cases import END, Join, Rows, at, draw_join, millis, plain, unit_spec
from simulation.cluster import Cluster, MicroBatch, Settings, pack, table_of
from simulation.totals import naive_totals, totals_of
from simulation.world import World
from thetajoin.limits import change_limits
from thetajoin.spark.exchange import unpack_ordered

# Past all rows' times.
FAR = millis(at(10**8))


@dataclass
class Outcome:
    """What came of a history; `wrong` says in one line what is wrong with it."""

    seed: int
    join: Join
    batches: int
    wrong: str = ""
    evidence: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    @classmethod
    def of(cls, seed: int) -> Outcome:
        """Of a history that has not been run."""
        rng = Random(seed)
        join = draw_join(rng)
        return cls(seed, join, len(list(draw_batches(join, rng))))

    @property
    def script(self) -> str:
        """What happened, and what repeats it."""
        faults = ", ".join(f"{n} x {what}" for what, n in sorted(self.faults.items())) or "none"
        return (
            f"# history {self.seed}: {self.wrong}\n"
            f"# {self.join}; {self.batches} micro-batches; faults: {faults}\n"
            f"python -m tests.campaigns simulate --histories 1 --seed {self.seed}"
        )


def run_history(
    seed: int,
    folder: Path,
    settings: Settings | None = None,
    kind: type[Cluster] = Cluster,
) -> Outcome:
    """Draw, run and judge the history of a seed; the folder is for its files."""
    rng = Random(seed)
    join = draw_join(rng)
    batches = list(draw_batches(join, rng))
    outcome = Outcome(seed, join, len(batches))
    root = folder / f"history-{seed}"
    root.mkdir(parents=True)
    try:
        settings = settings or Settings(reuse=rng.random() < 0.85)
        _run(outcome, batches, World(rng, root), settings, kind)
    except Exception as error:
        outcome.wrong = f"{type(error).__name__}: {error}".splitlines()[0]
        outcome.evidence = traceback.format_exc()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return outcome


def _run(
    outcome: Outcome,
    batches: list[MicroBatch],
    world: World,
    settings: Settings,
    kind: type[Cluster],
) -> None:
    join = outcome.join
    outcome.faults = world.faults
    # Few rows are written anew, cut into parts and put into files as if they were many.
    thresholds = ("most_entries", "smallest_class", "blob_bytes", "segment_bytes")
    large = ((1, 2, 30, 500), (3, 4, 200, 1 << 20), (1, 2, 1 << 20, 5000), (64, 4096, 30, 1))
    drawn = dict(zip(thresholds, world.rng.choice(large), strict=True))
    with world, warnings.catch_warnings(), change_limits(**world.rng.choice((drawn, {}))):
        warnings.simplefilter("ignore")  # of a disk that is full
        world.reuse(settings.reuse)
        following = tuple(join.routings[1:])
        cluster = kind(world, unit_spec(join), settings, following=following)
        for batch in batches:
            cluster.run(batch)
    world.count("disk full at a write", world.disk.full)
    numbers = [json.loads(text) for text in cluster.numbers]
    outcome.origins.update(unit["from"] for unit in numbers)
    late = _judge(outcome, join, batches, cluster)
    counted = sum(unit["late_rows"] for unit in numbers)
    if not outcome.wrong and counted != late:
        outcome.wrong = f"{late} rows are late, {counted} were counted"
    if not outcome.wrong and world.troubles:
        outcome.wrong = world.troubles[0]


# --- what happens --------------------------------------------------------------------------------


def draw_batches(join: Join, rng: Random) -> Iterator[MicroBatch]:
    """Micro-batches, and at the end one that nothing is left after."""
    rows = Rows(join.case, rng)
    watermark = 0
    most = rng.choice((2, 4, 4, 7))
    for _ in range(rng.choice((2, 2, 3, 3, 3, 4, 4, 6))):
        if join.timed and rng.random() < 0.15:
            yield MicroBatch([], [], watermark)  # only the watermark has moved
        left = rows.draw(rng.randint(0, most))
        right = [] if join.self_join else rows.draw(rng.randint(0, most))
        yield MicroBatch(left, right, watermark)
        if join.timed:
            watermark = max(watermark, rng.choice(_watermarks(rows.now, watermark)))
        rows.now += 500 * rng.randint(0, 4)
    if join.timed:
        yield MicroBatch([], [], FAR)
    elif join.counted:
        window = join.window
        assert isinstance(window, naive.Count)
        past = rows.closing(window.size + window.slide)
        yield MicroBatch(past, [] if join.self_join else past)


def _watermarks(now: int, watermark: int) -> tuple[int, ...]:
    """Where the watermark may go: nowhere, behind the rows, among them, past them."""
    steps = [millis(at(now + 500 * by)) for by in (-6, -3, -1, 0, 3)]
    return (watermark, watermark, *steps, *steps[:3], steps[0] + 1, steps[1] - 1)


# --- what is right -------------------------------------------------------------------------------


def _judge(outcome: Outcome, join: Join, batches: Sequence[MicroBatch], cluster: Cluster) -> int:
    """Compare pair by pair; gives the number of late rows."""
    late, steps = _on_time(join, batches)
    pairs = _expected(join, [_ordered(join, step) for step in steps])
    if join.totals:
        got: Any = totals_of(cluster.spec, cluster.rows)
        wanted: Any = naive_totals(cluster.spec, pairs)
    else:
        width = len(join.case.schema.names)
        tag = width - 1
        made = [tuple(map(plain, row)) for row in cluster.rows]
        got = Counter(row for row in made if END not in (row[tag], row[-1]))
        wanted = Counter(_row(join, pair) for pair in pairs)
    outcome.rows = sum(wanted.values()) if isinstance(wanted, Counter) else len(wanted)
    outcome.wrong = _difference(got, wanted)
    return late


def _difference(got: Any, wanted: Any) -> str:
    if got == wanted:
        return ""
    if not isinstance(wanted, Counter):
        groups = {*got, *wanted}
        wrong = sorted((g for g in groups if got.get(g) != wanted.get(g)), key=repr)
        first = wrong[0]
        return f"group {first}: {got.get(first)} and not {wanted.get(first)}"
    missing, extra = wanted - got, got - wanted
    example = next(iter(missing or extra))
    return (
        f"of {sum(wanted.values())} rows {sum(missing.values())} missing, "
        f"{sum(extra.values())} too many, such as {example}"
    )


def _row(join: Join, pair: Pair) -> tuple[Any, ...]:
    names = join.case.schema.names
    sides = pair[:1] if join.how in ("semi", "anti") else pair
    return tuple(None if row is None else plain(row[name]) for row in sides for name in names)


def _on_time(join: Join, batches: Sequence[MicroBatch]) -> tuple[int, list[Push]]:
    """The micro-batches without late rows: those behind the watermark of the one before."""
    late, before, begun, steps = 0, 0, False, []

    def kept(rows: list[Row], lag: int) -> list[Row]:
        nonlocal late
        bound = before - lag if join.timed else 0
        found = [r for r in rows if r["t"] is None or millis(r["t"]) >= bound]
        late += len(rows) - len(found)
        return found

    for batch in batches:
        steps.append(Push(kept(batch.left, join.lag), kept(batch.right, 0)))
        # A unit learns of the watermark with its first rows.
        begun = begun or bool(batch.left or batch.right)
        before = batch.watermark if begun else 0
    return late, steps


def _ordered(join: Join, step: Push) -> Push:
    """Rows that tie in a count window's order, as the units take them.

    Units of totals have the columns that matter, and know ties by these alone.
    """
    if not join.counted:
        return step
    sides = []
    alone = replace(unit_spec(join), units=1)
    for side, rows in enumerate((step.left, step.right)):
        schema = alone.schema("right" if side else "left")
        packed = pack(side, alone, [table_of(list(rows), schema)])
        blobs = [row.column(2)[0].as_py() for row in packed]
        full = join.case.schema
        whole = table_of(list(rows), full).rename_columns(full.names).to_pylist()
        ordered = []
        for seen in unpack_ordered(blobs, schema, "t").to_pylist():
            same = (
                at for at, row in enumerate(whole) if repr({n: row[n] for n in seen}) == repr(seen)
            )
            ordered.append(whole.pop(next(same)))
        sides.append(ordered)
    return Push(*sides)


def _expected(join: Join, steps: list[Push]) -> list[Pair]:
    """What the oracle gives, without the rows that only close the stream."""
    pred, window, order_by = join.case.pred, join.window, join.order_by
    if join.self_join:
        rows = [row for step in steps for _, row in naive.arrivals(step.left, [], "t")]
        pairs = naive.naive_self_join(rows, pred, window=window)
    else:
        result = naive.naive_stream(steps, pred, how=join.how, window=window, order_by=order_by)
        pairs = result.rows
    return [pair for pair in pairs if not any(row and row["tag"] == END for row in pair)]
