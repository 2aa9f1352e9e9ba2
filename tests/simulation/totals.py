"""Partial aggregates of a history added up, as Spark would, and what the oracle makes of the pairs.

Each is a dictionary of groups; a group has its number of pairs, and each term's part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

import naive
from naive import Pair
from simulation.cases import plain
from thetajoin.aggregate.spec import AggSpec
from thetajoin.aggregate.totals import TotalsJoin
from thetajoin.engine.spec import JoinSpec
from thetajoin.spark.unit_spec import UnitSpec

ByGroup = dict[Any, tuple[Any, ...]]


@cache
def _spec(on: str, schemas: tuple[bytes, bytes], group: str, aggs: tuple[Any, ...]) -> AggSpec:
    left, right = (pa.ipc.read_schema(pa.py_buffer(schema)) for schema in schemas)
    spec = JoinSpec(on, group_by=(group,), aggs=dict(aggs))
    return TotalsJoin(spec, left, right).aggregates


def agg_spec(spec: UnitSpec) -> AggSpec:
    """The aggregates of a join."""
    assert spec.join.aggs is not None
    (group,) = spec.join.group_by
    schemas = spec.left_schema, spec.right_schema
    return _spec(spec.join.on, schemas, group, tuple(spec.join.aggs.items()))


def totals_of(spec: UnitSpec, rows: Iterable[Sequence[Any]]) -> ByGroup:
    """Partial rows (group, pairs, terms) by group."""
    parts: dict[Any, list[Sequence[Any]]] = {}
    for row in rows:
        parts.setdefault(_key(row[0]), []).append(row[1:])
    kinds = ["count", *(term.kind for term in agg_spec(spec).terms)]
    return {
        group: tuple(
            _total(kind, values) for kind, values in zip(kinds, zip(*of, strict=True), strict=True)
        )
        for group, of in parts.items()
    }


def naive_totals(spec: UnitSpec, pairs: Iterable[Pair]) -> ByGroup:
    """The same from the pairs."""
    column = spec.join.group_by[0].removeprefix("l.")
    terms = agg_spec(spec).terms
    groups: dict[Any, list[Any]] = {}
    for left, right in pairs:
        assert left is not None
        assert right is not None
        groups.setdefault(_key(left[column]), []).append(right[column])
    return {
        group: (
            len(values),
            *(
                sum(v is not None for v in values)
                if term.kind == "count"
                else _total(term.kind, values)
                for term in terms
            ),
        )
        for group, values in groups.items()
    }


def _total(kind: str, values: Sequence[Any]) -> Any:
    there = [value for value in values if value is not None]
    if not there:
        return None
    if kind in ("min", "max"):
        return _key(naive.extreme(kind, there))
    return _key(sum(there))


def _key(value: Any) -> Any:
    """Grouped as Spark does: one zero, one NaN."""
    return plain(value + 0.0) if isinstance(value, float) else value
