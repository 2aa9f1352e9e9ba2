"""The commands, their options and their help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thetajoin.cli.terminal import say, screen

app = typer.Typer(
    name="thetajoin",
    help="Join tables and streams on inequalities: exact, incremental, fast.",
    epilog="Example: thetajoin run \"SELECT * FROM 'a.csv' a JOIN 'b.csv' b ON a.x < b.y\"",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
checkpoint_app = typer.Typer(
    name="checkpoint",
    help="Look into a stream's checkpoint, check it, or make a changed copy of it.",
    no_args_is_help=True,
)
JOINS, TRIAL, MACHINE = "Join", "Try it", "This machine"
STREAMS = "Streams"
# Modules of tests/campaigns that `thetajoin bench` once ran.
CAMPAIGNS = ("fuzz", "simulate", "faults", "soak", "mutation")
app.add_typer(checkpoint_app, rich_help_panel=JOINS)
_TABLES = typer.Option(
    "--table",
    metavar="NAME=FILE",
    help="A file under the name that the query has for it; once for each.",
)
_JOB_HELP = "A query, a .sql file, a job file (.toml), or - for a query that is piped in."
_OVERWRITE = "Replace what is there."
_SEED = "The same seed gives the same rows."
_PORT = typer.Option(
    "--port",
    min=0,
    max=65_535,
    metavar="PORT",
    rich_help_panel=STREAMS,
    help="The page's port: 4050 or any free one unless told.",
)
_METRICS = typer.Option(
    "--metrics",
    metavar="[HOST:]PORT",
    rich_help_panel=STREAMS,
    help="Serve metrics for Prometheus, on loopback unless HOST is given.",
)
_OTLP = typer.Option(
    "--otlp",
    metavar="URL",
    rich_help_panel=STREAMS,
    help="Send metrics to an OpenTelemetry collector, such as http://localhost:4318.",
)
_LOG = typer.Option(
    "--log",
    metavar="json",
    rich_help_panel=STREAMS,
    help="Write one JSON object a micro-batch to stderr.",
)
_PATH = typer.Argument(metavar="PATH", show_default=False, help="A checkpoint's folder or URI.")
_JOB = typer.Argument(metavar="JOB", show_default=False, help="A job file (.toml).")


class Format(StrEnum):
    """How a result is shown or written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


def _print_version(wanted: bool) -> None:
    if wanted:
        from thetajoin import __version__

        say(screen(), f"thetajoin {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None: ...


@app.command(rich_help_panel=JOINS)
def run(
    job: Annotated[str, typer.Argument(metavar="QUERY", help=_JOB_HELP, show_default=False)],
    table: Annotated[list[str] | None, _TABLES] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the result here: .parquet, .csv, .json or .arrow. - is stdout.",
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="On stdout: table (unless told), csv, json, parquet or arrow. With --out, the "
            "format where FILE's ending is not to decide.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="The same as --format json: an object a line.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Stop after N rows. A table shows 20 unless told.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    no_files: Annotated[
        bool,
        typer.Option(
            "--no-files", help="A query of somebody else's: it may read the --table files only."
        ),
    ] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page", rich_help_panel=STREAMS, help="Serve a live page on this machine (loopback)."
        ),
    ] = False,
    port: Annotated[int | None, _PORT] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", rich_help_panel=STREAMS, help="Show more than one line on the terminal."
        ),
    ] = False,
    metrics: Annotated[str | None, _METRICS] = None,
    otlp: Annotated[str | None, _OTLP] = None,
    log: Annotated[str | None, _LOG] = None,
) -> None:
    """Run a query over files, or a job file over files and streams.

    A query names its files in quotes: Parquet, CSV, JSON (an object a line),
    Arrow, a folder of Parquet files, or a pattern. '-' is what is piped in.

    Examples:

      thetajoin run "SELECT * FROM 'a.parquet' a JOIN 'b.csv' b ON a.x < b.y"
      thetajoin run query.sql --table a=a.csv --table 'b=b/*.csv'
      thetajoin run query.sql --out result.parquet
      thetajoin run query.sql --json --limit 100 | jq .x
      zcat b.csv.gz | thetajoin run "SELECT a.x FROM 'a.csv' a, '-' b WHERE ..."
      thetajoin run job.toml
    """
    from thetajoin.cli.run import job_of, run_job
    from thetajoin.errors import OptionError
    from thetajoin.jobs.watchers import Watching

    if json and form not in (None, Format.json):
        raise OptionError(f"--json and --format {form} contradict each other: leave one out")
    wanted = "json" if json else None if form is None else form.value
    given = job_of(
        job,
        table or [],
        out,
        form=wanted,
        limit=limit,
        overwrite=overwrite,
        named_files=not no_files,
    )
    asked = Watching(page or port is not None, port, metrics, otlp, log, watch)
    run_job(given, screen(), asked)


@app.command(rich_help_panel=JOINS)
def dashboard(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job file over streams.", show_default=False)
    ],
    port: Annotated[int | None, _PORT] = None,
    metrics: Annotated[str | None, _METRICS] = None,
    otlp: Annotated[str | None, _OTLP] = None,
    log: Annotated[str | None, _LOG] = None,
) -> None:
    """Run a streaming job with a live page: the same as thetajoin run JOB --page.

    The address of the page is printed. It is served on this machine only.

    Example:

      thetajoin dashboard job.toml --port 8080
    """
    from thetajoin.cli.run import job_of, run_job
    from thetajoin.jobs.watchers import Watching

    run_job(job_of(job), screen(), Watching(True, port, metrics, otlp, log))


@app.command(rich_help_panel=JOINS)
def explain(
    left: Annotated[
        str,
        typer.Argument(
            metavar="QUERY|FILE", show_default=False, help="A file; or what thetajoin run takes."
        ),
    ],
    right: Annotated[
        str | None,
        typer.Argument(metavar="FILE", show_default=False, help="Another file, or the same."),
    ] = None,
    on: Annotated[
        str,
        typer.Argument(
            metavar="CONDITION", show_default=False, help='Such as "l.a < r.a AND l.b > r.b".'
        ),
    ] = "",
    how: Annotated[str, typer.Option(help="inner, left, right, full, semi or anti.")] = "inner",
    table: Annotated[list[str] | None, _TABLES] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="N/UNIT",
            help="Also say what cores, memory and disk a job's streams need at so many rows of "
            "each, such as 50000/s.",
        ),
    ] = None,
) -> None:
    """Show how a query, a job or a join of two files would be done.

    Examples:

      thetajoin explain "SELECT * FROM 'a.csv' a JOIN 'b.csv' b ON a.x < b.y"
      thetajoin explain job.toml
      thetajoin explain a.parquet b.csv "l.x < r.y"
      thetajoin explain job.toml --rate 50000/s
    """
    import thetajoin as tj
    from thetajoin.cli.run import compile_query, job_of
    from thetajoin.cli.terminal import show_work
    from thetajoin.engine.layout import parse_how
    from thetajoin.jobs.files import read_table

    if rate is not None:
        from thetajoin.cli.run import explain_size
        from thetajoin.errors import OptionError

        if right is not None:
            raise OptionError("--rate is for a job or a query: its window says what is held")
        explain_size(job_of(left, table or []), rate)
        return
    if right is None:
        plan = compile_query(job_of(left, table or [])).explain()
    else:
        with show_work("reading"):
            tables = read_table(left), read_table(right)
            plan = tj.explain(*tables, on, how=parse_how(how))
    for line in str(plan).splitlines():
        say(screen(), line)


@app.command(rich_help_panel=TRIAL)
def demo(
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of each stream.")] = 200_000,
    window: Annotated[
        int, typer.Option(metavar="N", help="Rows of each side in the window.")
    ] = 25_000,
    batches: Annotated[int, typer.Option(metavar="N", help="Micro-batches.")] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help=_SEED)] = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the results.")] = Path(
        "thetajoin-demo"
    ),
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Join two Kafka topics into a third, at a broker of its own."),
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --kafka: a broker that is running already."),
    ] = None,
) -> None:
    """Join two streams of power readings on Spark and check the result.

    It takes about a minute, and leaves the matches, a summary and a plot in a
    folder. An earlier demo's folder is replaced when this one has finished.
    --kafka fetches a broker the first time, about 45 MB, and stops it at the end.
    """
    from thetajoin.cli.demo import DemoConfig, run_demo

    run_demo(DemoConfig(out, rows, window, batches, seed, kafka, broker))


@app.command(rich_help_panel=TRIAL)
def generate(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            show_default=False,
            help="power (two streams) or taxi (one).",
            autocompletion=lambda: ["power", "taxi"],
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="FOLDER", show_default=False, help="Where to write.")
    ],
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of each stream.")] = 1_000_000,
    files: Annotated[int, typer.Option(metavar="N", help="Files of each stream.")] = 10,
    matches: Annotated[
        float, typer.Option(metavar="X", help="Matches a row in a window of all rows.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(metavar="N", help=_SEED)] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
) -> None:
    """Write streams to try things with, as folders of Parquet files.

    They are those of the SPO-Join paper's queries: the power readings of two
    data centres (Q1), or taxi trips (Q2).

    Example:

      thetajoin generate power streams --rows 100000
    """
    from thetajoin.cli.generate import write_streams
    from thetajoin.cli.terminal import show_work

    with show_work(f"writing {rows:,} rows a stream"):
        folders = write_streams(kind, out, rows, files, matches, seed, overwrite=overwrite)
    for folder in folders:
        say(screen(), folder)


@app.command(rich_help_panel=MACHINE)
def doctor() -> None:
    """Say what this machine has, what is missing, and what it would be for."""
    from thetajoin.cli.doctor import examine

    raise typer.Exit(examine())


@app.command(
    hidden=True,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(context: typer.Context) -> None:
    """Hand over to the benchmarks of the checkout that this is, as before they left the package."""
    import os
    import subprocess
    import sys

    import thetajoin
    from thetajoin.errors import OptionError

    words, root = context.args, Path(thetajoin.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").exists():
        raise OptionError(
            "benchmarks are run from a checkout: python -m benchmarks NAME, and test campaigns "
            f"({', '.join(CAMPAIGNS)}): python -m tests.campaigns NAME"
        )
    module = "tests.campaigns" if words and words[0] in CAMPAIGNS else "benchmarks"
    say(screen(errors=True), f"thetajoin bench has become python -m {module}")
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=False)
    raise typer.Exit(done.returncode)


@app.command(rich_help_panel=MACHINE)
def warmup() -> None:
    """Compile for this processor what ordinary joins need, so that none of them has to wait."""
    from rich.progress import Progress

    from thetajoin.kernels.jit import COMPILES
    from thetajoin.kernels.store import find_writable
    from thetajoin.warm import warm

    folder = find_writable() if COMPILES else None
    if folder is None:
        say(screen(), "nothing is kept here: no folder can be written, or numba is switched off")
        return
    progress = screen(errors=True)
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("compiling")
        seconds = warm(lambda done, of: bar.update(task, completed=done, total=of))
    say(screen(), f"compiled kernels are in {folder} ({seconds:.0f} s)")


@checkpoint_app.command()
def inspect(
    path: Annotated[str, _PATH],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what join is in a checkpoint, how far it has come, and what it holds.

    Nothing is changed, and the rows themselves are not read.
    """
    from thetajoin.cli.checkpoints import inspect

    inspect(path, as_json=json)


@checkpoint_app.command()
def verify(path: Annotated[str, _PATH], job: Annotated[Path | None, _JOB] = None) -> None:
    """Say whether a checkpoint is sound, and whether a job can go on with it.

    Reads all rows that are held and checks them against what is listed. The
    exit code is 1 if something is wrong, with a line for each thing.
    """
    from thetajoin.cli.checkpoints import verify

    raise typer.Exit(verify(path, job))


@checkpoint_app.command()
def migrate(
    old: Annotated[str, typer.Argument(metavar="OLD", show_default=False, help="A checkpoint.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", show_default=False, help="A folder that is not there.")
    ],
    job: Annotated[Path | None, _JOB] = None,
    partitions: Annotated[
        int | None, typer.Option(metavar="N", help="Move the state to N state partitions.")
    ] = None,
) -> None:
    """Copy a checkpoint so that it stands alone, changed if that is asked for.

    With --partitions, Spark moves the state to so many partitions. With JOB,
    the copy is for a job whose window is shorter or whose condition is another.
    Stop the query first. OLD is only read.

    Examples:

      thetajoin checkpoint migrate checkpoint checkpoint-8 --partitions 8
      thetajoin checkpoint migrate checkpoint checkpoint-2 job.toml
    """
    from thetajoin.cli.checkpoints import migrate

    migrate(old, new, job, partitions)
