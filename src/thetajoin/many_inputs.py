"""Joins of three and more inputs, as steps of two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Unpack, overload

import numpy as np
import pyarrow as pa

from thetajoin.api import join
from thetajoin.batch.keys import Int64
from thetajoin.batch.tables import Frame, Input, from_table, kind_of
from thetajoin.dispatch import SMALLER, is_spark
from thetajoin.edge import public
from thetajoin.engine.parts import compare_columns
from thetajoin.engine.rows import Ordering, take_all_in
from thetajoin.engine.spec import JoinOptions, check_window
from thetajoin.errors import OptionError, SchemaError
from thetajoin.planner.join_order import Estimate, JoinStep, order_joins, qualify
from thetajoin.planner.plan import sample_of
from thetajoin.predicate.builder import Built
from thetajoin.predicate.condition import conjuncts
from thetajoin.predicate.nodes import Expr
from thetajoin.predicate.time_zones import refuse_mixed_columns, refuse_mixed_zones
from thetajoin.window.many_inputs import (
    ONE,
    between,
    first_seen,
    hide_name,
    last_seeing,
    pair_window,
    sees,
)
from thetajoin.window.windows import CountWindow, TimeWindow, Window


@overload
def join_many(
    inputs: Mapping[str, Frame],
    on: str | Built | Sequence[str | Built],
    *,
    window: Window | None = None,
    order_by: str | Sequence[str] | None = None,
    cross: bool = False,
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def join_many(
    inputs: Mapping[str, Input],
    on: str | Built | Sequence[str | Built],
    *,
    window: Window | None = None,
    order_by: str | Sequence[str] | None = None,
    cross: bool = False,
    **options: Unpack[JoinOptions],
) -> Any: ...


@public(SMALLER)
def join_many(
    inputs: Mapping[str, Input],
    on: str | Built | Sequence[str | Built],
    *,
    window: Window | None = None,
    order_by: Any = None,
    cross: bool = False,
    **options: Unpack[JoinOptions],
) -> Any:
    """Join three and more inputs on a condition over their names; the result is of their kind.

    Two inputs are joined at a time, those first that are estimated to give least (streams: in the
    given order), so the cost is that of the largest result on the way.

    Args:
        inputs: tables by name, each as for `join`; on Spark all are Spark's.
        on: a SQL condition over these names, or a list of such.
        window: under a `TimeWindow` the times of every two rows of a result lie within it, the
            window's left being the input that was given first. Under a `CountWindow` (tables only)
            rows of all inputs are taken in the order of `order_by`, and the latest row of a result
            sees its others.
        order_by: a column's name, or one for each input.
        cross: whether an input that nothing connects is joined with every row; else an error.
        **options: as for `join`.

    Returns:
        Columns in the order of the inputs, as the first one's kind. A column whose name an earlier
        input has gets ``_`` and its input's name.

    >>> import thetajoin as tj, pyarrow as pa
    >>> r, s, t = (pa.table({"x": x}) for x in ([1, 5], [2, 6], [2, 3]))
    >>> tj.join_many({"r": r, "s": s, "t": t}, "r.x < s.x AND s.x <= t.x").to_pydict()
    {'x': [1, 1], 'x_s': [2, 2], 'x_t': [2, 3]}
    """
    names = _check(inputs, window, order_by)
    tables: Any
    if is_spark(inputs[names[0]]):
        from thetajoin.spark.frames import ManyFrames

        tables = ManyFrames(inputs)
    else:
        tables = _Tables(inputs)
    window, order_by = tables.resolve_names(window, order_by)
    parts = conjuncts(on, tables.schemas)
    orders = _orders(order_by, tables.schemas)
    tables.check(on, parts, window, orders)
    if isinstance(window, CountWindow):
        tables.number(window, orders)
    steps = order_joins(names, parts, tables.estimate(), cross=cross)
    return _join_in_turn(tables, steps, window, dict(options))


def _check(inputs: Any, window: Window | None, order_by: Any) -> list[str]:
    if not isinstance(inputs, Mapping) or len(inputs) < 2:
        raise SchemaError(
            'join_many takes a dictionary of inputs by name: {"r": first, "s": second, "t": third}'
        )
    names = list(inputs)
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise SchemaError(f"the input's name {name!r} is not a plain word, such as r or orders")
    if len({name.lower() for name in names}) < len(names):
        raise SchemaError(f"inputs' names differ in case only: {', '.join(names)}")
    spark = [name for name in names if is_spark(inputs[name])]
    if spark and len(spark) < len(names):
        other = next(name for name in names if name not in spark)
        raise SchemaError(
            f"input {spark[0]!r} is a Spark DataFrame and {other!r} is not: make all of them one"
        )
    if window is not None:
        check_window(window)
    if order_by is not None and not isinstance(window, CountWindow):
        raise OptionError("order_by goes with a CountWindow")
    return names


class _Tables:
    """Tables in this process, their columns named ``input.column``."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.kind = kind_of(next(iter(inputs.values())))
        self.batches = take_all_in(inputs, as_kind=self.kind)
        self.schemas = {name: batch.schema for name, batch in self.batches.items()}
        self.numbers: dict[str, dict[str, Int64]] = {}

    def resolve_names(self, window: Window | None, order_by: Any) -> tuple[Window | None, Any]:
        """Window and order with the columns' own names, which are those given."""
        return window, order_by

    def check(
        self,
        on: Any,
        parts: Iterable[Expr],
        window: Window | None,
        orders: Mapping[str, str] | None,
    ) -> None:
        """Refuse times with a zone beside times without; binding has refused all else."""
        for part in parts:
            refuse_mixed_zones(part)
        for x, y in combinations(orders or {}, 2):
            assert orders is not None
            pair = compare_columns(orders[x], orders[y], self.schemas[x], self.schemas[y])
            refuse_mixed_columns(f"order_by of {x!r} and {y!r}", pair)

    def join(self, left: Any, right: Any, on: Any, **how: Any) -> Any:
        """One step."""
        return join(left, right, on, **how)

    def number(self, window: CountWindow, orders: dict[str, str] | None) -> None:
        """Number the rows, so that a condition can say which see each other."""
        self.numbers = _numbers(self.batches, window, orders)

    def estimate(self) -> Estimate:
        """Rows and samples of the tables."""
        rows = {name: batch.num_rows for name, batch in self.batches.items()}
        return Estimate(rows, {n: sample_of(b) for n, b in self.batches.items()})

    def input(self, name: str) -> pa.Table:
        """One input as a step takes it."""
        table = pa.Table.from_batches([qualify(self.batches[name], name)])
        for number, values in self.numbers.get(name, {}).items():
            table = table.append_column(hide_name(name, number), pa.array(values))
        return table

    def with_one(self, table: pa.Table) -> pa.Table:
        """The table with a column that is the same in all rows."""
        ones = pa.array([0], pa.int8()).take(pa.array([0] * table.num_rows, pa.int64()))
        return table.append_column(ONE, ones)

    def finish(self, table: pa.Table, columns: dict[str, str]) -> Any:
        """The output's columns in order, as the kind of table that came in."""
        assert self.kind is not None
        chosen = table.select(list(columns)).rename_columns(list(columns.values()))
        return from_table(chosen, self.kind)


def _join_in_turn(
    tables: Any, steps: tuple[JoinStep, ...], window: Window | None, options: dict[str, Any]
) -> Any:
    """Carry out the steps."""
    names = list(tables.schemas)
    joined = tables.input(steps[0].joined[0])
    for step in steps:
        left, right = joined, tables.input(step.name)
        texts = [step.on()] if step.parts else []
        if step.cross:
            left, right = tables.with_one(left), tables.with_one(right)
            texts.append(f"l.{ONE} = r.{ONE}")
        own: Window | None = window
        if isinstance(window, TimeWindow):
            own = pair_window(window, step.joined[0], step.name, names)
            texts += [
                between(window, other, step.name, names, tables.schemas)
                for other in step.joined[1:]
            ]
        if isinstance(window, CountWindow):
            own = None
            texts += [_see_each_other(other, step, names) for other in step.joined]
        joined = tables.join(left, right, texts, window=own, **options)
    return tables.finish(joined, _output(tables.schemas))


def _orders(order_by: Any, schemas: Mapping[str, pa.Schema]) -> dict[str, str] | None:
    """The column that orders each input's rows, checked to compare; None for as they come."""
    if order_by is None:
        return None
    columns = [order_by] * len(schemas) if isinstance(order_by, str) else order_by
    if not isinstance(columns, (list, tuple)) or not all(isinstance(c, str) for c in columns):
        raise OptionError(f"order_by={order_by!r}: give a column name, or one for each input")
    if len(columns) != len(schemas):
        raise OptionError(f"order_by has {len(columns)} names for {len(schemas)} inputs")
    orders = dict(zip(schemas, columns, strict=True))
    for name, column in orders.items():
        if column not in schemas[name].names:
            has = ", ".join(schemas[name].names)
            raise SchemaError(f"order_by column {column!r} is not in input {name!r}; it has {has}")
    for x, y in combinations(schemas, 2):
        compare_columns(orders[x], orders[y], schemas[x], schemas[y])
    return orders


def _numbers(
    batches: Mapping[str, pa.RecordBatch], window: CountWindow, orders: dict[str, str] | None
) -> dict[str, dict[str, Int64]]:
    """The numbers that each input's rows carry (see `thetajoin.window.many_inputs`)."""
    found: dict[str, dict[str, Int64]] = {name: {} for name in batches}
    for (i, x), (j, y) in combinations(enumerate(batches), 2):
        pair = None
        if orders is not None:
            schemas = batches[x].schema, batches[y].schema
            pair = compare_columns(orders[x], orders[y], *schemas)
        places, before = Ordering(pair).places(batches[x], batches[y])
        index = [_as_they_are(np.arange(len(b)), p) for b, p in zip(before, places, strict=True)]
        before = [_as_they_are(b, p) for b, p in zip(before, places, strict=True)]
        found[x] |= {f"first_{j}": first_seen(before[0], window)}
        found[x] |= {"last": last_seeing(index[0], window)}
        found[y] |= {"index": index[1], f"before_{i}": before[1]}
    return found


def _as_they_are(values: Int64, places: Any) -> Int64:
    """Values of rows in an order, put back into the order of the rows."""
    if places is None:
        return values
    result = np.empty_like(values)
    result[places] = values
    return result


def _see_each_other(other: str, step: JoinStep, names: list[str]) -> str:
    """The condition that a row of an earlier step and a new one see each other."""
    sides = {other: "l", step.name: "r"}
    x, y = sorted(sides, key=names.index)
    first, second = (f"{sides[name]}.{hide_name(name, '{}')}" for name in (x, y))
    return sees(first, second, (names.index(x), names.index(y)))


def _output(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """The output's columns: the name a step knows each by, and the user's."""
    columns: dict[str, str] = {}
    taken: set[str] = set()
    for name, schema in schemas.items():
        for column in schema.names:
            shown = column if column not in taken else f"{column}_{name}"
            if shown in taken:
                raise SchemaError(f"output column {shown!r} is there twice: rename {column!r}")
            taken.add(shown)
            columns[f"{name}.{column}"] = shown
    return columns
