"""Tables of Delta and Iceberg by the Python packages deltalake and pyiceberg.

Both write a micro-batch in one commit that says which micro-batch it is, so that one that is run
again is not written again.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pyarrow as pa

from thetajoin.batch.stores import store_failure
from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.spark.connectors.specs import TableSink, TableSource

PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
# Of an Iceberg snapshot: which query wrote it, and its micro-batch.
_APP, _BATCH = "thetajoin.query", "thetajoin.batch"


def check_package(kind: str) -> None:
    """Refuse a kind of table whose package is not installed."""
    if importlib.util.find_spec(PACKAGES[kind]) is None:
        raise OptionError(f"{kind} tables need {PACKAGES[kind]}: pip install 'thetajoin[{kind}]'")


def read_table(source: TableSource) -> tuple[pa.Table, str]:
    """A table's rows as they are now, and which version of it that is."""
    check_package(source.kind)
    try:
        return _read_delta(source) if source.kind == "delta" else _read_iceberg(source)
    except Exception as error:  # each package has a tree of errors of its own
        told = f"cannot read the {source.kind} table {source.place}"
        raise ThetaJoinError(_said(told, error)) from error


def append_batch(sink: TableSink, rows: pa.Table, app: str, batch: int) -> bool:
    """Append a micro-batch's rows, unless this query has done so before; whether it did."""
    check_package(sink.kind)
    write = _append_delta if sink.kind == "delta" else _append_iceberg
    try:
        return write(sink, rows, app, batch)
    except Exception as error:
        told = f"cannot write micro-batch {batch} to the {sink.kind} table {sink.place}"
        raise ThetaJoinError(_said(told, error)) from error


def check_table(sink: TableSink) -> None:
    """Refuse a sink that cannot be reached, before anything runs."""
    check_package(sink.kind)
    told = f"cannot look at the delta table {sink.place}"
    try:
        if sink.kind == "iceberg":
            told = f"cannot open the catalog of {sink.place}"
            open_catalog(sink.place, sink.options)
        else:
            _is_delta(sink)
    except Exception as error:
        raise ThetaJoinError(_said(told, error)) from error


def _said(what: str, error: Exception) -> str:
    return f"{what}: {store_failure(str(error)) or type(error).__name__}"


def _read_delta(source: TableSource) -> tuple[pa.Table, str]:
    from deltalake import DeltaTable

    table = DeltaTable(source.place, storage_options=dict(source.options) or None)
    return table.to_pyarrow_table(), f"version {table.version()}"


def _is_delta(sink: TableSink) -> bool:
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(sink.place, storage_options=dict(sink.options) or None))


def _append_delta(sink: TableSink, rows: pa.Table, app: str, batch: int) -> bool:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    storage = dict(sink.options) or None
    if _is_delta(sink):
        done = DeltaTable(sink.place, storage_options=storage).transaction_version(app)
        if done is not None and done >= batch:
            return False
    mark = CommitProperties(app_transactions=[Transaction(app_id=app, version=batch)])
    write_deltalake(
        sink.place, rows, mode="append", commit_properties=mark, storage_options=storage
    )
    return True


def open_catalog(place: str, options: Any) -> tuple[Any, str]:
    """The catalog that a table's name begins with, and the rest of the name."""
    from pyiceberg.catalog import load_catalog

    name, _, table = place.partition(".")
    return load_catalog(name, **dict(options)), table


def _read_iceberg(source: TableSource) -> tuple[pa.Table, str]:
    catalog, name = open_catalog(source.place, source.options)
    table = catalog.load_table(name)
    snapshot = table.current_snapshot()
    version = "no snapshot" if snapshot is None else f"snapshot {snapshot.snapshot_id}"
    return table.scan().to_arrow(), version


def _append_iceberg(sink: TableSink, rows: pa.Table, app: str, batch: int) -> bool:
    from pyiceberg.exceptions import NoSuchTableError

    catalog, name = open_catalog(sink.place, sink.options)
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        table = catalog.create_table(name, schema=rows.schema)
    if _written(table, app) >= batch:
        return False
    table.append(rows, snapshot_properties={_APP: app, _BATCH: str(batch)})
    return True


def _written(table: Any, app: str) -> int:
    """The newest micro-batch of a query that an Iceberg table has; -1 for none."""
    found = -1
    for snapshot in table.snapshots():
        summary = snapshot.summary
        given = {} if summary is None else summary.additional_properties
        if given.get(_APP) == app:
            found = max(found, int(given[_BATCH]))
    return found
