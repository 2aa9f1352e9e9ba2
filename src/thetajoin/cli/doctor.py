"""What this machine has: versions, Java, memory."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata

from rich.console import Console
from rich.table import Table

NEEDED = ("pyarrow", "numpy", "numba", "sqlglot", "typer", "rich")
OPTIONAL = ("pyspark", "pandas", "polars", "duckdb", "chdb", "matplotlib")


def java_version() -> int | None:
    """The major version of the Java that Spark would find, or None."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def examine() -> int:
    """Print what is here; 0 if the embedded engine can run, 1 if something it needs is missing."""
    table = Table(title="thetajoin doctor", title_justify="left")
    for column in ("what", "found", ""):
        table.add_column(column)
    missing = 0
    table.add_row("Python", platform.python_version(), "ok")
    for name in (*NEEDED, *OPTIONAL):
        try:
            table.add_row(name, metadata.version(name), "ok")
        except metadata.PackageNotFoundError:
            needed = name in NEEDED
            missing += needed
            table.add_row(name, "not installed", "[red]needed[/red]" if needed else "optional")
    java = java_version()
    verdict = "ok" if java is not None and java >= 17 else "Spark needs Java 17 or newer"
    table.add_row("Java", "not found" if java is None else str(java), verdict)
    table.add_row("cores", str(len(os.sched_getaffinity(0))), "ok")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    table.add_row("memory", f"{memory:.1f} GiB", "ok" if memory >= 4 else "little for Spark")
    Console(highlight=False).print(table)
    return 1 if missing else 0
