"""What a streaming job tells beside its rows: options that make no sense, logs, the full view."""

from __future__ import annotations

import builtins
import json
import socket
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from rich.console import Console

from spark.progresses import BASE, progress
from thetajoin import secrets
from thetajoin.cli.display import WatchView
from thetajoin.cli.run import tell_user
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.job_file import Job, SourceSpec, read_job
from thetajoin.jobs.watchers import Watching, draw_picture, open_watchers

JOB = """
query = "SELECT a.k, b.k AS j FROM a, b WHERE a.k < b.k"
trigger = "5 seconds"
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
def job(tmp_path: Path) -> Path:
    for side in "ab":
        (tmp_path / side).mkdir()
        (tmp_path / side / "0.parquet").touch()
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("--page",),
        ("--port", "0"),
        ("--metrics", "0"),
        ("--otlp", "http://x"),
        ("--log", "json"),
        ("--watch",),
    ],
)
def test_tables_are_not_watched(refused: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    file = tmp_path / "a.csv"
    query = f"SELECT a.x FROM '{file}' a JOIN '{file}' b ON a.x < b.x"
    option = "--page" if words[0] == "--port" else words[0]
    assert f"{option} is for streams" in refused("run", query, *words)


def test_what_makes_no_sense_is_one_line_before_spark_starts(
    refused: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("thetajoin.spark.session.local_session", never)
    assert "the only format is json" in refused("run", job, "--log", "xml")
    assert "write PORT, or HOST:PORT" in refused("run", job, "--metrics", "here")
    assert "write an address such as" in refused("run", job, "--otlp", "localhost:4318")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused("dashboard", job, "--port", port)
        assert f"the page cannot have port {port}: Address already in use" in line
        line = refused("run", job, "--metrics", port)
        assert f"served on 127.0.0.1:{port}: Address already in use" in line


@pytest.mark.parametrize(
    ("option", "module", "extra"),
    [
        (Watching(page=True, port=0), "uvicorn", "page"),
        (Watching(metrics="0"), "prometheus_client", "metrics"),
        (Watching(otlp="http://localhost:1"), "opentelemetry", "otlp"),
    ],
)
def test_a_missing_extra_is_named(
    job: Path, monkeypatch: pytest.MonkeyPatch, option: Watching, module: str, extra: str
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "thetajoin.jobs.page", raising=False)
    usual = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name.split(".")[0] == module:
            raise ImportError(name)
        return usual(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with (
        pytest.raises(Exception, match=rf"pip install 'thetajoin\[{extra}\]'"),
        open_watchers(option, read_job(job), tell_user),
    ):
        pass


def test_the_log_is_an_object_a_micro_batch(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_watchers(Watching(log="json"), read_job(job), tell_user) as told:
        [(add, end)] = told.subscribers
        told.ended = True
        add(progress(7))
        add(progress(9))
        end('it "broke"\n\x1b[31m')
    out, err = capsys.readouterr()
    assert out == ""
    first, second, last = map(json.loads, err.splitlines())
    assert (first["event"], first["level"], first["query"]) == ("batch", "info", "job")
    assert (first["batch"], first["input_rows"], first["output_rows"]) == (7, 1007, 300)
    assert (first["batch_seconds"], first["watermark_lag_seconds"]) == (0.5, 10)
    assert (second["level"], second["late_rows"]) == ("warning", 1)
    assert (last["event"], last["level"], last["error"]) == ("end", "error", 'it "broke"\n\x1b[31m')
    assert "\x1b" not in err


def test_a_collector_that_is_not_there_is_told_once_and_without_its_password(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    with socket.create_server(("127.0.0.1", 0)) as other:
        gone = other.getsockname()[1]
    watching = Watching(otlp=f"http://me:secret@127.0.0.1:{gone}")
    with open_watchers(watching, read_job(job), tell_user) as told:
        [(add, _)] = told.subscribers
        add(progress(0))
    err = capsys.readouterr().err
    assert err.count("the OpenTelemetry collector gets nothing") == 1
    assert "secret" not in err


def test_everyone_is_told_of_the_end_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for error, known in ((OptionError("it did not start"), "it did not start"), (None, None)):
        with (
            suppress(OptionError),
            open_watchers(Watching(log="json"), read_job(job), tell_user) as told,
        ):
            if error is not None:
                raise error
            told.end(None)
        [line] = capsys.readouterr().err.splitlines()
        assert (json.loads(line)["event"], json.loads(line)["error"]) == ("end", known)
    with (
        pytest.raises(KeyboardInterrupt),
        open_watchers(Watching(log="json"), read_job(job), tell_user),
    ):
        raise KeyboardInterrupt
    assert json.loads(capsys.readouterr().err)["event"] == "end"


def test_the_full_view_has_all_numbers() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=140, height=40, color_system=None)
    with WatchView(console) as view:
        for number in range(20):
            view.add(progress(number, units=BASE.units, output_rows=20_000, batch_ms=500))
        view.refresh()
    shown = file.getvalue()
    for part in (
        "rows in",
        "510/s",
        "10,000/s",
        "median 500 ms",
        "10.0 s to the newest row",
        "2 late",
        "1.10 x the mean of 2 units",
        "12,926",
        "20 batches",
    ):
        assert part in shown, part
    assert "▁" in shown
    assert "█" in shown


def test_a_plan_that_cannot_be_explained_is_drawn_as_far_as_it_is_known(job: Path) -> None:
    class Query:
        def explain(self) -> Any:
            raise OptionError("the query has 2 inequality joins, and a plan shows one")

    drawn = draw_picture(read_job(job), Query())  # type: ignore[arg-type]
    assert (drawn.title, drawn.interval, drawn.sink) == ("job.toml", 5.0, "console")
    assert [source.name for source in drawn.sources] == ["a", "b"]
    assert "2 inequality joins" in drawn.text


def test_a_job_without_a_checkpoint_keeps_no_history(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    job = Job("SELECT 1", {"a": SourceSpec("a", "csv", True)})
    with open_watchers(Watching(page=True, port=0), job, tell_user) as told:
        told.subscribers[0][0](progress(0))
    assert list(tmp_path.iterdir()) == []


class _Unplanned:
    """A query without a plan."""

    def explain(self) -> Any:
        raise ThetaJoinError("no plan")


def test_nobody_is_told_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came from the environment is neither drawn, nor logged, nor given to a page."""
    monkeypatch.setenv("PLACE", "hunter22.example:9092")
    source = 'kafka = "${PLACE}"\ntopic = "t"\n'
    tables = "".join(f"[sources.{side}]\n{source}" for side in "ab")
    path = tmp_path / "job.toml"
    path.write_text(f'query = "SELECT 1 FROM a, b"\ncheckpoint = "ck"\n{tables}[sink]\n{source}')
    job = read_job(path)
    try:
        drawn = draw_picture(job, _Unplanned())  # type: ignore[arg-type]
        assert "hunter22" not in repr(drawn)
        assert drawn.sink == "topic 't' at [hidden]"
        ends: list[str | None] = []
        error = "no broker at hunter22.example:9092"
        with suppress(ThetaJoinError), open_watchers(Watching(log="json"), job, tell_user) as told:
            told.subscribers.append((lambda _: None, ends.append))
            told.warn(error, lambda _: None)
            raise ThetaJoinError(error)
        assert ends == ["no broker at [hidden]"]
        said = capsys.readouterr().err
        assert [json.loads(line)["event"] for line in said.splitlines()] == ["warning", "end"]
        assert "hunter22" not in said
    finally:
        secrets.forget()
