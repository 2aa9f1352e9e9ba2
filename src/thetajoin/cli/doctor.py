"""What this machine has: versions, Java, memory."""

from __future__ import annotations

import platform
from importlib import metadata

from rich.table import Table

from thetajoin.cli.terminal import literal, screen
from thetajoin.engine.machine import available_cores, memory_bytes
from thetajoin.errors import ThetaJoinError
from thetajoin.spark.session import find_java

NEEDED = ("pyarrow", "numpy", "numba", "sqlglot", "typer", "rich")
# transformWithState needs all of these, and does not say so when one is missing.
SPARK = (
    "pyspark",
    "pandas",
    "protobuf",
    "grpcio",
    "grpcio-status",
    "googleapis-common-protos",
    "zstandard",
)
OPTIONAL = ("matplotlib", "polars", "duckdb", "chdb")
ENOUGH = 4 << 30  # bytes of memory for Spark


def examine() -> int:
    """Print what is here; 0 if the embedded engine can run, 1 if something it needs is missing."""
    table = Table(title="thetajoin doctor", title_justify="left")
    for column in ("what", "found", ""):
        table.add_column(column)
    missing = 0
    table.add_row("Python", platform.python_version(), "ok")
    for name in (*NEEDED, *SPARK, *OPTIONAL):
        try:
            table.add_row(name, metadata.version(name), "ok")
        except metadata.PackageNotFoundError:
            needed = name in NEEDED
            missing += needed
            verdict = "needed" if needed else "optional"
            table.add_row(name, "not installed", "for Spark" if name in SPARK else verdict)
    try:
        java = find_java()
        table.add_row("Java", literal(f"{java.version} ({java.source}: {java.home})"), "ok")
    except ThetaJoinError as error:
        table.add_row("Java", "not found", literal(error))
    table.add_row("cores", str(available_cores()), "ok")
    memory = memory_bytes()
    if memory is None:
        table.add_row("memory", "this platform does not say", "")
    else:
        enough = "ok" if memory >= ENOUGH else "little for Spark"
        table.add_row("memory", f"{memory / 2**30:.1f} GiB", enough)
    screen().print(table)
    return 1 if missing else 0
