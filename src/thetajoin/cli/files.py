"""Reading a table from a file by its name's ending."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from thetajoin.errors import SchemaError


def read_table(path: Path) -> pa.Table:
    """A Parquet, CSV or Arrow file, or a folder of Parquet files, as a table."""
    if not path.exists():
        raise SchemaError(f"no such file: {path}")
    try:
        if path.suffix == ".csv":
            from pyarrow import csv

            return csv.read_csv(path)
        if path.suffix in (".arrow", ".ipc", ".feather"):
            from pyarrow import feather

            return feather.read_table(path)
        from pyarrow import parquet

        return parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise SchemaError(f"cannot read {path} as a table: {reason}") from error
