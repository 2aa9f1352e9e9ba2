"""What a join is: its condition, keys, columns and clock, compiled once and never changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.batch.keys import Int64
from thetajoin.engine.intake import Clock, Ordering, check_schema, conform, storage_schema, stored
from thetajoin.engine.joiner import Joiner
from thetajoin.engine.layout import How, Layout, preserves
from thetajoin.engine.options import Options
from thetajoin.engine.parts import (
    SIDES,
    Side,
    compare_columns,
    compile_parts,
    time_difference,
)
from thetajoin.engine.rows import KeyedBatch, make_batch
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.store import Store, StoreConfig
from thetajoin.errors import SchemaError
from thetajoin.paper_options import AUTO, PO_JOIN, check_suits, live_store
from thetajoin.predicate import Comparison, compile_condition, no_condition
from thetajoin.window.chain import SEGMENTS
from thetajoin.window.windows import CountWindow, FullHistory


class CompiledJoin:
    """A join of two schemas, ready for rows.

    spec: what it is. window, options: the spec's, as they are checked and with what goes for none.
    given: the inputs' schemas. schemas: those that rows are kept in. parts: the condition's
    conjunctions as keys and intervals. clock: event time under a time window. ordering: of rows
    inside a micro-batch.
    """

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
        self.near_key = None if spec.nearest is None else spec.nearest.near_key(*schemas)
        if spec.on is None and self.near_key is not None:
            self.condition = no_condition()
        else:
            self.condition = compile_condition(spec.on, *schemas)
        time = time_difference(self.window, *schemas)
        self.clock = None if time is None else Clock.of(time)
        if self.clock is not None and self.near_key is not None:
            reach = self.near_key.reach
            self.clock = self.clock.waiting(None if reach is None else cast(int, reach.high))
        self.parts = compile_parts(self.condition, time, self.near_key)
        self.layout = self.layout.with_alike(self.parts, *schemas)
        self.ordering = Ordering(self._order_columns())
        options = self.options
        shapes = [part.views[side].shape for part in self.parts for side in SIDES]
        check_suits(options.index, shapes, self.condition.sql)
        self.joiner = Joiner(
            self.parts, self.layout, options.chunk_rows, options.workers, spec.how != "inner"
        )

    def spec_with_text(self) -> JoinSpec:
        """The spec with the condition as text, as a snapshot holds it."""
        on = None if self.spec.on is None else self.condition.sql
        return replace(self.spec, on=on)

    def _order_columns(self) -> Comparison | None:
        names = self.spec.order_by
        if names is None:
            return None
        for side, name in zip(SIDES, names, strict=True):
            if name not in self.schemas[side].names:
                raise SchemaError(
                    f"order_by column {name!r} is not in the {'left' if side == 'l' else 'right'} "
                    f"input; it has {', '.join(self.schemas[side].names)}"
                )
        return compare_columns(*names, self.schemas["l"], self.schemas["r"])

    @property
    def is_ordered(self) -> bool:
        """Whether it matters which of two rows came first."""
        return isinstance(self.window, CountWindow) or self.spec.self_join

    @property
    def keeps(self) -> How:
        """The kind of join as far as it decides whose rows must be in one place, with marks.

        A left row of a nearest match waits until it is known what it is nearest to.
        """
        return self.spec.how if self.near_key is None else "left"

    def gives_unmatched(self, side: Side) -> bool:
        """Whether rows of a side come out where they match nothing."""
        return self.spec.how != "semi" and preserves(self.spec.how, side)

    def needed(self, side: Side) -> list[str]:
        """Columns of a side that keys, filters and checks of pairs are made from."""
        exprs = [key.expr for part in self.parts for key in part.keys[side]]
        exprs += [e for part in self.parts for e in (part.residual, part.filters[side]) if e]
        used = {name for expr in exprs for name in expr.columns(side)}
        return [name for name in self.schemas[side].names if name in used]

    def kept(self, side: Side) -> list[str]:
        """Columns to keep of a side's rows: those of the output, and what is needed."""
        if side == "l" or not self.layout.only_left:
            return list(self.schemas[side].names)
        return self.needed(side)

    def give_alone(
        self, side: Side, table: pa.RecordBatch, rows: NDArray[np.integer[Any]]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one side as the join gives them out alone, in chunks."""
        step = self.options.chunk_rows
        for start in range(0, len(rows), step):
            yield self.layout.single(side, table, rows[start : start + step].astype(np.int32))

    def taken_in(self, rows: pa.RecordBatch, side: Side) -> pa.RecordBatch:
        """A user's rows, checked, in the types they are kept in."""
        return stored(conform(rows, self.given[side], side), self.schemas[side])

    def keyed(self, rows: pa.RecordBatch, side: Side) -> KeyedBatch:
        """A user's rows with their keys, all columns kept."""
        return make_batch(self.taken_in(rows, side), side, self.parts, self.schemas[side].names)

    def times(self, rows: pa.RecordBatch, side: Side) -> Int64 | None:
        """The rows' event times under a time window."""
        return None if self.clock is None else self.clock.times(rows, side)[0]

    def new_store(
        self, side: Side, index: str | None = None, parameters: Mapping[str, Any] | None = None
    ) -> Store:
        """An empty store for one side's rows, under the index asked for or another."""
        window, options = self.window, self.options
        if index is None:
            index, parameters = options.index, options.index_options
        config = StoreConfig(
            head_rows=options.head_rows if self.near_key is None else 0,
            background=options.merge == "background",
            bounded=not isinstance(window, FullHistory),
            preserved=preserves(self.keeps, side),
            indexed=self.near_key is None or side == "r",
            segments=self._segments,
            index=index,
            index_options=tuple(sorted((parameters or {}).items())),
            window_rows=window.size if isinstance(window, CountWindow) else None,
        )
        kind = Store if index in (PO_JOIN, AUTO) else live_store()
        return kind(side, self.parts, config)
