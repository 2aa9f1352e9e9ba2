"""The commands, their options, and how errors reach a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from thetajoin.errors import ThetaJoinError

INTERRUPTED = 130  # typer's exit code after Ctrl-C, which it leaves without a word

app = typer.Typer(
    name="thetajoin",
    help="Joins of tables and streams on inequalities: exact, incremental, fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 1."""
    try:
        app()
    except ThetaJoinError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"thetajoin: {error}", markup=False
        )
        sys.exit(1)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            Console(stderr=True).print("thetajoin: stopped")
        raise


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows of each stream.")] = 200_000,
    window: Annotated[int, typer.Option(help="Rows of each side in the window.")] = 25_000,
    batches: Annotated[int, typer.Option(help="Micro-batches.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("thetajoin-demo"),
) -> None:
    """Join two streams of power readings on Spark and check the result."""
    from thetajoin.cli.demo import DemoConfig, run_demo

    run_demo(DemoConfig(out, rows, window, batches, seed))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="engine, aggregates, structures, spark-stream, spark-batch, partitionings, "
            "faults, fuzz (--cases --seed --jobs --spark --first)."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    scale: Annotated[float, typer.Option(help="Shrink the tables for a quick look.")] = 1.0,
    plot: Annotated[Path | None, typer.Option(help="Folder for plots of the figures.")] = None,
) -> None:
    """Run a benchmark: ratios against peers in the same run."""
    from thetajoin.cli.benchmarks import run_benchmark

    run_benchmark(name, as_json=json, scale=scale, plot=plot, words=context.args)


_TABLES = typer.Option(help="NAME=FILE, a table of the query; once for each.")


@app.command()
def run(
    job: Annotated[str, typer.Argument(help="A job file (.toml), a query, or a .sql file.")],
    table: Annotated[list[str] | None, _TABLES] = None,
    out: Annotated[Path | None, typer.Option(help="Where to put the result of a query.")] = None,
) -> None:
    """Run a job file, or a query over files."""
    from thetajoin.cli.run import job_of, run_job

    console = Console(highlight=False, soft_wrap=True)
    run_job(job_of(job, table or [], out), console)


@app.command()
def explain(
    left: Annotated[str, typer.Argument(help="A file; or a job (.toml), a query, a .sql file.")],
    right: Annotated[Path | None, typer.Argument(help="Another file, or the same.")] = None,
    on: Annotated[str, typer.Argument(help='E.g. "l.a < r.a AND l.b > r.b".')] = "",
    how: Annotated[str, typer.Option(help="inner, left, right, full, semi or anti.")] = "inner",
    table: Annotated[list[str] | None, _TABLES] = None,
) -> None:
    """Show how a join of two files, a job or a query would be done."""
    import thetajoin as tj
    from thetajoin.cli.files import read_table
    from thetajoin.cli.run import compiled, job_of

    if right is None:
        plan = compiled(job_of(left, table or [], None)).explain()
    else:
        plan = tj.explain(read_table(Path(left)), read_table(right), on, how=how)
    Console(highlight=False, soft_wrap=True).print(str(plan), markup=False)


@app.command()
def generate(
    kind: Annotated[str, typer.Argument(help="power (Q1: two streams) or taxi (Q2: one).")],
    out: Annotated[Path, typer.Argument(help="Folder to write Parquet files into.")],
    rows: Annotated[int, typer.Option(help="Rows of each stream.")] = 1_000_000,
    files: Annotated[int, typer.Option(help="Files of each stream.")] = 10,
    matches: Annotated[float, typer.Option(help="Matches a row in a window of all rows.")] = 10.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 1,
) -> None:
    """Write the streams of the SPO-Join paper's queries as Parquet files."""
    from thetajoin.cli.generate import write_streams

    for path in write_streams(kind, out, rows, files, matches, seed):
        Console(highlight=False, soft_wrap=True).print(str(path), markup=False)


@app.command()
def doctor() -> None:
    """Check this machine: Python, Java, Spark, memory, versions."""
    from thetajoin.cli.doctor import examine

    sys.exit(examine())
