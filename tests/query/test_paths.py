"""Files in FROM."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import thetajoin as tj

pytest.importorskip("thetajoin.batch.files", reason="tables are not read from paths")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa.parquet.write_table(pa.table({"x": [1, 5], "k": [1, 2]}), "trades.parquet")
    pa.csv.write_csv(pa.table({"y": [3, 7], "k": [2, 3]}), "q.csv")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT trades.x, u.y FROM 'trades.parquet' JOIN 'q.csv' u ON trades.x < u.y",
         [(1, 3), (1, 7), (5, 7)]),
        ("SELECT x, y FROM 'trades.parquet', `q.csv` WHERE x < y AND q.k < 3", [(1, 3)]),
        ("SELECT median(x) FROM 'tra*.parquet' t, 'q.csv' WHERE t.x < q.y", [(1.0,)]),
        ("SELECT count(*) FROM 'trades.parquet' WHERE x IN (SELECT x FROM 'trades.parquet')",
         [(2,)]),
        ("SELECT median(trades.x) FROM 'trades.parquet' JOIN 'q.csv' USING (k) "
         "WHERE trades.x IN (SELECT x FROM 'trades.parquet') AND x > y", [(5.0,)]),
        ("SELECT x FROM 'trades.parquet' WHERE x > 1", [(5,)]),
    ],
)  # fmt: skip
def test_files_in_from(query, want):
    assert sorted(tuple(row.values()) for row in tj.sql(query).to_pylist()) == want


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_not_there():
    with pytest.raises(tj.ThetaJoinError, match=r"nope\.parquet"):
        tj.sql("SELECT * FROM 'nope.parquet'")
    with pytest.raises(tj.ThetaJoinError, match="table 'trades', which was not given"):
        tj.sql("SELECT * FROM trades")
