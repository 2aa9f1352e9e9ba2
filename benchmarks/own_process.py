"""Peers in a process of their own, with a Python whose packages the other peers cannot have."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import TooSlowError
from benchmarks.peers import list_installed

# Pythons of environments with an older Arrow than the other peers have.
POLARS_BIO = "THETAJOIN_POLARS_BIO_PYTHON"
PATHWAY = "THETAJOIN_PATHWAY_PYTHON"


class OwnProcess:
    """A script that keeps the tables and computes when it is called.

    It answers its first line with its version, then each line of input with a number of rows. What
    it prints where that goes wrong is in the error.
    """

    # Seconds for the first result; those that are measured later take about as long.
    LIMIT = 600.0

    def __init__(
        self,
        python: str,
        script: str,
        tables: tuple[pa.Table, pa.Table],
        call: dict[str, Any],
        environment: dict[str, str] | None = None,
    ) -> None:
        self.operation = str(call["operation"])
        self._script = script
        self._folder = Path(tempfile.mkdtemp(prefix="thetajoin-bench-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        for name, table in zip(("left", "right"), tables, strict=True):
            pq.write_table(table, self._folder / f"{name}.parquet")
        (self._folder / "call.json").write_text(json.dumps(call))
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        # -P: the modules beside the script are not to be found by its imports.
        self._process = subprocess.Popen(
            [python, "-P", str(Path(__file__).with_name(script)), str(self._folder)],
            env=kept | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._folder / "log").open("w"),
            text=True,
        )
        atexit.register(self._process.kill)
        self.version = self._answer()

    def __call__(self) -> int:
        """Compute the result and drop it; its number of rows."""
        return self._ask("run")

    def result(self) -> pa.Table:
        """The result, by way of a file; a process that does not end in time is ended."""
        slow = threading.Event()

        def end() -> None:
            slow.set()
            self._process.kill()

        timer = threading.Timer(self.LIMIT, end)
        timer.start()
        try:
            self._ask("save")
        except RuntimeError as error:
            if slow.is_set():
                raise TooSlowError(f"no result in {self.LIMIT:g} s") from error
            raise
        finally:
            timer.cancel()
        return pq.read_table(self._folder / "result.parquet")

    def _ask(self, word: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            told = (self._folder / "log").read_text().strip().splitlines() or ["no message"]
            raise RuntimeError(f"{self._script} failed: {told[-1]}")
        return line


class PolarsBio(OwnProcess):
    """polars-bio, over half-open intervals.

    `left` and `right` name the columns of chromosome, start and end.
    """

    def __init__(
        self, operation: str, tables: tuple[pa.Table, pa.Table], left: str, right: str, threads: int
    ) -> None:
        call: dict[str, Any] = {"operation": operation, "threads": threads}
        call |= {"left": left.split(), "right": right.split()}
        super().__init__(str(polars_bio_python()), "polars_bio_peer.py", tables, call)

    def result(self) -> pa.Table:
        """The result; right columns by their own names where these are free.

        The number of overlaps is `n`.
        """
        found = super().result()
        free = {name.removesuffix("_right") for name in found.column_names}
        free -= {name for name in found.column_names if not name.endswith("_right")}
        short = {f"{name}_right": name for name in free} | {"count": "n"}
        return found.rename_columns([short.get(name, name) for name in found.column_names])


class Pathway(OwnProcess):
    """A temporal join of Pathway in its static mode, from pandas frames to a pandas frame.

    `operation` is "asof_join", with the last row up to the left one's time, or "interval_join",
    with `interval` from the left time. `left` and `right` name the columns of time and key,
    `columns` those of the result; those that both sides have are the left side's.
    """

    def __init__(
        self,
        operation: str,
        tables: tuple[pa.Table, pa.Table],
        left: str,
        right: str,
        columns: str,
        threads: int,
        interval: tuple[int, int] | None = None,
    ) -> None:
        call = {"operation": operation, "interval": interval, "columns": columns.split()}
        call |= {"left": left.split(), "right": right.split()}
        environment = {"PATHWAY_THREADS": str(threads)}
        super().__init__(str(pathway_python()), "pathway_peer.py", tables, call, environment)


def polars_bio_python() -> str | None:
    """The Python that has polars-bio: this one, or that of an environment of its own."""
    return sys.executable if list_installed("polars_bio") else os.environ.get(POLARS_BIO)


def pathway_python() -> str | None:
    """The Python that has Pathway: this one, or that of an environment of its own."""
    return sys.executable if list_installed("pathway") else os.environ.get(PATHWAY)
