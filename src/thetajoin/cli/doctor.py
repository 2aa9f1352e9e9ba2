"""What this machine has, what is missing, and what that would be for."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from rich.console import Console

from thetajoin import __version__
from thetajoin.cli.terminal import complain, grid, say, screen
from thetajoin.engine.machine import available_cores, memory_bytes
from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.jars import (
    CONNECTORS,
    JARS,
    cache_folder,
    find_given_folder,
    is_kept,
    releases_for,
)
from thetajoin.kernels.store import KERNELS, READY, find_writable
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
OTHERS = {
    "deltalake": "Delta tables in jobs without a stream: pip install 'thetajoin[delta]'",
    "pyiceberg": "Iceberg tables in jobs without a stream: pip install 'thetajoin[iceberg]'",
    "pandas": "pandas tables in and out",
    "polars": "Polars tables in and out",
    "duckdb": "tj.sql over tables here, DuckDB relations: pip install 'thetajoin[sql]'",
    "matplotlib": "the demo's and the benchmarks' plots: pip install 'thetajoin[plot]'",
    "uvicorn": "the live page of a stream: pip install 'thetajoin[page]'",
    "prometheus-client": "metrics for Prometheus: pip install 'thetajoin[metrics]'",
    "opentelemetry-sdk": "metrics for OpenTelemetry: pip install 'thetajoin[otlp]'",
    "chdb": "a peer in benchmarks",
}
ENOUGH = 4 << 30  # bytes of memory for Spark
OK, MISSING = "ok", "missing"


def examine() -> int:
    """Print what is here; 0 if the embedded engine can run, 1 if something it needs is missing."""
    console = screen()
    missing = [name for name in NEEDED if _find_version(name) is None]
    without = [name for name in SPARK if _find_version(name) is None]
    rows = [
        *_describe_machine(),
        *((name, _find_version(name) or MISSING, "needed") for name in NEEDED),
    ]
    _show(console, "tables in this process", rows)
    java, java_row = _look_for_java()
    packages = [(name, _find_version(name) or MISSING, "") for name in SPARK]
    _show(console, "streams and tables on Spark", [java_row, *packages])
    _show(console, "connectors of Spark, for streaming jobs", _list_connectors())
    _show(console, "optional", [(n, _find_version(n) or MISSING, use) for n, use in OTHERS.items()])
    say(console, f"tables in this process: {'not ready' if missing else 'ready'}")
    install = f"run `{sys.executable} -m pip install 'thetajoin[spark]'`"
    lacking = [f"{', '.join(without)} missing: {install}"] if without else []
    lacking += [] if java is None else [java]
    say(console, f"Spark: {'not ready: ' + '; '.join(lacking) if lacking else 'ready'}")
    if missing:
        complain(
            f"{', '.join(missing)} missing: run `{sys.executable} -m pip install thetajoin` again"
        )
    return 1 if missing else 0


def _show(console: Console, title: str, rows: list[tuple[str, str, str]]) -> None:
    table = grid(("what", "found", ""), rows)
    table.title, table.title_justify = title, "left"
    for column in table.columns:
        column.overflow = "fold"  # a path that is cut is of no use
    console.print(table)


def _find_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _describe_machine() -> list[tuple[str, str, str]]:
    memory = memory_bytes()
    found = "this platform does not say" if memory is None else f"{memory / 2**30:.1f} GiB"
    little = memory is not None and memory < ENOUGH
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return [
        ("thetajoin", __version__, str(Path(__file__).parent.parent)),
        ("Python", platform.python_version(), sys.executable),
        ("system", platform.platform(terse=True), platform.machine()),
        ("cores", str(available_cores()), OK),
        ("memory", found, "little for Spark" if little else OK),
        ("temporary files", f"{free / 2**30:.1f} GiB free", tempfile.gettempdir()),
        _describe_kernels(),
    ]


def _describe_kernels() -> tuple[str, str, str]:
    """Where compiled kernels are kept, and how many came with the package."""
    what = "compiled kernels"
    if importlib.util.find_spec("numba") is None:
        return what, MISSING, "numba is not installed"
    came, folder = len(list(READY.rglob(KERNELS))), find_writable()
    ahead = f"{came} came with the package" if came else "none came with the package"
    if folder is None:
        return what, "not kept", f"{ahead}; set NUMBA_CACHE_DIR to a folder for others"
    size = sum(file.stat().st_size for file in folder.rglob(KERNELS))
    return what, f"{size / 1e6:.1f} MB" if size else "none yet", f"{ahead}; others: {folder}"


def _list_connectors() -> list[tuple[str, str, str]]:
    """Which connectors fit this Spark, and whether they are at hand."""
    spark = _find_version("pyspark")
    try:
        folder = find_given_folder()
    except ThetaJoinError as error:
        return [(JARS, "wrong", str(error))]
    return [(name, *_describe_connector(name, spark, folder)) for name in CONNECTORS]


def _describe_connector(name: str, spark: str | None, folder: Path | None) -> tuple[str, str]:
    connector = CONNECTORS[name]
    given = [] if folder is None else sorted(jar.name for jar in folder.glob("*.jar"))
    mine = [file for file in given if file.startswith(connector.artifact)]
    if mine:
        return "at hand", f"{connector.use}: {mine[0]} in {folder}"
    sparks = f"{connector.use}: Spark {', '.join(connector.releases)}"
    if spark is None:
        return "no Spark", sparks
    try:
        [release] = releases_for([name], spark)
    except ThetaJoinError:
        return "none fits", f"{sparks}; pip install 'pyspark=={list(connector.releases)[-1]}.*'"
    if folder is not None:
        return MISSING, f"{sparks}; {release.main} is not in {folder}"
    if is_kept(release):
        return "at hand", f"{sparks}; {release.main} in {cache_folder() / release.folder}"
    return "fits", f"{sparks}; {release.main} is fetched by the first job that needs it"


def _look_for_java() -> tuple[str | None, tuple[str, str, str]]:
    """What is wrong with Java, if anything, and its row."""
    try:
        java = find_java()
    except ThetaJoinError as error:
        return str(error), ("Java", "not found", "")
    return None, ("Java", f"{java.version}", f"{java.source}: {java.home}")
