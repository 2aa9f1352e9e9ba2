"""Job files and queries on the command line."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from thetajoin.cli.app import app
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.jobs.job_file import read_job
from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow

QUERY = "SELECT a.k AS k, count(*) AS n FROM a, b WHERE a.k < b.k GROUP BY a.k"


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.table({"k": [1, 2, 3], "t": [1, 2, 3]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [2, 3], "t": [1, 2]}), tmp_path / "b.parquet")
    return tmp_path


def job(folder, text):
    path = folder / "job.toml"
    path.write_text(text)
    return path


SOURCES = '\n[sources.a]\npath = "a.parquet"\n[sources.b]\npath = "b.parquet"\n'


def call(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(result.exception, ThetaJoinError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_job_writes_its_sink(folder):
    path = job(folder, f'query = "{QUERY}"{SOURCES}[sink]\npath = "out.parquet"\n')
    assert "2 rows in" in call("run", path)
    got = pq.read_table(folder / "out.parquet").sort_by("k").to_pydict()
    assert got == {"k": [1, 2], "n": [2, 1]}
    assert "without pairs" in call("explain", path)


def test_a_query_with_tables(folder):
    tables = ["--table", f"a={folder}/a.parquet", "--table", f"b={folder}/b.parquet"]
    shown = call("run", QUERY, *tables)
    assert "k" in shown
    assert "2" in shown
    call("run", QUERY, *tables, "--out", folder / "out.csv")
    assert (folder / "out.csv").read_text().splitlines()[0] == '"k","n"'
    (folder / "q.sql").write_text(QUERY)
    assert "group by: a.k" in call("explain", folder / "q.sql", *tables)
    with pytest.raises(OptionError, match="NAME=FILE"):
        call("run", QUERY, "--table", "a")


def test_a_look_at_the_first_rows_does_not_build_them_all(folder):
    """More than a billion pairs, of which twenty are shown."""
    pq.write_table(pa.table({"x": range(60_000)}), folder / "t.parquet")
    query, table = "SELECT t.x FROM t, t u WHERE t.x < u.x", f"t={folder}/t.parquet"
    assert "the first 20 rows" in call("run", query, "--table", table)
    assert "the first" not in call("run", f"{query} LIMIT 20", "--table", table)


def test_windows(folder):
    text = f'query = "{QUERY}"{SOURCES}'
    found = read_job(job(folder, text + '[window]\ncount = 5\nslide = 2\non = "t"\n'))
    assert found.window == (CountWindow(5, 2), "t")
    found = read_job(job(folder, text + '[window]\ntime = "5 minutes"\non = ["t", "t"]\n'))
    assert found.window == (TimeWindow("5 minutes", time="t"), None)
    assert read_job(job(folder, text + "[window]\nall = true\n")).window == (FullHistory(), None)
    counted = job(folder, text + '[window]\ncount = 1\non = "t"\n[sink]\npath = "o.parquet"\n')
    call("run", counted)
    # Arrival: a1 b2 a2 b3 a3, each seeing one row of the other side.
    got = pq.read_table(folder / "o.parquet").sort_by("k").to_pydict()
    assert got == {"k": [1, 2], "n": [1, 1]}


STREAM = SOURCES.replace('"a.parquet"\n', '"a.parquet"\nstream = true\n')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'querry = "{QUERY}"{SOURCES}', "unknown key 'querry': did you mean 'query'"),
        (f'query = "{QUERY}"{SOURCES}stram = true', "unknown key 'stram': did you mean 'stream'"),
        (f'query = "{QUERY}"{SOURCES}[sink]\npth = "x"', "unknown key 'pth': did you mean 'path'"),
        (f'query = "{QUERY}"{SOURCES}[window]\nconut = 5', "unknown key 'conut'.*'count'"),
        (f'query = "{QUERY}"{SOURCES}[window]\ncount = "5"', "must be a int"),
        (f'query = "{QUERY}"{SOURCES}[window]\non = "t"', "either time or count"),
        (f'query = "{QUERY}"{SOURCES}[sink]\npath = "x"\nformat = "xls"', "format = 'xls'"),
        (f'query = "{QUERY}"{SOURCES.replace("a.parquet", "z.parquet")}',
         "z.parquet': there is no such file"),
        (f'query = "{QUERY}"{SOURCES}[window]\nall = true\ncount = 5', "leave the other keys out"),
        (SOURCES, "has no 'query'"),
        (f'query = "{QUERY}"', "has no sources"),
        ("query = ", "not a job file"),
        (f'query = "{QUERY}"\ncheckpoint = "ck"{SOURCES}', "checkpoint is for streams"),
        (f'query = "{QUERY}"{STREAM}', "needs a .sink. with a path"),
        (f'query = "{QUERY}"{STREAM}[sink]\npath = "out"', "needs a checkpoint"),
        (f'query = "{QUERY}"\ncheckpoint = "c"{STREAM}[sink]\npath = "o"\nmode = "update"',
         "files take mode 'append' only"),
        (f'query = "{QUERY}"{STREAM}watermark = "ts"', "write 'ts 10 seconds'"),
    ],
)  # fmt: skip
def test_mistakes(folder, text, message):
    with pytest.raises(OptionError, match=message):
        call("run", job(folder, text))


def test_a_missing_job():
    with pytest.raises(OptionError, match="cannot read the job"):
        call("run", "nowhere.toml")


def test_a_stream_needs_a_first_file(folder):
    (folder / "empty").mkdir()
    stream = STREAM.replace('"a.parquet"', '"empty"') + '[sink]\nformat = "console"\n'
    with pytest.raises(OptionError, match=r"source 'a': .* there are no files .* its first file"):
        read_job(job(folder, f'query = "{QUERY}"{stream}'))
