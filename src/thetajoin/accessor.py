"""What `df.thetajoin` offers: the calls of this package with the table itself on the left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from thetajoin import api
from thetajoin.planner.plan import AggPlan, Plan


class Accessor:
    """The calls of `thetajoin` whose left table is this one; they take the same arguments."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def join(self, right: Any, on: Any, **arguments: Any) -> Any:
        """`thetajoin.join` with this table on the left; costs the same."""
        return api.join(self._table, right, on, **arguments)

    def join_batches(self, right: Any, on: Any, **arguments: Any) -> Iterator[pa.RecordBatch]:
        """`thetajoin.join_batches` with this table on the left; costs the same."""
        return api.join_batches(self._table, right, on, **arguments)

    def self_join(self, on: Any, **arguments: Any) -> Any:
        """`thetajoin.self_join` of this table; costs the same."""
        return api.self_join(self._table, on, **arguments)

    def join_agg(self, right: Any, on: Any, **arguments: Any) -> Any:
        """`thetajoin.join_agg` with this table on the left; costs the same."""
        return api.join_agg(self._table, right, on, **arguments)

    def self_join_agg(self, on: Any, **arguments: Any) -> Any:
        """`thetajoin.self_join_agg` of this table; costs the same."""
        return api.self_join_agg(self._table, on, **arguments)

    def nearest(self, right: Any, **arguments: Any) -> Any:
        """`thetajoin.nearest` with this table on the left; costs the same."""
        return api.nearest(self._table, right, **arguments)

    def explain(self, right: Any, on: Any, **arguments: Any) -> Plan | AggPlan:
        """`thetajoin.explain` with this table on the left; costs the same."""
        return api.explain(self._table, right, on, **arguments)
