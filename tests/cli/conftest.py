"""The command as a user types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from thetajoin.cli import main
from thetajoin.errors import ThetaJoinError
from thetajoin.spark import session

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process: exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["thetajoin", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """Runs a command that must end with exit code 1 and one line, which is returned."""

    def call(*words: object) -> str:
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1
        assert err.startswith("thetajoin: ")
        assert "Traceback" not in err
        assert "shows where" not in err
        return err

    return call


@pytest.fixture
def some_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Java, for commands that ask for it before they look at the rest."""
    java = session.Java(Path("java"), session.OLDEST_JAVA, "a test")
    monkeypatch.setattr(session, "find_java", lambda: java)


STREAM_JOB = """
query = "SELECT a.k, b.k AS j, b.s FROM a, b WHERE a.k < b.k"
trigger = "{trigger}"
[sources.a]
path = "a"
stream = true
[sources.b]
path = "b"
stream = true
[window]
count = 50
on = "k"
[sink]
format = "console"
"""


@pytest.fixture
def java() -> None:
    """Skips a test where no Spark can run."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from thetajoin.spark.session import find_java

    try:
        find_java()
    except ThetaJoinError as error:
        pytest.skip(str(error))


@pytest.fixture
def stream_job(tmp_path: Path, java: None) -> Callable[..., Path]:
    """Makes a folder with a streaming job of two files; cells look like markup."""

    def make(trigger: str = "available-now") -> Path:
        table = pa.table({"k": range(30), "s": [f"[red]{at}[/b]" for at in range(30)]})
        for side in "ab":
            (tmp_path / side).mkdir()
            parquet.write_table(table, tmp_path / side / "0.parquet")
        (tmp_path / "job.toml").write_text(STREAM_JOB.format(trigger=trigger))
        return tmp_path

    return make
