"""An Iceberg catalog in a folder, and a compaction, which pyiceberg itself cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa


def catalog_options(folder: Path) -> dict[str, str]:
    """A catalog in a file of SQLite, with its tables beside it."""
    (folder / "lake").mkdir(exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/lake",
    }


def open_catalog(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("here", **catalog_options(folder))
    catalog.create_namespace_if_not_exists("db")
    return catalog


def compact(table: Any) -> None:
    """One file with all rows instead of many, in a snapshot that says `replace`."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    table.refresh()
    rows: pa.Table = table.scan().to_arrow()
    old = [task.file for task in table.scan().plan_files()]
    with table.transaction() as change:
        new = _dataframe_to_data_files(change.table_metadata, rows, table.io)
        with change.update_snapshot().overwrite() as files:
            for file in old:
                files.delete_data_file(file)
            for file in new:
                files.append_data_file(file)
    edit(table, lambda data: data["snapshots"][-1]["summary"].update(operation="replace"))
    assert table.refresh().scan().to_arrow().num_rows == rows.num_rows


def edit(table: Any, change: Any) -> None:
    """Rewrite a table's metadata."""
    file = Path(table.refresh().metadata_location.removeprefix("file://"))
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
