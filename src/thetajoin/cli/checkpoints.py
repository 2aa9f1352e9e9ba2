"""Looking at, checking and moving the checkpoints of streaming joins."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from thetajoin.cli.run import compile_query
from thetajoin.cli.terminal import complain, format_count, grid, say, screen, show_work
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.job_file import Job, read_job

if TYPE_CHECKING:
    from thetajoin.jobs.checkpoint import Checkpoint, SavedJoin
    from thetajoin.spark.unit_spec import UnitSpec

MOST_LINES = 20  # of what is wrong with a checkpoint


def require_spark() -> None:
    """Refuse to go on without Spark, which alone reads its checkpoints."""
    if importlib.util.find_spec("pyspark") is None:
        raise OptionError("a checkpoint needs Spark: pip install 'thetajoin[spark]'")


def _plan_job(path: Path, checkpoint: str) -> tuple[Any, list[UnitSpec]]:
    """A job's session and its joins, planned as if the job ran with a checkpoint; none runs."""
    from thetajoin.spark.stream import read_accepted
    from thetajoin.spark.unit_spec import StreamSettings

    if path.suffix != ".toml":
        raise OptionError(f"{path} is not a job file: give the .toml that the stream is run with")
    job: Job = replace(read_job(path), late=None)
    if not job.streaming:
        raise OptionError(f"{path} has no stream, and so no checkpoint")
    settings = StreamSettings(None, read_accepted(checkpoint), job.routing)
    frame = compile_query(job, settings).run()
    return frame.sparkSession, settings.planned


def inspect(path: str, *, as_json: bool) -> None:
    """Say what is in a checkpoint."""
    require_spark()
    from thetajoin.jobs.checkpoint import read_checkpoint, read_log
    from thetajoin.spark.session import local_session

    read_log(path)  # what is no checkpoint is said before Spark starts
    with show_work("reading the state"):
        found = read_checkpoint(local_session(), path)
    console = screen()
    told = _describe(found)
    if as_json:
        say(console, json.dumps(told))
        return
    for name, value in told.items():
        if name != "joins":
            say(console, f"{name}: {_format(value)}")
    for join in told["joins"]:
        say(console, "")
        _show_join(console, join)


def _describe(found: Checkpoint) -> dict[str, Any]:
    mark = found.watermark_ms
    return {
        "checkpoint": found.path,
        "micro-batches": found.last_batch + 1,
        "last commit": None if found.committed_at is None else found.committed_at.isoformat(),
        "watermark": None if mark is None else _format_time(mark * 1000),
        "joins": [_describe_join(join) for join in found.joins],
    }


def _describe_join(join: SavedJoin) -> dict[str, Any]:
    identity = join.identity
    written = [unit.description.get("written_by") for unit in join.units]
    late = [unit.description["counters"]["late_rows"] for unit in join.units]
    broadcast = identity.get("routing", "broadcast") == "broadcast"
    return {
        "operator": join.operator,
        **{name: value for name, value in identity.items() if name != "format"},
        "format": identity["format"],
        "written by": next((by for by in written if by), None),
        "state partitions": join.partitions,
        "watermark": None if join.watermark is None else _format_time(join.watermark),
        "late rows": late[0] if broadcast else sum(late),
        "rows held": {
            "left": sum(unit.rows("l") for unit in join.units),
            "right": sum(unit.rows("r") for unit in join.units),
        },
        "bytes": sum(unit.size for unit in join.units),
        "units": [
            {
                "unit": unit.unit,
                "partition": unit.partition,
                "left rows": unit.rows("l"),
                "right rows": unit.rows("r"),
                "entries": len(unit.entries),
                "bytes": unit.size,
            }
            for unit in join.units
        ],
    }


def _format_time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat()


def _format(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_format(given)}" for name, given in value.items())
    if isinstance(value, str) and "\n" in value:
        return ", ".join(line.strip() for line in value.splitlines())
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show_join(console: Console, join: dict[str, Any]) -> None:
    for name, value in join.items():
        if name != "units":
            say(console, f"{name}: {_format(value)}")
    names = list(join["units"][0])
    rows = [[f"{unit[name]:,}" for name in names] for unit in join["units"]]
    console.print(grid(names, rows, [True] * len(names)))


def verify(path: str, job: Path | None) -> int:
    """Say whether a checkpoint can be gone on with, by a job if one is given; the exit code."""
    require_spark()
    from thetajoin.jobs.checkpoint import check_goes_on, find_faults, read_checkpoint, read_log
    from thetajoin.spark.session import local_session

    read_log(path)
    with show_work("reading the state"):
        session, specs = (local_session(), None) if job is None else _plan_job(job, path)
        found = read_checkpoint(session, path)
        wrong = find_faults(session, found)
        try:
            if specs is not None:
                check_goes_on(found, specs)
        except ThetaJoinError as error:
            wrong.append(str(error).removeprefix("thetajoin: "))
    for line in wrong[:MOST_LINES]:
        complain(line)
    if len(wrong) > MOST_LINES:
        complain(f"and {len(wrong) - MOST_LINES} more")
    if wrong:
        return 1
    rows = sum(unit.rows(side) for join in found.joins for unit in join.units for side in "lr")
    goes_on = "" if job is None else f", and {job} goes on with it"
    say(screen(), f"{path} is sound: {format_count(rows, 'row')} held{goes_on}")
    return 0


def migrate(old: str, new: str, job: Path | None, partitions: int | None) -> None:
    """Copy a checkpoint, changed."""
    require_spark()
    from thetajoin.jobs.checkpoint import migrate, read_log
    from thetajoin.spark.session import local_session

    read_log(old)
    with show_work("copying the state"):
        session, specs = (local_session(), None) if job is None else _plan_job(job, old)
        done = migrate(session, old, new, partitions=partitions, specs=specs)
    for line in done.done:
        say(screen(), line)
    for line in done.notes:
        say(screen(), f"note: {line}")
