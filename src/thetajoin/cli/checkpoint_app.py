"""The commands about checkpoints, their options and their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

checkpoint_app = typer.Typer(
    name="checkpoint",
    help="Look into a stream's checkpoint, check it, or make a changed copy of it.",
    no_args_is_help=True,
)
_PATH = typer.Argument(metavar="PATH", show_default=False, help="A checkpoint's folder or URI.")
_JOB = typer.Argument(metavar="JOB", show_default=False, help="A job file (.toml).")


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
    from thetajoin.cli.checkpoints import migrated

    migrated(old, new, job, partitions)
