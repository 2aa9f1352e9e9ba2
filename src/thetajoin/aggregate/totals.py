"""Totals of a join's matches as a kind of call: of tables, of streams, of a stream and a table."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.aggregate.columns import group_rows
from thetajoin.aggregate.rows import total_pairs
from thetajoin.aggregate.run import Aggregator
from thetajoin.aggregate.spec import AggSpec, parse_aggregates
from thetajoin.aggregate.state import State, merge, result
from thetajoin.batch.keys import Int64
from thetajoin.engine.compiled import CompiledJoin, compile_join
from thetajoin.engine.parts import SIDES, Side
from thetajoin.engine.rows import conform, storage_schema
from thetajoin.engine.spec import JoinSpec, Options
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share, Step
from thetajoin.engine.tables import StaticJoin
from thetajoin.errors import OptionError, SnapshotError
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.predicate import condition_text

# Segments a window's rows are in, at least: totals of a large one cost little more than of a small.
# Units on Spark have more, because what they merge they must also write to files again.
SEGMENTS = 2


@dataclass(frozen=True)
class TotalsJoin:
    """Totals of a join's matches, of two schemas with no more columns than they need.

    given: the inputs' schemas, where they have more columns.
    """

    spec: JoinSpec
    left_schema: pa.Schema
    right_schema: pa.Schema
    given: tuple[pa.Schema, pa.Schema] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker, which compiles the query itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, spec: JoinSpec, left: pa.Schema, right: pa.Schema) -> TotalsJoin:
        """The totals of a call over two schemas, without the columns that it can spare."""
        index = Options.parse(spec.options).index
        if index not in (AUTO, PO_JOIN):
            raise OptionError(
                f"index={index!r}: aggregates are answered by {PO_JOIN} segments only"
            )
        groups = spec.group_by
        spec = replace(
            spec,
            on=None if spec.on is None else condition_text(spec.on),
            group_by=dict(groups) if isinstance(groups, dict) else groups,
            options={**spec.options, "index": PO_JOIN},
        )
        return cls(spec, left, right).prune()

    @cached_property
    def aggregates(self) -> AggSpec:
        """Groups and aggregates, checked."""
        schemas = (storage_schema(s) for s in (self.left_schema, self.right_schema))
        found = parse_aggregates(self.spec.group_by, self.spec.aggs, *schemas)
        return found.with_left_groups() if self.spec.how == "left" else found

    def prune(self) -> TotalsJoin:
        """The same over the columns that matter; every mistake is reported here.

        Both sides of a self-join are the same rows, so they keep the same columns.
        """
        aggregates, join = self.aggregates, self.join
        needed = {side: join.list_named(side) | aggregates.columns(side) for side in SIDES}
        if self.spec.self_join:
            needed = dict.fromkeys(SIDES, needed["l"] | needed["r"])
        schemas = [
            pa.schema([field for field in join.given[side] if field.name in needed[side]])
            for side in SIDES
        ]
        if schemas == [self.left_schema, self.right_schema]:
            return self
        given = self.left_schema, self.right_schema
        return replace(self, left_schema=schemas[0], right_schema=schemas[1], given=given)

    @cached_property
    def join(self) -> CompiledJoin:
        """The join, which lists no pairs; so its output's names do not matter."""
        names = {*self.left_schema.names, *self.right_schema.names}
        suffix = "_right"
        while any(name + suffix in names for name in names):
            suffix += "_"
        plain = replace(self.spec, how="inner", suffix=suffix, group_by=(), aggs=None)
        return compile_join(plain, self.left_schema, self.right_schema, SEGMENTS)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self.aggregates.schema

    def take_in(self, rows: pa.RecordBatch, side: Side) -> pa.RecordBatch:
        """A user's rows, checked, without the columns that can be spared."""
        schema = self.left_schema if side == "l" else self.right_schema
        given = schema if self.given is None else self.given[SIDES.index(side)]
        return conform(rows, given, side).select(schema.names)

    def new_state(self, share: Share | None = None) -> TotalsState:
        """The empty state of two streams and their totals."""
        return TotalsState(self, share)

    def join_tables(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> Generator[pa.RecordBatch, None, None]:
        """The totals of two whole tables' matches, all of them together."""
        found = self.totals(self.take_in(left, "l"), self.take_in(right, "r"))
        yield from result(found).to_batches()

    def put_beside(self, streaming: Side, table: pa.RecordBatch) -> TotalsBeside:
        """Index a table for a stream on the other side to meet."""
        return TotalsBeside(self, streaming, table)

    def totals(self, left: pa.RecordBatch, right: pa.RecordBatch) -> State:
        """The totals of two tables' matches."""
        listed = self.join.list_few(left, right)
        if listed is not None:
            return total_pairs(self.aggregates, *listed)
        return self.aggregator().run(left, right)

    def aggregator(self) -> Aggregator:
        """Ready for rows of these schemas."""
        return Aggregator(self.join, self.aggregates)


class TotalsBeside:
    """The totals of each batch of a stream with a table."""

    def __init__(self, totals: TotalsJoin, streaming: Side, table: pa.RecordBatch) -> None:
        self._aggregator = totals.aggregator()
        self._static = StaticJoin(totals.join, streaming, table)

    def add_up(self, rows: pa.RecordBatch) -> State:
        """What a batch of the stream adds."""
        return self._aggregator.add_up(self._static.meet(rows))

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The totals of a batch of the stream."""
        yield from result(self.add_up(rows)).to_batches()


class TotalsState(JoinState):
    """Rows of both sides, and the totals of their matches so far.

    totals, changed: of all groups, and of what was added since totals were last given out. Neither
    value changes; another takes its place.
    """

    def __init__(self, query: TotalsJoin, share: Share | None = None) -> None:
        super().__init__(query.join, share)
        self._query, self._aggregator = query, query.aggregator()
        self.totals = self.changed = State.nothing(query.aggregates)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the totals."""
        return self._query.schema

    @property
    def spec(self) -> JoinSpec:
        """What is asked for, as a snapshot holds it."""
        return self._query.spec

    def begin(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, *, last: bool = False
    ) -> Step:
        """Take new rows in, without storing them."""
        needed = [
            None if rows is None else self._query.take_in(rows, side)
            for side, rows in zip(SIDES, (left, right), strict=True)
        ]
        return super().begin(*needed, last=last)

    def carry_out(self, step: Step) -> Iterator[pa.RecordBatch]:
        """Add a step's matches to the totals, and store its rows; gives nothing yet."""
        change = self._aggregator.totals(step)
        change = change.take(_news(self.totals, change))
        totals = merge([self.totals, change])
        changed = merge([self.changed, change])
        yield from self.commit(step, pairs=int(change.pairs.sum()))
        self.totals, self.changed = totals, changed

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Have all groups given out: nothing more will come."""
        self.changed = self.totals
        return iter(())

    def give_out(self, output: list[pa.RecordBatch]) -> pa.Table:
        """The totals so far of the groups that have changed since they were last given out."""
        table = result(_with_groups_of(self.totals, self.changed))
        self.changed = State.nothing(self._query.aggregates)
        return table

    def list_owed(self, pending: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """What a snapshot holds beside the rows: the totals."""
        return [self.totals.to_batch()]

    def restore_owed(self, saved: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Take the totals that `list_owed` gave; refuses what cannot be totals."""
        if len(saved) != 1 or not saved[0].schema.equals(self.totals.to_batch().schema):
            raise SnapshotError("the snapshot's totals have other columns than the query's")
        if not self._query.aggregates.groups and saved[0].num_rows != 1:
            raise SnapshotError(f"totals without groups are one row, not {saved[0].num_rows}")
        self.totals = State.from_batch(self._query.aggregates, saved[0])
        return []


def _news(state: State, change: State) -> Int64:
    """The groups of a change that have pairs, or are kept without any and were not there before."""
    news = change.pairs > 0
    if not change.keys:
        return np.arange(change.size)
    if change.spec.keeps_left:
        news |= ~_among(change, state)
    return np.flatnonzero(news)


def _among(some: State, state: State) -> NDArray[np.bool_]:
    """Which groups of one state are groups of another."""
    keys = [pa.concat_arrays(both) for both in zip(some.keys, state.keys, strict=True)]
    codes = group_rows(keys, some.size + state.size).codes
    return np.isin(codes[: some.size], codes[some.size :])


def _with_groups_of(state: State, change: State) -> State:
    """The totals of the groups that a change has."""
    if not change.keys:
        return state
    return state.take(np.flatnonzero(_among(state, change)))
