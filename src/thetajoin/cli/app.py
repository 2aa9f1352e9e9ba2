"""The commands, their options, and how errors reach a terminal."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from thetajoin.cli.interrupts import INTERRUPTED, stopped, take_over
from thetajoin.cli.terminal import complain, say, screen
from thetajoin.errors import ThetaJoinError, one_line

# The base of all that is wrong with a command's words; typer has it from a copy of click or from
# click itself, and gives it no name of its own.
_WordsError: Any = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")
# Set, it has an error that this program did not expect shown with its traceback.
TRACEBACK = "THETAJOIN_TRACEBACK"

app = typer.Typer(
    name="thetajoin",
    help="Joins of tables and streams on inequalities: exact, incremental, fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; a user's mistake is one line on stderr and exit code 1."""
    take_over()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal may have fewer letters than a user's data.
            stream.reconfigure(errors="backslashreplace")
    try:
        words = sys.argv[1:] or ["--help"]
        ended = app(args=words, prog_name="thetajoin", standalone_mode=False)
    except ThetaJoinError as error:
        _fail(str(error))
    except _WordsError as error:
        _fail(_about_words(error))
    except (KeyboardInterrupt, typer.Abort):
        ended = INTERRUPTED
    except OSError as error:
        _fail(_about_system(error))
    except MemoryError:
        _fail("there is not enough memory for this")
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        _fail(f"unexpected {type(error).__name__}: {error} ({TRACEBACK}=1 shows where)")
    if ended == INTERRUPTED:
        stopped()
    sys.exit(ended if isinstance(ended, int) else 0)


def _fail(message: str) -> NoReturn:
    complain(one_line(message))
    sys.exit(1)


def _about_words(error: Any) -> str:
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "thetajoin"
    return f"{error.format_message().rstrip('.')} (see {command} --help)"


def _about_system(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{f' of {error.filename}' if error.filename else ''}"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


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
            help="engine, joins (--only), aggregates, structures, spark-stream, spark-batch, "
            "scale-out, partitionings, start (--rounds), faults, mutation, soak (--batches), "
            "fuzz (--cases --seed --jobs --spark --first), simulate (--histories --seed --jobs)."
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
_OUT = "File for the result of a query; its ending says which format: parquet, csv, json, arrow."
_OVERWRITE = "Replace what is there."


@app.command()
def run(
    job: Annotated[str, typer.Argument(help="A job file (.toml), a query, or a .sql file.")],
    table: Annotated[list[str] | None, _TABLES] = None,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
) -> None:
    """Run a job file, or a query over files."""
    from thetajoin.cli.run import job_of, run_job

    run_job(job_of(job, table or [], out, overwrite=overwrite), screen())


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
    for line in str(plan).splitlines():
        say(screen(), line)


@app.command()
def generate(
    kind: Annotated[str, typer.Argument(help="power (Q1: two streams) or taxi (Q2: one).")],
    out: Annotated[Path, typer.Argument(help="Folder to write Parquet files into.")],
    rows: Annotated[int, typer.Option(help="Rows of each stream.")] = 1_000_000,
    files: Annotated[int, typer.Option(help="Files of each stream.")] = 10,
    matches: Annotated[float, typer.Option(help="Matches a row in a window of all rows.")] = 10.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
) -> None:
    """Write the streams of the SPO-Join paper's queries as Parquet files."""
    from thetajoin.cli.generate import write_streams

    for path in write_streams(kind, out, rows, files, matches, seed, overwrite=overwrite):
        say(screen(), path)


@app.command()
def doctor() -> None:
    """Check this machine: Python, Java, Spark, memory, versions."""
    from thetajoin.cli.doctor import examine

    raise typer.Exit(examine())


@app.command()
def warmup() -> None:
    """Compile for this processor what ordinary joins need, so that none of them has to wait."""
    from thetajoin.cli.warmup import warm_up

    warm_up()
