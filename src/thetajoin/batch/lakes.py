"""Tables of Delta and Iceberg in this process, read by the packages deltalake and pyiceberg."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pyarrow as pa

from thetajoin.batch.stores import store_failure
from thetajoin.errors import OptionError, ThetaJoinError

PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def read_lake(kind: str, place: str, options: Mapping[str, str]) -> pa.Table:
    """A table's rows as they are now."""
    if importlib.util.find_spec(PACKAGES[kind]) is None:
        raise OptionError(
            f"{kind.title()} tables without a stream need {PACKAGES[kind]}: "
            f"pip install 'thetajoin[{kind}]'"
        )
    try:
        return _read_delta(place, options) if kind == "delta" else _read_iceberg(place, options)
    except Exception as error:  # each package has a tree of errors of its own
        why = store_failure(str(error)) or type(error).__name__
        raise ThetaJoinError(f"cannot read the {kind.title()} table {place}: {why}") from error


def _read_delta(place: str, options: Mapping[str, str]) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(place, storage_options=dict(options) or None).to_pyarrow_table()


def _read_iceberg(place: str, options: Mapping[str, str]) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    catalog, _, table = place.partition(".")
    return load_catalog(catalog, **options).load_table(table).scan().to_arrow()
