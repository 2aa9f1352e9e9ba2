"""What a call is against two schemas: compiled once, never changed, in three kinds.

A join, a nearest match and totals differ in what they compile, in what they keep of the rows, and
in what they give out. Whoever drives one, over tables, streams, or a table beside a stream, asks
`compile_call` for it and need not know which it is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.engine import tables
from thetajoin.engine.joiner import Joiner
from thetajoin.engine.layout import How, Layout, preserves
from thetajoin.engine.parts import (
    SIDES,
    NearKey,
    Part,
    Side,
    check_columns,
    compare_columns,
    compile_parts,
    time_difference,
)
from thetajoin.engine.rows import (
    Clock,
    KeyedBatch,
    Ordering,
    cast_for_storage,
    check_schema,
    conform,
    make_batch,
    storage_schema,
)
from thetajoin.engine.spec import JoinSpec, Options
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share
from thetajoin.engine.store import SEGMENTS, Store, StoreConfig
from thetajoin.paper_options import AUTO, PO_JOIN, check_suits, load_live_store
from thetajoin.predicate import Comparison, Condition, Difference, compile_condition
from thetajoin.predicate.time_zones import refuse_mixed_columns, refuse_mixed_zones
from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow

# Pairs of rows: for each side a table, and positions in it.
ListedPairs = tuple[
    tuple[pa.RecordBatch, NDArray[np.int32]], tuple[pa.RecordBatch, NDArray[np.int32]]
]


class Beside(Protocol):
    """A table beside a stream, of which nothing is kept."""

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output that a batch of the stream causes."""


class Held(Protocol):
    """One side's rows, held, and the other's as they pass: a task of a distributed join."""

    def run(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The output that a chunk of the other side causes."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What comes out once all chunks have passed."""


class Kind(Protocol):
    """A kind of call, compiled for two schemas."""

    @property
    def join(self) -> CompiledJoin:
        """Its condition, keys and clock."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it gives out."""

    def new_state(self, share: Share | None = None) -> JoinState:
        """An empty state: what two streams, or a unit's share of them, will leave to be kept."""

    def join_tables(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> Generator[pa.RecordBatch, None, None]:
        """The result for two whole tables, in batches of bounded size."""

    def put_beside(self, streaming: Side, table: pa.RecordBatch) -> Beside:
        """Index a table for a stream on the other side to meet."""


def compile_call(spec: JoinSpec, left: pa.Schema, right: pa.Schema) -> Kind:
    """Compile a call of whichever kind; every mistake in it is reported here."""
    if spec.aggs is None:
        return compile_join(spec, left, right)
    from thetajoin.aggregate.totals import TotalsJoin

    return TotalsJoin.of(spec, left, right)


def compile_here(spec: JoinSpec, left: pa.Schema, right: pa.Schema) -> Kind:
    """Compile a call for rows in this process, where no session has a zone for times without one.

    On Spark the session has one, and `spark.meaning` looks at it.
    """
    call = compile_call(spec, left, right)
    call.join.refuse_mixed_zones()
    return call


def compile_join(
    spec: JoinSpec, left: pa.Schema, right: pa.Schema, segments: int = SEGMENTS
) -> CompiledJoin:
    """Compile the join or nearest match of a spec, or the one whose matches it adds up."""
    if spec.nearest is None:
        return CompiledJoin(spec, left, right, segments)
    from thetajoin.engine.nearest_join import NearestJoin

    return NearestJoin(spec, left, right, segments)


class CompiledJoin:
    """A join of two schemas, ready for rows.

    window, options: the spec's, checked, with their defaults. given: the inputs' schemas. schemas:
    those that rows are kept in. parts: the condition's conjunctions as keys and intervals. clock:
    event time under a time window. ordering: of rows inside a micro-batch. near_key: of a nearest
    match.
    """

    near_key: NearKey | None = None

    def __init__(
        self, spec: JoinSpec, left: pa.Schema, right: pa.Schema, segments: int = SEGMENTS
    ) -> None:
        """Compile the condition against both schemas; every mistake in it is reported here.

        segments: how many a window's rows are in, at least.
        """
        self.spec, self._segments = spec, segments
        self.window = FullHistory() if spec.window is None else spec.window
        self.options = Options.parse(spec.options)
        self.given: dict[Side, pa.Schema] = {"l": left, "r": right}
        for side in SIDES:
            check_schema(self.given[side], side)
        self.schemas = {side: storage_schema(self.given[side]) for side in SIDES}
        schemas = self.schemas["l"], self.schemas["r"]
        self.layout = Layout(
            self.given["l"], self.given["r"], spec.how, spec.suffix, spec.indicator
        )
        self.condition = self._compile_condition()
        time = time_difference(self.window, *schemas)
        self.clock = None if time is None else self._set_clock(time)
        self.parts = self._compile_parts(time)
        self.layout = self.layout.with_alike(self.parts, *schemas)
        self.ordering = Ordering(self._order_columns())
        options = self.options
        shapes = [part.views[side].shape for part in self.parts for side in SIDES]
        check_suits(options.index, shapes, self.condition.sql)
        self.joiner = Joiner(
            self.parts, self.layout, options.chunk_rows, options.workers, spec.how != "inner"
        )

    def _compile_condition(self) -> Condition:
        return compile_condition(self.spec.on, self.schemas["l"], self.schemas["r"])

    def _set_clock(self, time: Difference) -> Clock:
        return Clock.of(time)

    def _compile_parts(self, time: Difference | None) -> tuple[Part, ...]:
        return compile_parts(self.condition, time)

    @property
    def join(self) -> CompiledJoin:
        """The join itself, as for every kind of call."""
        return self

    @property
    def schema(self) -> pa.Schema:
        """The output's columns."""
        return self.layout.schema

    def new_state(self, share: Share | None = None) -> JoinState:
        """The empty state of a join of streams, or of one unit's share of it."""
        return JoinState(self, share)

    def join_tables(
        self, left: pa.RecordBatch, right: pa.RecordBatch
    ) -> Generator[pa.RecordBatch, None, None]:
        """The result for two whole tables, in batches of bounded size."""
        yield from tables.join_tables(self, left, right)

    def put_beside(self, streaming: Side, table: pa.RecordBatch) -> Beside:
        """Index a table for a stream on the other side to meet."""
        return tables.StaticJoin(self, streaming, table)

    def list_few(self, left: pa.RecordBatch, right: pa.RecordBatch) -> ListedPairs | None:
        """All matches of two tables, for a kind that has at most a few for each row."""
        return None

    def hold(
        self,
        held: Side,
        rows: pa.RecordBatch,
        *,
        pairs: bool = True,
        singles: tables.Singles = "none",
    ) -> Held:
        """Hold one side's rows while the other side's pass."""
        return tables.HeldJoin(self, held, rows, pairs=pairs, singles=singles)

    def spec_with_text(self) -> JoinSpec:
        """The spec with the condition as text, as a snapshot holds it."""
        on = None if self.spec.on is None else self.condition.sql
        return replace(self.spec, on=on)

    def refuse_mixed_zones(self) -> None:
        """Refuse to compare timestamps with a zone with some without."""
        refuse_mixed_zones(self.condition.given)
        schemas = self.schemas["l"], self.schemas["r"]
        if isinstance(self.window, TimeWindow):
            names = self.window.left_time, self.window.right_time
            refuse_mixed_columns("the window's time", compare_columns(*names, *schemas))
        if self.spec.order_by is not None:
            refuse_mixed_columns("order_by", compare_columns(*self.spec.order_by, *schemas))
        if self.spec.nearest is not None:
            refuse_mixed_columns("key", compare_columns(*self.spec.nearest.key, *schemas))

    def _order_columns(self) -> Comparison | None:
        names = self.spec.order_by
        if names is None:
            return None
        schemas = self.schemas["l"], self.schemas["r"]
        check_columns("order_by", names, *schemas)
        return compare_columns(*names, *schemas)

    @property
    def is_ordered(self) -> bool:
        """Whether it matters which of two rows came first."""
        return isinstance(self.window, CountWindow) or self.spec.self_join

    @property
    def keeps(self) -> How:
        """The kind of join as far as it decides whose rows must be in one place, with marks."""
        return self.spec.how

    @property
    def keeps_head(self) -> bool:
        """Whether the newest rows may lie unsorted."""
        return True

    def is_probed(self, side: Side) -> bool:
        """Whether a side's stored rows are ever looked for."""
        return True

    def gives_unmatched(self, side: Side) -> bool:
        """Whether unmatched rows of a side come out."""
        return self.spec.how != "semi" and preserves(self.spec.how, side)

    def list_needed(self, side: Side) -> list[str]:
        """Columns of a side that keys, filters and checks of pairs are made from."""
        exprs = [key.expr for part in self.parts for key in part.keys[side]]
        exprs += [e for part in self.parts for e in (part.residual, part.filters[side]) if e]
        used = {name for expr in exprs for name in expr.columns(side)}
        return [name for name in self.schemas[side].names if name in used]

    def list_named(self, side: Side) -> set[str]:
        """Columns of a side that the condition and the order name, decisive or not."""
        names = {*self.condition.given.columns(side), *self.list_needed(side)}
        if self.spec.order_by is not None:
            names.add(self.spec.order_by[SIDES.index(side)])
        return names

    def list_kept(self, side: Side) -> list[str]:
        """Columns to keep of a side's rows: those of the output, and what is needed."""
        if side == "l" or not self.layout.only_left:
            return list(self.schemas[side].names)
        return self.list_needed(side)

    def give_rest(
        self, side: Side, table: pa.RecordBatch, matched: NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one side that come out alone once all matches are known."""
        rows = np.flatnonzero(matched if self.spec.how == "semi" else ~matched)
        return self.give_alone(side, table, rows)

    def give_alone(
        self, side: Side, table: pa.RecordBatch, rows: NDArray[np.integer[Any]]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one side as the join gives them out alone, in chunks."""
        step = self.options.chunk_rows
        for start in range(0, len(rows), step):
            yield self.layout.single(side, table, rows[start : start + step].astype(np.int32))

    def take_in(self, rows: pa.RecordBatch, side: Side) -> pa.RecordBatch:
        """A user's rows, checked, in the types they are kept in."""
        return cast_for_storage(conform(rows, self.given[side], side), self.schemas[side])

    def key_rows(self, rows: pa.RecordBatch, side: Side) -> KeyedBatch:
        """A user's rows with their keys, all columns kept."""
        return make_batch(self.take_in(rows, side), side, self.parts, self.schemas[side].names)

    def times(self, rows: pa.RecordBatch, side: Side) -> Int64 | None:
        """The rows' event times under a time window."""
        return None if self.clock is None else self.clock.times(rows, side)[0]

    def new_store(
        self, side: Side, index: str | None = None, parameters: Mapping[str, Any] | None = None
    ) -> Store:
        """An empty store for one side's rows, under the join's index or the one given."""
        window, options = self.window, self.options
        if index is None:
            index, parameters = options.index, options.index_options
        config = StoreConfig(
            head_rows=options.head_rows if self.keeps_head else 0,
            background=options.merge == "background",
            bounded=not isinstance(window, FullHistory),
            preserved=preserves(self.keeps, side),
            indexed=self.is_probed(side),
            segments=self._segments,
            index=index,
            index_options=tuple(sorted((parameters or {}).items())),
            window_rows=window.size if isinstance(window, CountWindow) else None,
        )
        kind = Store if index in (PO_JOIN, AUTO) else load_live_store()
        return kind(side, self.parts, config)
