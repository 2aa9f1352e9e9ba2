"""How large a job's join gets at a rate, from the first rows of its sources."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from thetajoin.batch.files import find_files
from thetajoin.cli.files import read_table
from thetajoin.cli.jobs import Job, SourceSpec
from thetajoin.cli.terminal import say, screen, working
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import OptionError
from thetajoin.planner.routing import DEFAULT_UNITS
from thetajoin.planner.sizing import SAMPLE, parse_rate, size_join
from thetajoin.query.call import LastCall
from thetajoin.query.run import compile_query
from thetajoin.window.windows import length_in


def explain_size(job: Job, rate: str) -> None:
    """Print the plan of a job's join, and what it needs at a rate; Spark is not started."""
    rows_a_second = parse_rate(rate)
    with working("reading a sample") as tell:
        tables = {name: _sample(source) for name, source in job.sources.items()}
        call = compile_query(job.query, tables, job.window)
        if not isinstance(call, LastCall) or call.right is None:
            raise OptionError("--rate is for a query that is one join of two tables")
        tell("measuring")
        plan = call.explain() if "nearest" not in call.arguments else None
        asked = JoinSpec.of(**call.arguments, self_join=call.self_join)
        left, right = call.left.table, call.right.table
        join = CompiledJoin(asked.for_stream(), left.schema, right.schema)
        found = size_join(
            join, left, right, rows_a_second, units=DEFAULT_UNITS, delay=_longest_delay(job)
        )
    lines = [] if plan is None else str(plan).splitlines()
    for line in [*lines, *str(found).splitlines()]:
        say(screen(), line)


def _sample(source: SourceSpec) -> pa.Table:
    """The rows of a source's first files, enough for a sample."""
    if source.path == "-":
        return read_table(source.path, source.format).slice(0, SAMPLE)
    found = find_files(source.path, repr(source.path), source.format)
    taken = 1
    while True:
        table = replace(found, paths=found.paths[:taken]).read()
        if table.num_rows >= SAMPLE or taken >= len(found.paths):
            return table.slice(0, SAMPLE)
        taken *= 4


def _longest_delay(job: Job) -> float:
    """Seconds that rows wait for the watermark."""
    marks = [source.watermark for source in job.sources.values() if source.watermark is not None]
    delays = [length_in(delay, "us", "the watermark's delay") / 1e6 for _, delay in marks]
    return max(delays, default=0.0)
