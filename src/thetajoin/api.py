"""The functions a user calls; each hands its inputs to the engine that fits them.

What a plain join does not need is imported where it is used: it would take longer than the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from thetajoin.batch.tables import ArrowInput, Frame, Input
from thetajoin.dispatch import SMALLER, explain_call, run_call
from thetajoin.dispatch import is_spark as is_spark
from thetajoin.dispatch import open_join as open_join
from thetajoin.edge import public
from thetajoin.engine.layout import HowName
from thetajoin.engine.nearest import Nearest, nearest_condition
from thetajoin.engine.spec import JoinOptions, JoinSpec
from thetajoin.index.nearest import Direction, Ties
from thetajoin.predicate.builder import On
from thetajoin.window.windows import Window

if TYPE_CHECKING:
    from thetajoin.planner.plan import AggPlan, Plan

Groups = str | Sequence[str] | Mapping[str, str]


@overload
def join(
    left: Frame,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def join(
    left: ArrowInput,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> pa.Table: ...


@public(SMALLER)
def join(
    left: Any,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> Any:
    """Join two tables on inequalities; the result is of the left table's kind.

    Costs a sort of both sides and a constant for each match, never the product of the sizes.

    Args:
        left: the left table: of pyarrow, pandas, Polars (lazy or not) or Spark, anything with
            ``__arrow_c_stream__``, or the path, pattern or URI of files.
        right: the right table; it may be of another kind, unless one of them is Spark's.
        on: a SQL condition over ``l`` and ``r``, a list of such, or one made of `tj.l` and `tj.r`.
        how: "inner", "left", "right", "full", "semi" or "anti", or as Spark spells these.
        window: which pairs are looked at: a `TimeWindow`, a `CountWindow`, or all of them. A
            streaming DataFrame needs one.
        order_by: the column that orders the rows for a `CountWindow`, or one per side.
        suffix: what a right column gets behind its name where the left side has that name.
        indicator: the name of a further column that says "both", "left_only" or "right_only".
        **options: how the join is run, such as ``threads=2``, or ``check_memory=False`` to build
            a result that is expected not to fit into memory.

    Returns:
        The left columns, then the right ones: Arrow if the left input has no kind of its own.

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"rack": [1, 2], "power": [10, 30]})
    >>> there = pa.table({"rack": [7, 8], "power": [20, 40]})
    >>> tj.join(here, there, "l.power < r.power").sort_by("rack").to_pydict()["rack_right"]
    [7, 8, 8]
    >>> found = tj.join(here, there, "l.power > r.power", how="left", indicator="found")
    >>> dict(zip(found["rack"].to_pylist(), found["found"].to_pylist()))
    {2: 'both', 1: 'left_only'}
    """
    spec = JoinSpec.of(on, how, window, order_by, suffix, options=options, indicator=indicator)
    return run_call(left, right, spec)


@public(SMALLER)
def join_batches(
    left: Any,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> Iterator[pa.RecordBatch]:
    """The result of `join` as an iterator of record batches of bounded size.

    Nothing is computed ahead of what is taken but a few batches, so a join with a billion matches
    may be looked into and left. Mistakes are reported by the call itself. Threads that share the
    iterator are each given other batches.

    Args:
        left: the left table, as for `join`, but not of Spark.
        right: the right table.
        on: the condition, as for `join`.
        how: the kind of join, as for `join`.
        window: which pairs are looked at, as for `join`.
        order_by: the order of the rows for a `CountWindow`.
        suffix: for right columns whose name is taken.
        indicator: the name of a column that says which sides a row comes from.
        **options: as for `join`; ``chunk_rows`` is the most rows in a batch.

    Returns:
        Arrow record batches, whatever kind the tables are of.

    >>> import thetajoin as tj, pyarrow as pa
    >>> numbers = pa.table({"x": range(100_000)})
    >>> next(tj.join_batches(numbers, numbers, "l.x < r.x", chunk_rows=64)).num_rows
    64
    """
    spec = JoinSpec.of(on, how, window, order_by, suffix, options=options, indicator=indicator)
    return open_join(left, right, spec)[1]


@overload
def self_join(
    df: Frame,
    on: On,
    *,
    window: Window | None = None,
    order_by: str | None = None,
    suffix: str = "_right",
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def self_join(
    df: ArrowInput,
    on: On,
    *,
    window: Window | None = None,
    order_by: str | None = None,
    suffix: str = "_right",
    **options: Unpack[JoinOptions],
) -> pa.Table: ...


@public(SMALLER)
def self_join(
    df: Any,
    on: On,
    *,
    window: Window | None = None,
    order_by: str | None = None,
    suffix: str = "_right",
    **options: Unpack[JoinOptions],
) -> Any:
    """Join a table with itself: each pair of rows is tried in both roles, none with itself.

    Costs what `join` of the table with itself costs.

    Args:
        df: the table, as for `join`.
        on: the condition, as for `join`: ``l`` and ``r`` are two rows of the table.
        window: which pairs are looked at, as for `join`.
        order_by: the column that orders the rows for a `CountWindow`.
        suffix: what the columns of ``r`` get behind their names.
        **options: as for `join`.

    Returns:
        All columns twice, as the table's kind.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trips = pa.table({"km": [3, 5, 9], "fare": [12, 9, 20]})
    >>> tj.self_join(trips, "l.km > r.km AND l.fare < r.fare").to_pydict()
    {'km': [5], 'fare': [9], 'km_right': [3], 'fare_right': [12]}
    """
    spec = JoinSpec.of(on, "inner", window, order_by, suffix, self_join=True, options=options)
    return run_call(df, df, spec)


@overload
def join_agg(
    left: Frame,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def join_agg(
    left: ArrowInput,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    **options: Unpack[JoinOptions],
) -> pa.Table: ...


@public(SMALLER)
def join_agg(
    left: Any,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    **options: Unpack[JoinOptions],
) -> Any:
    """Counts, sums, averages and extremes over the matches of a join, by group.

    Gives what joining and then grouping would give, but lists no pairs where one or two
    inequalities decide (and equalities, bands and a window with them): then the cost is that of
    sorting both sides, whatever the number of matches.

    With ``how="left"`` every group of the left side is there, and `group_by` is of that side. Only
    matches count: a group without any has ``count(*)`` and ``count(x)`` 0, and NULL for the rest.
    (Spark's ``count(*)`` over an outer join would count an unmatched row as 1.)

    Args:
        left: the left table, as for `join`.
        right: the right table.
        on: the condition, as for `join`.
        how: "inner" or "left".
        group_by: an expression such as ``"l.rack"``, several, or a dictionary of them by name.
        aggs: aggregates by the name of their column: ``{"n": "count(*)", "most": "max(r.x)"}``.
        window: which pairs are looked at, as for `join`.
        order_by: the order of the rows for a `CountWindow`.
        **options: as for `join`.

    Returns:
        A row for each group, or one row, as the left table's kind.

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"rack": ["a", "b"], "power": [10, 30]})
    >>> there = pa.table({"rack": ["x", "y"], "power": [20, 40]})
    >>> aggs = {"n": "count(*)", "most": "max(r.power)"}
    >>> tj.join_agg(here, there, "l.power < r.power", group_by="l.rack", aggs=aggs).to_pydict()
    {'rack': ['a', 'b'], 'n': [2, 1], 'most': [40, 40]}
    >>> asked = {"group_by": "l.rack", "aggs": aggs}
    >>> tj.join_agg(here, there, "l.power > r.power", how="left", **asked).to_pydict()
    {'rack': ['a', 'b'], 'n': [0, 1], 'most': [None, 20]}
    """
    spec = JoinSpec.of(on, how, window, order_by, group_by=group_by, aggs=aggs, options=options)
    return run_call(left, right, spec)


@overload
def self_join_agg(
    df: Frame,
    on: On,
    *,
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | None = None,
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def self_join_agg(
    df: ArrowInput,
    on: On,
    *,
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | None = None,
    **options: Unpack[JoinOptions],
) -> pa.Table: ...


@public(SMALLER)
def self_join_agg(
    df: Any,
    on: On,
    *,
    group_by: Groups = (),
    aggs: Mapping[str, str],
    window: Window | None = None,
    order_by: str | None = None,
    **options: Unpack[JoinOptions],
) -> Any:
    """Counts, sums, averages and extremes over the matches of a `self_join`, by group.

    Gives what `self_join` and then grouping would give: each pair of rows in both roles, no row
    with itself. Costs what `join_agg` of the table with itself costs; under a `CountWindow` that
    the table does not fit into, one more order of rows decides, their arrival.

    Args:
        df: the table, as for `join`.
        on: the condition, as for `self_join`.
        group_by: as for `join_agg`.
        aggs: as for `join_agg`.
        window: which pairs are looked at, as for `join`.
        order_by: the column that orders the rows for a `CountWindow`.
        **options: as for `join`.

    Returns:
        A row for each group, or one row, as the table's kind.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trips = pa.table({"km": [3, 5, 9], "fare": [12, 9, 20]})
    >>> aggs = {"n": "count(*)", "least": "min(r.fare)"}
    >>> tj.self_join_agg(trips, "l.km >= r.km", group_by="l.km", aggs=aggs).to_pydict()
    {'km': [5, 9], 'n': [1, 2], 'least': [12, 9]}
    """
    spec = JoinSpec.of(
        on,
        window=window,
        order_by=order_by,
        self_join=True,
        group_by=group_by,
        aggs=aggs,
        options=options,
    )
    return run_call(df, df, spec)


@overload
def nearest(
    left: Frame,
    right: Input,
    *,
    key: str | tuple[str, str],
    by: Any = (),
    on: On | None = None,
    direction: Direction = "backward",
    tolerance: Any = None,
    k: int = 1,
    ties: Ties | None = None,
    order_by: str | None = None,
    how: HowName = "left",
    group_by: Groups = (),
    aggs: Mapping[str, str] | None = None,
    window: Window | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> Frame: ...


@overload
def nearest(
    left: ArrowInput,
    right: Input,
    *,
    key: str | tuple[str, str],
    by: Any = (),
    on: On | None = None,
    direction: Direction = "backward",
    tolerance: Any = None,
    k: int = 1,
    ties: Ties | None = None,
    order_by: str | None = None,
    how: HowName = "left",
    group_by: Groups = (),
    aggs: Mapping[str, str] | None = None,
    window: Window | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> pa.Table: ...


@public("take fewer left rows at a time")
def nearest(
    left: Any,
    right: Input,
    *,
    key: str | tuple[str, str],
    by: Any = (),
    on: On | None = None,
    direction: Direction = "backward",
    tolerance: Any = None,
    k: int = 1,
    ties: Ties | None = None,
    order_by: str | None = None,
    how: HowName = "left",
    group_by: Groups = (),
    aggs: Mapping[str, str] | None = None,
    window: Window | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    **options: Unpack[JoinOptions],
) -> Any:
    """For each left row the right row whose `key` is nearest: an as-of join, and more.

    Costs a sort of both sides. On a stream the key is the window's time, and a left row comes out
    once the watermark shows that no nearer row can come.

    Args:
        left: the left table, as for `join`.
        right: the right table.
        key: the column whose values are near each other, or one per side.
        by: columns that must be equal.
        on: any further condition, as for `join`.
        direction: "backward" looks at right keys up to the left one's, "forward" from it on,
            "nearest" at both.
        tolerance: the largest distance that counts.
        k: how many right rows to take.
        ties: of right rows at equal distance the "first" or the "last", by `order_by` or as they
            come, or "all". None does as pandas does: the last for "backward", the first for
            "forward"; for "nearest" one at or below the left key, the last of them,
            before one above it.
        order_by: the right column that decides between them.
        how: "left" keeps left rows without a match; or "inner", "semi", "anti".
        group_by: groups of the matches, as for `join_agg`.
        aggs: aggregates over the matches, as for `join_agg`; then rows are not listed.
        window: which pairs are looked at; a stream needs a `TimeWindow` on its key.
        suffix: for right columns whose name is taken.
        indicator: the name of a column that says "both" or "left_only".
        **options: as for `join`.

    Returns:
        The left columns, then the right ones, as the left table's kind.

    >>> import thetajoin as tj, pyarrow as pa
    >>> trades = pa.table({"ts": [5, 9], "symbol": ["A", "A"]})
    >>> quotes = pa.table({"ts": [1, 4, 8], "symbol": ["A", "A", "B"], "bid": [10, 11, 20]})
    >>> tj.nearest(trades, quotes, key="ts", by="symbol").to_pydict()["bid"]
    [11, 11]
    >>> aggs = {"n": "count(*)", "mean": "avg(r.bid)"}
    >>> tj.nearest(trades, quotes, key="ts", k=2, group_by="l.ts", aggs=aggs).to_pydict()
    {'ts': [5, 9], 'n': [2, 2], 'mean': [10.5, 15.5]}
    """
    spec = JoinSpec.of(
        nearest_condition(by, on),
        how,
        window,
        None,
        suffix,
        nearest=Nearest.of(key, direction, tolerance, k, ties, order_by),
        group_by=group_by,
        aggs=aggs,
        indicator=indicator,
        options=options,
    )
    return run_call(left, right, spec)


@public(SMALLER)
def explain(
    left: Any,
    right: Input,
    on: On,
    *,
    how: HowName = "inner",
    window: Window | None = None,
    order_by: str | tuple[str, str] | None = None,
    suffix: str = "_right",
    indicator: str | None = None,
    group_by: Groups = (),
    aggs: Mapping[str, str] | None = None,
    **options: Unpack[JoinOptions],
) -> Plan | AggPlan:
    """How `join` would go about it: conditions, keys, what drives, and estimated sizes.

    With `aggs`, how `join_agg` would. Costs the join of two samples of a few thousand rows. Of
    Spark DataFrames only the columns are looked at, and nothing is estimated but which engine joins
    two tables: where an equality leaves a choice, a few thousand rows of both are read for that.

    Args:
        left: the left table, as for `join`.
        right: the right table.
        on: the condition, as for `join`.
        how: the kind of join.
        window: which pairs are looked at.
        order_by: the order of the rows for a `CountWindow`.
        suffix: for right columns whose name is taken.
        indicator: the name of a column that says which sides a row comes from.
        group_by: groups, as for `join_agg`.
        aggs: aggregates, as for `join_agg`.
        **options: as for `join`.

    Returns:
        A plan that can be printed, and whose parts can be read: ``plan.estimated_pairs``.

    >>> import thetajoin as tj, pyarrow as pa
    >>> here = pa.table({"a": [1.0, 2.0]})
    >>> tj.explain(here, here, "l.a < r.a").parts[0].kernel
    'ranges'
    """
    spec = JoinSpec.of(
        on,
        how,
        window,
        order_by,
        suffix,
        group_by=group_by,
        aggs=aggs,
        options=options,
        indicator=indicator,
    )
    return explain_call(left, right, spec)
