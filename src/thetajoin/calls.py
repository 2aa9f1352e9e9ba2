"""Carrying a call out: by Spark for its DataFrames, in this process for every other table.

What a plain join does not need is imported where it is used: it would take longer than the join.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa

from thetajoin.batch.tables import Kind, from_table, kind_of, no_table
from thetajoin.engine.compiled import CompiledJoin
from thetajoin.engine.intake import all_taken_in, taken_in
from thetajoin.engine.memory import Size, fitting
from thetajoin.engine.nearest_state import nearest_of_tables
from thetajoin.engine.one_shot import join_tables
from thetajoin.engine.serial import SerialIterator
from thetajoin.engine.spec import JoinSpec
from thetajoin.errors import enough_memory
from thetajoin.kernels.jit import few_rows

SMALLER = "take the result in pieces with join_batches, or aggregate it with join_agg"


def is_spark(table: Any) -> bool:
    """Whether a table is a Spark DataFrame, classic or Connect, without importing pyspark."""
    kind = type(table)
    return kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.")


def joined(left: Any, right: Any, spec: JoinSpec) -> Any:
    """What a call without aggregates gives, of the left table's kind."""
    if is_spark(left) or is_spark(right):
        from thetajoin.spark.frames import join_frames

        return join_frames(left, right, spec)
    kind = _kind(left, spec)
    compiled, batches = _prepare(left, right, spec, kind)
    found = _run(compiled, batches)
    if compiled.options.check_memory:
        # Another library's table is made while Arrow's is still there.
        copies = 1 if kind == "arrow" else 2
        advice = f"{SMALLER}, or go ahead with check_memory=False"
        large = partial(_too_large, spec, compiled, *batches)
        found = fitting(found, advice, copies=copies, too_large=large)
    return from_table(compiled.layout.table(list(found)), kind)


def open_join(left: Any, right: Any, spec: JoinSpec) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a join's result, and its rows as `join_batches` gives them."""
    compiled, batches = _prepare(left, right, spec)
    return compiled.layout.schema, SerialIterator(_in_pieces(_run(compiled, batches)))


def more_pairs_than(left: Any, right: Any, spec: JoinSpec, most: float) -> Size | None:
    """How many rows a join has, if there are more than `most` and that can be told beforehand."""
    compiled, batches = _prepare(left, right, spec)
    return _too_large(spec, compiled, *batches, most)


def _too_large(*given: Any) -> Size | None:
    from thetajoin.planner.size import too_large

    return too_large(*given)


def aggregated(left: Any, right: Any, spec: JoinSpec) -> Any:
    """What a call with aggregates gives, of the left table's kind."""
    if is_spark(left) or is_spark(right):
        from thetajoin.spark.aggregate import aggregate_frames

        return aggregate_frames(left, right, spec)
    from thetajoin.aggregate.run import TotalsJoin
    from thetajoin.aggregate.state import result

    kind = _kind(left, spec)
    batches = both_taken_in(left, right, spec, kind)
    query = TotalsJoin.of(spec, *(batch.schema for batch in batches))
    needed = [
        batch.select(schema.names)
        for batch, schema in zip(batches, (query.left_schema, query.right_schema), strict=True)
    ]
    return from_table(result(query.totals(*needed)), kind)


def _kind(table: Any, spec: JoinSpec) -> Kind:
    kind = kind_of(table)
    if kind is None:
        raise no_table(table, "joined" if spec.self_join else "left")
    return kind


def both_taken_in(
    left: Any, right: Any, spec: JoinSpec, kind: Kind | None = None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Both tables as record batches; a table that is given for both sides is read once."""
    if spec.self_join:
        batch = taken_in(left, "joined", as_kind=kind)
        return batch, batch
    batches = all_taken_in({"left": left, "right": right}, as_kind=kind)
    return batches["left"], batches["right"]


def _prepare(
    left: Any, right: Any, spec: JoinSpec, kind: Kind | None = None
) -> tuple[CompiledJoin, tuple[pa.RecordBatch, pa.RecordBatch]]:
    batches = both_taken_in(left, right, spec, kind)
    return CompiledJoin(spec, *(batch.schema for batch in batches)), batches


def _run(
    compiled: CompiledJoin, batches: tuple[pa.RecordBatch, pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, None]:
    rows = sum(batch.num_rows for batch in batches)
    if compiled.near_key is not None:
        with few_rows(rows):
            nearest = nearest_of_tables(compiled, *batches)
        yield from nearest
        return
    with closing(join_tables(compiled, *batches)) as found:
        while True:
            with few_rows(rows):
                batch = next(found, None)
            if batch is None:
                return
            yield batch


def _in_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with enough_memory("choose a smaller chunk_rows, or join a part of the rows at a time"):
        yield from batches
