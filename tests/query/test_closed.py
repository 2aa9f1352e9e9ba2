"""What a query cannot reach: files it was not given, settings, the network, memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

import thetajoin as tj

T = pa.table({"a": [1, 2]})
REACHING = [
    "SELECT * FROM read_text('{file}')",
    "SELECT t.a, x.content FROM t JOIN read_text('{file}') x ON true",
    "SELECT * FROM read_csv('{file}')",
    "SELECT t.a FROM t WHERE t.a < (SELECT count(*) FROM read_csv('{file}'))",
    "SELECT t.a FROM t JOIN t u ON t.a < u.a WHERE EXISTS (SELECT 1 FROM read_blob('{file}'))",
    "WITH x AS (SELECT * FROM read_parquet('{file}')) SELECT * FROM x",
    "SELECT * FROM t, glob('{file}*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM sqlite_scan('{file}', 'x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_size()",
    "SELECT current_setting('temp_directory') FROM t",
    "SELECT * FROM query('SELECT * FROM duckdb_settings()')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "COPY t TO '{file}'",
    "INSTALL httpfs",
    "SET threads = 1",
    "ATTACH '{file}'",
    "SELECT 1; SELECT 2",
]


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("query", REACHING)
def test_a_query_reaches_nothing_but_its_tables(query, files, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nswordfish\n")
    with pytest.raises(tj.ThetaJoinError) as refused:
        tj.sql(query.format(file=secret), t=T, files=files)
    assert "swordfish" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert secret.read_text() == "password\nswordfish\n"


NAMING = [
    "SELECT * FROM '{file}'",
    "SELECT t.a FROM t JOIN '{file}' s ON t.a < s.b",
    "SELECT t.a FROM t WHERE t.a IN (SELECT b FROM '{file}')",
    "WITH x AS (SELECT * FROM `{file}`) SELECT t.a FROM t JOIN x ON t.a < x.b",
    "SELECT * FROM csv.`{file}`",
]


@pytest.mark.parametrize("query", NAMING)
def test_files_can_be_switched_off(query, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("b\n2\n")
    with pytest.raises(tj.ThetaJoinError, match="files are switched off") as refused:
        tj.sql(query.format(file=file), t=T, files=False)
    assert len(str(refused.value).splitlines()) == 1
    if "csv.`" not in query:
        assert tj.sql(query.format(file=file), t=T).num_rows == 1


def test_a_table_may_be_called_files():
    query = "SELECT t.a FROM t JOIN files ON t.a < files.a"
    assert tj.sql(query, t=T, files=T).to_pydict() == {"a": [1]}


def test_the_engine_itself_is_closed():
    """Should a function be missing from our list, DuckDB refuses it."""
    duckdb = pytest.importorskip("duckdb")
    from thetajoin.query.on_duckdb import connect

    connection = connect(1)
    for statement in (
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('http://localhost:1/x.csv')",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "COPY (SELECT 1) TO '/tmp/x'",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(statement).fetchall()


def test_an_internal_error_of_duckdb_ends_one_query_only() -> None:
    """Such an error closes its database, which the queries of a process share."""
    pytest.importorskip("duckdb")
    # DuckDB 2.0 fails so on times at the end of 64 bits; should it no more, take another query.
    far = pa.table({"t": pa.array([2**63 - 2], pa.timestamp("ms"))})
    with pytest.raises(tj.ThetaJoinError, match="in the query: "):
        tj.sql("SELECT CAST(far.t AS STRING) AS x FROM far", far=far)
    assert tj.sql("SELECT a, count(*) AS n FROM T GROUP BY a", T=T).num_rows == 2
